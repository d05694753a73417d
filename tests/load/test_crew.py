import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.progress import Progress
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.load import crew, level
from rooftop.load.job import Job, Prompt, Target
from rooftop.load.level import measure
from rooftop.load.truth import Truth


def prompts(count: int, **script: object) -> list[Prompt]:
    body = {"model": "truth", "stream": True, "max_tokens": 4, "prompt": "a", "truth": script}
    return [Prompt(json.dumps(body).encode(), 7, 4)] * count


def test_processes_share_a_level_that_only_time_ends(tmp_path: Path) -> None:
    arrivals = Arrivals(kind="poisson", concurrency=0, rate_per_s=40)
    asked = Workload(arrivals=arrivals, stop=Stop(seconds=0.4), output_tokens=4, api="completions")
    with Truth() as server:
        got = measure(Job(Target((server.url,), "truth", api="completions"), asked, str(tmp_path), processes=3),
                      prompts(40))
    assert got.fault is None
    assert got.client is not None
    assert got.client.processes == 3
    assert all(reply.ok for reply in got.replies)


def test_a_warm_up_that_fails_in_one_process_ends_them_all(tmp_path: Path) -> None:
    asked = Workload(arrivals=Arrivals(concurrency=2), stop=Stop(requests=8), output_tokens=4, api="completions",
                     warmup=2)
    with Truth() as server:
        slow = [*prompts(1), *prompts(1, status=500, ttft_s=0.3)] * 5
        got = measure(Job(Target((server.url,), "truth", api="completions"), asked, str(tmp_path), processes=2), slow)
    assert got.fault is not None
    assert got.fault.kind == "warm-up"
    assert got.fault.reason.startswith("1 of 2 requests of the warm-up failed: http 500")
    assert got.replies == ()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_that_falls_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "SILENCE_S", 2.0)
    monkeypatch.setattr(level, "SILENCE_S", 2.0)
    stopped: list[int] = []

    def stop(now: Progress) -> None:
        if now.stage == "level" and not stopped:
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit():
                    try:
                        words = (folder / "cmdline").read_bytes().split(b"\0")
                    except OSError:
                        continue
                    if words[-3:-1] == [str(tmp_path).encode(), b"1"]:
                        stopped.append(int(folder.name))
                        os.kill(stopped[0], signal.SIGSTOP)

    asked = Workload(arrivals=Arrivals(concurrency=2), stop=Stop(seconds=60), output_tokens=4, api="completions")
    with Truth() as server:
        job = Job(Target((server.url,), "truth", api="completions"), asked, str(tmp_path), processes=2)
        got = measure(replace(job, timeout_s=600), prompts(50, ttft_s=0.05), tell=stop)
    assert stopped
    assert got.fault is not None
    assert (got.fault.kind, got.fault.reason) == ("killed", "a load process said nothing for 2 s and was killed")
    assert any(reply.ok for reply in got.replies)


@pytest.mark.parametrize(("stage", "waits", "awake", "killed"), [
    ("level", False, 0.0, True), ("warm-up", True, 0.0, True), (None, True, 0.0, True), ("ready", True, 0.0, False),
    ("ready", False, 0.0, True), ("level", False, 100.0, False),
])
def test_silence_counts_only_where_it_could_be_heard(tmp_path: Path, stage: str | None, waits: bool, awake: float,
                                                     killed: bool) -> None:
    now = time.monotonic()
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        member = crew.Member(process, tmp_path, now={"stage": stage}, waits=waits, heard_s=now - 1000)
        crew._end_silent([member], now - awake)
        assert member.silent == killed
        assert (member.heard_s > now - 1) != killed
        process.kill()
