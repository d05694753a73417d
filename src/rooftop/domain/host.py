"""The seam to a machine: read its files, run its commands."""

from collections.abc import Sequence
from typing import Protocol


class Host(Protocol):
    """A machine as text: this one, one behind ssh, or recorded output of another."""

    def read(self, path: str) -> str | None:
        """The text of a file, None where it is not there or not readable."""
        ...

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Standard output of a command; None where it is not there, fails or takes longer than `timeout_s`."""
        ...
