"""Fits the ledger's few constants to measured rows and scores them on sources that no constant saw.

Constants are fitted in logarithms by Gauss-Newton steps with priors; groups of rows (source, machine, model, format,
engine, kind) count by the square root of their rows, and rows far off count less (Huber).
"""

import math
import statistics
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from measured import Row
from scoring import Scored, score, table

from rooftop.domain.stepcost import Ledger

PRIORS = {"small_kernel_us": (2.5, 0.3), "kernel_base": (1.0, 0.2),
          "host_ahead_us": (300.0, 0.7), "host_behind_us": (1000.0, 0.5), "host_request_us": (5.0, 0.7),
          "eager_launch_us": (25.0, 0.3), "request_ms": (30.0, 0.5)}
"""(prior, standard deviation of its logarithm) of what is fitted; all else is a data sheet's, a table's or a prior."""
NOISE, FAR, ROUNDS = 0.15, 0.3, 3


def with_values(ledger: Ledger, values: dict[str, float]) -> Ledger:
    return replace(ledger, constants=tuple(replace(one, value=values.get(one.name, one.value))
                                           for one in ledger.constants))


def errors(rows: list[Row], ledger: Ledger) -> np.ndarray:
    return np.array([one.error for one in score(rows, ledger)])


def weights(rows: list[Row]) -> np.ndarray:
    counts = Counter(row.machine_key for row in rows)
    return np.array([1 / math.sqrt(counts[row.machine_key]) for row in rows])


def fit(rows: list[Row], ledger: Ledger) -> dict[str, float]:
    """The constants that these rows ask for."""
    names = list(PRIORS)
    middle = np.log([PRIORS[name][0] for name in names])
    wide = np.array([PRIORS[name][1] for name in names])
    point, weight = middle.copy(), weights(rows)
    for _ in range(ROUNDS):
        here = errors(rows, with_values(ledger, dict(zip(names, np.exp(point), strict=True))))
        slopes = np.empty((len(rows), len(names)))
        for column in range(len(names)):
            moved = point.copy()
            moved[column] += 0.05
            there = errors(rows, with_values(ledger, dict(zip(names, np.exp(moved), strict=True))))
            slopes[:, column] = (there - here) / 0.05
        near = weight * np.minimum(1.0, FAR / np.maximum(np.abs(here), 1e-9)) / NOISE ** 2
        normal = slopes.T @ (near[:, None] * slopes) + np.diag(1 / wide ** 2)
        gradient = slopes.T @ (near * here) + (point - middle) / wide ** 2
        point = point - np.clip(np.linalg.solve(normal, gradient), -0.7, 0.7)
    return dict(zip(names, (float(value) for value in np.exp(point)), strict=True))


def quantiles(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The values below which 10 and 90 % of the weight lie."""
    order = np.argsort(values)
    below = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = np.interp((0.1, 0.9), below, values[order])
    return float(low), float(high)


def usable(row: Row) -> bool:
    return row.kind != "loaded" and row.metric != "ITL"


def spreads(scored: list[Scored]) -> dict[tuple[str, str], tuple[float, float]]:
    """10 and 90 % of the log errors by kind and metric; rows of one machine, model and engine count as one together."""
    groups = defaultdict(list)
    counts = Counter(one.row.machine_key for one in scored)
    for one in scored:
        groups[one.spread_key].append((one.spread_error, 1 / counts[one.row.machine_key]))
    return {key: quantiles(*np.array(found).T) for key, found in groups.items()}


def show_spreads(scored: list[Scored]) -> None:
    """The spread of all rows, and how often a source's rows lie within the spread of all other sources."""
    inside: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    for source in sorted({one.row.source for one in scored}):
        others = spreads([one for one in scored if one.row.source != source])
        for one in scored:
            both = others.get(one.spread_key)
            if one.row.source == source and both:
                width = (math.exp(both[1]) - math.exp(both[0])) / 2
                inside[one.spread_key].append((both[0] <= one.spread_error <= both[1], width))
    for key, (low, high) in sorted(spreads(scored).items()):
        found = inside[key]
        held = (f"held-out coverage {sum(hit for hit, _ in found) / len(found):.0%}, median half-width "
                f"{statistics.median(width for _, width in found):.0%}, {len(found)} rows" if found else "one source")
        print(f"spread_{key[0]}_{key[1]}: {low:+.3f} {high:+.3f}; {held}")


def report(rows: list[Row], ledger: Ledger) -> None:
    """Held-out errors by kind and metric, leave-one-source-out, and what all rows together ask for."""
    fitting = [row for row in rows if usable(row)]
    sources = sorted({row.source for row in fitting})
    held: list[Scored] = []
    for source in sources:
        seen = [row for row in fitting if row.source != source]
        found = fit(seen, ledger)
        kept = [row for row in rows if row.source == source]
        print(f"without {source}: " + " ".join(f"{name} {value:.3g}" for name, value in found.items()))
        held += score(kept, with_values(ledger, found), refused=Counter())
    print("\nheld out (leave one source out):")
    table(held, ledger)
    print()
    show_spreads(held)
    everything = fit(fitting, ledger)
    print("\nall rows: " + " ".join(f"{name} {value:.4g}" for name, value in everything.items()))
