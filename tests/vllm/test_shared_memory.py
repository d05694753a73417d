"""Nothing of vLLM's shared memory outlives it, also where its engine process is killed."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from rooftop.hardware.local import this_machine
from rooftop.launchers.local import LAUNCHER
from rooftop.workflows.launch import Running, started
from rooftop.workflows.steps import engine_of, plans
from tests.vllm.conftest import study, sweep

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
SHM = Path("/dev/shm")


def segments(running: Running) -> set[str]:
    """Names of what the server's processes have mapped, as far as they are still in the folder."""
    below = psutil.Process(running.pids[0]).children(recursive=True)
    lines = [line for one in below for line in Path(f"/proc/{one.pid}/maps").read_text().splitlines()
             if " /dev/shm/" in line and not line.endswith("(deleted)")]
    return {line.partition(" /dev/shm/")[2] for line in lines}


def test_ranks_leave_no_shared_memory(vllm_home: Path, tmp_path: Path) -> None:
    asked = study("layouts", vllm_home)
    plan = next(plan for plan in plans(asked, this_machine()) if plan.title == "tp 2")
    with started(plan, engine=engine_of(asked), launcher=LAUNCHER, logs=tmp_path) as running:
        assert running.alive(), running.launch.fault
        made = segments(running)
        assert any(name.startswith("psm_") for name in made)
        below = psutil.Process(running.pids[0]).children(recursive=True)
        core = next(one for one in below if "EngineCore" in " ".join(one.cmdline()))
        os.kill(core.pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while running.alive() and time.monotonic() < end:
            time.sleep(0.1)
    assert not [name for name in made if (SHM / name).exists()]
    sweep("".join(running.log_texts()))
