"""The ledger of the performance model: efficiencies and all-reduce timings, read as nouns."""

import csv
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rooftop.domain import codec
from rooftop.domain.stepcost import Constant, Kernel, Ledger, Timing
from rooftop.errors import BadInput

EFFICIENCY, KERNELS, ALLREDUCE = "efficiency.toml", "kernels.csv", "allreduce.csv"
PACKAGE = "aiconfigurator-core 0.12.0"


@dataclass(frozen=True, slots=True)
class Table:
    """The file of constants."""

    constant: tuple[Constant, ...] = ()


def read(efficiency: str, kernels: str, allreduce: str) -> Ledger:
    """The ledger of three files' texts.  Raises BadInput that names the file and what is wrong in it."""
    try:
        tomllib.loads(efficiency)
    except ValueError as error:
        raise BadInput(f"not valid TOML: {error}", where=EFFICIENCY) from error
    table: Table = codec.from_toml(Table, efficiency, where=EFFICIENCY)
    return Ledger(table.constant, _kernels(kernels), _timings(allreduce))


@cache
def known() -> Ledger:
    """The catalog's ledger."""
    room = resources.files("rooftop.catalog")
    return read(*(room.joinpath(name).read_text(encoding="utf-8") for name in (EFFICIENCY, KERNELS, ALLREDUCE)))


def _lines(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


def _kernels(text: str) -> tuple[Kernel, ...]:
    kernels = []
    try:
        for row in _lines(text):
            base, memory, compute = (float(row[name]) for name in ("base_us", "memory", "compute"))
            if base < 0 or not 0 < memory <= 2 or not 0 < compute <= 2:
                raise ValueError(f"base_us {base:g} must not be negative, memory {memory:g} and compute {compute:g} "
                                 "must lie between 0 and 2")
            source = (f"table: {PACKAGE}, {row['systems'].replace(' ', ', ')}{' ' * bool(row['engine'])}"
                      f"{row['engine']}; {row['rows']} kernel times, median error {float(row['error']):.0%}")
            kernels.append(Kernel(row["generation"], row["operation"], row["format"], base * 1e-6, memory, compute,
                                  source, float(row["fill"]), row["engine"]))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"a row cannot be read: {error}", where=KERNELS) from error
    return tuple(kernels)


def _timings(text: str) -> tuple[Timing, ...]:
    timings = []
    try:
        for row in _lines(text):
            points = tuple((float(size), float(row[size]) * 1e-6) for size in row if size.isdigit() and row[size])
            timings.append(Timing(row["gpu"], row["link"], int(row["ranks"]), row["engine"], points,
                                  row["source"]))
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"a row cannot be read: {error}", where=ALLREDUCE) from error
    return tuple(timings)
