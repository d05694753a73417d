"""Starts servers on this machine, each under a supervisor that outlives a crash."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher, Place
from rooftop.errors import BadInput, LaunchFailed
from rooftop.launchers import _tree
from rooftop.launchers._ports import free_port

GRACE_S = 8.0
_PATIENCE_S = 20.0


class LocalProcess:
    """One supervised server.  A thread of its own hears the supervisor and sweeps up if that is killed."""

    __slots__ = ("_code", "_gone", "_mark", "_patience_s", "_supervisor")

    def __init__(self, supervisor: "subprocess.Popen[bytes]", mark: str, patience_s: float) -> None:
        self._supervisor = supervisor
        self._mark = mark
        self._patience_s = patience_s
        self._code: int | None = None
        self._gone = Event()
        Thread(target=self._hear, name=f"supervisor {supervisor.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The supervisor: everything that the server starts is below it."""
        return self._supervisor.pid

    def poll(self) -> int | None:
        """The server's exit code, negative for a signal; None while it runs."""
        return self._code

    def stop(self, *, wait: bool = True) -> None:
        """Close the supervisor's lifeline, which ends the tree; with `wait`, until nothing of it lives."""
        self._let_go()
        if not wait or self._gone.wait(self._patience_s):
            return
        self._supervisor.kill()
        if not self._gone.wait(_PATIENCE_S):
            left = ", ".join(map(str, _tree.marked(self._mark, self._supervisor.pid)))
            raise LaunchFailed(f"a server's processes do not end, not even by SIGKILL: {left}",
                               remedy="they hang in the kernel (a driver, a dead network disk): see dmesg")

    def work(self) -> int | None:
        """Pages touched and read by this tree."""
        return _tree.work(self._supervisor.pid)

    def listens(self, port: int) -> bool:
        """Whether a process of this tree holds the port."""
        return _tree.listens(self._supervisor.pid, port)

    def _let_go(self) -> None:
        if self._supervisor.stdin is not None:
            with suppress(OSError, ValueError), self._supervisor.stdin as lifeline:
                lifeline.write(b"stop\n")

    def _hear(self) -> None:
        out = self._supervisor.stdout
        if out is not None:
            with out:
                for line in out:
                    word, _, number = line.decode().partition(" ")
                    if word == "ended":
                        self._code = int(number)
        self._supervisor.wait()
        self._let_go()
        self._sweep()
        if self._code is None:
            self._code = -signal.SIGKILL
        self._gone.set()

    def _sweep(self) -> None:
        """Kill what a killed supervisor left behind; a supervisor that ended by itself leaves nothing."""
        while left := _tree.marked(self._mark, self._supervisor.pid):
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


class Local:
    """This machine.  A server that is asked to end has `grace_s` to do so before it is killed."""

    __slots__ = ("_grace_s",)

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s

    @property
    def name(self) -> str:
        """`local`."""
        return "local"

    @property
    def here(self) -> bool:
        """It runs the programs of this machine."""
        return True

    def at(self, place: Place) -> "Local":
        """Itself.  Raises BadInput for an image or options: it knows neither."""
        if place.image or place.options:
            raise BadInput("this machine's own launcher knows neither image nor launcher_options",
                           remedy='add launcher = "docker" (an image) or launcher = "systemd" (a unit\'s properties)')
        return self

    def line(self, command: Command, seat: Seat) -> str:
        """Variables, then the command, behind `taskset` where it is to run on some of the cores only."""
        some = seat.cores and set(seat.cores) != os.sched_getaffinity(0)
        words = ("taskset", "-c", ",".join(map(str, seat.cores)), *command.argv) if some else command.argv
        return " ".join((*(f"{name}={shlex.quote(value)}" for name, value in command.environment), shlex.join(words)))

    def free_port(self, host: str) -> int:
        """A port of this machine."""
        return free_port(host)

    def start(self, command: Command, seat: Seat, log: Path) -> LocalProcess:
        """Start a server on `seat.cores` (all cores where empty), its output appended to `log`."""
        mark = secrets.token_hex(8)
        order = {
            "argv": command.argv,
            "environment": {**os.environ, **dict(command.environment), _tree.MARK: mark},
            "cores": seat.cores,
            "grace_s": self._grace_s,
            "parent": os.getpid(),
        }
        try:
            with log.open("ab") as output:
                supervisor = subprocess.Popen(
                    (sys.executable, "-P", "-m", "rooftop.launchers._supervisor"),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True)
        except OSError as error:
            raise LaunchFailed(f"cannot start a server: {error}", where=str(log)) from error
        process = LocalProcess(supervisor, mark, self._grace_s + _PATIENCE_S)
        if supervisor.stdin is not None:
            with suppress(BrokenPipeError):
                supervisor.stdin.write(json.dumps(order).encode() + b"\n")
                supervisor.stdin.flush()
        return process


LAUNCHER: Launcher = Local()
