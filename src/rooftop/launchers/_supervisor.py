"""Runs one server and ends its whole tree when rooftop is gone.

Started as `python -m rooftop.launchers._supervisor` in a session of its own.  Its standard input is a pipe that only
rooftop holds: the first line is the order (JSON), anything after it, the end included, means that rooftop stopped the
server, crashed or was killed.  (A process that rooftop forked may hold the pipe too: so the parent is watched as well.)
On its standard output it says `pid N` and `ended CODE`.  It is the subreaper of everything below it, so that a process
that daemonises stays in its tree; the server itself gets SIGKILL from the kernel if the supervisor is killed.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rooftop.launchers import _tree
from rooftop.launchers._shm import Segments

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.5
_LAST_WORDS_S = 1.0


def main() -> int:
    """Read the order, run the server, end the tree."""
    order = json.loads(sys.stdin.buffer.readline())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stopping: list[int] = []
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda caught, _: stopping.append(caught))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    segments = Segments()
    server = _spawn(order, libc)
    _say(f"pid {server}")
    code = None
    while code is None and not stopping and os.getppid() == order["parent"]:
        ready, _, _ = select.select([0, wake], [], [], _LOOK_S)
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        segments.look(os.getpid)
        if 0 in ready:
            break
        code = _reap().get(server)
    if code is None:
        code = _end_server(server, order["grace_s"])
    _say(f"ended {code}")
    _end_rest()
    segments.sweep()
    return 0


def _spawn(order: Mapping[str, Any], libc: ctypes.CDLL) -> int:
    """Fork the server: log as its output, its cores, and its death tied to the supervisor's.

    Signals wait until the server has its own way with them: one that came earlier would be lost in the supervisor's.
    """
    supervisor = os.getpid()
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        return pid
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (*handled, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        if order["cores"]:
            os.sched_setaffinity(0, order["cores"])
        os.execvpe(order["argv"][0], order["argv"], order["environment"])
    except (OSError, ValueError) as error:
        os.write(2, f"rooftop: cannot start {order['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reap() -> dict[int, int]:
    """Exit codes (negative for a signal) of all children that have ended since the last call."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if not pid:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(status)


def _end_server(server: int, grace_s: float) -> int:
    """Ask the server to end, kill it after `grace_s`; its exit code."""
    _kill((server,), signal.SIGTERM)
    until = time.monotonic() + grace_s
    while True:
        if (code := _reap().get(server)) is not None:
            return code
        if time.monotonic() > until:
            _kill((server,), signal.SIGKILL)
        time.sleep(0.01)


def _end_rest() -> None:
    """Ask what is left below to end, then kill until nothing lives."""
    until = time.monotonic() + _LAST_WORDS_S
    number = signal.SIGTERM
    while left := _tree.descendants(os.getpid()):
        if time.monotonic() > until:
            number = signal.SIGKILL
        _kill(left, number)
        time.sleep(0.02)
        _reap()


def _kill(tree: tuple[int, ...], number: signal.Signals) -> None:
    for pid in tree:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _say(words: str) -> None:
    with suppress(OSError):
        os.write(1, f"{words}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
