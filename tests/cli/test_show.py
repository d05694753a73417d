import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.cli import show, show_progress
from rooftop.cli.show_bench import bench_parts, self_test_parts
from rooftop.cli.show_launch import claims_parts, command_line, dry_run_lines, launch_parts
from rooftop.cli.show_matrix import matrix_parts
from rooftop.domain.finding import Measurement
from rooftop.domain.matrix import Cell
from rooftop.domain.progress import Progress
from rooftop.errors import BadInput, LaunchFailed
from rooftop.load.selftest import SelfTest
from rooftop.stats.summary import summarise
from tests.report import sample


@pytest.fixture(params=[80, 120])
def width(request):
    return request.param


def text_of(parts, width):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def flat(text):
    return re.sub(r"\s+", " ", text)


def bench_text(trials, width):
    return text_of(bench_parts(trials, [summarise(trial) for trial in trials]), width)


def test_matrix_tables_fit_and_mark_the_best(width):
    text = text_of(matrix_parts(sample.matrix(), width), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert next(line for line in lines if line.startswith("eight slots ")).split() == [
        "eight", "slots", "~60.6", "±0.9", "*93.4", "±1.4", "*128", "±2", "*151", "±2"]
    assert next(line for line in lines if line.startswith("dp 2")).split()[-1] == "-"


def test_matrix_says_what_was_not_ranked_and_the_answer(width):
    text = flat(text_of(matrix_parts(sample.matrix(), width), width))
    for part in ("did not start: V cache quantization requires flash_attn (during create context)",
                 "do: leave out cache-type-v, or set flash-attn to on", "a server ended during repeat 2",
                 "Best for one user: one slot, 64.8 ±0.7 tokens/s per user. Not proven: 1 % (-1 to 3 %) ahead of",
                 "Best for throughput: eight slots at 8 users, 151 ±2 tokens/s in total. 36 % (33 to 39 %) ahead of",
                 "This ranking is of this machine only (Intel Xeon Gold 6338 @ 2.00 GHz, 2 cores, no GPU)"):
        assert part in text


def test_a_setup_that_did_not_start_is_told_once():
    matrix = sample.matrix()
    void = tuple(Cell(sample.BROKEN, level, valid=False, why_not="not run") for level in matrix.levels)
    text = flat(text_of(matrix_parts(replace(matrix, cells=(*matrix.cells, *void)), 120), 120))
    assert text.count(f"{sample.BROKEN} did not start") == 1
    assert "not run" not in text


def test_many_levels_stack_instead_of_being_cut():
    matrix = sample.matrix()
    levels = tuple(str(2**n) for n in range(12))
    cells = tuple(replace(matrix.cells[0], setup=row.setup, level=level) for row in matrix.rows for level in levels)
    text = text_of(matrix_parts(replace(matrix, levels=levels, cells=cells), 80), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.count("2048 users") == 3
    assert "~61.2 ±0.9" in text


def test_bench_shows_latencies_rates_failures_and_the_clients_proof(width):
    text = bench_text(sample.trials()[2:], width)
    assert max(map(len, text.splitlines())) <= width
    for part in ("4 users: 12 requests in 10.0 s, none failed", "8 users: 24 requests in 12.0 s, 1 failed",
                 "76.8 output tokens/s over the whole run", "client: kernel stamps, sent late by 110 us at p99",
                 "failed: 1 x cut", "note: Prompt lengths are approximate", "All levels"):
        assert part in flat(text)
    row = next(line for line in text.splitlines() if line.startswith("TTFT")).split()
    assert row[:2] == ["TTFT", "140"]


def test_a_figure_that_cannot_be_given_has_a_footnote():
    text = bench_text(sample.trials()[2:3], 80)
    assert re.search(r"^TTFT .* - a +- b$", text, re.MULTILINE)
    assert re.search(r"^a +needs at least \d+ requests, there are 12", text, re.MULTILINE)


def test_a_busy_level_shows_ramp_and_tail():
    trial = sample.trials()[3]
    figures = sample.figures(sample.EIGHT, "8")
    text = flat(text_of(bench_parts([trial], [figures]), 80))
    assert "TTFT 781 ±10 ms" in text
    assert "11 % of the run was ramp (2.1 %) and tail (8.4 %)" in text


def test_requests_that_waited_are_told():
    assert "queue: Requests waited in the server: at 8 users up to 7" in flat(
        bench_text(sample.trials(sample.ONE)[3:], 80))


def test_claims_show_verdict_and_proof(width):
    launch = sample.launch()
    text = text_of((*launch_parts(launch), *claims_parts(launch.claims)), width)
    assert max(map(len, text.splitlines())) <= width
    assert re.search(r"^BROKEN +slots +8 +4 +log:118, built", text, re.MULTILINE)
    assert re.search(r"^unknown +kv.dtype +f16 +- +the engine does not say", text, re.MULTILINE)
    assert "1 holds, 1 broken, 1 unknown" in text
    assert "OMP_NUM_THREADS=2 llama-server -m 'SmolLM2 135M.gguf'" in text
    assert "2.52 s from start to first token" in flat(text)


def test_self_test_tells_error_and_limit(width, capsys):
    test = SelfTest((Measurement("ttft_error_p50", "s", 0.00004), Measurement("ttft_error_p99", "s", 0.0012),
                     Measurement("itl_error_p50", "s", 0.00002), Measurement("itl_error_p99", "s", 0.0004),
                     Measurement("client_tokens_per_s", "tokens/s", 61000.0),
                     Measurement("flood_tokens_per_s", "tokens/s", 83000.0)), "kernel", ("the clock moved",))
    text = flat(text_of(self_test_parts(test), width))
    for part in ("kernel stamps", "TTFT error 40.0 us at p50, 1.20 ms at p99", "ITL error 20.0 us at p50",
                 "61 000 tokens/s taken in by one core of the client", "client: the clock moved"):
        assert part in text
    show.show_self_test(test, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["figures"]) == 6


def test_dry_run_lines_can_be_pasted():
    lines = list(dry_run_lines((("one slot", ("llama-server -np 1",)),), "3 starts, 12 load levels", 125.0, "a guess"))
    assert lines == ["# one slot", "llama-server -np 1", "",
                     "# 3 starts, 12 load levels, about 2 min 5 s (a guess). Nothing was started."]
    assert command_line(("a b", "$x"), (("N", "1 2"),)) == "N='1 2' 'a b' '$x'"


ERROR = BadInput("unknown key 'lod' [bold]", where="study.toml", remedy="did you mean 'load'?")


def test_an_error_is_one_screen_on_stderr(capsys):
    show.show_error(ERROR)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.rstrip() for line in err.splitlines()] == [
        "error: unknown key 'lod' [bold]", "where  study.toml", "do     did you mean 'load'?"]


def test_a_failed_launch_shows_the_end_of_its_log(capsys):
    tail = "\n".join(f"line {number}" for number in range(50)) + "\n" + "x" * 500
    show.show_error(LaunchFailed("it did not start", tail=tail))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 + show.TAIL_LINES
    assert lines[-2] == "  | line 49"
    assert len(lines[-1]) <= 80


def test_an_error_as_json_is_on_stdout(capsys):
    show.show_error(ERROR, as_json=True)
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"] == {"kind": "BadInput", "what": ERROR.what, "where": "study.toml",
                                        "remedy": "did you mean 'load'?"}


