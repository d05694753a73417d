"""The seam between workflows and launchers: a place where servers are started and ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rooftop.domain.engine import Command, Seat


@dataclass(frozen=True, slots=True)
class Place:
    """What a launcher must know beside the command.

    `image`: the container's.  `options`: the user's words for the launcher.  `paths`: files and folders of this machine
    that the server reads (its model), each by its absolute path.
    """

    image: str = ""
    options: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


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

    def work(self) -> int | None:
        """Pages that its processes have touched and read so far: it grows while they work, and not while they wait.

        None where they cannot be seen from here.
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

    @property
    def here(self) -> bool:
        """Whether it runs the programs of this machine; otherwise those of an image or of another machine."""
        ...

    def at(self, place: Place) -> "Launcher":
        """This launcher for one place.  Raises BadInput for a place that it cannot give (an image, wrong options)."""
        ...

    def line(self, command: Command, seat: Seat) -> str:
        """What would be run for a command, its environment included, as a shell takes it."""
        ...

    def free_port(self, host: str) -> int:
        """A port at `host` that nothing holds now; someone may take it before the server does."""
        ...

    def start(self, command: Command, seat: Seat, log: Path) -> Process:
        """Start a server on its cores, its output appended to `log`.  Raises LaunchFailed where that cannot be."""
        ...
