"""A machine behind ssh: its files and commands through the system's own ssh."""

import shlex
import subprocess
from collections.abc import Sequence

from rooftop.errors import BadInput, ProbeFailed

_CONNECT_S = 10
_UNREACHABLE = 255
"""The exit code with which ssh tells that it did not get through."""


class SshHost:
    """The machine `target` names (`user@name`, or a name of the user's ssh configuration); never asks for a password.

    `ssh` is the program to call.  Raises BadInput for a name that ssh would take for an option.
    """

    def __init__(self, target: str, ssh: str = "ssh") -> None:
        if not target or target.startswith("-") or any(letter.isspace() for letter in target):
            raise BadInput(f"{target!r} is no machine that ssh could reach", remedy="write user@name or a name")
        self._target = target
        self._ssh = (ssh, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}", "--", target)

    def read(self, path: str) -> str | None:
        """The text of a file there, None where it cannot be read."""
        return self.run(("cat", path))

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Standard output of a command there, None where it fails.  Raises ProbeFailed where ssh does not get through.

        The time for the connection comes on top of `timeout_s`.
        """
        try:
            done = subprocess.run((*self._ssh, shlex.join(command)), stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=timeout_s + _CONNECT_S, check=False, encoding="utf-8", errors="replace")
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            raise ProbeFailed(f"ssh cannot be started: {error}", where=self._ssh[0],
                              remedy="install an ssh client") from error
        if done.returncode == _UNREACHABLE:
            said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise ProbeFailed(f"ssh does not reach {self._target}: {said[0]}", where=self._target,
                              remedy=f"try: ssh -o BatchMode=yes {self._target} true")
        return done.stdout if done.returncode == 0 else None
