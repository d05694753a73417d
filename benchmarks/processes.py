"""Series of latencies with known means and quantiles, to try intervals on."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rooftop.stats.columns import Floats

Draw = Callable[[np.random.Generator, int], Floats]
NORMAL = NormalDist()


@dataclass(frozen=True)
class Process:
    """`draw` gives n observations in the order of time, `rounds` times over; the truth by figure."""

    name: str
    sizes: tuple[int, ...]
    draw: Draw
    mean: float
    quantile: Callable[[float], float]
    rounds: int | None = None


def autoregressive(phi: float) -> Draw:
    """x_i = phi x_(i-1) + e_i with standard normal marginals, from its stationary begin."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        values = rng.standard_normal(n) * math.sqrt(1 - phi * phi)
        values[0] = rng.standard_normal()
        step, factor = 1, phi
        while step < n and abs(factor) > 1e-18:
            values[step:] = values[step:] + factor * values[:-step]
            step, factor = step * 2, factor * factor
        return values

    return draw


def moving(width: int) -> Draw:
    """The mean of the last `width` of independent normals, scaled to standard normal marginals."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        total = np.cumsum(rng.standard_normal(n + width))
        return (total[width:] - total[:-width]) / math.sqrt(width)

    return draw


def cohorts(size: int) -> Draw:
    """Requests that start together share half of their variance."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        shared = np.repeat(rng.standard_normal(n // size + 1), size)[:n]
        return math.sqrt(0.5) * shared + math.sqrt(0.5) * rng.standard_normal(n)

    return draw


