"""A server that another program keeps (a container, a unit): ended with rooftop, however rooftop ends.

Its process tree is not rooftop's, so killing the client that started it ends nothing.  This module runs beside the
client (`python -m rooftop.launchers._lifeline`), reads a pipe that only rooftop writes to, and watches its parent: when
rooftop stops the server, exits, crashes or is killed, it runs the command that ends the server.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rooftop.errors import LaunchFailed
from rooftop.launchers import _tree
from rooftop.launchers._shm import File, Segments, there

_PATIENCE_S = 20.0
_LOOK_S = 0.5
_TRIES = 5
_OVER = b"over\n"


class KeptProcess:
    """One server by the client that waits for it; its exit code is the client's.

    `end` is the command that ends the server, `inside` the one that tells the pid under which its processes are,
    `before` the shared memory that was there before it.
    """

    __slots__ = ("_client", "_end", "_grace_s", "_inside", "_lifeline")

    def __init__(self, client: "subprocess.Popen[bytes]", end: Sequence[str], inside: Sequence[str],
                 grace_s: float, before: Sequence[File]) -> None:
        self._client = client
        self._end = tuple(end)
        self._inside = tuple(inside)
        self._grace_s = grace_s
        order = json.dumps({"client": client.pid, "end": self._end, "inside": self._inside, "before": before,
                            "parent": os.getpid()})
        self._lifeline = subprocess.Popen((sys.executable, "-P", "-m", "rooftop.launchers._lifeline", order),
                                          stdin=subprocess.PIPE, start_new_session=True, stdout=subprocess.DEVNULL)
        threading.Thread(target=self._hear, daemon=True, name=f"client {client.pid}").start()

    @property
    def pid(self) -> int | None:
        """The server's first process on this machine; None before it is there, and where it runs elsewhere."""
        return _first(self._inside)

    def poll(self) -> int | None:
        """The exit code of the client, which is the server's; None while it runs."""
        return self._client.poll()

    def stop(self, *, wait: bool = True) -> None:
        """End the server; with `wait`, until its client has seen it end.  Raises LaunchFailed where it will not."""
        self._let_go()
        if not wait:
            return
        try:
            self._lifeline.wait(self._grace_s + 2 * _PATIENCE_S)
            self._client.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise LaunchFailed(f"the server does not end: {shlex.join(self._end)} did nothing",
                               remedy="run that command by hand and read what it says") from error

    def work(self) -> int | None:
        """Pages touched and read by the server's processes; None where they cannot be seen from here."""
        pid = self.pid
        return None if pid is None else _tree.work(pid)

    def listens(self, port: int) -> bool | None:
        """Whether a process of the server holds the port; None where its processes cannot be seen from here."""
        pid = self.pid
        if pid is None or not os.access(f"/proc/{pid}/fd", os.R_OK):
            return None
        return _tree.listens(pid, port)

    def _hear(self) -> None:
        """Wait for the client; a server that ended by itself needs no ending."""
        self._client.wait()
        self._let_go()
        self._lifeline.wait()

    def _let_go(self) -> None:
        """Close the pipe, and say so first where there is nothing left to end."""
        if self._lifeline.stdin is not None:
            with contextlib.suppress(OSError, ValueError), self._lifeline.stdin as lifeline:
                if self._client.poll() is not None:
                    lifeline.write(_OVER)


def keep(client: Sequence[str], end: Sequence[str], inside: Sequence[str], log: Path, grace_s: float) -> KeptProcess:
    """Start the client, its output appended to `log`.  Raises LaunchFailed where it cannot be started."""
    before = there()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(tuple(client), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True)
    except OSError as error:
        raise LaunchFailed(f"cannot start a server: {error}", where=str(log),
                           remedy=f"{client[0]} must be on the path") from error
    return KeptProcess(process, end, inside, grace_s, before)


def main() -> int:
    """Wait for rooftop's end, then end the server and remove the shared memory that it leaves."""
    order, rest = json.loads(sys.argv[1]), b""
    segments = Segments(map(tuple, order["before"]))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while not rest and os.getppid() == order["parent"]:
        ready, _, _ = select.select([0], [], [], _LOOK_S)
        segments.look(lambda: _first(order["inside"]))
        if ready:
            rest = os.read(0, 4096)
            break
    if not rest.startswith(_OVER):
        _end(order)
    segments.sweep()
    return 0


def _end(order: Mapping[str, Any]) -> None:
    """End the server: again while its client runs, then the client too."""
    for _ in range(_TRIES):
        subprocess.run(order["end"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                       check=False)
        if not _lives(order["client"]):
            return
        time.sleep(_LOOK_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(order["client"], signal.SIGKILL)


def _first(inside: Sequence[str]) -> int | None:
    """The pid that the command tells; None where it tells none."""
    try:
        told = subprocess.run(inside, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    word = told.stdout.strip().removeprefix("MainPID=")
    return int(word) if told.returncode == 0 and word.isdigit() and int(word) > 1 else None


def _lives(pid: int) -> bool:
    fields = _tree.stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


if __name__ == "__main__":
    sys.exit(main())
