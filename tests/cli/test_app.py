"""The command line: help, versions, JSON everywhere, one screen an error, a clean end by signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
import pytest

from rooftop.cli import app
from rooftop.errors import EngineDied, RooftopError, StoreFailed
from rooftop.load.script import Script
from rooftop.load.truth import Truth
from rooftop.store import Store
from rooftop.workflows import bench as workflow
from tests import stored
from tests.commands import rooftop
from tests.workflows import fakes

COMMANDS = sorted(app.rooftop.commands)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.program(tmp_path_factory.mktemp("engine"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_version_and_help() -> None:
    assert rooftop("--version").out == f"rooftop, version {metadata.version('rooftop')}\n"
    assert rooftop("--help").out == rooftop("-h").out
    assert all(f"  {name} " in rooftop("--help").out for name in COMMANDS)
    assert rooftop().code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_flag(name: str) -> None:
    done = rooftop(name, "--help")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 110
    for option in app.rooftop.commands[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.endswith(".")
            assert option.opts[0] in done.out
    assert "--json" in done.out


ERRORS = [
    (("bench", "http://127.0.0.1:9"), 5, "ServerUnreachable"),
    (("bench", "--nonsense"), 2, "BadInput"),
    (("bench",), 2, "BadInput"),
    (("study",), 2, "BadInput"),
    (("study", "nowhere.toml"), 2, "BadInput"),
    (("study", "nowhere"), 2, "BadInput"),
    (("study", "nowhere", "--dry-run"), 2, "BadInput"),
    (("report",), 2, "BadInput"),
    (("report", "--store", "/dev/null"), 7, "StoreFailed"),
    (("fetch", "nothing"), 2, "BadInput"),
    (("fetch", "smollm2-135m", "--from", "nowhere"), 2, "BadInput"),
    (("nonsense",), 2, "BadInput"),
    ((), 2, "BadInput"),
]


@pytest.mark.parametrize(("words", "code", "kind"), ERRORS, ids=str)
def test_errors_in_json_and_in_words(words: tuple[str, ...], code: int, kind: str) -> None:
    done = rooftop(*words, "--json")
    assert done.code == code
    assert set(done.json) == {"schema", "error"}
    assert set(done.json["error"]) == {"kind", "what", "where", "remedy"}
    assert done.json["error"]["kind"] == kind
    told = rooftop(*words)
    assert (told.code, told.out) == (code, "")
    assert told.err
    assert "Traceback" not in told.err
    assert not Path("rooftop-report.html").exists()


def test_a_study_in_tables_and_json(engine: Path, tmp_path: Path) -> None:
    file = fakes.write_study(tmp_path, engine)
    rehearsed = rooftop("study", file, "--dry-run", "--json")
    assert rehearsed.code == 0
    assert not Path("rooftop.sqlite").exists()
    assert (rehearsed.json["starts"], rehearsed.json["levels"]) == (1, 2)
    assert "fake-llama-server" in rooftop("study", file, "--dry-run").out
    done = rooftop("study", file, "--json")
    assert (done.code, done.err) == (0, "")
    assert set(done.json) >= {"schema", "study", "rows", "cells", "best", "levels", "warnings", "conditions"}
    assert [(cell["level"], cell["valid"]) for cell in done.json["cells"]] == [("1", True), ("2", True)]
    assert Path("rooftop-report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    again = rooftop("study", file, "--report", "other.html")
    assert "report: other.html" in again.out
    assert rooftop("report", "--json").json == rooftop("report", "fakes", "--json").json == done.json
    assert rooftop("study", file, "--dry-run", "--json").json["levels"] == 0
    before = Path("rooftop.sqlite").read_bytes()
    unwritable = rooftop("report", "-o", "none/x.html", "--json")
    assert (unwritable.code, unwritable.json["error"]["kind"]) == (2, "BadInput")
    assert Path("rooftop.sqlite").read_bytes() == before
    assert rooftop("report", "other", "--json").json["error"]["remedy"] == "it holds: fakes"


def test_a_report_of_a_store_without_studies() -> None:
    with Store.open("rooftop.sqlite") as store:
        store.add_trial(stored.trial(study=""))
    done = rooftop("report", "--json")
    assert (done.code, done.json["error"]["remedy"]) == (2, "it holds: none")


def test_weights_by_path_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooftop.workflows.fetch.fetch", lambda name, source, tell: tmp_path / name)
    assert rooftop("fetch", "tiny", "--json").json == {"schema": 1, "weights": str(tmp_path / "tiny")}


def test_the_self_test_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from rooftop.load import selftest

    whole = selftest.self_test
    monkeypatch.setattr(selftest, "self_test", lambda tell: whole(tell, users=2, tokens=4))
    said = rooftop("bench", "--self-test", "--json").json
    assert {one["metric"] for one in said["figures"]} >= {"ttft_error_p50", "itl_error_p99", "client_tokens_per_s"}
    assert not Path("rooftop.sqlite").exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_defect_is_told_as_one(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(workflow, "bench", fail)
    done = rooftop("bench", "http://127.0.0.1:9", *(["--json"] if as_json else []))
    assert done.code == 1
    assert "defect of rooftop itself" in done.err
    assert "ZeroDivisionError: oh" in done.err
    assert done.out == "" or done.json["error"]["kind"] == "Defect"


def subclasses(of: type[RooftopError]) -> list[type[RooftopError]]:
    return [one for kind in of.__subclasses__() for one in (kind, *subclasses(kind))]


@pytest.mark.parametrize("kind", subclasses(RooftopError))
def test_every_error_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, kind: type[RooftopError]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("what", where="where", remedy="remedy")

    monkeypatch.setattr(workflow, "bench", fail)
    done = rooftop("bench", "http://127.0.0.1:9", "--json")
    assert (done.code, done.json["error"]) == (
        kind.exit_code, {"kind": kind.__name__, "what": "what", "where": "where", "remedy": "remedy"})


def test_a_reader_that_went_away_is_no_defect() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run((sys.executable, "-m", "rooftop", "--help"), stdout=write, stderr=subprocess.PIPE, text=True,
                          check=False)
    os.close(write)
    assert done.stderr == ""


def started(*words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen((sys.executable, "-m", "rooftop", *map(str, words)), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "error"})


def wait_until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_study_cleanly(engine: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = fakes.write_study(tmp_path, engine, tokens=16, stall_after=9)
    with started("study", file, "--json") as process:
        wait_until(lambda: list(Path("rooftop.sqlite-spool").glob("*/reads.bin")))
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (130, "")
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert fakes.servers(engine) == []
    with Store.open("rooftop.sqlite", read_only=True) as store:
        (trial,) = store.trials()
    assert trial.unfinished
    assert list(Path("rooftop.sqlite-spool").glob("*/")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_start_cleanly(engine: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = fakes.write_study(tmp_path, engine)
    with started("study", file) as process:
        wait_until(lambda: fakes.servers(engine) or process.poll() is not None)
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "error: stopped" in err
    assert "Traceback" not in err
    assert fakes.servers(engine) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_bench_cleanly(number: signal.Signals) -> None:
    with (Truth(Script(stall_after=9)) as server,
          started("bench", server.url, "--input-tokens", 8, "--output-tokens", 16) as process):
        wait_until(lambda: list(Path("rooftop.sqlite-spool").glob("*/reads.bin")))
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "what was measured is in rooftop.sqlite" in " ".join(err.split())
    with Store.open("rooftop.sqlite", read_only=True) as store:
        (trial,) = store.trials()
    assert trial.unfinished


@pytest.mark.parametrize("words", ["machine", "machine --json"])
def test_a_reader_that_has_gone_and_a_full_disk_are_no_defects(words: str) -> None:
    command = f"{sys.executable} -m rooftop {words}"
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for environment in (usual, usual | {"PYTHONUNBUFFERED": "1"}):
        gone = subprocess.run(f"(sleep 0.1; {command}; echo $? >&2) | true", shell=True, capture_output=True, text=True,
                              check=False, env=environment)
        assert gone.stderr.split() == ["141"]
        full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True, check=False,
                              env=environment)
        assert full.returncode == StoreFailed.exit_code
        assert "Traceback" not in full.stderr


def test_the_matrix_is_shown_where_its_report_cannot_be_written(engine: Path, tmp_path: Path) -> None:
    file = fakes.write_study(tmp_path, engine)
    assert rooftop("study", file, "--report", "nowhere/r.html").code == 2
    assert not Path("rooftop.sqlite").exists()
    assert rooftop("study", file).code == 0
    told = rooftop("report", "-o", "/dev/full")
    assert (told.code, "All users together" in told.out) == (2, True)
    scripts = rooftop("report", "-o", "/dev/full", "--json")
    assert (scripts.code, scripts.json["error"]["kind"]) == (2, "BadInput")


def test_the_exit_code_of_a_dead_server_is_documented() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "bench.md").read_text(encoding="utf-8")
    codes = page.partition("Exit codes:")[2]
    assert all(re.search(rf"\b{code}\b", codes) for code in (0, 2, 5, EngineDied.exit_code, 7, 130))
