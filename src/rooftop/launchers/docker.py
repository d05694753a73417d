"""Starts servers as containers, by docker or podman, each gone with rooftop."""

import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher, Place
from rooftop.errors import BadInput, MissingPart
from rooftop.launchers._lifeline import KeptProcess, keep
from rooftop.launchers._ports import free_port

IMAGE = "ROOFTOP_IMAGE"
OPTIONS = ("--gpus", "all", "--ipc", "host")
_GRACE_S = 8
_OURS = frozenset(("--name", "--rm", "--network", "--net", "--entrypoint", "--cpuset-cpus", "-p", "--publish", "-d",
                   "--detach", "--restart", "-i", "-t", "-it"))


@dataclass(frozen=True, slots=True)
class Docker:
    """Runs an engine's command in `image` (the environment variable ROOFTOP_IMAGE where it is "").

    `options` are those of `docker run` beside the ones that rooftop sets: a name of its own, removal at the end, the
    host's network (so that the port is the seat's), cores, and the command's environment.  The image's own entrypoint
    is replaced by the command's first word.  `paths` of this machine are seen inside under the same names, to be read.
    """

    image: str = ""
    options: tuple[str, ...] = OPTIONS
    program: str = "docker"
    paths: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`docker`."""
        return "docker"

    @property
    def here(self) -> bool:
        """It runs an image's programs."""
        return False

    def at(self, place: Place) -> "Docker":
        """A launcher of that image; options replace the usual ones (all GPUs, the host's shared memory).

        Raises BadInput without an image, or for an option that rooftop must set itself.
        """
        if not place.image:
            raise BadInput("a container needs an image", remedy='add image = "vllm/vllm-openai:v0.11.0" to the study')
        for option in place.options:
            if option.partition("=")[0] in _OURS:
                raise BadInput(f"rooftop sets {option.partition('=')[0]} of a container itself",
                               remedy="take it out of launcher_options")
        found = next((name for name in (self.program, "podman") if shutil.which(name)), self.program)
        return replace(self, image=place.image, options=place.options or self.options, paths=place.paths,
                       program=found)

    def line(self, command: Command, seat: Seat) -> str:
        """The `docker run`, under the name of an example."""
        return shlex.join(self._client(command, seat, "rooftop-example"))

    def free_port(self, host: str) -> int:
        """A port of this machine."""
        return free_port(host)

    def start(self, command: Command, seat: Seat, log: Path) -> KeptProcess:
        """Start a container; its output goes to `log`.

        Raises MissingPart where no image is named, LaunchFailed where the program is not there.
        """
        name = f"rooftop-{secrets.token_hex(6)}"
        client = self._client(command, seat, name)
        end = ("sh", "-c", f'"$0" stop -t {_GRACE_S} "$1"; "$0" rm -f "$1"', self.program, name)
        inside = (self.program, "inspect", "--format", "{{.State.Pid}}", name)
        return keep(client, end, inside, log, _GRACE_S)

    def _client(self, command: Command, seat: Seat, name: str) -> tuple[str, ...]:
        image = self.image or os.environ.get(IMAGE, "")
        if not image:
            raise MissingPart("a container needs an image", remedy=f"set {IMAGE}, or adopt a docker command")
        cores = ("--cpuset-cpus", ",".join(map(str, seat.cores))) if seat.cores else ()
        given = [word for key, value in command.environment for word in ("--env", f"{key}={value}")]
        mounts = [word for folder in dict.fromkeys(_folders(self.paths))
                  for word in ("--volume", f"{folder}:{folder}:ro")]
        return (self.program, "run", "--name", name, "--rm", "--network", "host", *cores, *self.options, *mounts,
                *given, "--entrypoint", command.argv[0], image, *command.argv[1:])


def _folders(paths: tuple[str, ...]) -> Iterator[Path]:
    """Folders that hold the paths, and those that links in them lead to (a hub's cache keeps its weights so)."""
    for path in map(Path, paths):
        folder = path if path.is_dir() else path.parent
        yield folder
        for one in sorted(folder.iterdir()) if folder.is_dir() else ():
            if one.is_symlink() and not one.resolve().is_relative_to(folder.resolve()):
                yield one.resolve().parent


LAUNCHER: Launcher = Docker()
