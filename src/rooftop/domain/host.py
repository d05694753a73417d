"""The seams to a machine: read its files, run its commands; ask one vendor's GPUs."""

from collections.abc import Sequence
from typing import Protocol

from rooftop.domain.machine import Gpu, Group


class Host(Protocol):
    """A machine as text: this one, one behind ssh, or recorded output of another."""

    def read(self, path: str) -> str | None:
        """The text of a file, None where it is not there or not readable."""
        ...

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Standard output of a command; None where it is not there, fails or takes longer than `timeout_s`."""
        ...


class Probe(Protocol):
    """One vendor's GPUs, read through a host."""

    def gpus(self, host: Host) -> tuple[Gpu, ...]:
        """The GPUs as the vendor's own tool lists them, in its order; () where there are none or no tool.

        Raises ProbeFailed where the tool answers what cannot be understood.
        """
        ...

    def groups(self, host: Host, gpus: tuple[Gpu, ...]) -> tuple[Group, ...]:
        """The links between those GPUs; () where nothing tells them."""
        ...
