"""Which ranks vLLM's processes name, and what sizes they leave possible."""

import re
from dataclasses import dataclass, field

from rooftop.engines._lines import Line, Notes
from rooftop.engines._nccl import devices

_AXES = ("dp", "pp", "tp", "ep", "gpu")
_RANK_LINE = re.compile(
    r"rank (?P<rank>\d+) in world size (?P<world>\d+) is assigned as DP rank (?P<dp>\d+), PP rank (?P<pp>\d+), "
    r"(?:PCP rank (?P<pcp>\d+), )?TP rank (?P<tp>\d+)(?:, ETP rank \S+?)?(?:, EP rank (?P<ep>\d+|N/A))?")
_NAMED = re.compile(r"(?:(?<=[_ ])|^)(DP|PP|PCP|TP|DCP|EP)(\d+)(?=_|\s|$)")
_OLD_ENGINE = re.compile(r"^EngineCore_(\d+)$")
_EP_RANK = re.compile(r"\[EP Rank (?P<rank>\d+)/(?P<size>\d+)\] Expert parallelism is enabled")
_DP_DEFAULT = re.compile(r"Defaulting api_server_count to data_parallel_size \((\d+)\)")

_LARGEST_WORLD = 65536


@dataclass(slots=True)
class Ranks:
    """The highest rank named on each axis, the worlds of the rank lines, and the line that proves each."""

    highest: dict[str, tuple[int, Line]] = field(default_factory=dict)
    worlds: dict[int, Line] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    engine_dp: tuple[int, Line] | None = None
    line_dp: int = 0
    pcp_known: bool = False

    def read(self, line: Line, notes: Notes) -> None:
        """Read one line."""
        self._read_process(line)
        found = _RANK_LINE.search(line.body)
        if found:
            self.worlds.setdefault(int(found["world"]), line)
            self.line_dp = max(self.line_dp, int(found["dp"]))
            self.pcp_known = self.pcp_known or found["pcp"] is not None
            for axis in ("dp", "pp", "pcp", "tp", "ep"):
                if found[axis] and found[axis] != "N/A":
                    self._see(axis, int(found[axis]), line)
        experts = _EP_RANK.search(line.body)
        if experts:
            notes.add("layout.ep", int(experts["size"]), "built", line)
            self._see("ep", int(experts["rank"]), line)
        replicas = _DP_DEFAULT.search(line.body)
        if replicas:
            notes.add("layout.dp", int(replicas[1]), "resolved", line)
        for device in devices(line.body):
            self._see("gpu", device, line)

    def _read_process(self, line: Line) -> None:
        for process in line.process.split():
            old = _OLD_ENGINE.match(process)
            axes = [("DP", old[1])] if old else _NAMED.findall(process)
            for axis, rank in axes:
                self._see(axis.lower(), int(rank), line)
                if not process.startswith("EngineCore"):
                    self.named.add(axis.lower())
                elif int(rank) and (self.engine_dp is None or int(rank) > self.engine_dp[0]):
                    self.engine_dp = (int(rank), line)

    def _see(self, axis: str, rank: int, line: Line) -> None:
        if axis not in self.highest or rank > self.highest[axis][0]:
            self.highest[axis] = (rank, line)

    def _top(self, axis: str) -> int:
        return self.highest[axis][0] if axis in self.highest else 0

    @property
    def apart(self) -> bool:
        """Whether each data-parallel engine counts a world of its own (dense models, 0.14 and later)."""
        world = max(self.worlds, default=0)
        return (self.engine_dp is not None and self.line_dp == 0 and bool(self.worlds)
                and world < (self.engine_dp[0] + 1) * (self._top("tp") + 1) * (self._top("pp") + 1))

    def close(self, notes: Notes) -> None:
        """Note what all ranks together prove."""
        seen = [(axis, self.highest[axis]) for axis in _AXES if self._top(axis) > 0]
        if seen:
            last = max((line for _, (_, line) in seen), key=lambda line: line.number)
            notes.add("layout.ranks_seen", " ".join(f"{axis}{rank}" for axis, (rank, _) in seen), "built", last)
        replicas = self._replicas(notes)
        if len(self.worlds) == 1:
            world, line = next(iter(self.worlds.items()))
            self._note_sizes(world, line, replicas, notes)
        elif not self.worlds:
            self._note_sizes_of_experts(notes)
        if "dcp" in self.highest:
            asked = [value for value in notes.values("layout.dcp", "resolved") if value == self._top("dcp") + 1]
            if asked:
                notes.add("layout.dcp", asked[0], "built", self.highest["dcp"][1])

    def _note_sizes(self, world: int, line: Line, replicas: int | None, notes: Notes) -> None:
        fits = self._solve(world)
        for axis in ("tp", "pp") if self.apart else ("tp", "pp", "dp"):
            sizes = {fit[axis] for fit in fits}
            if len(sizes) == 1:
                notes.add(f"layout.{axis}", sizes.pop(), "built", self.highest[axis][1] if self._top(axis) else line)
        if not self.apart:
            notes.add("layout.world_size", world, "built", line)
            ranks = {fit["tp"] * fit["dp"] * fit["pcp"] for fit in fits}
            if "ep" in self.named and len(ranks) == 1 and not notes.values("layout.ep", "built"):
                notes.add("layout.ep", ranks.pop(), "built", self.highest["ep"][1])
        elif replicas:
            notes.add("layout.world_size", world * replicas, "built", line)

    def _note_sizes_of_experts(self, notes: Notes) -> None:
        """Without a rank line the expert-parallel size, tp x pcp x dp, may leave one tp and one dp."""
        experts = notes.values("layout.ep", "built")
        fits = [fit for fit in self._solve(int(experts[0])) if fit["pp"] == 1] if len(experts) == 1 else []
        for axis in ("tp", "dp"):
            sizes = {fit[axis] for fit in fits}
            if len(sizes) == 1 and self._top(axis):
                notes.add(f"layout.{axis}", sizes.pop(), "built", self.highest[axis][1])

    def _replicas(self, notes: Notes) -> int | None:
        """Engines of their own, where the highest named is the last that was asked for."""
        if not self.engine_dp or not (self.apart or not self.worlds):
            return None
        count = self.engine_dp[0] + 1
        if count in notes.values("layout.dp", "resolved") or count in notes.values("layout.dp", "asked"):
            if self.worlds:
                notes.add("layout.dp", count, "built", self.engine_dp[1])
            return count
        return None

    def _solve(self, world: int) -> list[dict[str, int]]:
        """All sizes whose product is the world and which have room for every rank that was named."""
        divisors = [size for size in range(1, world + 1) if world % size == 0] if world <= _LARGEST_WORLD else []
        least = {axis: self._top(axis) + 1 for axis in ("tp", "pp", "pcp", "dp", "ep")}
        if self.apart:
            least["dp"] = 1
        fits = [{"tp": tp, "pp": pp, "dp": dp, "pcp": world // (tp * pp * dp)}
                for tp in divisors for pp in divisors for dp in divisors if world % (tp * pp * dp) == 0]
        return [fit for fit in fits if all(fit[axis] >= least[axis] for axis in fit)
                and (fit["pcp"] == 1 or self.pcp_known) and fit["tp"] * fit["dp"] * fit["pcp"] >= least["ep"]]
