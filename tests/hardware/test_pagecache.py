"""Cold or warm: what of a file is in memory."""

import mmap
import os
from pathlib import Path

import pytest

from rooftop.hardware import pagecache
from rooftop.hardware.pagecache import caches, resident_share

PAGES = 64


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    return path


def drop(path: Path) -> None:
    """Push a file out of the page cache, as far as the file system lets one."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_file_just_written_is_warm(weights: Path) -> None:
    assert resident_share(str(weights)) == 1.0
    assert caches(str(weights)) == "warm"


def test_a_file_pushed_out_is_cold(weights: Path) -> None:
    drop(weights)
    if (share := resident_share(str(weights))) == 1.0:
        pytest.skip("this file system keeps its pages")
    assert share == 0.0
    assert caches(str(weights)) == "cold"


def test_windows_count_alike(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "_WINDOW", 3 * mmap.PAGESIZE)
    assert resident_share(str(weights)) == 1.0


def test_half_is_neither(weights: Path) -> None:
    other = weights.with_name("tiny2.gguf")
    other.write_bytes(weights.read_bytes())
    drop(other)
    if resident_share(str(other)) == 1.0:
        pytest.skip("this file system keeps its pages")
    assert resident_share(str(weights.parent)) == 0.5
    assert caches(str(weights.parent)) == "unknown"


def test_parts_count_together(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(bytes(mmap.PAGESIZE))
    (tmp_path / "other-00001-of-00009.gguf").write_bytes(bytes(mmap.PAGESIZE))
    drop(tmp_path / "m-00002-of-00002.gguf")
    assert resident_share(str(tmp_path / "m-00001-of-00002.gguf")) in (0.5, 1.0)


@pytest.mark.parametrize("path", ["/nowhere/tiny.gguf", ""])
def test_what_cannot_be_told(path: str) -> None:
    assert caches(path) == "unknown"
