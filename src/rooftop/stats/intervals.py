"""Confidence intervals that respect dependence: means, quantiles, rates and repeats."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt

import numpy as np

from rooftop.domain.finding import Interval, Measurement
from rooftop.stats.beta import beta_quantile, t_quantile
from rooftop.stats.columns import Floats
from rooftop.stats.dependence import LEAST_ROUNDS, spread

MOST_BENT = 0.25
"""A sixth of the skewness of a mean, at most: beyond, the correction for it is worse than none."""
NEARLY, ROOM, FEWEST = 0.8, 1.4, 3.0
"""An interval of a quantile needs observations worth NEARLY the `needed` (their worth is an estimate), up to ROOM times
that where they depend, and at all of them FEWEST."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of one run.  `effective` is how many independent observations would be as good as those there are."""

    value: float | None
    interval: Interval | None
    count: int
    effective: float
    why_not: str = ""


def needed(share: float, level: float = 0.9) -> int:
    """Independent observations that a two-sided interval of the quantile at `share` needs (299 for p99 at 90 %).

    With n fewer, all of them lie on one side of the true quantile with more than half of the error allowed:
    share^n > (1 - level)/2 (Wilks, "Determination of sample sizes for setting tolerance limits", 1941), and the bound
    of the interval would be the largest or the least value itself.
    """
    return ceil(log((1.0 - level) / 2.0) / log(max(share, 1.0 - share)))


def mean(values: Floats, *, level: float = 0.9, rounds: int | None = None) -> Estimate:
    """The mean of observations in the order of time, with the interval of `spread`, bent by skewness (`_bent`)."""
    n = len(values)
    if n == 0:
        return Estimate(None, None, 0, 0.0, "no observation")
    value = float(np.mean(values))
    deviations = values - value
    error = spread(deviations, level, rounds)
    if error is None:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    if error.size <= 0.0:
        return Estimate(value, Interval(value, value, level), n, float(n))
    squares = deviations * deviations
    variance = float(np.mean(squares))
    skewness = float(np.mean(squares * deviations)) / variance ** 1.5
    low, high = _bent(error.half, skewness, sqrt(variance), level)
    return Estimate(value, Interval(value - low, value + high, level), n, variance / error.size ** 2)


def _bent(half: float, skewness: float, deviation: float, level: float) -> tuple[float, float]:
    """How far an interval of a mean reaches below and above, where the observations are skewed.

    With z the normal quantile, e = half / z the error and a = skewness e / (6 deviation) (the skewness of the mean over
    6), the bounds are at e g(z) and -e g(-z), g(r) = (cbrt(1 + 6 a (r - a)) - 1) / (2 a) (Willink, "A confidence
    interval and test for the mean of an asymmetric distribution", Communications in Statistics 34(4), 2005).
    """
    z = t_quantile(0.5 + level / 2.0, inf)
    error = half / z
    a = min(MOST_BENT, max(-MOST_BENT, skewness * error / (6.0 * deviation)))
    if abs(a) < 1e-6:
        return half, half
    low, high = (error * float(np.cbrt(1.0 + 6.0 * a * (r - a)) - 1.0) / (2.0 * a) for r in (z, -z))
    return low, -high


def _too_short(n: int, rounds: int | None) -> str:
    if rounds is not None and rounds < min(n, LEAST_ROUNDS):
        return f"no interval: it needs at least {LEAST_ROUNDS} rounds of requests, there are {rounds}"
    return f"no interval: it needs at least {LEAST_ROUNDS} observations, there are {n}"


def quantile(values: Floats, share: float, *, level: float = 0.9, rounds: int | None = None,
             ordered: Floats | None = None, unit: str = "observations") -> Estimate:
    """The quantile at `share` of observations in the order of time, with an interval of order statistics.

    n dependent observations are worth m = n / inflation independent ones (`_inflation`).  The interval of the share
    that lies below the quantile (Jeffreys: quantiles of Beta(share m + 1/2, (1 - share) m + 1/2)) is read off the
    ordered observations, between two of them where it falls there (Woodruff, "Confidence intervals for medians and
    other position measures", JASA 47, 1952; Korn and Graubard, "Confidence intervals for proportions with small
    expected number of positive counts estimated from survey data", Survey Methodology 24, 1998).

    `ordered` are the sorted values, where they are at hand; `unit` names the observations.  The value is None with
    fewer than `needed` observations.  The interval is None, and `why_not` says so, where they are worth too few
    independent ones: fewer than `needed`, a little more where they depend (what a cluster is like must be seen, too),
    or so few at all that the true quantile may lie beyond everything seen.
    """
    n, least = len(values), needed(share, level)
    if n < least:
        return Estimate(None, None, n, float(n), f"needs at least {least} {unit}, there are {n}")
    ordered = np.sort(values) if ordered is None else ordered
    value = _between(ordered, share * (n - 1))
    if min(n, n if rounds is None else rounds) < LEAST_ROUNDS:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    size, half = _tail_inflation(values, ordered, share, level, rounds)
    least = ceil(NEARLY * least * min(ROOM, max(1.0, size)))
    effective = n / size
    whole = n / _whole_inflation(values, ordered, level, rounds)
    if effective < least or whole < FEWEST:
        least = least if effective < least else ceil(FEWEST)
        return Estimate(value, None, n, effective, f"no interval: {n} {unit} that move together are worth "
                        f"{min(whole, effective):.0f} independent ones, it needs {least}")
    side = (1.0 - level) / 2.0
    a, b = share * n / half + 0.5, (1.0 - share) * n / half + 0.5
    low, high = (_between(ordered, beta_quantile(bound, a, b) * (n + 1) - 1.0) for bound in (side, 1.0 - side))
    return Estimate(value, Interval(min(low, value), max(high, value), level), n, effective)


