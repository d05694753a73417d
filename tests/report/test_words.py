from dataclasses import replace

import pytest

from rooftop.domain.finding import Interval, Measurement
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.matrix import Best
from rooftop.report import words
from tests.report import sample


def figure(value, low=None, high=None, unit="tokens/s", why=""):
    return Measurement("m", unit, value, None if low is None else Interval(low, high), 3, why)


@pytest.mark.parametrize(("one", "text"), [
    (None, "-"), (figure(None, why="too few"), "-"), (figure(389.2), "389 tokens/s"),
    (figure(389.2, 385.0, 392.0), "389 ±4 tokens/s"), (figure(61.23, 60.3, 62.0), "61.2 ±0.9 tokens/s"),
    (figure(0.2123, 0.21, 0.2145, "s"), "212 ±2 ms"), (figure(14.62, 14.4, 14.8, "s"), "14.6 ±0.2 s"),
    (figure(0.084, unit="share"), "8.40 %"), (figure(389.0, 388.8, 389.2), "389 ±0.2 tokens/s"),
    (figure(389.0, 389.0, 389.0), "389 ±0 tokens/s"), (figure(12345.0), "12 345 tokens/s")])
def test_figures_read_as_number_spread_and_unit(one, text):
    assert words.full_text(one) == text


@pytest.mark.parametrize(("value", "text"), [(50.0, "50"), (0.5, "0.5"), (12000.0, "12 000"), (0.0, "0"), (7.0, "7")])
def test_round_numbers_have_no_idle_zeros(value, text):
    assert words.plain(value) == text


@pytest.mark.parametrize(("level", "name"), [("1", "1 user"), ("8", "8 users"), ("2.5/s", "2.5/s")])
def test_levels_in_words(level, name):
    assert words.level_name(level) == name


@pytest.mark.parametrize(("levels", "names"), [
    (["4", "8"], "4, 8 users"), (["1"], "1 user"), (["2/s", "4"], "2/s, 4 users")])
def test_several_levels_in_words(levels, names):
    assert words.level_names(levels) == names


@pytest.mark.parametrize(("gpus", "name"), [
    ((), "Xeon, 2 cores, no GPU"), ((Gpu("H200"),) * 8, "8 x H200"), ((Gpu("A"), Gpu("B"), Gpu("A")), "2 x A + 1 x B")])
def test_a_machine_is_named_by_what_computes(gpus, name):
    assert words.machine_name(Machine("host", "Xeon", 2, 1, gpus)) == name


@pytest.mark.parametrize(("level", "metric", "leaders"), [
    ("1", words.THROUGHPUT, (sample.ONE, sample.EIGHT)), ("8", words.THROUGHPUT, (sample.EIGHT,)),
    ("8", words.TTFT, (sample.EIGHT,)), ("2", words.PER_USER, (sample.ONE,)), ("16", words.TTFT, ())])
def test_leaders_are_those_whose_intervals_reach_the_best(level, metric, leaders):
    assert words.leaders(sample.matrix(), level, metric) == leaders


def test_a_cell_that_is_not_valid_leads_nothing():
    matrix = sample.matrix()
    cells = tuple(replace(cell, valid=cell.setup != sample.EIGHT) for cell in matrix.cells)
    assert sample.EIGHT not in words.leaders(replace(matrix, cells=cells), "8", words.THROUGHPUT)


def test_a_sure_answer_names_its_margin():
    _, throughput = sample.matrix().best
    assert words.answer(throughput) == (
        "Best for throughput", "eight slots at 8 users", "151 ±2 tokens/s in total",
        "36 % (33 to 39 %) ahead of dp 2, one thread each (at 4 users). The spread of 3 repeats allows the claim.")


def test_an_unsure_answer_says_so_first():
    assert words.answer(sample.matrix().best[0])[3].startswith("Not proven: 1 % (-1 to 3 %) ahead of eight slots.")


def test_an_answer_without_a_rival_claims_nothing():
    best = Best("one user", "a", "1", figure(3.0))
    assert words.answer(best)[3] == "Nothing else was measured to hold it against."


def test_scope_names_machine_and_origin():
    simulated = [replace(trial, origin="simulated") for trial in sample.trials()]
    assert "2 cores, no GPU" in words.scope(sample.matrix())
    assert "measured" not in words.scope(sample.matrix())
    assert "Figures are simulated, not measured." in words.scope(sample.matrix(), simulated)


def test_the_clients_proof_names_what_is_wrong():
    trial = sample.trials()[0]
    assert words.client_proof(trial) == "kernel stamps, sent late by 110 us at p99, 12 % of a core"
    few = replace(trial, client=replace(trial.client, streams_open_max=5, merged_share=0.07))
    assert "only 5 of 8 streams were open at once" in words.client_proof(few)
    assert "7.0 % of chunks share a stamp" in words.client_proof(few)
    assert words.client_proof(replace(trial, client=None)) is None


def test_cautions_stand_beside_values_only_and_once():
    found = (figure(1.0, why="few slots busy"), figure(2.0, why="no interval: few slots busy"),
             figure(None, why="needs 300 replies"), figure(3.0, why="few slots busy"))
    assert words.cautions(found) == ("few slots busy",)


def test_chunk_gaps_show_only_where_token_gaps_are_unknown():
    itl, gap = Measurement("itl_p50", "s", 0.01), Measurement("chunk_gap_p50", "s", 0.02)
    assert words.kinds((itl, gap)) == ("itl",)
    assert words.kinds((replace(itl, value=None), gap)) == ("itl", "chunk_gap")


@pytest.mark.parametrize(("text", "shown"), [
    ("2026-03-11T14:02:33.1+00:00", "2026-03-11 14:02 UTC"), ("2026-03-11 14:02", "2026-03-11 14:02"),
    ("2026-03-11T14:02:33+02:00", "2026-03-11 14:02 UTC+02:00"), ("<i>", "<i>"), ("", "")])
def test_moments_are_shown_to_the_minute(text, shown):
    assert words.moment(text) == shown


def test_warnings_that_differ_in_figures_only_are_told_once_by_the_worst():
    trial = sample.trials()[0]
    mild = replace(trial, client=replace(trial.client, warnings=("5 % of chunks merged", "clock moved")))
    worst = replace(trial, client=replace(trial.client, send_late_p99_s=0.5, warnings=("22 % of chunks merged",)))
    assert words.client_warnings([mild, worst, replace(trial, client=None)]) == ("22 % of chunks merged", "clock moved")


def test_a_bench_run_in_a_sentence():
    cells = [cell for cell in sample.matrix().cells if cell.setup == sample.EIGHT]
    assert words.bench_answer(cells) == (
        "At most 151 ±2 tokens/s in total with 8 users; 21.3 ±0.2 tokens/s for each of them; "
        "first token after 781 ±10 ms at the median.")
    assert words.bench_answer(cells[:1]).startswith(
        "60.6 ±0.9 tokens/s in total with 1 user; 64.1 ±0.7 tokens/s for that user;")
    assert words.bench_answer([]) == "Nothing was measured: no request came whole."


@pytest.mark.parametrize(("one", "text"), [
    (figure(0.212, 0.209, 0.215, "s"), "209 to 215"), (figure(14.6, 14.4, 14.8, "s"), "14.4 to 14.8"),
    (figure(1.0), ""), (figure(None), "")])
def test_ranges_are_in_the_unit_of_their_value(one, text):
    assert words.range_text(one) == text
