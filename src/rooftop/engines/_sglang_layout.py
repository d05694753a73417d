"""Which ranks SGLang's lines name, and what sizes they prove."""

import re
from dataclasses import dataclass, field

from rooftop.engines._lines import Line, Notes
from rooftop.engines._nccl import devices

_AXES = ("dp", "pp", "tp", "ep", "gpu")
_NAMED = re.compile(r"\b(DP|PP|TP|EP)(\d+)\b")


@dataclass(slots=True)
class Ranks:
    """The highest rank named on each axis and the line that names it."""

    notes: Notes
    highest: dict[str, tuple[int, Line]] = field(default_factory=dict)

    def read(self, line: Line) -> None:
        """Read one line."""
        for axis, rank in _NAMED.findall(line.process):
            self._see(axis.lower(), int(rank), line)
        for device in devices(line.body):
            self._see("gpu", device, line)

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
