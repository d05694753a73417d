"""Nouns to the terminal or to JSON; the only file that prints results."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooftop.cli.show_progress import listening, visible
from rooftop.domain import codec
from rooftop.domain.finding import Measurement
from rooftop.domain.launch import Claim, Launch
from rooftop.domain.matrix import Matrix
from rooftop.domain.trial import Trial
from rooftop.errors import LaunchFailed, RooftopError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from rooftop.load.selftest import SelfTest
    from rooftop.workflows.rehearse import Rehearsal

__all__ = ["listening", "show_bench", "show_claims", "show_dry_run", "show_error", "show_json", "show_launch",
           "show_matrix", "show_path", "show_self_test"]

TAIL_LINES = 12


def console(*, stderr: bool = False) -> "Console":
    """A terminal that takes words as they are: no markup, no emoji, no colour where NO_COLOR or a pipe says so."""
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    made.push_render_hook(_Visible())  # type: ignore[arg-type]  # rich asks for a subclass where the method suffices
    return made


class _Visible:
    """Passes on what is to be drawn with every control character in its words made visible."""

    def process_renderables(self, parts: list[Any]) -> list[Any]:
        return [_Drawn(part) for part in parts]


class _Drawn:
    def __init__(self, part: Any) -> None:
        self._part = part

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["Segment"]:
        from rich.segment import Segment

        for text, style, control in console.render(self._part, options):
            yield Segment(text if control else visible(text), style, control)


def show_bench(trials: Sequence[Trial], measurements: Sequence[Sequence[Measurement]], as_json: bool = False) -> None:
    """A bench run: a trial a level, with each trial's measurements in the same order."""
    if as_json:
        show_json({"trials": [_trial(trial, found) for trial, found in zip(trials, measurements, strict=True)]})
        return
    from rooftop.cli.show_bench import bench_parts

    _print(bench_parts(trials, measurements))


def show_matrix(matrix: Matrix, as_json: bool = False) -> None:
    """A study's answer."""
    if as_json:
        show_json(matrix)
        return
    from rooftop.cli.show_matrix import matrix_parts

    out = console()
    for part in matrix_parts(matrix, out.width):
        out.print(part)


def show_launch(launch: Launch, as_json: bool = False) -> None:
    """One start of one engine."""
    if as_json:
        show_json(launch)
        return
    from rooftop.cli.show_launch import claims_parts, launch_parts

    _print(launch_parts(launch))
    if launch.claims:
        _print(claims_parts(launch.claims))


def show_claims(claims: Sequence[Claim], as_json: bool = False) -> None:
    """What was asked, held against what the engine said, each with the line that proves it."""
    if as_json:
        show_json({"claims": claims})
        return
    from rooftop.cli.show_launch import claims_parts

    _print(claims_parts(claims))


def show_dry_run(rehearsal: "Rehearsal", as_json: bool = False) -> None:
    """What a study would start and how long it would take; lines are never wrapped, so that they can be pasted."""
    if as_json:
        show_json(rehearsal)
        return
    from rooftop.cli.show_launch import dry_run_lines

    counts = f"{rehearsal.starts} starts, {rehearsal.levels} load levels"
    for line in dry_run_lines(rehearsal.setups, counts, rehearsal.estimate_s, rehearsal.basis):
        click.echo(visible(line))


def show_self_test(test: "SelfTest", as_json: bool = False) -> None:
    """The load client's own error and limit on this machine."""
    if as_json:
        show_json(test)
        return
    from rooftop.cli.show_bench import self_test_parts

    _print(self_test_parts(test))


def show_path(what: str, path: Path, as_json: bool = False) -> None:
    """Where something was written."""
    if as_json:
        show_json({what: str(path)})
    else:
        click.echo(visible(f"{what}: {path}"))


def show_error(error: RooftopError, as_json: bool = False) -> None:
    """What happened, where, what to do: to stderr, or as JSON to stdout."""
    if as_json:
        show_json({"error": {"kind": error.kind, "what": error.what, "where": error.where, "remedy": error.remedy}})
        return
    from rich.table import Table
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error: ", "bold red"), error.what))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=5)
    grid.add_column(overflow="fold")
    for name, text in (("where", error.where), ("do", error.remedy)):
        if text:
            grid.add_row(Text(name, "dim"), Text(text))
    if grid.row_count:
        out.print(grid)
    if isinstance(error, LaunchFailed) and error.tail.strip():
        out.print(Text("the end of its log:", "dim"))
        for line in error.tail.strip().splitlines()[-TAIL_LINES:]:
            out.print(Text(f"  | {line}"), overflow="ellipsis", no_wrap=True)


def show_json(content: Any) -> None:
    """Any noun or table of nouns as JSON on stdout, with its schema number.

    A server's words may hold half of a character (a lone surrogate), which no UTF-8 can hold: it is escaped.
    """
    plain = codec.to_plain(content)
    text = json.dumps({"schema": codec.SCHEMA, **plain}, indent=2, ensure_ascii=False)
    click.echo(text.encode("utf-8", "backslashreplace").decode())


def _trial(trial: Trial, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """A trial for scripts: its figures and conditions, without the single replies (these stay in the store)."""
    return {"id": trial.id, "origin": trial.origin, "model": trial.plan.model.name, "level": trial.workload.level,
            "repeat": trial.repeat, "started_at": trial.started_at, "measured_s": trial.measured_s,
            "valid": trial.valid, "workload": trial.workload, "requests": len(trial.replies),
            "measurements": measurements, "client": trial.client, "surroundings": trial.surroundings,
            "claims": trial.claims, "fault": trial.fault, "notes": trial.notes}


def _print(parts: Iterable["RenderableType"]) -> None:
    out = console()
    for part in parts:
        out.print(part)
