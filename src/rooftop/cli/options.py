"""What several commands share: kinds of values, options, and files that they write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rooftop.errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])

STORE = "rooftop.sqlite"


class Numbers(click.ParamType[tuple[float, ...]]):
    """A list of numbers with commas between them: `1,4,8`."""

    name = "N,N,..."

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Positive numbers, in the order given."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(self._kind(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers like 1,4,8", param, ctx)
        if any(number <= 0 for number in numbers):
            self.fail(f"{value!r}: each number must be above 0", param, ctx)
        return numbers


POSITIVE = click.IntRange(min=1)
SECONDS = click.FloatRange(min=0, min_open=True)


def store_option(command: F) -> F:
    """`--store FILE`."""
    return click.option("--store", type=click.Path(dir_okay=False, path_type=Path), default=STORE, show_default=True,
                        help="The SQLite file that keeps every launch and trial.")(command)


def json_option(command: F) -> F:
    """`--json`, as every command has it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout instead of tables.")(command)


def check_place(report: Path) -> None:
    """Refuse a place where no report can be, before minutes are spent on measuring."""
    if report.is_dir() or not report.parent.is_dir():
        raise BadInput("a report cannot be written there: " + ("it is a folder" if report.is_dir() else
                       "its folder is not there"), where=str(report), remedy="name a file in a folder that is there")


def write(path: Path, text: str) -> None:
    """Write a file that the user named.  Raises BadInput where that cannot be."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"the report cannot be written: {error.strerror}", where=str(path),
                       remedy="name another place with --report; the measurements are in the store") from error
