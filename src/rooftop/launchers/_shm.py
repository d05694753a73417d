"""Shared memory that a server leaves in /dev/shm: removed with it, and nobody else's.

Engines with several ranks leave 8 MB and more behind when they are killed.  A segment counts as the server's only where
one of its processes was seen to have it mapped or open, by device and inode; it goes when no living process has it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rooftop.launchers import _tree

FOLDER = Path("/dev/shm")
TRIES = 20

File = tuple[int, int]


class Segments:
    """The segments of one server, none of those that were there `before` (None: that are there now).

    `look` now and then while it runs, `sweep` when none of its processes lives.
    """

    __slots__ = ("_before", "_mine", "_tries")

    def __init__(self, before: Iterable[File] | None = None) -> None:
        self._before = frozenset(there() if before is None else before)
        self._mine: dict[str, File] = {}
        self._tries: dict[File, int] = {}

    def look(self, root: Callable[[], int | None]) -> None:
        """Note which new segments the processes below `root()` have; it is asked only where there are new ones.

        One that they do not have at `TRIES` looks is somebody else's.
        """
        new = {name: file for name, file in _files().items()
               if file not in self._before and name not in self._mine and self._tries.get(file, 0) < TRIES}
        if not new or (pid := root()) is None:
            return
        held = {file for one in (pid, *_tree.descendants(pid)) for file in _held(one)}
        for name, file in new.items():
            if file in held:
                self._mine[name] = file
            else:
                self._tries[file] = self._tries.get(file, 0) + 1

    def sweep(self) -> tuple[str, ...]:
        """Remove what is left of them; their names."""
        now = _files()
        left = {name: file for name, file in self._mine.items() if now.get(name) == file}
        held = {file for pid in _tree.pids() for file in _held(pid)} if left else set()
        gone = []
        for name, file in left.items():
            if file not in held:
                with suppress(OSError):
                    (FOLDER / name).unlink()
                    gone.append(name)
        return tuple(gone)


def there() -> tuple[File, ...]:
    """The segments that this user has now."""
    return tuple(_files().values())


def _files() -> dict[str, File]:
    """The segments of this user, by name, each with its device and inode."""
    found: dict[str, File] = {}
    with suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and status.st_uid == os.geteuid():
                    found[entry.name] = status.st_dev, status.st_ino
    return found


def _held(pid: int) -> Iterator[File]:
    """What a process has mapped or open of /dev/shm; nothing where it cannot be seen."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            if " /dev/shm/" in line:
                _, _, _, device, inode, *_ = line.split()
                major, minor = (int(part, 16) for part in device.split(":"))
                yield os.makedev(major, minor), int(inode)
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(link).startswith("/dev/shm/"):  # noqa: PTH115
                    status = link.stat()
                    yield status.st_dev, status.st_ino