def _inflation(values: Floats, ordered: Floats, share: float, level: float, rounds: int | None) -> tuple[float, float]:
    """How many dependent observations are worth one independent one at a quantile: as estimated, and for its interval.

    The share of observations at or below the quantile is a mean of zeros and ones: the inflation is the square of its
    standard error under dependence (`spread`) over the one without, share (1 - share) / n; likewise of its interval.
    """
    n = len(values)
    place = _between(ordered, share * (n - 1))
    below = values <= place if place < ordered[-1] else values < place
    found = float(np.mean(below))
    error = spread(below.astype(np.float64) - found, level, rounds)
    if not 0.0 < found < 1.0 or error is None:
        return 1.0, 1.0
    alone = found * (1.0 - found) / n
    z = t_quantile(0.5 + level / 2.0, inf)
    return max(error.size ** 2 / alone, 0.25), max((error.half / z) ** 2 / alone, 0.25)


def _tail_inflation(values: Floats, ordered: Floats, share: float, level: float, rounds: int | None
                    ) -> tuple[float, float]:
    """The inflation at a quantile that may lie far out.

    There few clusters of observations lie beyond and their dependence is seen badly.  It is therefore averaged with
    the dependence at the quantile that has five times as many beyond (p99: p95); its own weight is k / (k + 20) with k
    observations beyond, or all where it is more than three times as strong as there, as when rare stalls hit many
    requests at once; benchmarks/intervals.py shows what that is worth.
    """
    own, tail = _inflation(values, ordered, share, level, rounds), 5.0 * min(share, 1.0 - share)
    if tail > 0.5:
        return own
    nearer = _inflation(values, ordered, 1.0 - tail if share > 0.5 else tail, level, rounds)
    if own[0] > 3.0 * nearer[0]:
        return own
    weight = 1.0 / (1.0 + 100.0 / (len(values) * tail))
    return weight * own[0] + (1.0 - weight) * nearer[0], weight * own[1] + (1.0 - weight) * nearer[1]


def _whole_inflation(values: Floats, ordered: Floats, level: float, rounds: int | None) -> float:
    """The inflation of the mean of all observations, each no further out than p10 and p90."""
    last = len(values) - 1
    kept = np.clip(values, _between(ordered, 0.1 * last), _between(ordered, 0.9 * last))
    deviations = kept - float(np.mean(kept))
    error = spread(deviations, level, rounds)
    variance = float(deviations @ deviations) / len(values)
    return error.size ** 2 * len(values) / variance if error is not None and variance > 0.0 else 1.0


def _between(ordered: Floats, place: float) -> float:
    """The ordered values at a place counted from 0, on the line between two of them."""
    below = min(max(int(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def ratio(amounts: Floats, times: Floats, *, level: float = 0.9, rounds: int | None = None) -> Estimate:
    """The sum of amounts over the sum of times, from pairs in the order of time.

    R = sum(a) / sum(t) has, to first order, the standard error of the mean of a_i - R t_i, which is 0, over the mean
    time: the classical ratio estimator (Cochran, "Sampling Techniques", 6.3), here with the error of a dependent
    series (`spread`).
    """
    n, whole = len(amounts), float(np.sum(times))
    if whole <= 0.0:
        return Estimate(None, None, n, 0.0, "nothing was measured")
    value = float(np.sum(amounts)) / whole
    error = spread(amounts - value * times, level, rounds)
    if error is None:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    half = error.half * n / whole
    return Estimate(value, Interval(value - half, value + half, level), n, float(n))


def across(repeats: Sequence[Measurement]) -> Measurement:
    """One measurement from repeats of the same metric: their mean with a t interval over the repeats.

    With values v_1..v_r of sample standard deviation s the half width is t_(r-1) s / sqrt(r); the spread of the
    repeats already holds the variation within each.  But few repeats can agree by chance: the half width is never less
    than what the intervals within say, sqrt(sum of their squared half widths) / r.  With one repeat, its own.
    Repeats without value are left out and named in `why_not`; where all have one, the cautions of the first stay, but
    not that it had no interval.  Raises ValueError for no or for mixed metrics.
    """
    if not repeats or len({one.metric for one in repeats}) > 1:
        raise ValueError(f"repeats of one metric, not of {sorted({one.metric for one in repeats}) or 'none'}")
    first = repeats[0]
    kept = [(one, one.value) for one in repeats if one.value is not None]
    if len(repeats) == 1 or not kept:
        return first
    values = [value for _, value in kept]
    count = sum(one.count for one, _ in kept)
    why_not = "; ".join(part for part in first.why_not.split("; ") if not part.startswith("no interval"))
    if len(kept) < len(repeats):
        missing = next(one.why_not for one in repeats if one.value is None)
        why_not = f"{len(kept)} of {len(repeats)} repeats have a value; the others: {missing}"
    value = float(np.mean(values))
    if len(values) == 1:
        return Measurement(first.metric, first.unit, value, kept[0][0].interval, count, why_not)
    level = next((one.interval.level for one, _ in kept if one.interval), 0.9)
    half = max(_half_between(values, level), _half_within([one for one, _ in kept]))
    return Measurement(first.metric, first.unit, value, Interval(value - half, value + half, level), count, why_not)


def _half_between(values: Sequence[float], level: float) -> float:
    spread = float(np.std(values, ddof=1)) / sqrt(len(values))
    return t_quantile(0.5 + level / 2.0, len(values) - 1) * spread


def _half_within(repeats: Sequence[Measurement]) -> float:
    halves = [(one.interval.high - one.interval.low) / 2.0 for one in repeats if one.interval]
    return sqrt(sum(half * half for half in halves)) / len(halves) if len(halves) == len(repeats) else 0.0
