"""What an engine's log shows to be wrong, before it is a fault: causes, findings, and how a process ended."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rooftop.domain.launch import Evidence
from rooftop.domain.vocabulary import ERRORS
from rooftop.engines._lines import Line, by_signal


@dataclass(frozen=True, slots=True)
class Cause:
    """A pattern of a line, the error kind that it means, and the remedy; `{name}` there is a group of the pattern."""

    kind: str
    pattern: re.Pattern[str]
    remedy: str

    @property
    def plain(self) -> str:
        """The pattern without names, to stand beside others in one pattern."""
        return re.sub(r"\(\?P<\w+>", "(?:", self.pattern.pattern)


@dataclass(frozen=True, slots=True)
class Found:
    """An error kind, what was read, what to do, and the number of the line (0 = none)."""

    kind: str
    reason: str
    remedy: str
    line: int


def of_fact(kind: str, said: Evidence, remedy: str) -> Found:
    """A finding that a fact proves."""
    return Found(kind, f"{ERRORS[kind][1]}: {said.text}", remedy, said.line)


def ended_badly(lines: Sequence[Line], exit_code: int | None, exception: re.Pattern[str],
                echo: re.Pattern[str]) -> bool:
    """Whether an exception ended something: an exit code, the engine's own echo of it, or the end of the text."""
    if exit_code is not None:
        return exit_code != 0
    tail = [line.body for line in lines if line.body.strip()][-4:]
    return any(exception.match(body) for body in tail) or any(echo.search(line.body) for line in lines)


def by_exit(lines: Sequence[Line], exit_code: int, ready: int, error: re.Pattern[str],
            harmless: re.Pattern[str] | None = None) -> Found:
    """What an exit code tells where the log tells nothing; negative codes are signals."""
    last = next((line for line in reversed(lines) if line.body.strip()), Line(0, "", ""))
    if exit_code < 0:
        return Found(*by_signal(-exit_code, ready=bool(ready)), last.number)
    errors = [line for line in lines if error.search(line.text) and not (harmless and harmless.search(line.body))]
    line = errors[-1] if errors else last
    return Found("unknown", line.body or f"exit code {exit_code}", "read the end of the log", line.number)
