"""Starts servers as transient units of systemd, with limits, each gone with rooftop."""

import os
import re
import secrets
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from rooftop.domain.engine import Command, Seat
from rooftop.domain.launcher import Launcher, Place
from rooftop.errors import BadInput
from rooftop.launchers._lifeline import KeptProcess, keep
from rooftop.launchers._ports import free_port

_GRACE_S = 8
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.A)


@dataclass(frozen=True, slots=True)
class Systemd:
    """Runs an engine's command as a transient service of the user's own systemd (`user`), or of the system's.

    `properties` are further ones of its [Service] (`MemoryMax=60%`).  The unit file of the same service, to be
    installed by hand, is `unit`.
    """

    properties: tuple[str, ...] = ()
    user: bool = True
    run: str = "systemd-run"
    control: str = "systemctl"

    @property
    def name(self) -> str:
        """`systemd`."""
        return "systemd"

    @property
    def here(self) -> bool:
        """It runs the programs of this machine."""
        return True

    def at(self, place: Place) -> "Systemd":
        """A launcher of units with these properties, of the system's systemd where rooftop runs as root.

        Raises BadInput for an image, or for an option that is no `Name=value`.
        """
        if place.image:
            raise BadInput("a unit has no image", remedy='add launcher = "docker", or remove the image')
        for option in place.options:
            if not re.fullmatch(r"[A-Z]\w+=[^\n]*", option):
                raise BadInput(f"{option!r} is no property of a unit", remedy='write it as "MemoryMax=60%"')
        return replace(self, properties=place.options, user=self.user and os.geteuid() != 0)

    def line(self, command: Command, seat: Seat) -> str:
        """The `systemd-run`, under the name of an example."""
        return shlex.join(self._client(command, seat, "rooftop-example.service"))

    def free_port(self, host: str) -> int:
        """A port of this machine."""
        return free_port(host)

    def start(self, command: Command, seat: Seat, log: Path) -> KeptProcess:
        """Start a service and wait beside it; its output goes to `log`.  Raises LaunchFailed without systemd-run."""
        name = f"rooftop-{secrets.token_hex(6)}.service"
        inside = (self.control, *self._scope(), "show", "--property", "MainPID", name)
        return keep(self._client(command, seat, name), (self.control, *self._scope(), "stop", name), inside, log,
                    _GRACE_S)

    def _scope(self) -> tuple[str, ...]:
        return ("--user",) if self.user else ()

    def _client(self, command: Command, seat: Seat, name: str) -> tuple[str, ...]:
        cores = (f"CPUAffinity={' '.join(map(str, seat.cores))}",) if seat.cores else ()
        told = [word for one in (f"TimeoutStopSec={_GRACE_S}", "KillMode=control-group", *cores, *self.properties)
                for word in ("--property", one)]
        given = [word for key, value in command.environment for word in ("--setenv", f"{key}={value}")]
        path = ("--setenv", f"PATH={os.environ['PATH']}") if "PATH" in os.environ else ()
        return (self.run, *self._scope(), "--quiet", "--collect", "--wait", "--pipe", "--same-dir", "--unit", name,
                *told, *path, *given, "--", *command.argv)


def unit(command: Command, description: str, properties: tuple[str, ...] = ()) -> str:
    """A service unit that runs the command at every start of the machine, restarted where it fails.

    The command's first word must be an absolute path, as systemd demands.
    """
    lines = ["[Unit]", f"Description={_specifiers(description)}", "After=network-online.target",
             "Wants=network-online.target", "", "[Service]", "Type=exec",
             *(f"Environment={_quoted(f'{key}={value}', dollars=False)}" for key, value in command.environment),
             "ExecStart=" + " \\\n  ".join(_grouped(command.argv)), "Restart=on-failure", "RestartSec=10",
             f"TimeoutStopSec={_GRACE_S}", *properties, "", "[Install]", "WantedBy=multi-user.target", ""]
    return "\n".join(lines)


def _grouped(words: tuple[str, ...]) -> list[str]:
    """The words in lines: the program with what precedes its first flag, then a flag with its values each."""
    groups = [[_quoted(words[0])]]
    for word in words[1:]:
        if re.match(r"--?[A-Za-z]", word):
            groups.append([])
        groups[-1].append(_quoted(word))
    return [" ".join(group) for group in groups]


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str, *, dollars: bool = True) -> str:
    word = _specifiers(word)
    if dollars:
        word = word.replace("$", "$$")
    if _PLAIN.fullmatch(word.replace("%%", "").replace("$$", "")):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


LAUNCHER: Launcher = Systemd()
