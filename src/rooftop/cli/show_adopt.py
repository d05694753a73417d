"""An adopted deployment as terminal tables: what it asks, what is kept, what is secret, what is unknown."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rooftop.cli.show import console, show_json
from rooftop.domain import codec
from rooftop.domain.engine import Refusal
from rooftop.domain.form import Deployment

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_deployment(deployment: Deployment, refusal: Refusal | None, as_json: bool = False) -> None:
    """A deployment and the engine's rule against it, if there is one.  Its text is not shown: it may hold secrets."""
    if as_json:
        show_json(deployment_table(deployment, refusal))
        return
    out = console()
    for part in deployment_parts(deployment, refusal):
        out.print(part)


def deployment_table(deployment: Deployment, refusal: Refusal | None) -> dict[str, Any]:
    """For scripts: the noun's fields without its text, and the refusal."""
    told: dict[str, Any] = codec.to_plain(deployment)
    told.pop("text")
    return {**told, "refusal": codec.to_plain(refusal)}


def deployment_parts(deployment: Deployment, refusal: Refusal | None) -> Iterator["RenderableType"]:
    """Title, what the plan asks, what stays around it, secrets by name, notes, the refusal."""
    from rich.table import Table
    from rich.text import Text

    plan = deployment.plan
    version = f" {plan.engine_version}" if plan.engine_version else ""
    yield Text.assemble((f"\n{plan.title or plan.model.name}: ", "bold"), f"{plan.engine}{version}, {deployment.form}"
                        + (f", {deployment.image}" if deployment.image else ""))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _rows(deployment):
        if value:
            grid.add_row(name, Text(value))
    yield grid
    for note in deployment.notes:
        yield Text(f"note: {note}", "yellow")
    if refusal is not None:
        yield Text(f"{plan.engine} refuses it: {refusal.rule}: {refusal.reason}", "red")
        if refusal.remedy:
            yield Text(f"try: {refusal.remedy}")


def _rows(deployment: Deployment) -> Iterator[tuple[str, str]]:
    plan = deployment.plan
    yield "model", plan.model.path or plan.model.name
    yield "served as", plan.model.name
    yield "layout", str(plan.layout) if plan.layout else "unknown"
    yield "settings", "\n".join(f"{one.name} {one.value}" for one in plan.settings)
    yield "environment", "\n".join(f"{one.name}={one.value}" for one in deployment.environment)
    yield "port", f"{deployment.host + ':' if deployment.host else ''}{deployment.port or 'unknown'}"
    yield "published", ", ".join(deployment.published)
    yield "GPUs", "" if deployment.gpus is None else str(deployment.gpus)
    yield "mounts", "\n".join(f"{one.source or '(volume)'} -> {one.target}" for one in deployment.mounts)
    yield "kept", ", ".join(deployment.kept)
    hidden = ", ".join(deployment.secrets)
    yield "secrets", hidden and f"{hidden} (kept in the text, shown nowhere)"