def test_json_holds_figures_but_no_replies(capsys):
    trials = sample.trials()[3:]
    show.show_bench(trials, [summarise(trial) for trial in trials], as_json=True)
    (trial,) = json.loads(capsys.readouterr().out)["trials"]
    assert trial["level"] == "8"
    assert trial["requests"] == 24
    assert "replies" not in trial
    assert {one["metric"] for one in trial["measurements"]} >= {"ttft_p50", "output_tokens_per_s"}


@pytest.mark.parametrize(("call", "key"), [
    (lambda: show.show_matrix(sample.matrix(), as_json=True), "rows"),
    (lambda: show.show_launch(sample.launch(), as_json=True), "claims"),
    (lambda: show.show_claims(sample.launch().claims, as_json=True), "claims"),
    (lambda: show.show_path("report", Path("r.html"), as_json=True), "report")])
def test_json_is_all_there_is_on_stdout(call, key, capsys):
    call()
    out = json.loads(capsys.readouterr().out)
    assert out["schema"] == 1
    assert key in out


def test_a_pipe_gets_no_control_codes(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    show.show_matrix(sample.matrix())
    show.show_claims(sample.launch().claims)
    assert "\x1b" not in capsys.readouterr().out


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = show.console()
    assert console.no_color


@pytest.mark.parametrize(("step", "words"), [
    (Progress("probe", "http://h"), "probe: http://h"),
    (Progress("level", "8 users", 3, 9, 40.0), "level: 8 users, 3 of 9, about 40.0 s left"),
    (Progress("level", done=9, total=9, left_s=0.0, last=True), "level, 9 of 9, done")])
def test_progress_in_words(step, words):
    assert show_progress.sentence(step) == words


def test_plain_progress_tells_each_stage_once():
    out = io.StringIO()
    tell = show_progress.plain_lines(out)
    for step in (Progress("launch"), Progress("level", "1"), Progress("level", "2"), Progress("level", last=True)):
        tell(step)
    assert out.getvalue().splitlines() == ["launch", "level: 1", "level, done"]


def test_json_without_a_terminal_is_silent(capsys):
    with show.listening(as_json=True) as tell:
        tell(Progress("launch"))
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_live_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    with show.listening() as tell:
        tell(Progress("level", "8 users [x]", 1, 3, 12.0))
        tell(Progress("level", "8 users", 3, 3, last=True))
    assert "level: 8 users, 3 of 3, done" in out.getvalue()


@pytest.mark.parametrize(("text", "shown"), [
    ("plain, größer 😀\n\ttab", "plain, größer 😀\n\ttab"), ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
    ("\u202egnp", "\ufffdgnp"), ("a\r\x00b", "a\ufffd\ufffdb"), ("\x9b2J", "\ufffd2J"), ("\ud800", "\ufffd"),
])
def test_no_control_character_reaches_a_terminal(text, shown, capsys):
    assert show_progress.visible(text) == shown
    show.show_error(BadInput(text, where=text, remedy=text))
    said = capsys.readouterr().err
    assert not set(said) & {"\x1b", "\x07", "\u202e", "\r", "\x00", "\x9b"}
