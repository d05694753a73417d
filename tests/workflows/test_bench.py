"""rooftop bench against servers of known behaviour: levels, exit codes, secrets."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.progress import Progress, silent
from rooftop.domain.workload import Arrivals, Stop
from rooftop.errors import EngineDied, Interrupted
from rooftop.load.script import Script
from rooftop.load.truth import Truth
from rooftop.store import Store
from rooftop.workflows.bench import Bench, bench, workloads
from tests.commands import Done, rooftop
from tests.load.tiny import Tiny, serving
from tests.workflows import fakes

SMALL = ("--input-tokens", "8", "--output-tokens", "6", "--requests", "3")
KEY = "sk-3f9d0c2b7a"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def truth(**script: object) -> Iterator[Truth]:
    with Truth(Script(**script)) as server:  # type: ignore[arg-type]
        yield server


def measure(url: str, *words: object) -> Done:
    return rooftop("bench", url, *SMALL, *words)


def test_levels_and_repeats_interleave_and_are_stored() -> None:
    with truth() as server:
        done = measure(server.url, "--concurrency", "1,2", "--repeats", "2", "--json")
    assert (done.code, done.err) == (0, "")
    said = done.json
    assert said["schema"] == 1
    assert [(one["level"], one["repeat"]) for one in said["trials"]] == [("1", 0), ("2", 0), ("1", 1), ("2", 1)]
    with Store.open("rooftop.sqlite", read_only=True) as store:
        stored = list(store.trials())
        assert [trial.id for trial in stored] == [one["id"] for one in said["trials"]]
    assert all(len(trial.replies) == one["requests"] == 3 for trial, one in zip(stored, said["trials"], strict=True))
    assert all(reply.output_tokens == 6 for trial in stored for reply in trial.replies)
    assert list(Path("rooftop.sqlite-spool").iterdir()) == []


def test_the_json_has_every_field_of_its_schema() -> None:
    with truth() as server:
        (trial,) = measure(server.url, "--json").json["trials"]
    assert set(trial) == {"id", "origin", "model", "level", "repeat", "started_at", "measured_s", "valid", "workload",
                          "requests", "measurements", "client", "surroundings", "claims", "fault", "notes"}
    assert (trial["origin"], trial["model"], trial["valid"], trial["fault"]) == ("measured", "truth", True, None)
    figures = {one["metric"]: one for one in trial["measurements"]}
    assert {"ttft_p50", "tpot_p50", "itl_p50", "e2e_p50", "output_tokens_per_s", "ramp_share"} <= set(figures)
    for one in figures.values():
        assert set(one) >= {"metric", "unit", "value", "interval", "count", "why_not"}
        assert one["value"] is not None or one["why_not"]
    assert trial["client"]["stamps"] in ("kernel", "mixed", "read")


def test_tables_and_a_report() -> None:
    with truth() as server:
        done = measure(server.url, "--report", "page.html")
    assert done.code == 0
    assert "TTFT" in done.out
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


FAILURES = [
    ({"status": 401}, 5, "ServerRefused", "401"),
    ({"model": "other"}, 5, "ServerRefused", "no model 'truth'; it has other"),
    ({"kind": "html"}, 5, "ServerRefused", "web page"),
    ({"kind": "json"}, 5, "ServerRefused", "not what the API promises"),
    ({"cut_after": 1}, 5, "ServerRefused", "broke off"),
    ({"cut_after": 5}, 6, "EngineDied", "the stream ended after 5 chunks without its end"),
    ({"reset_after": 5}, 6, "EngineDied", "reset by peer"),
    ({"done": False, "finish": False}, 6, "EngineDied", "the stream ended after 6 chunks without its end"),
    ({"stall_after": 1}, 5, "ServerUnreachable", "no full answer within 0.6 s"),
    ({"stall_after": 5}, 6, "EngineDied", "silent for 0.1 s"),
]


@pytest.mark.parametrize(("script", "code", "kind", "words"), FAILURES, ids=str)
def test_a_server_that_fails(script: dict[str, object], code: int, kind: str, words: str) -> None:
    with truth(**script) as server:
        url = server.url
        done = measure(url, "--timeout", "0.1", "--model", "truth", "--json")
    error = done.json["error"]
    assert (done.code, error["kind"]) == (code, kind)
    assert words in error["what"]
    assert error["where"].startswith(url)
    assert error["remedy"]
    with Store.open("rooftop.sqlite", read_only=True) as store:
        assert [trial.valid for trial in store.trials()] == [False] * (code == 6)


def test_no_server() -> None:
    done = measure("http://127.0.0.1:9")
    assert done.code == 5
    assert done.out == ""
    assert "nothing listens" in done.err


@pytest.mark.parametrize("words", [
    ("--concurency", "1"), ("--concurrency", "1,x"), ("--concurrency", "0"), ("--requests", "none"), ("--seconds", "0"),
    ("--precision", "2"), ("--api", "soap"), ("--header", "no colon"), ("--input-tokens", "0"),
    ("--shared-prefix", "999"), ("--tokenizer", "/nowhere"), ("--api-key-env", "NO_SUCH_VARIABLE"),
], ids=" ".join)
@pytest.mark.parametrize("as_json", [False, True], ids=["tables", "json"])
def test_a_wrong_flag(words: Sequence[str], as_json: bool) -> None:
    with truth() as server:
        done = rooftop("bench", server.url, *words, *(("--json",) if as_json else ()))
    assert done.code == 2
    told = done.json["error"]["what"] if as_json else done.err
    assert "Traceback" not in done.err
    assert any(word.strip("-").replace("-", "_") in told.replace("-", "_") for word in words)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"])
def test_a_wrong_url(url: str) -> None:
    done = rooftop("bench", url, "--json")
    assert (done.code, done.json["error"]["kind"]) == (2, "BadInput")


def test_no_url() -> None:
    assert rooftop("bench", "--json").json["error"]["what"] == "no URL given"


def test_a_store_that_is_none() -> None:
    Path("rooftop.sqlite").write_bytes(b"not a database, not at all" * 9)
    with truth() as server:
        done = measure(server.url, "--json")
        assert server.log == []
    assert (done.code, done.json["error"]["kind"]) == (7, "StoreFailed")
    assert Path("rooftop.sqlite").read_bytes() == b"not a database, not at all" * 9


def test_a_store_that_is_damaged() -> None:
    with truth() as server:
        measure(server.url)
        data = bytearray(Path("rooftop.sqlite").read_bytes())
        data[4096:] = b"x" * (len(data) - 4096)
        Path("rooftop.sqlite").write_bytes(data)
        done = measure(server.url, "--json")
    assert (done.code, done.json["error"]["kind"]) == (7, "StoreFailed")
    assert "damaged" in done.json["error"]["what"]


def test_a_store_in_a_folder_that_is_none() -> None:
    Path("file").touch()
    with truth() as server:
        done = measure(server.url, "--store", "file/s.sqlite", "--json")
    assert (done.code, done.json["error"]["kind"]) == (7, "StoreFailed")


def command(*words: object, file_bytes: int | None = None, **environment: str) -> "subprocess.Popen[str]":
    """The same in a process of its own, for what touches the whole process."""
    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.Popen((sys.executable, "-m", "rooftop", *map(str, words)), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, preexec_fn=limit, env={**os.environ, **environment})


@pytest.mark.parametrize(("output_tokens", "file_bytes", "words", "stored"), [
    (6, 33_000, "the level just measured is kept in rooftop.sqlite-spool", [True, True, True]),
    (9000, 200_000, "free space there", [True, False, True]),
])
def test_no_space(output_tokens: int, file_bytes: int, words: str, stored: Sequence[bool]) -> None:
    with truth() as server:
        measure(server.url)
        with command("bench", server.url, "--output-tokens", output_tokens, "--input-tokens", 8, "--json",
                     file_bytes=file_bytes) as failed:
            out, err = failed.communicate()
        assert measure(server.url).code == 0
    assert (failed.returncode, err) == (7, "")
    assert json.loads(out)["error"]["kind"] == "StoreFailed"
    assert words in json.loads(out)["error"]["remedy"]
    with Store.open("rooftop.sqlite", read_only=True) as store:
        assert [trial.valid for trial in store.trials()] == stored


def test_a_level_that_was_stopped_is_kept() -> None:
    with truth(itl_s=0.05) as server, Store.open("s.sqlite") as store:
        def stop(step: Progress) -> None:
            if step.stage == "level" and step.detail.endswith("open"):
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(Interrupted, match="stopped"):
            bench(Bench((server.url,), input_tokens=8, output_tokens=8), store=store, tell=stop)
        (trial,) = store.trials()
    assert trial.unfinished


def test_a_killed_load_process() -> None:
    with truth(itl_s=0.05) as server, Store.open("s.sqlite") as store:
        def kill(_: Progress) -> None:
            fakes.kill_load_process()

        with pytest.raises(Interrupted, match="the load process ended with -9"):
            bench(Bench((server.url,), input_tokens=8, output_tokens=8), store=store, tell=kill)


class Turning(Tiny):
    """Takes the key for one more request of eight tokens, the warm-up's, and for none after it."""

    left: int | None = None

    def generate(self, api: str, body: Any) -> tuple[int, str, bytes]:
        if self.left is not None and body["max_tokens"] == 8:
            self.left -= 1
            self.key = self.key if self.left >= 0 else "another"
        return super().generate(api, body)