def equal(size: int) -> Draw:
    """Exponential, the same value for `size` requests in a row."""
    return lambda rng, n: np.repeat(rng.exponential(1.0, n // size + 1), size)[:n]


def regimes(name: str, sizes: tuple[int, ...], fast: float, slow: float, factor: float) -> Process:
    """Lognormal (sigma 0.3), and `factor` times as slow in regimes of `slow` requests, on the mean, after `fast`."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        turns = int(2 * n / min(fast, slow)) + 20
        first = bool(rng.random() < slow / (fast + slow))
        means = np.tile([slow, fast] if first else [fast, slow], turns)
        state = np.repeat(np.tile([first, not first], turns), rng.geometric(1 / means))[:n]
        return np.where(state, factor, 1.0) * rng.lognormal(0.0, 0.3, n)

    share = slow / (fast + slow)

    def beyond(x: float) -> float:
        if x <= 0:
            return 1.0
        return 1 - (1 - share) * NORMAL.cdf(math.log(x) / 0.3) - share * NORMAL.cdf(math.log(x / factor) / 0.3)

    return Process(name, sizes, draw, math.exp(0.045) * (1 + share * (factor - 1)), inverse(beyond))


def two_speeds(rng: np.random.Generator, n: int) -> Floats:
    """One request in ten takes ten times as long; each within 10 %."""
    return np.where(rng.random(n) < 0.1, 10.0, 1.0) * rng.lognormal(0.0, 0.1, n)


def two_speeds_beyond(x: float) -> float:
    return 1 - 0.9 * NORMAL.cdf(math.log(x) / 0.1) - 0.1 * NORMAL.cdf(math.log(x / 10) / 0.1) if x > 0 else 1.0


def pauses(period: int, length: int, extra: float) -> Draw:
    """Exponential, and `length` requests of every `period`, from a random place on, take `extra` longer."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        late = (np.arange(n) + rng.integers(period)) % period < length
        return rng.exponential(1.0, n) + extra * late

    return draw


def stalls(rng: np.random.Generator, n: int) -> Floats:
    """Exponential, but now and then the server stalls and some 20 requests in a row take 10 longer (2 % of all).

    A warning, not a claim: 2,000 requests see two stalls or none, and no statistics can know of what was not seen.
    """
    inside, at = np.zeros(n, dtype=bool), 0
    while at < n:
        at += rng.geometric(0.02 / 0.98 / 20)
        length = rng.geometric(1 / 20)
        inside[at:at + length] = True
        at += length
    return rng.exponential(1.0, n) + 10.0 * inside


def later(share: float, extra: float) -> Callable[[float], float]:
    """The part beyond x of exponentials of which a share takes `extra` longer."""
    return lambda x: (1 - share) * math.exp(-max(0.0, x)) + share * math.exp(-max(0.0, x - extra))


def queue(load: float) -> Draw:
    """Times in an M/M/1 queue of this load, mean service 1, stationary: exponential with mean 1 / (1 - load)."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        service, gap = rng.exponential(1.0, n), rng.exponential(1 / load, n)
        first = rng.exponential(1 / (1 - load)) if rng.random() < load else 0.0
        walk = np.cumsum(np.concatenate([[first], service[:-1] - gap[1:]]))
        waits: Floats = walk - np.minimum(np.minimum.accumulate(walk), 0.0) + service
        return waits

    return draw


def gaps(rng: np.random.Generator, n: int) -> Floats:
    """ITLs of 16 users at once, 64 a reply: a fifth of the variance is the reply's own, a fifth the engine step's."""
    users, length = 16, 64
    turns = n // (users * length)
    own = np.repeat(rng.standard_normal((turns, 1, users)), length, axis=1)
    step = rng.standard_normal((turns, length, 1))
    noise = rng.standard_normal((turns, length, users))
    return (math.sqrt(0.2) * (own + step) + math.sqrt(0.6) * noise).ravel()


def inverse(beyond: Callable[[float], float]) -> Callable[[float], float]:
    """The quantile function, by bisection, from the part that lies beyond x."""

    def quantile(share: float) -> float:
        low, high = 0.0, 1000.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if beyond(middle) > 1 - share else (low, middle)
        return low

    return quantile


def exponential(share: float) -> float:
    return -math.log(1 - share)


def normals() -> Iterator[Process]:
    """Standard normal marginals, and more and less dependence."""
    for name, sizes, draw in (
            ("AR(1), phi -0.5", (200, 1000), autoregressive(-0.5)),
            ("AR(1), phi 0.5", (50, 200, 1000, 5000), autoregressive(0.5)),
            ("AR(1), phi 0.8", (200, 1000, 5000), autoregressive(0.8)),
            ("AR(1), phi 0.9", (1000, 2000, 10_000), autoregressive(0.9)),
            ("AR(1), phi 0.95", (200, 1000, 5000, 10_000), autoregressive(0.95)),
            ("mean of the last 20", (1000, 5000), moving(20)),
            ("cohorts of 20", (1000, 2000, 10_000), cohorts(20)),
            ("cohorts of 64", (200, 1000, 10_000), cohorts(64))):
        yield Process(name, sizes, draw, 0.0, NORMAL.inv_cdf)
    yield Process("gaps of 160 replies", (10_240,), gaps, 0.0, NORMAL.inv_cdf, rounds=10)


def processes() -> Iterator[Process]:
    """Independent ones first, then those with dependence, then those with surprises."""
    yield Process("exponential", (50, 300, 1000, 5000), lambda rng, n: rng.exponential(1.0, n), 1.0, exponential)
    yield Process("lognormal", (50, 300, 1000, 5000), lambda rng, n: rng.lognormal(0.0, 1.0, n), math.exp(0.5),
                  lambda share: math.exp(NORMAL.inv_cdf(share)))
    yield Process("gamma, shape 1/2", (50, 200, 1000), lambda rng, n: rng.gamma(0.5, 1.0, n), 0.5,
                  lambda share: NORMAL.inv_cdf((1 + share) / 2) ** 2 / 2)
    yield Process("Pareto, alpha 2.5", (50, 200, 1000, 5000), lambda rng, n: 1.0 + rng.pareto(2.5, n), 2.5 / 1.5,
                  lambda share: (1 - share) ** (-1 / 2.5))
    yield Process("two speeds", (200, 1000), two_speeds, math.exp(0.005) * 1.9, inverse(two_speeds_beyond))
    yield Process("ties (whole steps)", (200, 1000), lambda rng, n: rng.geometric(0.25, n).astype(np.float64), 4.0,
                  lambda share: float(math.ceil(math.log(1 - share) / math.log(0.75))))
    yield from normals()
    yield Process("lognormal AR(1), phi 0.8", (200, 1000, 5000),
                  lambda rng, n: np.exp(0.5 * autoregressive(0.8)(rng, n)), math.exp(0.125),
                  lambda share: math.exp(0.5 * NORMAL.inv_cdf(share)))
    yield Process("8 equal in a row", (200, 1000, 5000), equal(8), 1.0, exponential)
    yield regimes("2x slower, 50 of 100", (200, 1000, 5000), 50, 50, 2.0)
    yield regimes("3x slower, 10 of 100", (200, 1000, 5000), 90, 10, 3.0)
    yield Process("queue, load 0.5", (200, 1000, 5000), queue(0.5), 2.0, lambda share: 2 * exponential(share))
    yield Process("queue, load 0.8", (1000, 5000, 10_000), queue(0.8), 5.0, lambda share: 5 * exponential(share))
    yield Process("1 of every 50 late", (1000, 5000), pauses(50, 1, 10.0), 1.2, inverse(later(0.02, 10.0)))
    yield Process("10 of every 100 late", (1000, 5000), pauses(100, 10, 5.0), 1.5, inverse(later(0.1, 5.0)))
    yield Process("stalls", (2000, 10_000), stalls, 1.2, inverse(later(0.02, 10.0)))
