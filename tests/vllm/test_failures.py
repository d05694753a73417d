"""vLLM's failures on CPUs are told with their cause, those that look healthy above all."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rooftop.domain.vocabulary import strongest
from rooftop.hardware.local import this_machine
from rooftop.launchers.local import LAUNCHER
from rooftop.workflows.launch import started
from rooftop.workflows.steps import engine_of, plans
from tests.vllm.conftest import Run, study, sweep

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
HEALTHY = '"GET /health HTTP/1.1" 200'


def test_eager_stages_are_healthy_and_cannot_decode(run: Run) -> None:
    outcome = run("layouts", "pp 2, eager")
    fault = outcome.launch.fault
    assert HEALTHY in outcome.log
    assert fault is not None
    assert (fault.kind, fault.last_phase) == ("layout_not_supported", "first token")
    assert "intermediate_tensors" in fault.reason
    assert "enforce-eager" in fault.remedy
    assert outcome.log.splitlines()[fault.line - 1].strip() != ""
    assert outcome.trials == ()


def test_experts_cut_like_every_matrix_serve(run: Run) -> None:
    outcome = run("experts", "tp 2")
    assert outcome.launch.ready
    assert [trial.valid for trial in outcome.trials] == [True]


def test_experts_spread_over_ranks_are_healthy_and_crash_on_the_first_token(run: Run) -> None:
    outcome = run("experts", "tp 2 x ep 2")
    fault = outcome.launch.fault
    assert HEALTHY in outcome.log
    assert fault is not None
    assert (fault.kind, fault.last_phase) == ("segfault_first_token", "first token")
    assert strongest(outcome.launch.evidence)["layout.ep"].value == 2
    assert outcome.trials == ()


@pytest.mark.parametrize(("title", "kind", "word"), [
    ("nine heads over two ranks", "heads_not_divisible", "(9)"),
    ("a flag that there is not", "unknown_flag", "--no-such-flag"),
])
def test_a_refusal_is_told_in_the_engines_words(title: str, kind: str, word: str, run: Run) -> None:
    outcome = run("refused", title)
    fault = outcome.launch.fault
    assert HEALTHY not in outcome.log
    assert fault is not None
    assert fault.kind == kind
    assert word in fault.reason
    assert fault.remedy


def test_a_model_that_is_not_there_is_named(vllm_home: Path, tmp_path: Path) -> None:
    asked = study("experts", vllm_home)
    plan = plans(asked, this_machine())[0]
    plan = replace(plan, model=replace(plan.model, path=str(tmp_path / "nowhere")))
    with started(plan, engine=engine_of(asked), launcher=LAUNCHER, logs=tmp_path) as running:
        fault = running.launch.fault
    assert fault is not None
    assert fault.kind == "model_not_found"


def test_a_worker_that_is_killed_is_named(vllm_home: Path, tmp_path: Path) -> None:
    asked = study("experts", vllm_home)
    plan = plans(asked, this_machine())[0]
    with started(plan, engine=engine_of(asked), launcher=LAUNCHER, logs=tmp_path) as running:
        assert running.alive()
        below = psutil.Process(running.pids[0]).children(recursive=True)
        worker = next(process for process in below if "Worker_TP1" in " ".join(process.cmdline()))
        os.kill(worker.pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while running.alive() and time.monotonic() < end:
            time.sleep(0.1)
        fault = running.fault()
    sweep("".join(running.log_texts()))
    assert fault is not None
    assert fault.kind == "worker_died"
    assert not any(process.is_running() for process in below)
