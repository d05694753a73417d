"""A fake server with a family: a child, a daemon in a session of its own; writes all their pids to a file."""

import os
import signal
import sys
import time
from pathlib import Path


def note(path: Path, name: str) -> None:
    with path.open("a") as file:
        file.write(f"{name} {os.getpid()}\n")


def main(path: Path, stubborn: bool) -> None:
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        note(path, "child")
        time.sleep(600)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        note(path, "daemon")
        time.sleep(600)
    note(path, "server")
    time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "stubborn" in sys.argv)
