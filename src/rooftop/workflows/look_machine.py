"""What a machine is: by its name in the catalog, or as it tells itself."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path
from typing import cast

from rooftop import registry
from rooftop.catalog import gpus, machines
from rooftop.domain.host import Host, Probe
from rooftop.domain.machine import Gpu, Group, Link, Machine, Numa
from rooftop.errors import MissingPart, ProbeFailed
from rooftop.hardware import _pci, local
from rooftop.hardware.recorded import RecordedHost, Recorder
from rooftop.hardware.ssh import SshHost

SSH = "ssh:"


def look_at_machine(name: str | None = None, host: Host | None = None, record: Path | None = None) -> Machine:
    """A machine by name, or what `host` tells of itself.

    name: None = this machine; `ssh:TARGET`; the folder of a recorded machine; else a machine of the catalog, a .toml
    file or count x GPU (see `rooftop.catalog.machines.machine`).  With `record`, what the machine said is kept there.
    Raises BadInput for a name that nothing answers to, ProbeFailed where the machine cannot be read.
    """
    if host is None and name is not None:
        host = _named_host(name)
        if host is None:
            return machines.machine(name)
    host = host or local.LocalHost()
    return _discover(Recorder(host, record) if record is not None else host)


def probes() -> Iterator[Probe]:
    """Every vendor's probe: the modules of `rooftop.hardware` that end in PROBE, and the entry points of outsiders."""
    for point in metadata.entry_points(group="rooftop.hardware"):
        try:
            yield cast("Probe", point.load())
        except (ImportError, AttributeError) as error:
            raise MissingPart(f"the probe {point.name!r} cannot be imported: {error}",
                              remedy="install the package that it needs, or remove it") from error
    outside = {point.name for point in metadata.entry_points(group="rooftop.hardware")}
    for module in registry.names("hardware"):
        probe = None if module in outside else getattr(import_module(f"rooftop.hardware.{module}"), "PROBE", None)
        if probe is not None:
            yield cast("Probe", probe)


def _named_host(name: str) -> Host | None:
    if name.startswith(SSH):
        return SshHost(name.removeprefix(SSH))
    return RecordedHost(Path(name)) if Path(name).is_dir() else None


def _discover(host: Host) -> Machine:
    cards: tuple[Gpu, ...] = ()
    groups: tuple[Group, ...] = ()
    for probe in probes():
        found = probe.gpus(host)
        groups += tuple(_moved(group, len(cards)) for group in probe.groups(host, found))
        cards += found
    listing = _pci.devices(host) if cards else ()
    cards = tuple(_filled(card) for card in cards)
    cpu = local.cpu_model(host)
    cores, memory = _or_zero(local.usable_cores, host), _or_zero(local.usable_memory, host)
    names = [card.name for card in cards]
    parts = [cpu or "unknown processor", f"{cores} core{'s' if cores != 1 else ''}" if cores else "unknown cores",
             *(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))]
    numa = _numa_nodes(host)
    return Machine(", ".join(parts), cpu, cores, memory, cards, local.system(host),
                   tuple(replace(group, link=_rated(group, cards)) for group in groups), numa,
                   len({node.socket for node in numa}) if numa and all(n.socket is not None for n in numa) else None,
                   iommu=_pci.iommu(host), acs=_pci.redirecting((card.bus for card in cards), listing),
                   notes=tuple(_notes(cards, groups, cores, memory)))


def _moved(group: Group, by: int) -> Group:
    return replace(group, gpus=tuple(gpu + by for gpu in group.gpus))


def _or_zero(ask: Callable[[Host], int], host: Host) -> int:
    """What a host without /proc (a recording of a GPU tool alone) does not tell is 0, and noted."""
    try:
        return ask(host)
    except ProbeFailed:
        return 0


def _filled(card: Gpu) -> Gpu:
    """With the catalog's figures for what the driver does not tell; as it is where the catalog does not know it."""
    sheet = gpus.find(card.name)
    if sheet is None:
        return card
    known = sheet.gpu
    return replace(card, kind=known.kind, vendor=known.vendor, sm=known.sm or card.sm,
                   memory_bytes_per_s=known.memory_bytes_per_s, nominal_bytes=known.nominal_bytes, flops=known.flops,
                   fabric_bytes_per_s=known.fabric_bytes_per_s, tdp_w=known.tdp_w)


def _rated(group: Group, cards: tuple[Gpu, ...]) -> Link:
    """A group's link; NVLink and XGMI rates that no tool told, as the data sheet has them."""
    link, sheet = group.link, gpus.find(cards[group.gpus[0]].name)
    if link.kind not in ("nvlink", "xgmi") or link.bytes_per_s is not None or sheet is None or not sheet.fabric:
        return link
    links = link.width if link.kind == "nvlink" else 1
    return replace(link, bytes_per_s=sheet.fabric_bytes_per_s(links))


def _numa_nodes(host: Host) -> tuple[Numa, ...]:
    """The NUMA nodes that sysfs lists, each with its processors, memory and socket."""
    found = []
    for number in _numbers(host.read("/sys/devices/system/node/online") or ""):
        cpus = (host.read(f"/sys/devices/system/node/node{number}/cpulist") or "").strip()
        first = cpus.replace("-", ",").split(",")[0]
        socket = host.read(f"/sys/devices/system/cpu/cpu{first}/topology/physical_package_id") if first else None
        total = (host.read(f"/sys/devices/system/node/node{number}/meminfo") or "").partition("MemTotal:")[2].split()
        found.append(Numa(number, cpus, int(socket) if socket and socket.strip().isdigit() else None,
                          int(total[0]) * 1024 if total and total[0].isdigit() else None))
    return tuple(found)


def _numbers(ranges: str) -> Iterator[int]:
    for part in ranges.strip().split(","):
        low, _, high = part.partition("-")
        if low.isdigit():
            yield from range(int(low), int(high or low) + 1)


def _notes(cards: tuple[Gpu, ...], groups: tuple[Group, ...], cores: int, memory: int) -> Iterator[str]:
    for name in dict.fromkeys(card.name for card in cards if not card.kind):
        yield f"{name} is not in the catalog: its speed is not known ({gpus.nearest(name)})"
    if len(cards) > 1 and not groups:
        yield "nothing tells how the GPUs are linked"
    if not cores or not memory:
        yield "processor and memory of the host are not known"
