"""How much of a model's files lies in the page cache: cold or warm start."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_WINDOW = 1 << 30
WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt")
WARM, COLD = 0.9, 0.1


def caches(path: str) -> Literal["cold", "warm", "unknown"]:
    """Whether a model's weights are in memory already: above nine tenths warm, below one tenth cold, else unknown."""
    share = resident_share(path)
    if share is None:
        return "unknown"
    return "warm" if share > WARM else "cold" if share < COLD else "unknown"


def resident_share(path: str) -> float | None:
    """Share of the weights' pages in the page cache, for a file or the files of a folder; None where it cannot be told.

    For a model in parts (`name-00001-of-00004.gguf`) all parts count.
    """
    resident = pages = 0
    try:
        for file in _weight_files(Path(path)):
            size = file.stat().st_size
            resident += _resident_pages(file, size)
            pages += -(-size // mmap.PAGESIZE)
    except OSError:
        return None
    return resident / pages if pages else None


def _weight_files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.iterdir()) if file.suffix in WEIGHTS and file.is_file())
    elif "-of-" in path.name:
        yield from sorted(path.parent.glob(f"{path.name.rpartition('-of-')[0][:-5]}*-of-*{path.suffix}"))
    else:
        yield path


def _resident_pages(file: Path, size: int) -> int:
    """Pages of a file in memory, by mmap and mincore(2); a window at a time, so that no file is too long."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    found = 0
    descriptor = os.open(file, os.O_RDONLY)
    try:
        for begin in range(0, size, _WINDOW):
            length = min(_WINDOW, size - begin)
            flags = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, begin)
            if address == ctypes.c_void_p(-1).value:
                raise OSError(ctypes.get_errno(), "mmap failed", str(file))
            told = libc.mincore(address, length, flags)
            libc.munmap(address, length)
            if told != 0:
                raise OSError(ctypes.get_errno(), "mincore failed", str(file))
            found += sum(byte & 1 for byte in flags.raw)
    finally:
        os.close(descriptor)
    return found
