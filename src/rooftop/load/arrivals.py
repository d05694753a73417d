"""When the next request goes: schedules fixed in advance, and when to stop."""

import math
import random
from collections.abc import Iterator, Sequence

from rooftop.domain.workload import Arrivals
from rooftop.errors import BadInput

T90_9 = 1.833  # Student's t, 95 % point, nine degrees of freedom
BATCHES = 10


def schedule(arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Due times in seconds after the level's origin, without end, for open-loop arrivals.

    The gaps are drawn in operational time u (one arrival a unit on average) and mapped to the clock through the
    inverse of the integrated rate: L(t) = rate t^2 / (2 ramp) while t < ramp, rate (t - ramp/2) after it.
    Gamma gaps have shape 1/cv^2.  Raises BadInput for a rate, cv or ramp that means nothing.
    """
    rate, ramp = arrivals.rate_per_s, arrivals.ramp_s
    if arrivals.kind == "closed":
        raise BadInput("closed arrivals have no schedule")
    if not (rate > 0 and math.isfinite(rate)):
        raise BadInput(f"rate_per_s must be above 0, not {rate}")
    if ramp < 0 or arrivals.cv <= 0:
        raise BadInput("ramp_s must be 0 or more and cv above 0")
    return (_clock(unit, rate, ramp) for unit in _units(arrivals, random.Random(seed)))


def _units(arrivals: Arrivals, dice: random.Random) -> Iterator[float]:
    if arrivals.kind == "constant":
        number = 0
        while True:
            yield float(number)
            number += 1
    shape = 1.0 if arrivals.kind == "poisson" else 1.0 / arrivals.cv**2
    unit = 0.0
    while True:
        unit += dice.gammavariate(shape, 1.0 / shape)
        yield unit


def _clock(unit: float, rate: float, ramp: float) -> float:
    if unit < rate * ramp / 2:
        return math.sqrt(2 * ramp * unit / rate)
    return unit / rate + ramp / 2


def half_width(counts: Sequence[float]) -> float | None:
    """Half width of the 90 % interval of the mean of `counts`, as a share of it, by batch means.

    `counts` are amounts in equal, consecutive spans of time.  They are averaged in ten batches (the first ones that do
    not fill a batch are left out); the means of long batches are nearly independent, so Student's t holds with nine
    degrees of freedom.  None while there are fewer than three spans a batch, or nothing came.
    """
    size = len(counts) // BATCHES
    if size < 3:
        return None
    used = counts[len(counts) - size * BATCHES:]
    means = [sum(used[i * size:(i + 1) * size]) / size for i in range(BATCHES)]
    mean = sum(means) / BATCHES
    if mean <= 0:
        return None
    variance = sum((value - mean) ** 2 for value in means) / (BATCHES - 1)
    return T90_9 * math.sqrt(variance / BATCHES) / mean
