"""Geometry of charts: data to pixels, round ticks, labels that do not overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low`..`high` of the data to `start`..`end` of the picture, evenly or by ratio (`log`, then low > 0)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value; a scale without extent puts everything in its middle."""
        low, high, value = (math.log(v) for v in (self.low, self.high, value)) if self.log else (
            self.low, self.high, value)
        if high == low:
            return (self.start + self.end) / 2
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def ticks(high: float, *, count: int = 5) -> tuple[float, ...]:
    """Round numbers from 0 that reach at least `high`, in steps of 1, 2 or 5 x 10^n, about `count` of them."""
    if high <= 0 or not math.isfinite(high):
        return (0.0, 1.0)
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return tuple(step * index for index in range(math.ceil(high / step - 1e-9) + 1))


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> tuple[float, ...]:
    """Places near the wanted ones, in the same order, at least `gap` apart and inside `low`..`high` while they fit.

    Labels that would overlap form a block which is centred on what its members want (isotonic regression by pooling
    adjacent violators, on the wanted places less their rank times the gap).
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[list[float]] = []
    for rank, index in enumerate(order):
        blocks.append([wanted[index] - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + mean * count) / (blocks[-1][1] + count),
                          blocks[-1][1] + count]
    starts = [mean for mean, count in blocks for _ in range(int(count))]
    top = max(low, high - (len(wanted) - 1) * gap)
    places = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        places[index] = min(max(starts[rank], low), top) + rank * gap
    return tuple(places)
