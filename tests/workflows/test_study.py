"""Studies of a fake engine, really started: stored once, resumed, failed setups kept, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rooftop.domain import codec
from rooftop.domain.layout import Layout
from rooftop.domain.progress import Progress, silent
from rooftop.domain.study import Study
from rooftop.domain.trial import Trial
from rooftop.errors import Interrupted, StoreFailed
from rooftop.store import Store
from rooftop.workflows import study as room
from rooftop.workflows.matrix import matrix
from rooftop.workflows.run import spool_folder
from rooftop.workflows.steps import read_study
from rooftop.workflows.study import run_study
from tests.workflows import fakes

Levels = Counter[tuple[str, str, int]]


@pytest.fixture(autouse=True)
def _nothing_left(engine: Path) -> Iterator[None]:
    yield
    assert fakes.servers(engine) == []


def run(study: Study, folder: Path, *, retry_failed: bool = False,
        tell: Callable[[Progress], None] = silent) -> list[Trial]:
    with Store.open(folder / "s.sqlite") as store:
        run_study(study, store=store, tell=tell, retry_failed=retry_failed)
    return trials(folder)


def trials(folder: Path) -> list[Trial]:
    with Store.open(folder / "s.sqlite", read_only=True) as store:
        return list(store.trials())


def finished(found: list[Trial]) -> Levels:
    return Counter((trial.plan.title, trial.workload.level, trial.repeat) for trial in found if not trial.unfinished)


def all_once(study: Study) -> Levels:
    return Counter((setup.title, str(users), repeat) for setup in study.setup for users in study.load.concurrency
                   for repeat in range(study.order.repeats * study.order.rounds))


def spools(folder: Path) -> list[Path]:
    return list(spool_folder(folder / "s.sqlite").glob("*/"))


def test_every_level_of_every_setup_is_stored_once(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("one"), fakes.setup("two", layout=Layout(dp=2), slots=1), users=(1, 2))
    said: list[Progress] = []
    found = run(study, tmp_path, tell=said.append)
    assert finished(found) == all_once(study)
    assert all(trial.valid and len(trial.replies) == 4 for trial in found)
    assert all(reply.ok and reply.output_tokens == 3 for trial in found for reply in trial.replies)
    assert all({claim.holds for claim in trial.claims} == {True} for trial in found)
    assert all(trial.client and trial.surroundings for trial in found)
    assert {reply.server for trial in found if trial.plan.title == "two" for reply in trial.replies} == {0, 1}
    with Store.open(tmp_path / "s.sqlite", read_only=True) as store:
        launches = {launch.id: launch for launch in store.launches(study=study.name)}
        assert "listening" in store.log(next(iter(launches)))
    assert len(launches) == 2
    assert all(launches[trial.launch_id].plan.key == trial.plan.key for trial in found)
    assert said[-1] == Progress("study", done=4, total=4, last=True)
    assert [step.done for step in said] == sorted(step.done for step in said)
    assert all(step.left_s is not None for step in said[:-1] if step.done)
    assert spools(tmp_path) == []
    assert run(study, tmp_path, tell=said.append) == found
    assert said[-1] == Progress("study", last=True)


def test_a_stopped_study_goes_on_where_it_stopped(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("a"), users=(1, 2), repeats=2)

    def stop_in_the_second_level(step: Progress) -> None:
        if step.done == 1 and step.detail.endswith("open"):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped") as stopped:
        run(study, tmp_path, tell=stop_in_the_second_level)
    assert "run the same command again" in stopped.value.remedy
    assert fakes.servers(engine) == []
    assert [trial.fault and trial.fault.kind for trial in trials(tmp_path)] == [None, "stopped"]
    assert finished(run(study, tmp_path)) == all_once(study)


def test_ctrl_c_while_an_engine_starts(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("a"))

    def stop_in_the_start(step: Progress) -> None:
        if step.stage == "launch" and "start process" in step.detail:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path, tell=stop_in_the_start)
    assert fakes.servers(engine) == []
    assert finished(run(study, tmp_path)) == all_once(study)


def test_kill_9_loses_no_finished_level(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fakes.write_study(tmp_path, engine, mode="stalls at two users")
    study = read_study(str(file))
    command = (sys.executable, "-m", "rooftop", "study", str(file), "--store", "s.sqlite")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rooftop:
        wait_until(lambda: any((spool / "reads.bin").exists() and in_second_level(spool) for spool in spools(tmp_path)))
        rooftop.kill()
    wait_until(lambda: not fakes.servers(engine))
    before = trials(tmp_path)
    assert finished(before) == Counter([("a", "1", 0)])
    monkeypatch.setenv("CURED", "1")
    found = run(study, tmp_path)
    assert found[:1] == before
    assert finished(found) == all_once(study)
    (killed,) = [trial for trial in found if trial.unfinished]
    assert killed.fault is not None
    assert (killed.fault.kind, killed.workload.level) == ("killed", "2")
    assert spools(tmp_path) == []


def in_second_level(spool: Path) -> bool:
    head = codec.from_json(Trial, (spool / "trial.json").read_text(encoding="utf-8"))
    return head.workload.level == "2"


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.03)


def test_a_setup_that_does_not_start_is_kept_and_the_study_goes_on(engine: Path, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    study = fakes.study(engine, fakes.setup("bad", "does not start"), fakes.setup("good"),
                        fakes.setup("refused", layout=Layout(tp=2, pp=2)))
    said: list[Progress] = []
    assert finished(run(study, tmp_path, tell=said.append)) == Counter([("good", "1", 0)])
    assert said[-1].done == 3
    faults = kinds(tmp_path)
    assert faults == [("bad", "oom_kv", "failed to allocate buffer for kv cache"), ("good", None, None),
                      ("refused", "layout_not_supported",
                       "one llama-server splits a model one way: tp 2 and pp 2 are two")]
    said.clear()
    run(study, tmp_path, tell=said.append)
    assert kinds(tmp_path) == faults
    assert [step.stage for step in said] == ["skip", "skip", "study"]
    monkeypatch.setenv("CURED", "1")
    run(study, tmp_path, retry_failed=True)
    assert kinds(tmp_path) == [*faults, ("bad", None, None), faults[-1]]
    with Store.open(tmp_path / "s.sqlite") as store:
        answer, _ = matrix(store, study.name)
    assert [row.fault is None for row in answer.rows] == [True, True, False]
    assert {best.winner for best in answer.best} <= {"bad", "good"}


def kinds(folder: Path) -> list[tuple[str, str | None, str | None]]:
    with Store.open(folder / "s.sqlite", read_only=True) as store:
        return [(launch.plan.title, launch.fault and launch.fault.kind, launch.fault and launch.fault.reason)
                for launch in store.launches()]


def test_a_setup_that_once_failed_and_then_ran_is_not_skipped(engine: Path, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    bad = fakes.setup("bad", "does not start")
    run(fakes.study(engine, bad, rounds=2), tmp_path)
    assert [kind for _, kind, _ in kinds(tmp_path)] == ["oom_kv"]
    monkeypatch.setenv("CURED", "1")
    run(fakes.study(engine, bad), tmp_path, retry_failed=True)
    longer = fakes.study(engine, bad, repeats=2)
    assert finished(run(longer, tmp_path)) == all_once(longer)


def test_an_engine_that_dies_under_load_is_started_once_more(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("dying", "dies at two users"), fakes.setup("good"), users=(1, 2), repeats=2)
    found = [trial for trial in run(study, tmp_path) if trial.plan.title == "dying"]
    assert [(trial.workload.level, trial.fault and trial.fault.reason) for trial in found] == [
        ("1", None), ("2", "GGML_ASSERT(n_tokens > 0) failed")] * 2
    assert len({trial.launch_id for trial in found}) == 2
    with Store.open(tmp_path / "s.sqlite") as store:
        answer, _ = matrix(store, study.name)
        assert len(list(store.launches())) == 3
    cell = answer.cell("dying", "2")
    assert cell is not None
    assert (cell.valid, cell.why_not) == (False, "GGML_ASSERT(n_tokens > 0) failed")
    assert all(best.winner == "good" for best in answer.best if best.level == "2")


def test_an_engine_that_dies_at_each_level_is_given_up(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("dying", "dies at two users"), users=(2, 3, 4))
    said: list[Progress] = []
    assert [trial.workload.level for trial in run(study, tmp_path, tell=said.append)] == ["2", "3"]
    assert (said[-1].done, said[-1].total) == (3, 3)


def test_an_engine_that_dies_in_the_middle_of_a_level_is_not_ranked(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("a", itl_s=0.01), requests=60)

    def kill_it(step: Progress) -> None:
        if step.stage == "level" and "chunks/s" in step.detail:
            for pid in fakes.servers(engine):
                os.kill(pid, signal.SIGKILL)

    (trial,) = run(study, tmp_path, tell=kill_it)
    assert {reply.ok for reply in trial.replies} == {True, False}
    assert trial.fault is not None
    assert "SIGKILL" in trial.fault.reason
    assert not trial.valid


def test_an_engine_that_dies_when_it_is_probed_did_not_start(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("dying", "dies in the probe"), fakes.setup("good"))
    assert finished(run(study, tmp_path)) == Counter([("good", "1", 0)])
    assert kinds(tmp_path) == [("dying", "unknown", "GGML_ASSERT(n_tokens > 0) failed"), ("good", None, None)]


def test_a_level_that_does_not_fit_a_setup_is_kept_with_its_reason(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("short", context=16, slots=1), fakes.setup("long"))
    short, long = run(study, tmp_path)
    assert long.valid
    assert short.fault is not None
    assert "the server's limit is 16 tokens" in short.fault.reason
    assert len(run(study, tmp_path)) == 2


def test_a_level_of_an_engine_that_runs_something_else_is_not_ranked(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("liar", "one slot", slots=2), fakes.setup("honest", itl_s=0.01))
    liar, honest = run(study, tmp_path)
    assert (liar.fault, liar.valid, honest.valid) == (None, False, True)
    with Store.open(tmp_path / "s.sqlite") as store:
        answer, _ = matrix(store, study.name)
    cell = answer.cell("liar", "1")
    assert cell is not None
    assert cell.why_not == "asked limits.max_running 2, the engine says 1"
    assert {best.winner for best in answer.best} == {"honest"}
    assert [claim.fact for claim in answer.rows[0].broken] == ["limits.max_running"]


def test_a_killed_load_process_is_no_end_of_the_study(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("a"), users=(1, 2))
    killed: list[str] = []

    def kill_once(step: Progress) -> None:
        if not killed and fakes.kill_load_process():
            killed.append(step.stage)

    found = run(study, tmp_path, tell=kill_once)
    assert [trial.fault and trial.fault.kind for trial in found] == ["killed", None]
    assert finished(run(study, tmp_path)) == all_once(study)


def test_two_rooftops_on_one_store(engine: Path, tmp_path: Path) -> None:
    studies = [fakes.study(engine, fakes.setup("a"), users=(1, 2), name=name) for name in ("left", "right")]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda study: run(study, tmp_path), studies))
    for study in studies:
        with Store.open(tmp_path / "s.sqlite", read_only=True) as store:
            own = list(store.trials(study=study.name))
        assert finished(own) == all_once(study)
        assert all(trial.valid for trial in own)


def test_one_study_is_run_by_one_rooftop(engine: Path, tmp_path: Path) -> None:
    study = fakes.study(engine, fakes.setup("a"))
    with (Store.open(tmp_path / "s.sqlite") as store, room._alone(study, store),
          pytest.raises(StoreFailed, match="another rooftop is running the study 'fakes'")):
        run_study(study, store=store, tell=silent)
    assert finished(run(study, tmp_path)) == all_once(study)
