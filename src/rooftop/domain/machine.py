"""Where a model is served: nodes, GPUs and the links between them, cores, memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

LinkKind = Literal["nvlink", "xgmi", "pcie_switch", "pcie_host_bridge", "inter_socket", "network", "unknown"]
DISTANCE: dict[str, int] = {kind: place for place, kind in enumerate(get_args(LinkKind))}
"""From near to far; what is not known counts as farthest."""

_TRANSFERS_PER_S = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_PAYLOAD = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}


def pcie_bytes_per_s(generation: int, width: int) -> float:
    """Bytes a second of a PCIe link, one direction, line coding taken off and packet headers not.

    Transfers/s x coding x lanes / 8; coding is 8b/10b up to generation 2, 128b/130b up to 5, and 242 of 256 bytes of a
    flit in 6 (PCI Express base specification).  Copies reach about 80 to 90 % of it.  Raises ValueError for a
    generation or a width that there is not.
    """
    if generation not in _TRANSFERS_PER_S or width not in _WIDTHS:
        raise ValueError(f"there is no PCIe generation {generation} x{width}")
    return _TRANSFERS_PER_S[generation] * _PAYLOAD[generation] * width / 8


@dataclass(frozen=True, slots=True)
class Slot:
    """The PCIe link that a GPU sits on; None where it is not known.

    generation, width: the most that the card can do.  host_generation, host_width: the most that the port above it can.
    now_generation, now_width: at the moment of looking; an idle card lowers its generation, and some their width.
    """

    generation: int | None = None
    width: int | None = None
    host_generation: int | None = None
    host_width: int | None = None
    now_generation: int | None = None
    now_width: int | None = None

    @property
    def used_generation(self) -> int | None:
        """The generation that card and port do together; an idle link's is lower for the moment."""
        return min((value for value in (self.generation, self.host_generation) if value), default=None)

    @property
    def used_width(self) -> int | None:
        """The lanes that card and port have both, and no more than are up now."""
        return min((value for value in (self.width, self.host_width, self.now_width) if value), default=None)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes a second in one direction under load; None where they are not known to be of PCIe."""
        generation, width = self.used_generation, self.used_width
        known = generation in _TRANSFERS_PER_S and width in _WIDTHS
        return pcie_bytes_per_s(generation, width) if known and generation and width else None


@dataclass(frozen=True, slots=True)
class GpuState:
    """What a driver told at the moment of looking; None where it did not.

    used_bytes: memory in use.  processes: (program, bytes) of each that holds memory, bytes None where hidden.
    """

    used_bytes: int | None = None
    processes: tuple[tuple[str, int | None], ...] = ()
    ecc: bool | None = None
    persistence: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as found or as its data sheet says; None where it is not known.

    name: as the driver prints it.  memory_bytes: all that the driver reports; nominal_bytes: what it is sold as.
    kind: its name in the catalog, "" where it is not there.  sm: compute capability (`12.0`) or `gfx942`.
    flops: (number format, dense operations/s with 32-bit accumulation), a multiplication and an addition being two.
    fabric_bytes_per_s: over all its NVLinks (xGMI) together, one direction; 0.0 = it has none.
    numa: its NUMA node.  bus: its PCI address.
    """

    name: str
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    kind: str = ""
    vendor: str = ""
    sm: str = ""
    nominal_bytes: int | None = None
    flops: tuple[tuple[str, float], ...] = ()
    fabric_bytes_per_s: float | None = None
    tdp_w: float | None = None
    slot: Slot | None = None
    numa: int | None = None
    bus: str = ""
    state: GpuState | None = None

    def flops_per_s(self, number_format: str) -> float | None:
        """Dense operations/s in `bf16`, `fp8`, `fp4` or `int8`; None where the catalog has no figure."""
        return dict(self.flops).get(number_format)


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two GPUs, or between two nodes.

    bytes_per_s: one direction, by the sheet, while no other pair sends; None = not known.  latency_s: one way.
    shared_by: GPUs that send over the same wire when all send at once (4 cards behind one switch uplink: 4).
    generation, width: of PCIe, or of NVLink with the number of links.  p2p: whether one GPU may write into the other's
    memory, None = not told.  word, p2p_word: what the tool that found them says (`PIX`, `NV18`; `OK`, `GNS`).
    assumed: no one saw it.
    """

    kind: LinkKind
    bytes_per_s: float | None = None
    latency_s: float | None = None
    shared_by: int = 1
    generation: int | None = None
    width: int | None = None
    p2p: bool | None = None
    word: str = ""
    p2p_word: str = ""
    assumed: bool = False

    @property
    def share_bytes_per_s(self) -> float | None:
        """Bytes a second left to each GPU when all that share the wire send."""
        return self.bytes_per_s / self.shared_by if self.bytes_per_s is not None else None


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs (numbers within a node) any two of which have this link, unless a smaller group holds both."""

    gpus: tuple[int, ...]
    link: Link


@dataclass(frozen=True, slots=True)
class Numa:
    """One NUMA node: its number, its processors as the kernel lists them (`0-31,64-95`), its socket, its memory."""

    number: int
    cpus: str = ""
    socket: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One node, or `nodes` equal ones.

    cores: logical processors; memory_bytes: memory that this process may use; both of one node, as are `gpus`, `groups`
    (links between GPUs) and `numa`.  network: the way between nodes, for each GPU.  iommu: `off`, `on`, `passthrough`,
    "" = not told.  acs: PCI bridges that send the GPUs' peer-to-peer packets up to the root, None = not told.
    notes: what is assumed or was not found, for people.
    """

    name: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    system: str = ""
    groups: tuple[Group, ...] = ()
    numa: tuple[Numa, ...] = ()
    sockets: int | None = None
    nodes: int = 1
    network: Link | None = None
    iommu: str = ""
    acs: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """GPUs in all nodes."""
        return len(self.gpus) * self.nodes

    def gpu(self, rank: int) -> Gpu:
        """The GPU of one rank; ranks count through the nodes.  Raises ValueError where there is no such rank."""
        if not 0 <= rank < self.world:
            raise ValueError(f"{self.name} has no GPU {rank}: it has {self.world}")
        return self.gpus[rank % len(self.gpus)]

    def pair(self, one: int, other: int) -> Link:
        """The link between two ranks: that of the smallest group that holds both; kind `unknown` where none does.

        Raises ValueError for a rank that there is not, and for a rank and itself.
        """
        self.gpu(one), self.gpu(other)
        if one == other:
            raise ValueError(f"GPU {one} needs no link to itself")
        count = len(self.gpus)
        if one // count != other // count:
            return self.network or Link("unknown")
        both = {one % count, other % count}
        holding = [group for group in self.groups if both <= set(group.gpus)]
        return min(holding, key=lambda group: len(group.gpus)).link if holding else Link("unknown")

    def slowest(self, ranks: Iterable[int]) -> Link | None:
        """The link that bounds a collective over these ranks; one of unknown speed before all; None for one rank.

        Compared by bytes a second when all that share it send, then by latency, then by distance.
        """
        links = [self.pair(one, other) for one, other in combinations(sorted(set(ranks)), 2)]
        return max(links, key=lambda link: (-(link.share_bytes_per_s or 0.0), link.latency_s or 0.0,
                                            DISTANCE[link.kind]), default=None)
