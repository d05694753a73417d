"""What an engine said of itself as a terminal table: facts, claims, cause."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rooftop.cli.show import console, show_json
from rooftop.cli.show_launch import claims_parts
from rooftop.workflows.audit import Audit

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 28


def show_audit(audit: Audit, *, only_facts: bool, as_json: bool) -> None:
    """Claims with their proof, then what else is known, then the cause of a failure; or JSON.

    With `only_facts` JSON is `{"facts": {name: {"value", "level"}}, "error": kind or null}`.
    """
    if as_json:
        facts = {one.fact: {"value": one.value, "level": one.level} for one in audit.facts}
        error = audit.fault.kind if audit.fault else None
        if only_facts:
            click.echo(json.dumps({"facts": facts, "error": error}, indent=2))
        else:
            show_json({"engine": audit.engine, "source": audit.source, "claims": audit.claims, "facts": facts,
                       "error": error, "fault": audit.fault})
        return
    out = console()
    for part in _parts(audit, only_facts, out.width):
        out.print(part)


def _parts(audit: Audit, only_facts: bool, width: int) -> Iterator["RenderableType"]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    yield Text(f"{audit.engine}, {audit.source}", "bold")
    if audit.claims and not only_facts:
        yield from claims_parts(audit.claims)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    rows = [(one.fact, str(one.value)[:WIDEST], one.level) for one in audit.facts]
    room = max(20, width - sum(max((len(row[column]) for row in rows), default=0) for column in range(3)) - 8)
    for title in ("fact", "value", "level", "proof"):
        table.add_column(title, no_wrap=True)
    for one, row in zip(audit.facts, rows, strict=True):
        proof = f"{one.source}:{one.line}  {one.text}" if one.line else f"{one.source}  {one.text}"
        table.add_row(*row, proof if len(proof) <= room else proof[:room - 1] + "…")
    yield table if audit.facts else Text("It says nothing of itself.", "yellow")
    if audit.fault is not None:
        at = f" (line {audit.fault.line})" if audit.fault.line else ""
        phase = f", last phase: {audit.fault.last_phase}" if audit.fault.last_phase else ""
        yield Text.assemble((f"{audit.fault.kind}: ", "bold red"), f"{audit.fault.reason}{at}{phase}")
        if audit.fault.remedy:
            yield Text(f"do: {audit.fault.remedy}")
