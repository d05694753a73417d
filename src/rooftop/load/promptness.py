"""How the kernel schedules the load process: soon when something comes, little in all."""

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path

NICE = -10
SLICE_NS = 100_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")


def be_prompt() -> None:
    """Ask for a higher priority and a short slice of time; what the system refuses stays as it is.

    The load process needs little time, but what it reads late cannot be told apart any more (chunks that wait in one
    socket share a stamp), and a request that goes out late is not the load that was asked for.  A short slice (Linux
    6.12 and later) lets it run before tasks with longer ones; without real-time priority it can starve nobody.  Its
    parent starts it in a session of its own, which is a scheduling group of its own under autogroup.
    """
    with contextlib.suppress(OSError):
        os.nice(NICE - os.nice(0))
        Path("/proc/self/autogroup").write_text(str(NICE), encoding="ascii")
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None and os.uname().sysname == "Linux":
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, os.nice(0), 0, SLICE_NS, 0, 0, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, wanted, 0)
