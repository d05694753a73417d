"""Shared memory of an ended server is removed, and nobody else's."""

import mmap
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rooftop.domain.engine import Command, Seat
from rooftop.launchers import _shm, _tree
from rooftop.launchers._shm import FOLDER, Segments
from rooftop.launchers.docker import Docker
from rooftop.launchers.local import Local

SEAT = Seat((), 0)
STUB = Path(__file__).with_name("stub.py")
# A server of two processes, each with a segment; the second is its child, in a session of its own.
SERVER = """
import mmap, os, sys, time
def make(name):
    with open("/dev/shm/" + name, "w+b") as file:
        file.truncate(1 << 20)
        return mmap.mmap(file.fileno(), 1 << 20)
first = make(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    second = make(sys.argv[2])
    print("ready", flush=True)
    time.sleep(600)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(not os.access(FOLDER, os.W_OK), reason="there is no /dev/shm to write to")


@pytest.fixture
def name() -> Iterator[Callable[[], str]]:
    """New names for segments; what is left of them goes at the end."""
    mark = f"rooftop-test-{secrets.token_hex(4)}"
    made: list[str] = []

    def new() -> str:
        made.append(f"{mark}-{len(made)}")
        return made[-1]

    yield new
    for one in made:
        (FOLDER / one).unlink(missing_ok=True)


def segment(name: str) -> mmap.mmap:
    with (FOLDER / name).open("w+b") as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 4096)


def wait(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not done() and time.monotonic() < end:
        time.sleep(0.02)
    return done()


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_servers_segments_go_with_it(way: str, name: Callable[[], str], tmp_path: Path) -> None:
    first, second, strange, idle = name(), name(), name(), name()
    process = Local(0.3).start(Command((sys.executable, "-c", SERVER, first, second)), SEAT, tmp_path / "log")
    assert wait(lambda: "ready" in (tmp_path / "log").read_text())
    kept = segment(strange)
    (FOLDER / idle).write_bytes(b"x")
    if way == "kill":
        (server,) = (pid for pid in _tree.pids() if _is(pid, first))
        os.kill(server, signal.SIGKILL)
        assert wait(lambda: process.poll() is not None)
    process.stop()
    assert [(FOLDER / one).exists() for one in (first, second, strange, idle)] == [False, False, True, True]
    kept.close()


def _is(pid: int, word: str) -> bool:
    """The server itself: the first process of the command."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().split()
    except OSError:
        return False
    return word.encode() in words and int(state[5]) != pid


def test_a_containers_segments_go_with_it(name: Callable[[], str], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFTOP_STUB", str(tmp_path))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {STUB} \"$@\"\n")
    program.chmod(0o755)
    first, second = name(), name()
    server = SERVER.replace("os.setsid()", "pass")
    process = Docker("example/image:1", (), str(program)).start(
        Command((sys.executable, "-c", server, first, second)), SEAT, tmp_path / "log")
    assert wait(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    process.stop()
    assert wait(lambda: not (FOLDER / first).exists() and not (FOLDER / second).exists())


def test_what_another_process_still_has_stays(name: Callable[[], str]) -> None:
    watch, one = Segments(), name()
    memory = segment(one)
    watch.look(os.getpid)
    assert watch.sweep() == ()
    assert (FOLDER / one).exists()
    memory.close()
    assert watch.sweep() == (one,)
    assert not (FOLDER / one).exists()


def test_what_was_there_before_stays(name: Callable[[], str]) -> None:
    one = name()
    memory = segment(one)
    watch = Segments()
    watch.look(os.getpid)
    memory.close()
    assert watch.sweep() == ()
    assert (FOLDER / one).exists()


def test_another_file_of_the_same_name_stays(name: Callable[[], str]) -> None:
    watch, one = Segments(), name()
    memory = segment(one)
    watch.look(os.getpid)
    (FOLDER / one).rename(FOLDER / name())
    (FOLDER / one).write_bytes(b"somebody else's")
    memory.close()
    assert watch.sweep() == ()


def test_one_that_is_never_held_is_asked_for_no_longer(name: Callable[[], str]) -> None:
    watch = Segments()
    (FOLDER / name()).write_bytes(b"x")
    asked: list[int] = []

    def root() -> int:
        asked.append(1)
        return os.getpid()

    for _ in range(_shm.TRIES + 5):
        watch.look(root)
    assert len(asked) == _shm.TRIES
    assert watch.sweep() == ()
