"""The parts of an engine's start: how long they usually take, when one hangs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rooftop.domain import codec
from rooftop.errors import BadInput

FILE = "phases.toml"
FIRST = "start process"


@dataclass(frozen=True, slots=True)
class Phase:
    """One row of the table: a kind of phase, the names that engines give it, its durations in seconds, its causes.

    Where weights are read, their bytes over a rate are added: `usual_bytes_per_s` to what is usual, and
    `slowest_bytes_per_s` to the longest (0 = nothing is added).
    """

    kind: str
    names: tuple[str, ...]
    usual_s: float
    silence_s: float
    longest_s: float
    causes: tuple[str, ...]
    source: str
    usual_bytes_per_s: float = 0.0
    slowest_bytes_per_s: float = 0.0
    error: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.usual_s <= self.longest_s or not 0 < self.silence_s <= self.longest_s:
            raise ValueError(f"{self.kind}: usual_s and silence_s must be above 0 and at most longest_s")
        if not self.names or not self.causes or not self.source.strip():
            raise ValueError(f"{self.kind}: names, causes and source must not be empty")

    def usual(self, weight_bytes: int) -> float:
        """Seconds that are nothing unusual for a model of that size."""
        return self.usual_s + (weight_bytes / self.usual_bytes_per_s if self.usual_bytes_per_s else 0.0)

    def longest(self, weight_bytes: int) -> float:
        """Seconds after which it hangs whatever it does."""
        return self.longest_s + (weight_bytes / self.slowest_bytes_per_s if self.slowest_bytes_per_s else 0.0)


@dataclass(frozen=True, slots=True)
class Table:
    """The file."""

    phase: tuple[Phase, ...]


def read(text: str) -> Mapping[str, Phase]:
    """Rows by the engines' names of phases.  Raises BadInput for a name twice, or none for the first phase."""
    rows: dict[str, Phase] = {}
    for row in codec.from_toml(Table, text, where=FILE).phase:
        for name in row.names:
            if name in rows:
                raise BadInput(f"{name!r} is named by {rows[name].kind!r} and by {row.kind!r}", where=FILE)
            rows[name] = row
    if FIRST not in rows:
        raise BadInput(f"no row names {FIRST!r}", where=FILE)
    return rows


@cache
def known() -> Mapping[str, Phase]:
    """The catalog's rows by the engines' names of phases."""
    return read((resources.files("rooftop.catalog") / FILE).read_text(encoding="utf-8"))
