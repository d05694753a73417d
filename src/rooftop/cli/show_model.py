"""A model's shape as terminal tables: parameters, bytes, attention, KV cache, operations."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rooftop import units
from rooftop.cli.show import console, show_json
from rooftop.domain import codec
from rooftop.domain.architecture import Architecture, Attention

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

CONTEXTS = (1024, 8192, 32768, 131072)
PART_NAMES = {"linear": "linear attention", "shared_experts": "shared experts", "lm_head": "LM head",
              "mlp": "MLP", "norm": "norms", "residual": "hyper-connections"}


def show_model(architecture: Architecture, as_json: bool = False) -> None:
    """A model's figures, or with `as_json` the figures and every matrix."""
    if as_json:
        show_json(model_table(architecture))
        return
    out = console()
    for part in model_parts(architecture):
        out.print(part)


def model_table(architecture: Architecture) -> dict[str, Any]:
    """For scripts: the noun's own fields, then what follows from them."""
    return {**codec.to_plain(architecture), "parameters": architecture.parameters, "active": architecture.active,
            "active_with_embedding": architecture.active_with_embedding,
            "mtp_parameters": architecture.mtp_parameters, "bytes": architecture.bytes,
            "mtp_bytes": architecture.mtp_bytes,
            "by_part": [{"part": part, "format": name, "parameters": parameters, "bytes": count}
                        for part, name, parameters, count in architecture.by_part],
            "attention_names": [kind.name for kind in architecture.attention],
            "kv_bytes_per_token": architecture.kv_bytes_per_token(), "state_bytes": architecture.state_bytes(),
            "flops_per_token": architecture.flops_per_token()}


def model_parts(architecture: Architecture) -> Iterator["RenderableType"]:
    """Title, figures, bytes by part, attention by kind, cache and operations by context, notes."""
    from rich.text import Text

    shape = f"{architecture.layers} layers, hidden {architecture.hidden}, vocabulary {architecture.vocab}"
    context = f", context {architecture.context}" if architecture.context else ""
    yield Text.assemble((f"\n{architecture.name}: ", "bold"), f"{architecture.family}, {shape}{context}")
    yield _figures(architecture)
    yield Text("\nWeights", "bold")
    yield _weights(architecture)
    yield Text("\nAttention", "bold")
    yield _attention(architecture)
    yield Text("\nOne sequence", "bold")
    yield _sequences(architecture)
    for note in architecture.notes:
        yield Text(f"note: {note}", "yellow")


def count(number: float) -> str:
    """A number of parameters: `135 M`, `8.03 B`, `1.03 T`."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * scale:
            return f"{units.number(number / scale)} {letter}"
    return units.number(number)


def _figures(architecture: Architecture) -> "RenderableType":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=12)
    grid.add_column(overflow="fold")
    active = f"{count(architecture.active)} active a token" if architecture.experts else ""
    with_table = f" ({count(architecture.active_with_embedding)} with the embedding table)" if active else ""
    grid.add_row("parameters", f"{count(architecture.parameters)} in all{', ' if active else ''}{active}{with_table}")
    grid.add_row("weights", f"{units.size(architecture.bytes)} ({architecture.bytes / 1e9:.1f} GB)")
    if architecture.mtp:
        grid.add_row("MTP", f"{count(architecture.mtp_parameters)} more, {units.size(architecture.mtp_bytes)}, "
                            "where an engine speculates with them")
    if architecture.file_bytes is not None:
        grid.add_row("files", units.size(architecture.file_bytes))
    experts = architecture.experts
    if experts is not None:
        shared = f", {experts.shared} shared {experts.shared_width} wide" if experts.shared else ""
        grid.add_row("experts", f"{experts.active} of {experts.count}, {experts.width} wide{shared}, "
                                f"in {len(experts.layers)} of {architecture.layers} layers")
    if architecture.tied:
        grid.add_row("embedding", "tied: the LM head is the same matrix")
    return grid


def _weights(architecture: Architecture) -> "RenderableType":
    table = _table("part", "format", "parameters", "bytes", "share")
    for part, name, parameters, size in architecture.by_part:
        table.add_row(PART_NAMES.get(part, part), name, count(parameters), units.size(size),
                      units.share(size / architecture.bytes))
    return table


def _attention(architecture: Architecture) -> "RenderableType":
    table = _table("kind", "layers", "heads", "KV heads", "width", "cache a token")
    for kind in architecture.attention:
        table.add_row(kind.name, str(len(kind.layers)), str(kind.heads), str(kind.kv_heads), _width(kind), _cache(kind))
    return table


def _width(kind: Attention) -> str:
    if kind.kind == "mla":
        return f"{kind.kv_rank} + {kind.rope_dim} latent"
    return str(kind.key_dim) if kind.key_dim == kind.value_dim else f"{kind.key_dim}, values {kind.value_dim}"


def _cache(kind: Attention) -> str:
    """What a token leaves in the cache of all layers of this kind, in bf16."""
    if kind.kind == "linear":
        return f"none; {units.size(kind.kv_bytes(0))} a sequence"
    if not kind.window:
        return units.size(kind.growth())
    window = f"{units.size(len(kind.layers) * 2 * kind.cached_values)} for the last {kind.window}"
    return f"{units.size(kind.growth())} + {window}" if kind.growth() else window


def _sequences(architecture: Architecture) -> "RenderableType":
    """KV cache in bf16 and in fp8, and operations, of one sequence at some lengths."""
    table = _table("context", "KV cache bf16", "KV cache fp8", "operations for its next token")
    longest = architecture.context or CONTEXTS[-1]
    for context in (*(length for length in CONTEXTS if length < longest), longest):
        table.add_row(str(context), units.size(architecture.kv_bytes(context)),
                      units.size(architecture.kv_bytes(context, value_bytes=1)),
                      f"{units.number(architecture.flops_per_token(context) / 1e9)} GFLOP")
    return table


def _table(*titles: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 or title == "format" else "right")
    return table
