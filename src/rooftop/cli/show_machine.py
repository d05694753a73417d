"""A machine as terminal tables: GPUs, links, host, and what about it costs time."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rooftop import units
from rooftop.catalog import gpus
from rooftop.cli.show import console, show_json
from rooftop.domain import codec
from rooftop.domain.finding import Finding
from rooftop.domain.machine import Gpu, Link, Machine, Slot

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

KINDS = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie_switch": "PCIe switch", "pcie_host_bridge": "PCIe host bridge",
         "inter_socket": "between sockets", "network": "network", "unknown": "not known"}
UNKNOWN = "not known"


def show_machine(machine: Machine, warnings: Sequence[Finding] = (), as_json: bool = False) -> None:
    """A machine's figures and warnings, or with `as_json` the noun, its world and the warnings."""
    if as_json:
        show_json(machine_table(machine, warnings))
        return
    out = console()
    for part in machine_parts(machine, warnings):
        out.print(part)


def machine_table(machine: Machine, warnings: Sequence[Finding] = ()) -> dict[str, Any]:
    """For scripts: the noun's own fields, GPUs in all, the link that bounds them all, the warnings."""
    return {**codec.to_plain(machine), "world": machine.world,
            "slowest": codec.to_plain(machine.slowest(range(machine.world))), "warnings": codec.to_plain(warnings)}


def machine_parts(machine: Machine, warnings: Sequence[Finding] = ()) -> Iterator["RenderableType"]:
    """Title, host, GPUs, links, warnings, notes, sources of the catalog's figures."""
    from rich.text import Text

    yield Text(f"\n{machine.name}", "bold")
    yield _host(machine)
    if machine.gpus:
        yield Text("\nGPUs", "bold")
        yield from map(Text, _kinds(machine))
        yield _gpus(machine)
    else:
        yield Text("no GPU that nvidia-smi or rocm-smi lists")
    if machine.groups or machine.network:
        yield Text("\nLinks, one direction", "bold")
        yield _links(machine)
    if any(_idle(gpu.slot) for gpu in machine.gpus):
        yield Text("PCIe generations are what card and port can do; idle links are lower just now", "dim")
    for finding in warnings:
        yield _warning(finding)
    for note in machine.notes:
        yield Text(note, "dim") if note.startswith("source of ") else Text(f"note: {note}", "yellow")
    yield from (Text(line, "dim") for line in _sources(machine))


def numbers(members: Sequence[int]) -> str:
    """GPUs in one phrase: `0-3`, `0, 2, 5`."""
    if len(members) > 2 and tuple(members) == tuple(range(members[0], members[-1] + 1)):
        return f"{members[0]}-{members[-1]}"
    return ", ".join(map(str, members))


def _host(machine: Machine) -> "RenderableType":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=12)
    grid.add_column(overflow="fold")
    sockets = f", {machine.sockets} socket{'s' if machine.sockets != 1 else ''}" if machine.sockets else ""
    grid.add_row("processor", f"{machine.cpu or UNKNOWN}, {machine.cores or UNKNOWN} cores{sockets}")
    grid.add_row("memory", units.size(machine.memory_bytes) if machine.memory_bytes else UNKNOWN)
    if machine.nodes > 1:
        grid.add_row("nodes", f"{machine.nodes}, {machine.world} GPUs in all")
    if machine.system:
        grid.add_row("system", machine.system)
    if machine.iommu:
        grid.add_row("IOMMU", machine.iommu)
    return grid


def _kinds(machine: Machine) -> Iterator[str]:
    """A line for each kind of GPU: memory, rates, power."""
    names = [gpu.name for gpu in machine.gpus]
    for gpu in {gpu.name: gpu for gpu in machine.gpus}.values():
        memory = units.size(gpu.memory_bytes) if gpu.memory_bytes is not None else f"memory {UNKNOWN}"
        rates = [f"{name} {units.number(rate / 1e12)}" for name, rate in gpu.flops]
        parts = [f"{memory} at {_rate(gpu.memory_bytes_per_s)}", f"dense TFLOPS {', '.join(rates)}" if rates else "",
                 f"SM {gpu.sm}" if gpu.sm else "", f"{gpu.tdp_w:.0f} W" if gpu.tdp_w else ""]
        yield f"{names.count(gpu.name)} x {gpu.name}: {'; '.join(filter(None, parts))}"


def _gpus(machine: Machine) -> "RenderableType":
    table = _table("GPU", "address", "PCIe", "fabric", "NUMA", "memory", "in use")
    rows: list[tuple[list[int], tuple[str, ...]]] = []
    for number, gpu in enumerate(machine.gpus):
        row = _row(gpu)
        if rows and rows[-1][1] == row:
            rows[-1][0].append(number)
        else:
            rows.append(([number], row))
    for members, row in rows:
        table.add_row(numbers(members), *row)
    return table


def _row(gpu: Gpu) -> tuple[str, ...]:
    used = gpu.state.used_bytes if gpu.state else None
    return (gpu.bus, _slot(gpu.slot), "none" if gpu.fabric_bytes_per_s == 0 else _rate(gpu.fabric_bytes_per_s),
            str(gpu.numa) if gpu.numa is not None else "",
            units.size(gpu.memory_bytes) if gpu.memory_bytes is not None else UNKNOWN,
            units.size(used) if used is not None else "")


def _links(machine: Machine) -> "RenderableType":
    table = _table("GPUs", "link", "each pair", "when all send", "latency", "P2P")
    for group in machine.groups:
        table.add_row(numbers(group.gpus), *_link(group.link))
    if machine.network:
        table.add_row("nodes", *_link(machine.network))
    return table


def _link(link: Link) -> tuple[str, ...]:
    word = f" ({link.word})" if link.word else ""
    peers = {True: "yes", False: "blocked", None: ""}[link.p2p]
    return (KINDS[link.kind] + word + (", assumed" if link.assumed else ""), _rate(link.bytes_per_s),
            _rate(link.share_bytes_per_s) if link.shared_by > 1 else "",
            units.seconds(link.latency_s) if link.latency_s is not None else "", peers)


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else f"{units.number(value / 1e9)} GB/s"


def _slot(slot: Slot | None) -> str:
    if slot is None or (slot.used_generation is None and slot.used_width is None):
        return ""
    return f"{slot.used_generation or '?'} x{slot.used_width or '?'}"


def _idle(slot: Slot | None) -> bool:
    return bool(slot and slot.now_generation and slot.used_generation and slot.now_generation < slot.used_generation)


def _warning(finding: Finding) -> "RenderableType":
    from rich.text import Text

    evidence = f" ({'; '.join(finding.evidence)})" if finding.evidence else ""
    gain = f"; {finding.gain}" if finding.gain else ""
    return Text.assemble((f"\nwarning: {finding.claim}", "bold red"), f"{evidence}\n  {finding.remedy}{gain}")


def _sources(machine: Machine) -> Iterator[str]:
    for kind in dict.fromkeys(gpu.kind for gpu in machine.gpus if gpu.kind):
        sheet = gpus.find(kind)
        by_source: dict[str, list[str]] = {}
        for name, (_, source) in sheet.figures if sheet else ():
            by_source.setdefault(source, []).append(name)
        for source, names in by_source.items():
            yield f"source of {kind}: {', '.join(names)}: {source}"


def _table(*titles: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    words = ("GPU", "address", "GPUs", "link", "PCIe", "P2P")
    for title in titles:
        table.add_column(title, justify="left" if title in words else "right")
    return table
