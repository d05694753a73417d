"""How long collectives take by size, group, link and algorithm, from measured timings."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log

from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.plan import SettingValue
from rooftop.domain.stepcost import Ledger, Timing

FAST = ("nvlink", "xgmi")
WORLDS = (2, 4, 8, 16)
STAND_INS = {"nvlink": ("H100 SXM", "A100 80GB SXM", "B200 SXM"), "xgmi": ("H100 SXM",),
             "pcie": ("RTX PRO 6000 Blackwell Server", "L40S")}
"""Whose timings stand for GPUs without any, by kind of link; the nearest in link speed is taken."""
ONE_SHOT = "pcie one-shot"
"""Timing.engine of the kernels that read their peers' memory over PCIe; engines use them only if asked."""
ONE_SHOT_BYTES = 65536
ONE_SHOT_SETTINGS = ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC",
                     "VLLM_ENABLE_PCIE_ALLREDUCE")
NETWORK_LATENCY_S, NETWORK_BYTES_PER_S = 20e-6, 20e9
"""A hop between nodes where nothing is known of the network: RoCE of 200 Gbit/s at 80 %."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The all-reduce of one group of ranks; `time` splits its seconds in latency and bandwidth.

    points: (bytes, seconds) measured.  scale: of their seconds beyond latency, to this machine's link.
    hops: network hops between nodes on top.  source: of the timings.
    """

    ranks: int
    points: tuple[tuple[float, float], ...]
    scale: float = 1.0
    network_hops: int = 0
    source: str = ""

    def time(self, size: float) -> tuple[float, float]:
        """(latency seconds, bandwidth seconds) of one all-reduce of `size` bytes; zeros for one rank."""
        if self.ranks == 1 or not self.points:
            return 0.0, 0.0
        least = self.points[0][1]
        whole = interpolate(self.points, size)
        wire = max(0.0, whole - least) * self.scale
        if self.network_hops:
            return (least + self.network_hops * NETWORK_LATENCY_S,
                    wire + 2 * size * self.network_hops / (self.network_hops + 1) / NETWORK_BYTES_PER_S)
        return min(least, whole), wire


def interpolate(points: tuple[tuple[float, float], ...], size: float) -> float:
    """Seconds at `size` bytes, straight between neighbours in logarithms; constant below, proportional above."""
    sizes = [point[0] for point in points]
    place = bisect_left(sizes, size)
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1] * size / sizes[-1]
    (low, before), (high, after) = points[place - 1], points[place]
    share = log(size / low) / log(high / low)
    return exp(log(before) * (1 - share) + log(after) * share)


def ring(ledger: Ledger, machine: Machine, ranks: Iterable[int], engine: str,
         settings: Mapping[str, SettingValue]) -> Ring:
    """The all-reduce that an engine uses over these ranks of a machine."""
    group = sorted(set(ranks))
    if len(group) < 2:
        return Ring(1, ())
    per_node = max(1, len(machine.gpus))
    nodes = len({rank // per_node for rank in group})
    local = [rank for rank in group if rank // per_node == group[0] // per_node]
    link = machine.slowest(local) if len(local) > 1 else None
    kind = link.kind if link is not None else "nvlink"
    gpu = machine.gpu(group[0])
    points, scale, source = choose(ledger, gpu, "pcie" if kind not in FAST else kind, max(2, len(local)), engine,
                           any(_on(settings.get(name)) for name in ONE_SHOT_SETTINGS))
    return Ring(len(group), points, scale, nodes - 1, source)


def choose(ledger: Ledger, gpu: Gpu, link: str, ranks: int, engine: str, one_shot: bool = False
           ) -> tuple[tuple[tuple[float, float], ...], float, str]:
    """(points, factor of their bandwidth part to this GPU's link, source) of the timing that stands for a group.

    Raises KeyError where the ledger has no timing at all.
    """
    world = next((world for world in WORLDS if world >= ranks), WORLDS[-1])
    names = (gpu.kind, *STAND_INS.get(link, STAND_INS["pcie"]))
    family = "pcie" if link not in FAST else "nvlink"
    for name in _near(names, gpu, link):
        fitting = [one for one in ledger.timings if one.gpu == name and one.link == family and one.engine != ONE_SHOT]
        if fitting:
            best = min(fitting, key=lambda one: (abs(log(one.ranks / world)), (engine, "").index(one.engine)
                                                 if one.engine in (engine, "") else 2))
            if one_shot and link == "pcie":
                return _with_one_shot(ledger, best, world)
            return best.points, _scale(best, gpu, link), best.source
    raise KeyError(f"no all-reduce timing for {link}")


def _with_one_shot(ledger: Ledger, best: Timing, world: int) -> tuple[tuple[tuple[float, float], ...], float, str]:
    """The opt-in kernel up to the size at which the engines leave it for NCCL."""
    direct = min((one for one in ledger.timings if one.engine == ONE_SHOT), default=best,
                 key=lambda one: abs(log(one.ranks / world)))
    points = (*(point for point in direct.points if point[0] <= ONE_SHOT_BYTES),
              *(point for point in best.points if point[0] > ONE_SHOT_BYTES))
    return points, 1.0, f"{direct.source}; above {ONE_SHOT_BYTES} bytes {best.source}"


def _near(names: tuple[str, ...], gpu: Gpu, link: str) -> tuple[str, ...]:
    if link in FAST and gpu.fabric_bytes_per_s and gpu.fabric_bytes_per_s >= 700e9:
        return (names[0], "B200 SXM", *names[1:])
    generation = gpu.slot.generation if gpu.slot else None
    if link not in FAST and generation is not None and generation < 5:
        return (names[0], "L40S", *names[1:])
    return names


def _scale(timing: Timing, gpu: Gpu, link: str) -> float:
    """Bandwidth of the timed link over that of this GPU's, where both are known."""
    if timing.gpu == gpu.kind:
        return 1.0
    if link in FAST:
        return 450e9 / gpu.fabric_bytes_per_s if gpu.fabric_bytes_per_s and timing.gpu == "H100 SXM" else 1.0
    width = gpu.slot.width if gpu.slot else None
    return 16 / width if width else 1.0


def _on(value: SettingValue | None) -> bool:
    return str(value).lower() in ("1", "true", "on", "yes") if value is not None else False