def test_the_key_is_written_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", KEY)
    tiny = Turning(key=KEY)
    with serving(tiny) as server:
        good = measure(server.url, "--api-key-env", "SECRET", "--report", "page.html", "--json")
        assert good.code == 0
        assert KEY not in good.out + good.err

        tiny.left = 1
        with Store.open("rooftop.sqlite") as store:
            asked = Bench((server.url,), input_tokens=8, output_tokens=8, requests=3, key_env="SECRET")
            with pytest.raises(EngineDied, match=r"bad key Bearer \*\*\*"):
                bench(asked, store=store, tell=silent)
            tiny.key, tiny.left = KEY, 1
            by_header = replace(asked, key_env="", headers=(("authorization", f"Bearer {KEY}"),))
            with pytest.raises(EngineDied, match=r"bad key Bearer \*\*\*"):
                bench(by_header, store=store, tell=silent)
        refused = measure(server.url, "--api-key-env", "SECRET")
        given = measure(server.url, "--header", f"Authorization: Bearer {KEY}")
    assert (refused.code, given.code) == (5, 5)
    assert KEY not in refused.out + refused.err + given.out + given.err
    for path in Path().rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(("asked", "stop"), [
    ({}, Stop(requests=32)), ({"requests": 5}, Stop(requests=5)), ({"seconds": 3.0}, Stop(seconds=3.0)),
    ({"precision": 0.1}, Stop(precision=0.1)), ({"requests": 9, "precision": 0.1}, Stop(requests=9, precision=0.1)),
])
def test_how_a_level_ends(asked: dict[str, float], stop: Stop) -> None:
    (load,) = workloads(Bench((), concurrency=(4,), **asked), "chat")  # type: ignore[arg-type]
    assert (load.stop, load.warmup, load.api) == (stop, 4, "chat")


