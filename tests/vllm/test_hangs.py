"""A rank of vLLM that stands still while it starts is a hang, told by its phase; that others wait for it is no work."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rooftop.catalog import phases
from rooftop.hardware.local import this_machine
from rooftop.launchers.local import LAUNCHER
from rooftop.workflows.launch import started
from rooftop.workflows.steps import engine_of, plans
from tests.vllm.conftest import study, sweep

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
SILENCE_S = 20.0


def stop_a_rank() -> None:
    """Stop the second rank as soon as it has its name."""
    end = time.monotonic() + 200
    while time.monotonic() < end:
        for one in psutil.Process().children(recursive=True):
            try:
                if "Worker_TP1" in " ".join(one.cmdline()):
                    os.kill(one.pid, signal.SIGSTOP)
                    return
            except psutil.Error:
                continue
        time.sleep(0.2)


def test_a_rank_that_stands_still_is_a_hang(vllm_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: replace(row, usual_s=1.0, silence_s=SILENCE_S) for name, row in phases.known().items()}
    monkeypatch.setattr(phases, "known", lambda: rows)
    asked = study("layouts", vllm_home)
    plan = next(plan for plan in plans(asked, this_machine()) if plan.title == "tp 2")
    stopper = threading.Thread(target=stop_a_rank)
    stopper.start()
    with started(plan, engine=engine_of(asked), launcher=LAUNCHER, logs=tmp_path) as running:
        fault = running.launch.fault
    stopper.join()
    sweep("".join(running.log_texts()))
    assert fault is not None
    assert fault.reason.startswith("it hangs while ")
    assert "silent for 2" in fault.reason
    assert "known causes: " in fault.remedy
    assert fault.last_phase in phases.known()
