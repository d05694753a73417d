"""The docker and systemd launchers, against stand-ins for docker, systemd-run and systemctl (none is run here).

No container and no transient unit is started by these tests; units are checked by systemd-analyze where that is.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forms.cases import FORMS

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher
from rooftop.errors import LaunchFailed, MissingPart
from rooftop.launchers import _tree
from rooftop.launchers._lifeline import KeptProcess
from rooftop.launchers.docker import LAUNCHER as DOCKER
from rooftop.launchers.docker import Docker
from rooftop.launchers.systemd import LAUNCHER as SYSTEMD
from rooftop.launchers.systemd import Systemd, unit

STUB = Path(__file__).with_name("stub.py")
SEAT = Seat((), 0, cores=(0,))
SLEEP = Command((sys.executable, "-c", "import os, time; print(os.environ['A'], flush=True); time.sleep(600)"),
                (("A", "b c"),))
LISTEN = Command((sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
                                        "print(s.getsockname()[1], flush=True); time.sleep(600)"))
ROOFTOP = """
import sys, time
from pathlib import Path
from rooftop.domain.engine import Command, Seat
from rooftop.launchers.docker import Docker
process = Docker("example/image:1", (), sys.argv[2]).start(Command(tuple(sys.argv[3:])), Seat((), 0), Path(sys.argv[1]))
while not process.pid:
    time.sleep(0.02)
print(process.pid, flush=True)
time.sleep(600)
"""


def until(done: Callable[[], object]) -> bool:
    end = time.monotonic() + 20
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    fields = _tree.stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ROOFTOP_STUB", str(tmp_path))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {STUB} \"$@\"\n")
    program.chmod(0o755)
    return str(program)


def launcher(name: str, stub: str) -> Launcher:
    return Docker("example/image:1", ("--gpus", "all"), stub) if name == "docker" else Systemd(run=stub, control=stub)


def started(launcher: Launcher, command: Command, log: Path) -> tuple[KeptProcess, int]:
    process = launcher.start(command, SEAT, log)
    assert isinstance(process, KeptProcess)
    assert until(lambda: process.pid and log.exists() and log.read_text().strip()), log.read_text()
    assert process.pid is not None
    return process, process.pid


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


@pytest.mark.parametrize("name", ["docker", "systemd"])
def test_a_server_runs_and_ends(name: str, stub: str, tmp_path: Path) -> None:
    process, pid = started(launcher(name, stub), SLEEP, tmp_path / "log")
    assert process.poll() is None
    assert lives(pid)
    assert (tmp_path / "log").read_text() == "b c\n"
    process.stop()
    assert not lives(pid)
    assert process.poll() == -signal.SIGKILL or process.poll() == 256 - signal.SIGKILL
    process.stop()


@pytest.mark.parametrize("name", ["docker", "systemd"])
def test_its_port_is_seen(name: str, stub: str, tmp_path: Path) -> None:
    process, _ = started(launcher(name, stub), LISTEN, tmp_path / "log")
    assert process.listens(int((tmp_path / "log").read_text())) is True
    assert process.listens(1) is False
    process.stop()
    assert process.listens(1) in (None, False)


@pytest.mark.parametrize("name", ["docker", "systemd"])
def test_a_server_that_ends_by_itself_is_not_stopped(name: str, stub: str, tmp_path: Path) -> None:
    process = launcher(name, stub).start(Command((sys.executable, "-c", "raise SystemExit(3)")), SEAT, tmp_path / "log")
    assert until(lambda: process.poll() is not None)
    assert process.poll() == 3
    process.stop()
    assert not [call for call in calls(tmp_path) if "stop" in call]


def test_nothing_outlives_a_killed_rooftop(stub: str, tmp_path: Path) -> None:
    rooftop = subprocess.Popen((sys.executable, "-c", ROOFTOP, str(tmp_path / "log"), stub, *SLEEP.argv),
                               stdout=subprocess.PIPE, env={**os.environ, "A": "1"})
    assert rooftop.stdout is not None
    with rooftop.stdout as out:
        pid = int(out.readline())
    rooftop.kill()
    rooftop.wait()
    assert until(lambda: not lives(pid))


def test_a_container_that_comes_after_the_stop_is_ended_too(stub: str, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFTOP_STUB_SLOW", "0.7")
    process = launcher("docker", stub).start(SLEEP, SEAT, tmp_path / "log")
    process.stop()
    assert process.poll() is not None
    (name,) = (file for file in tmp_path.iterdir() if file.name.startswith("rooftop-"))
    assert not lives(int(name.read_text()))


def test_what_docker_is_told(stub: str, tmp_path: Path) -> None:
    process, _ = started(Docker("example/image:1", ("--gpus", "all", "-v", "/m:/m"), stub), SLEEP, tmp_path / "log")
    process.stop()
    words = next(call for call in calls(tmp_path) if call[0] == "run")
    name = words[words.index("--name") + 1]
    assert words == ["run", "--name", name, "--rm", "--network", "host", "--cpuset-cpus", "0", "--gpus", "all", "-v",
                     "/m:/m", "--env", "A=b c", "--entrypoint", SLEEP.argv[0], "example/image:1", *SLEEP.argv[1:]]


def test_a_container_needs_an_image_and_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFTOP_IMAGE", raising=False)
    with pytest.raises(MissingPart, match="needs an image"):
        DOCKER.start(SLEEP, SEAT, tmp_path / "log")
    with pytest.raises(LaunchFailed, match="cannot start"):
        Docker("i", (), str(tmp_path / "nothing")).start(SLEEP, SEAT, tmp_path / "log")
    assert (DOCKER.name, SYSTEMD.name) == ("docker", "systemd")
    assert DOCKER.free_port("127.0.0.1") > 0


UNIT = unit(Command(("/bin/true", "serve", "/models/a b", "--json", '{"a": "100%"}', "--cost", "$5", "--tp", "2"),
                    (("NCCL_DEBUG", "WARN"), ("LIST", "a b%"))), "vLLM at 100%", ("MemoryMax=60%",))


def test_a_unit_says_each_word_as_it_is() -> None:
    from rooftop.forms._text import whole
    from rooftop.forms._words import commands

    line = UNIT[UNIT.index("ExecStart=") + 10:UNIT.index("Restart=")]
    (words,) = commands(whole(line), "systemd")
    assert [word.value.replace("%%", "%").replace("$$", "$") for word in words] == [
        "/bin/true", "serve", "/models/a b", "--json", '{"a": "100%"}', "--cost", "$5", "--tp", "2"]
    assert FORMS["systemd"].reads(UNIT)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "engine.service"
    file.write_text(UNIT)
    done = subprocess.run(("systemd-analyze", "verify", "--man=no", str(file)), capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "engine.service" not in done.stderr, done.stderr
    file.write_text(UNIT.replace("RestartSec=10", "RestartSec=soon"))
    done = subprocess.run(("systemd-analyze", "verify", "--man=no", str(file)), capture_output=True, text=True,
                          check=False, timeout=60)
    assert "engine.service" in done.stderr
