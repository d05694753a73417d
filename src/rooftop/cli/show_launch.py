"""A launch, its claims and a dry run as terminal tables."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rooftop import units
from rooftop.domain.launch import Claim, Launch
from rooftop.report import sections

if TYPE_CHECKING:
    from rich.console import RenderableType

VERDICTS = {True: ("holds", "green"), False: ("BROKEN", "bold red"), None: ("unknown", "yellow")}


def launch_parts(launch: Launch) -> Iterator["RenderableType"]:
    """What was started, how long each phase took, how it ended."""
    from rich.table import Table
    from rich.text import Text

    plan = launch.plan
    title = plan.title or str(plan.layout or "")
    version = f"{plan.engine or 'engine unknown'} {launch.engine_version}".strip()
    yield Text.assemble((f"\n{title}: ", "bold"), f"{version}, {launch.caches} caches, launch {launch.id}")
    for server in launch.servers:
        yield Text(f"  {command_line(server.command, server.environment)}", overflow="fold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", min_width=10)
    grid.add_column()
    for phase in launch.phases:
        grid.add_row(units.seconds(phase.end_s - phase.begin_s), phase.name)
    if launch.startup_s is not None:
        grid.add_row(Text(units.seconds(launch.startup_s), "bold"), "from start to first token")
    yield grid
    if launch.fault is not None:
        yield Text(f"failed: {sections.reason(launch.fault)}", "red")
        if launch.fault.remedy:
            yield Text(f"do: {launch.fault.remedy}")


def claims_parts(claims: Sequence[Claim]) -> Iterator["RenderableType"]:
    """Each claim with its verdict and, below it, the line that decided."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not claims:
        yield Text("Nothing was asked that the engine could be held to.", "yellow")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for title in ("", "claim", "asked", "found"):
        table.add_column(title, no_wrap=title != "claim", overflow="fold")
    table.add_column("proof", overflow="fold", ratio=1)
    for claim in claims:
        word, style = VERDICTS[claim.holds]
        proof = claim.proof
        where = "" if proof is None else f"{proof.source}{f':{proof.line}' if proof.line else ''}, {proof.level}"
        shown = Text.assemble((where, "dim"), f"\n{proof.text}" if proof else "the engine does not say")
        table.add_row(Text(word, style), claim.fact, str(claim.asked), "-" if claim.found is None else str(claim.found),
                      shown)
    yield table
    counts = {held: sum(claim.holds is held for claim in claims) for held in VERDICTS}
    yield Text(", ".join(f"{count} {VERDICTS[held][0].lower()}" for held, count in counts.items() if count),
               "bold red" if counts[False] else "bold")


def dry_run_lines(setups: Sequence[tuple[str, Sequence[str]]], counts: str, estimate_s: float | None,
                  basis: str) -> Iterator[str]:
    """Commands as a shell takes them, one a line, then what the study would take."""
    for title, lines in setups:
        yield f"# {title}"
        yield from lines
        yield ""
    time = "time unknown" if estimate_s is None else f"about {units.seconds(estimate_s)}"
    yield f"# {counts}, {time}{f' ({basis})' if basis else ''}. Nothing was started."


def command_line(argv: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> str:
    """A command with its environment as a shell would take it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environment), shlex.join(argv)])
