"""Which ranks SGLang's lines name, what sizes they prove, and how NCCL connected them."""

import re
from dataclasses import dataclass, field

from rooftop.engines._lines import Line, Notes

_AXES = ("dp", "pp", "tp", "ep", "gpu")
_NAMED = re.compile(r"\b(DP|PP|TP|EP)(\d+)\b")
_NCCL_GPU = re.compile(r"\[(\d+)\] (?:\S+ )?NCCL (?:INFO|WARN)")
_DEVICES = re.compile(
    r"connected GPUs (\d+) and (\d+)|\bcudaDev (\d+)|\bGPU (\d+)(?: has a|; [\d.]+ \w+) total capacity|"
    r"device cuda:(\d+)|"
    r"Channel \d+\S* : \d+\[(\d+)\] -> \d+\[(\d+)\]")
_CHANNEL = re.compile(r"NCCL INFO Channel \S+ : .* via (?P<way>\S+)")
_TRANSPORTS = (("p2p", re.compile(r"^P2P")), ("shm", re.compile(r"^SHM")), ("nvls", re.compile(r"^NVLS")),
               ("net_socket", re.compile("SOCKET")), ("net_ib", re.compile("IB|ROCE|UCX|GDRDMA")))
_COUNT = re.compile(r"NCCL INFO .*?\b(?P<n>\d+) coll channels")


@dataclass(slots=True)
class Ranks:
    """The highest rank named on each axis and the line that names it; NCCL's channels."""

    notes: Notes
    highest: dict[str, tuple[int, Line]] = field(default_factory=dict)
    transports: dict[str, Line] = field(default_factory=dict)

    def read(self, line: Line) -> None:
        """Read one line."""
        for axis, rank in _NAMED.findall(line.process):
            self._see(axis.lower(), int(rank), line)
        if "NCCL" in line.body or "GPU" in line.body or "cuda:" in line.body:
            for pattern in (_NCCL_GPU, _DEVICES):
                for match in pattern.finditer(line.text):
                    for device in match.groups():
                        if device is not None:
                            self._see("gpu", int(device), line)
        if "NCCL" in line.text:
            self._read_nccl(line)

    def _read_nccl(self, line: Line) -> None:
        channel, count = _CHANNEL.search(line.text), _COUNT.search(line.text)
        if channel:
            way = channel["way"].upper()
            kind = next((name for name, pattern in _TRANSPORTS if pattern.search(way)), None)
            if kind:
                self.transports[kind] = line
        if count:
            self.notes.add("nccl.channels", int(count["n"]), "built", line)
        if "P2P is disabled between connected GPUs" in line.text:
            self.notes.add("nccl.p2p", False, "built", line)
        if re.search(r"NCCL_P2P_DISABLE(?:=| set by environment to )1\b", line.text):
            self.notes.add("nccl.p2p", False, "asked", line)
        if re.search(r"GPU Direct RDMA (?:\([^)]*\) )?enabled for HCA", line.text):
            self.notes.add("nccl.gpu_direct", True, "built", line)

    def _see(self, axis: str, rank: int, line: Line) -> None:
        if axis not in self.highest or rank > self.highest[axis][0]:
            self.highest[axis] = (rank, line)

    def close(self) -> None:
        """Note the ranks seen, and the sizes that the engine resolved and whose last rank has spoken."""
        seen = [(axis, *self.highest[axis]) for axis in _AXES if axis in self.highest and self.highest[axis][0] > 0]
        if seen:
            last = max((line for _, _, line in seen), key=lambda line: line.number)
            self.notes.add("layout.ranks_seen", " ".join(f"{axis}{rank}" for axis, rank, _ in seen), "built", last)
        for axis, rank, line in seen:
            facts = {"tp": ("layout.tp",), "pp": ("layout.pp",), "ep": ("layout.ep",),
                     "dp": ("layout.attention_dp", "layout.dp")}.get(axis, ())
            for fact in facts:
                if self.notes.values(fact, "resolved") == [rank + 1]:
                    self.notes.add(fact, rank + 1, "built", line)
        if self.transports:
            proof = max(self.transports.values(), key=lambda line: line.number)
            kind = next(iter(self.transports)) if len(self.transports) == 1 else "mixed"
            self.notes.add("nccl.transport", kind, "built", proof)
