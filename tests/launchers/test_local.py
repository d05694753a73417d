"""No process of a server outlives stop, a killed rooftop or a killed supervisor."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher
from rooftop.launchers import _tree
from rooftop.launchers.local import LAUNCHER, Local, LocalProcess

FAMILY = Path(__file__).with_name("family.py")
SEAT = Seat((), 0)
QUICK = Local(grace_s=0.3)
WAIT_S = 20.0

ROOFTOP = """
import os, sys, time
from pathlib import Path
from rooftop.domain.engine import Command, Seat
from rooftop.launchers.local import Local
process = Local(grace_s=0.3).start(Command(tuple(sys.argv[3:])), Seat((), 0), Path(sys.argv[1]))
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(600)
print(process.pid, flush=True)
time.sleep(600)
"""


def until(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    fields = _tree.stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[tuple[str, ...], Callable[[], dict[str, int]]]]:
    """The command of the fake server, and what gives its members' pids once all are there."""
    file = tmp_path / "pids"

    def members() -> dict[str, int]:
        def there() -> bool:
            return file.exists() and len(file.read_text().splitlines()) == 3
        assert until(there)
        return {name: int(pid) for name, pid in (line.split() for line in file.read_text().splitlines())}

    yield (sys.executable, str(FAMILY), str(file)), members
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[1]), signal.SIGKILL)


def gone(members: dict[str, int]) -> bool:
    return until(lambda: not any(lives(pid) for pid in members.values()))


@pytest.mark.parametrize("manner", ["polite", "stubborn"])
def test_stop_leaves_nothing(family, manner: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command, members = family
    process = QUICK.start(Command((*command, manner)), SEAT, tmp_path / "log")
    there = members()
    assert process.poll() is None
    process.stop()
    assert not any(lives(pid) for pid in (*there.values(), process.pid))
    assert process.poll() == (-signal.SIGKILL if manner == "stubborn" else -signal.SIGTERM)
    process.stop()


@pytest.mark.parametrize("manner", ["alone", "fork"])
def test_a_killed_rooftop_leaves_nothing(family, manner: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command, members = family
    rooftop = subprocess.Popen((sys.executable, "-c", ROOFTOP, str(tmp_path / "log"), manner, *command),
                               stdout=subprocess.PIPE, text=True)
    assert rooftop.stdout is not None
    supervisor = int(rooftop.stdout.readline())
    there = members()
    forked = set(_tree.descendants(rooftop.pid)) - set(_tree.descendants(supervisor)) - {supervisor}
    assert len(forked) == (1 if manner == "fork" else 0)
    rooftop.kill()
    rooftop.wait()
    rooftop.stdout.close()
    try:
        assert gone({**there, "supervisor": supervisor})
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)


def test_a_killed_supervisor_leaves_nothing(family, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command, members = family
    process = QUICK.start(Command(command), SEAT, tmp_path / "log")
    there = members()
    os.kill(process.pid, signal.SIGKILL)
    assert gone(there)
    assert until(lambda: process.poll() == -signal.SIGKILL)
    process.stop()


def test_a_server_that_ends_takes_its_family_with_it(family, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command, members = family
    process = QUICK.start(Command(command), SEAT, tmp_path / "log")
    there = members()
    os.kill(there["server"], signal.SIGSEGV)
    assert until(lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGSEGV
    assert gone(there)


def run(script: str, log: Path, **environment: str) -> tuple[LocalProcess, str]:
    seat = Seat((), 0, cores=(min(os.sched_getaffinity(0)),))
    process = QUICK.start(Command((sys.executable, "-c", script), tuple(environment.items())), seat, log)
    assert until(lambda: process.poll() is not None)
    process.stop()
    return process, log.read_text()


def test_exit_code_environment_cores_and_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    process, text = run("import os, sys; print(os.environ['WORD'], os.sched_getaffinity(0)); "
                        "print(sys.stdin.read(), file=sys.stderr); sys.exit(3)", log, WORD="said")
    assert process.poll() == 3
    assert text.startswith("before\n")
    assert f"said {{{min(os.sched_getaffinity(0))}}}" in text


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    process = QUICK.start(Command(("/nowhere/llama-server",)), SEAT, tmp_path / "log")
    assert until(lambda: process.poll() is not None)
    assert process.poll() == 127
    assert "cannot start /nowhere/llama-server" in (tmp_path / "log").read_text()


def test_whose_port_it_is(tmp_path: Path) -> None:
    port = LAUNCHER.free_port("127.0.0.1")
    script = (f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); "
              "print('up', flush=True); time.sleep(600)")
    log = tmp_path / "log"
    process = QUICK.start(Command((sys.executable, "-c", script)), SEAT, log)
    try:
        assert until(lambda: "up" in log.read_text())
        assert process.listens(port) is True
        with socket.create_server(("127.0.0.1", 0)) as ours:
            assert process.listens(ours.getsockname()[1]) is False
    finally:
        process.stop()
    assert process.listens(port) is False


def test_a_free_port_is_free() -> None:
    for host in ("127.0.0.1",):
        with socket.create_server((host, LAUNCHER.free_port(host))):
            pass


def test_it_is_a_launcher() -> None:
    launcher: Launcher = LAUNCHER
    assert launcher.name == "local"
