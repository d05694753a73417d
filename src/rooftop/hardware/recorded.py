"""A machine as a folder: what its files and commands once said; and how to record one."""

import re
from collections.abc import Sequence
from pathlib import Path

from rooftop.domain.host import Host
from rooftop.errors import BadInput, ProbeFailed

_SECRETS = (
    (re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I), "GPU-00000000-0000-0000-0000-000000000000"),
    (re.compile(r"(<(serial|uuid|pdi|board_id|chassis_serial_number|host_id|gpu_fabric_guid|clusterUuid)>)[^<]*(</\2>)"),
     r"\1N/A\3"),
    (re.compile(r"(<process_name>)(?:[^<\s]*/)?([^/<\s]*)[^<]*(</process_name>)"), r"\1\2\3"),
    (re.compile(r'("(?:Unique ID|Serial Number|GUID)": ")[^"]*"'), r'\1N/A"'),
    (re.compile(r"((?:Unique ID|Serial Number|GUID):\s*)\S+"), r"\1N/A"),
    (re.compile(r"\b(?:root|resume|rd\.luks\.\S+?|cryptdevice|BOOT_IMAGE)=\S+"), "redacted"),
)


class RecordedHost:
    """The machine of a folder: `read/` holds its files by their path, `run/` the output of commands by `file_name`.

    Raises BadInput where there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "run").is_dir() and not (folder / "read").is_dir():
            raise BadInput("this is no recorded machine: it has neither run/ nor read/", where=str(folder))
        self._folder = folder

    def read(self, path: str) -> str | None:
        """The recorded text of a file, None where it was not there."""
        return _text(self._folder / "read" / path.lstrip("/"))

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """The recorded output of a command, None where it gave none."""
        del timeout_s  # a recording answers at once
        return _text(self._folder / "run" / file_name(command))


class Recorder:
    """Another host that is written down in `folder` while it is asked; serial numbers and identities are left out."""

    def __init__(self, host: Host, folder: Path) -> None:
        self._host = host
        self._folder = folder

    def read(self, path: str) -> str | None:
        """As the host says."""
        return self._keep(self._folder / "read" / path.lstrip("/"), self._host.read(path))

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """As the host says."""
        return self._keep(self._folder / "run" / file_name(command), self._host.run(command, timeout_s))

    def _keep(self, file: Path, text: str | None) -> str | None:
        if text is None:
            return None
        for secret, instead in _SECRETS:
            text = secret.sub(instead, text)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ProbeFailed(f"the machine cannot be recorded: {error}", where=str(file)) from error
        return text


def file_name(command: Sequence[str]) -> str:
    """The name of a command's recorded output: its words joined, all but letters, digits, `.`, `=` and `-` as `_`."""
    return re.sub(r"[^A-Za-z0-9.=-]", "_", "_".join(command)) + ".txt"


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
