"""The seam between workflows and launchers: a place where servers are started and ended."""

from pathlib import Path
from typing import Protocol

from rooftop.domain.engine import Command, Seat


class Process(Protocol):
    """One started server with everything that it starts itself."""

    @property
    def pid(self) -> int | None:
        """The process under which all of the server's processes are; None where that means nothing here."""
        ...

    def poll(self) -> int | None:
        """The server's exit code, negative for a signal; None while it runs."""
        ...

    def stop(self, *, wait: bool = True) -> None:
        """End the server and all its descendants.  With `wait`, returns when none of them lives.

        May be called again.  Raises LaunchFailed where a process will not end.
        """
        ...

    def listens(self, port: int) -> bool | None:
        """Whether this server holds the port (not nobody, not a stranger); None where that cannot be told."""
        ...


class Launcher(Protocol):
    """One place to run servers.  Nothing that it starts outlives the rooftop that started it."""

    @property
    def name(self) -> str:
        """The name of its file."""
        ...

    def free_port(self, host: str) -> int:
        """A port at `host` that nothing holds now; someone may take it before the server does."""
        ...

    def start(self, command: Command, seat: Seat, log: Path) -> Process:
        """Start a server on its cores, its output appended to `log`.  Raises LaunchFailed where that cannot be."""
        ...
