"""Machines by name: a file of the catalog, a user's file, or `8x RTX 4090`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path

from rooftop.catalog import gpus
from rooftop.catalog.gpus import Figure, Sheet
from rooftop.domain import codec
from rooftop.domain.machine import Group, Link, LinkKind, Machine, Numa, pcie_bytes_per_s
from rooftop.errors import BadInput

_QUICK = re.compile(r"(?:(\d+)\s*[x×*]\s*)?(\d+)\s*[x×*]\s*([a-z].*)", re.I)
MOST_GPUS = {"nvswitch": 72, "mesh": 8, "bridge": 16, "": 16}
"""GPUs that one node is believed to hold, by the fabric between them."""
ONE_SOCKET = 4
"""PCIe cards at full width that are assumed on one socket."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A kind of link and the sets of GPUs whose members all have it to each other.

    A PCIe link's rate follows from `generation` and `width` where `gb_per_s` is not there.
    """

    kind: LinkKind
    gpus: tuple[tuple[int, ...], ...] = ()
    gb_per_s: Figure | None = None
    latency_us: Figure | None = None
    shared_by: int = 1
    generation: int | None = None
    width: int | None = None
    p2p: bool | None = None

    def __post_init__(self) -> None:
        for name, figure in (("gb_per_s", self.gb_per_s), ("latency_us", self.latency_us)):
            if figure is not None and not figure[0] > 0:
                raise ValueError(f"{name} must be above 0, not {figure[0]:g}")
            if figure is not None and not figure[1].strip():
                raise ValueError(f"{name} needs its source beside it")
        if self.shared_by < 1:
            raise ValueError(f"shared_by must be at least 1, not {self.shared_by}")
        if self.kind.startswith("pcie") and self.generation is not None and self.width is not None:
            pcie_bytes_per_s(self.generation, self.width)

    @property
    def link(self) -> Link:
        """The noun, in bytes and seconds."""
        rate = self.gb_per_s[0] * 1e9 if self.gb_per_s else None
        if rate is None and self.kind.startswith("pcie") and self.generation and self.width:
            rate = pcie_bytes_per_s(self.generation, self.width)
        return Link(self.kind, rate, self.latency_us[0] * 1e-6 if self.latency_us else None, self.shared_by,
                    self.generation, self.width, self.p2p)


@dataclass(frozen=True, slots=True)
class Board:
    """A machine file: `count` GPUs of one kind, NUMA nodes by the GPUs at them, and the links."""

    title: str
    gpu: str | tuple[str, ...]
    count: int
    source: str
    sockets: int | None = None
    numa: tuple[tuple[int, ...], ...] = ()
    links: tuple[Wire, ...] = ()
    nodes: int = 1
    network: Wire | None = None
    cpu: str = ""
    cores: int = 0
    memory_gb: Figure | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or self.nodes < 1:
            raise ValueError(f"count and nodes must be at least 1, not {self.count} and {self.nodes}")
        kinds = {self.gpu} if isinstance(self.gpu, str) else set(self.gpu)
        if len(kinds) != 1:
            raise ValueError(f"GPUs of {len(kinds)} kinds ({', '.join(sorted(kinds)) or 'none'}): a machine file "
                             "describes one kind, since engines share the work evenly")
        for place, members in self._sets():
            outside = [gpu for gpu in members if not 0 <= gpu < self.count]
            if outside:
                raise ValueError(f"{place} names GPU {outside[0]}, and there are GPUs 0 to {self.count - 1}")
            if len(set(members)) != len(members):
                raise ValueError(f"{place} names a GPU twice")

    @property
    def kind(self) -> str:
        """The catalog's name of its GPUs."""
        return self.gpu if isinstance(self.gpu, str) else self.gpu[0]

    def _sets(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from ((f"numa[{i}]", members) for i, members in enumerate(self.numa))
        yield from ((f"links[{i}].gpus", members) for i, wire in enumerate(self.links) for members in wire.gpus)

    @property
    def machine(self) -> Machine:
        """The noun.  Raises BadInput for a GPU that the catalog does not know."""
        gpu = gpus.sheet(self.kind).gpu
        at = {member: node for node, members in enumerate(self.numa) for member in members}
        cards = tuple(replace(gpu, numa=at.get(number)) for number in range(self.count))
        groups = tuple(Group(members, wire.link) for wire in self.links for members in wire.gpus)
        memory = round(self.memory_gb[0] * 1e9) if self.memory_gb else 0
        return Machine(self.title, self.cpu, self.cores, memory, cards, "", groups,
                       tuple(Numa(node) for node in range(len(self.numa))), self.sockets, self.nodes,
                       self.network.link if self.network else None, notes=(*self.notes, *self._sources()))

    def _sources(self) -> Iterator[str]:
        yield f"source of the topology: {self.source}"
        wires = (*self.links, self.network) if self.network else self.links
        for wire in wires:
            for unit, figure in (("GB/s", wire.gb_per_s), ("us", wire.latency_us)):
                if figure:
                    yield f"source of {wire.kind}, {figure[0]:g} {unit}: {figure[1]}"


def read(text: str, where: str) -> Machine:
    """The machine of one file.  Raises BadInput that names the key of whatever is wrong."""
    board: Board = codec.from_toml(Board, text, where=where)
    try:
        return board.machine
    except BadInput as error:
        raise BadInput(error.what, where=where, remedy=error.remedy) from error


@cache
def known() -> tuple[tuple[str, Machine], ...]:
    """(file name without its ending, machine) of all machines in the catalog, by name."""
    room = resources.files("rooftop.catalog").joinpath("machines")
    files = sorted((file for file in room.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple((file.name.removesuffix(".toml"), read(file.read_text(encoding="utf-8"), f"machines/{file.name}"))
                 for file in files)


def machine(name: str) -> Machine:
    """The machine of that name: a file's path, a machine of the catalog, or count x GPU (nodes x count x GPU).

    Raises BadInput that names the nearest machines, or GPUs where only the GPU is unknown.
    """
    if name.endswith(".toml"):
        try:
            return read(Path(name).read_text(encoding="utf-8"), name)
        except (OSError, UnicodeError) as error:
            raise BadInput(f"the machine file cannot be read: {error}", where=name) from error
    wanted = gpus.plain(name)
    for stem, found in known():
        if wanted in (gpus.plain(stem), gpus.plain(found.name)):
            return found
    quick = _QUICK.fullmatch(name.strip())
    if quick:
        return assumed(gpus.sheet(quick[3]), int(quick[2]), int(quick[1] or 1), quick[3])
    sheet = gpus.find(name)
    if sheet is not None:
        return assumed(sheet, 1, 1, name)
    stems = [stem for stem, _ in known()]
    near = get_close_matches(name.lower(), stems, n=4, cutoff=0.5) or stems
    raise BadInput(f"there is no machine named {name!r}",
                   remedy=f"write count x GPU (8x RTX 4090), a .toml file, or one of: {', '.join(near)}")


def assumed(sheet: Sheet, count: int, nodes: int = 1, asked: str = "") -> Machine:
    """`nodes` nodes of `count` GPUs with the usual links of that GPU, all marked as assumed.

    nvswitch: each to each over NVLink.  mesh: each to each over one link.  Otherwise PCIe at the card's full
    width, four cards a socket, no NVLink bridge and no switch.  Raises BadInput for a count that no node of that
    GPU has.
    """
    most = MOST_GPUS[sheet.fabric]
    if not 1 <= count <= most or nodes < 1:
        raise BadInput(f"{nodes} x {count} x {sheet.name} is no machine: a node has 1 to {most} of them",
                       remedy=f"write nodes x GPUs a node, for instance 2x 8x {sheet.name}")
    name = f"{count}x {sheet.name}" if nodes == 1 else f"{nodes}x {count}x {sheet.name}"
    sockets = 1 if count <= ONE_SOCKET else 2
    half = -(-count // sockets)
    numa = tuple(tuple(range(begin, min(begin + half, count))) for begin in range(0, count, half))
    at = {member: node for node, members in enumerate(numa) for member in members}
    cards = tuple(replace(sheet.gpu, numa=at[number]) for number in range(count))
    groups = tuple(_assumed_groups(sheet, count, numa)) if count > 1 else ()
    return Machine(name, "", 0, 0, cards, "", groups, tuple(Numa(node) for node in range(len(numa))), sockets, nodes,
                   Link("network", assumed=True) if nodes > 1 else None, notes=_assumptions(sheet, count, nodes, asked))


def _assumed_groups(sheet: Sheet, count: int, numa: tuple[tuple[int, ...], ...]) -> Iterator[Group]:
    everyone = tuple(range(count))
    if sheet.fabric == "nvswitch":
        yield Group(everyone, Link("nvlink", sheet.fabric_bytes_per_s(), assumed=True))
        return
    if sheet.fabric == "mesh":
        yield Group(everyone, Link("xgmi", sheet.fabric_bytes_per_s(1), assumed=True))
        return
    generation, width = int(sheet.pcie_generation[0]), int(sheet.pcie_lanes[0])
    rate = pcie_bytes_per_s(generation, width)
    near = Link("pcie_host_bridge", rate, generation=generation, width=width, assumed=True)
    yield from (Group(members, near) for members in numa if len(members) > 1)
    if len(numa) > 1:
        yield Group(everyone, Link("inter_socket", rate, generation=generation, width=width, assumed=True))


def _assumptions(sheet: Sheet, count: int, nodes: int, asked: str) -> tuple[str, ...]:
    notes = []
    if asked and gpus.plain(asked) != gpus.plain(sheet.name):
        notes.append(f"{asked.strip()!r} is taken as {sheet.name}")
    if count > 1:
        how = {"nvswitch": "each GPU reaches each other over NVSwitch", "mesh": "each GPU has a link to each other"}
        notes.append(f"links are assumed: {how.get(sheet.fabric, _pcie_words(count))}")
    if nodes > 1:
        notes.append("the network between the nodes is not known")
    like = [stem for stem, machine in known() if machine.gpus[0].kind == sheet.name and len(machine.gpus) == count]
    if like:
        notes.append(f"machines of the catalog with these GPUs: {', '.join(like)}")
    notes.append("processor and memory of the host are not known")
    return tuple(notes)


def _pcie_words(count: int) -> str:
    where = "on one socket" if count <= ONE_SOCKET else "on two sockets"
    return f"PCIe at full width {where}, without switch and NVLink bridge"

