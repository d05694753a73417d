"""The ledger of the performance model: efficiencies and all-reduce timings, read as nouns."""

import csv
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rooftop.domain import codec
from rooftop.domain.stepcost import Constant, Kernel, Ledger, Timing
from rooftop.errors import BadInput

EFFICIENCY, ALLREDUCE = "efficiency.toml", "allreduce.csv"


@dataclass(frozen=True, slots=True)
class Row:
    """One [[kernel]] of the table, in its units."""

    generation: str
    operation: str
    format: str
    base_us: float
    memory: float
    compute: float
    source: str
    fill: float = 0.0

    def __post_init__(self) -> None:
        if self.base_us < 0 or not 0 < self.memory <= 2 or not 0 < self.compute <= 2:
            raise ValueError("base_us must not be negative, memory and compute must lie between 0 and 2")
        if not self.source.strip():
            raise ValueError("a kernel needs its source")


@dataclass(frozen=True, slots=True)
class Table:
    """The file: constants and kernels."""

    constant: tuple[Constant, ...]
    kernel: tuple[Row, ...]


def read(efficiency: str, allreduce: str) -> Ledger:
    """The ledger of two files' texts.  Raises BadInput that names the file and what is wrong in it."""
    try:
        tomllib.loads(efficiency)
    except ValueError as error:
        raise BadInput(f"not valid TOML: {error}", where=EFFICIENCY) from error
    table: Table = codec.from_toml(Table, efficiency, where=EFFICIENCY)
    kernels = tuple(Kernel(row.generation, row.operation, row.format, row.base_us * 1e-6, row.memory, row.compute,
                           row.source, row.fill) for row in table.kernel)
    return Ledger(table.constant, kernels, _timings(allreduce))


@cache
def known() -> Ledger:
    """The catalog's ledger."""
    room = resources.files("rooftop.catalog")
    return read(*(room.joinpath(name).read_text(encoding="utf-8") for name in (EFFICIENCY, ALLREDUCE)))


def _timings(text: str) -> tuple[Timing, ...]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    timings = []
    try:
        for row in csv.DictReader(lines):
            points = tuple((float(size), float(row[size]) * 1e-6) for size in row if size.isdigit() and row[size])
            timings.append(Timing(row["gpu"], row["link"], int(row["ranks"]), row["engine"], points,
                                  row["source"]))
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"a row cannot be read: {error}", where=ALLREDUCE) from error
    return tuple(timings)
