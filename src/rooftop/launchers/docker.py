"""Starts servers as containers, by docker or podman, each gone with rooftop."""

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher
from rooftop.errors import MissingPart
from rooftop.launchers._lifeline import KeptProcess, keep

IMAGE = "ROOFTOP_IMAGE"
_GRACE_S = 8


@dataclass(frozen=True, slots=True)
class Docker:
    """Runs an engine's command in `image` (the environment variable ROOFTOP_IMAGE where it is "").

    `options` are those of `docker run` beside the ones that rooftop sets: a name of its own, removal at the end, the
    host's network (so that the port is the seat's), cores, and the command's environment.  The image's own entrypoint
    is replaced by the command's first word.
    """

    image: str = ""
    options: tuple[str, ...] = ("--gpus", "all", "--ipc", "host")
    program: str = "docker"

    @property
    def name(self) -> str:
        """`docker`."""
        return "docker"

    def free_port(self, host: str) -> int:
        """A port of this machine that the kernel finds free now."""
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
            return port

    def start(self, command: Command, seat: Seat, log: Path) -> KeptProcess:
        """Start a container; its output goes to `log`.

        Raises MissingPart where no image is named, LaunchFailed where the program is not there.
        """
        image = self.image or os.environ.get(IMAGE, "")
        if not image:
            raise MissingPart("a container needs an image", remedy=f"set {IMAGE}, or adopt a docker command")
        name = f"rooftop-{secrets.token_hex(6)}"
        cores = ("--cpuset-cpus", ",".join(map(str, seat.cores))) if seat.cores else ()
        given = [word for key, value in command.environment for word in ("--env", f"{key}={value}")]
        client = (self.program, "run", "--name", name, "--rm", "--network", "host", *cores, *self.options, *given,
                  "--entrypoint", command.argv[0], image, *command.argv[1:])
        end = ("sh", "-c", f'"$0" stop -t {_GRACE_S} "$1"; "$0" rm -f "$1"', self.program, name)
        inside = (self.program, "inspect", "--format", "{{.State.Pid}}", name)
        return keep(client, end, inside, log, _GRACE_S)


LAUNCHER: Launcher = Docker()