def test_open_loop_levels() -> None:
    slow, fast = workloads(Bench((), rates=(0.5, 20.0), arrivals="gamma", cv=2.0, ramp_s=1.0), "completions")
    assert slow.arrivals == Arrivals("gamma", 0, 0.5, 2.0, 1.0)
    assert (slow.stop, slow.warmup) == (Stop(requests=16), 1)
    assert (fast.stop, fast.warmup, fast.level) == (Stop(requests=200), 8, "20/s")


@pytest.mark.parametrize(("words", "what"), [
    (("--seconds", "nan"), "--seconds must be from 0.001"), (("--seconds", "inf"), "--seconds must be from"),
    (("--timeout", "nan"), "--timeout must be from"), (("--timeout", "inf"), "--timeout must be from"),
    (("--rate", "inf"), "--rate must be from"), (("--precision", "nan"), "--precision must be from"),
    (("--concurrency", "1,99999999"), "--concurrency must be from 1 to 10000"),
    (("--input-tokens", str(10**20)), "--input-tokens must be from"), (("--seed", str(10**30)), "--seed must be from"),
    (("--report", "nowhere/r.html"), "its folder is not there"), (("--report", "."), "is a directory"),
])
def test_what_no_run_could_take_is_refused_before_a_word_is_sent(words: tuple[str, str], what: str) -> None:
    done = rooftop("bench", "http://127.0.0.1:1", *words, "--json")
    assert done.code == 2
    assert what in done.json["error"]["what"]


def test_a_password_in_a_url_is_never_repeated() -> None:
    done = rooftop("bench", "http://me:hunter2@127.0.0.1:1")
    assert done.code == 2
    assert "hunter2" not in done.out + done.err


def test_a_servers_words_cannot_steer_the_terminal() -> None:
    with serving(Tiny(models=({"id": "a\x1b[2J"}, {"id": "b\u202e"}))) as tiny:
        done = rooftop("bench", tiny.url)
    assert done.code == 2
    assert "several models: a\ufffd[2J, b\ufffd" in done.err


def test_half_a_character_in_a_servers_words_is_shown_escaped() -> None:
    with serving(Tiny(models=({"id": "tiny\ud800", "max_model_len": 2048},))) as tiny:
        good = measure(tiny.url, "--json", "--report", "page.html")
        bad = measure(tiny.url, "--model", "none", "--json")
    assert good.json["trials"][0]["model"] == "tiny\ud800"
    assert "tiny" in Path("page.html").read_text(encoding="utf-8")
    assert "tiny\ud800" in bad.json["error"]["what"]
