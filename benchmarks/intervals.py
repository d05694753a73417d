"""Do the 90 % intervals hold the truth in 90 % of repeats?  Simulated processes with known answers.

Run: python benchmarks/intervals.py [--repeats 2000] [--seed 1]
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rooftop.stats import intervals
from rooftop.stats.columns import Floats

NORMAL = NormalDist()
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Process:
    """A process: `draw` gives n observations in the order of time and their rounds; the truth by figure."""

    name: str
    n: int
    draw: Callable[[np.random.Generator, int], tuple[Floats, int | None]]
    mean: float
    quantile: Callable[[float], float]


def exponential(rng: np.random.Generator, n: int) -> tuple[Floats, None]:
    return rng.exponential(1.0, n), None


def lognormal(rng: np.random.Generator, n: int) -> tuple[Floats, None]:
    return rng.lognormal(0.0, 1.0, n), None


def autoregressive(phi: float) -> Callable[[np.random.Generator, int], tuple[Floats, None]]:
    """x_i = phi x_(i-1) + e_i with standard normal marginals, from its stationary begin."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, None]:
        noise = rng.standard_normal(n) * math.sqrt(1 - phi * phi)
        noise[0] = rng.standard_normal()
        values = np.array(noise)
        step, factor = 1, phi
        while step < n and factor > 1e-18:
            values[step:] = values[step:] + factor * values[:-step]
            step, factor = step * 2, factor * factor
        return values, None

    return draw


def cohorts(size: int) -> Callable[[np.random.Generator, int], tuple[Floats, None]]:
    """Requests that start together share half of their variance."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, None]:
        shared = np.repeat(rng.standard_normal(n // size + 1), size)[:n]
        return math.sqrt(0.5) * shared + math.sqrt(0.5) * rng.standard_normal(n), None

    return draw


def stalls(rng: np.random.Generator, n: int) -> tuple[Floats, None]:
    """Exponential, but now and then the server stalls and some 20 requests in a row take 10 longer (2 % of all)."""
    values = rng.exponential(1.0, n)
    inside, at = np.zeros(n, dtype=bool), 0
    while at < n:
        at += rng.geometric(STALL)
        length = rng.geometric(1 / 20)
        inside[at:at + length] = True
        at += length
    return values + 10.0 * inside, None


STALL = 0.02 / 0.98 / 20


def stall_quantile(share: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        beyond = 0.98 * math.exp(-middle) + 0.02 * math.exp(-max(0.0, middle - 10.0))
        low, high = (middle, high) if beyond > 1 - share else (low, middle)
    return low


def gaps(rng: np.random.Generator, n: int) -> tuple[Floats, int]:
    """ITLs of 16 users at once, 64 a reply: a fifth of the variance is the reply's own, a fifth the engine step's."""
    users, length = 16, 64
    turns = n // (users * length)
    own = np.repeat(rng.standard_normal((turns, 1, users)), length, axis=1)
    step = rng.standard_normal((turns, length, 1))
    noise = rng.standard_normal((turns, length, users))
    return (math.sqrt(0.2) * (own + step) + math.sqrt(0.6) * noise).ravel(), turns


def processes() -> Iterator[Process]:
    normal = NORMAL.inv_cdf
    for n in (1000, 2000):
        yield Process("independent, exponential", n, exponential, 1.0, lambda share: -math.log(1 - share))
        yield Process("independent, lognormal", n, lognormal, math.exp(0.5), lambda share: math.exp(normal(share)))
        yield Process("AR(1), phi 0.5", n, autoregressive(0.5), 0.0, normal)
    for n in (2000, 10_000):
        yield Process("AR(1), phi 0.9", n, autoregressive(0.9), 0.0, normal)
        yield Process("cohorts of 20", n, cohorts(20), 0.0, normal)
        yield Process("cohorts of 64", n, cohorts(64), 0.0, normal)
        yield Process("stalls", n, stalls, 1.2, stall_quantile)
    yield Process("gaps of 160 replies", 10_240, gaps, 0.0, normal)


def row(process: Process, repeats: int, rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
    """By figure: share of shown intervals that hold the truth, their median half width, share of repeats refused."""
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in ("mean", *SHARES)}
    truth = {"mean": process.mean, **{name: process.quantile(share) for name, share in SHARES.items()}}
    for _ in range(repeats):
        values, rounds = process.draw(rng, process.n)
        ordered = np.sort(values)
        made = {"mean": intervals.mean(values, rounds=rounds)}
        for name, share in SHARES.items():
            made[name] = intervals.quantile(values, share, rounds=rounds, ordered=ordered)
        for name, one in made.items():
            if one.interval is not None:
                inside = one.interval.low <= truth[name] <= one.interval.high
                found[name].append((inside, (one.interval.high - one.interval.low) / 2))
    return {name: (float(np.mean([inside for inside, _ in some])) if some else math.nan,
                   float(np.median([half for _, half in some])) if some else math.nan, 1 - len(some) / repeats)
            for name, some in found.items()}


def main() -> None:
    options = argparse.ArgumentParser(description="Coverage and width of the intervals of rooftop.stats.intervals")
    options.add_argument("--repeats", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    print(f"{given.repeats} repeats a row; per figure: per cent of the 90 % intervals that hold the truth, "
          "median half width, per cent refused")
    print("| process | n | " + " | ".join(("mean", *SHARES)) + " |\n|" + "---|" * 6)
    for number, process in enumerate(processes()):
        begin = time.perf_counter()
        found = row(process, given.repeats, np.random.default_rng([given.seed, number]))
        cells = [f"{held:.1%} ±{half:.3g}" + (f" ({refused:.0%} refused)" if refused else "")
                 if not math.isnan(held) else "refused" for held, half, refused in found.values()]
        print(f"| {process.name} | {process.n} | " + " | ".join(cells) + f" |  {time.perf_counter() - begin:.0f} s",
              flush=True)


if __name__ == "__main__":
    main()
