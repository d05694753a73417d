"""Confidence intervals that respect dependence: means, quantiles, rates and repeats."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt

import numpy as np

from rooftop.domain.finding import Interval, Measurement
from rooftop.stats.beta import beta_quantile, t_quantile
from rooftop.stats.columns import Floats

MOST_BATCHES = 20
LEAST_BATCHES = 3


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


@dataclass(frozen=True, slots=True)
class _Error:
    """An error, or a ratio of squared errors, and the degrees of freedom of its estimate."""

    size: float
    freedom: float


def standard_error(deviations: Floats, rounds: int | None = None) -> _Error | None:
    """Standard error of a mean from its deviations in the order of time, by batch means.

    deviations: x_i minus their mean.  Neighbours in time are cut into b batches of equal size; with S_k the sum of the
    deviations in batch k, the squared error is b/(b - 1) * sum(S_k^2) / n^2, with b - 1 degrees of freedom.  b begins
    at 20 and is halved as long as the S_k themselves follow each other (lag-1 autocorrelation above 1.3/sqrt(b)) and
    at least 5 remain (batch means: Law and Carson, "A sequential procedure for determining the length of a
    steady-state simulation", Operations Research 27(5), 1979).

    rounds: how many times over the observations were made by requests that were in flight together.  Those may move
    together as one, so there are at most as many batches as rounds, and None with fewer than 3 batches.
    """
    n = len(deviations)
    batches = min(MOST_BATCHES, n, n if rounds is None else rounds)
    if batches < LEAST_BATCHES:
        return None
    total = np.concatenate([[0.0], np.cumsum(deviations)])
    while True:
        sums = np.diff(total[np.linspace(0, n, batches + 1).astype(np.int64)])
        squares = float(np.sum(sums * sums))
        if batches < 10 or float(np.sum(sums[1:] * sums[:-1])) <= 1.3 / sqrt(batches) * squares:
            return _Error(sqrt(squares * batches / (batches - 1)) / n, batches - 1)
        batches //= 2


def mean(values: Floats, *, level: float = 0.9, rounds: int | None = None) -> Estimate:
    """The mean of observations in the order of time: x +- t * standard error (`standard_error`)."""
    n = len(values)
    if n == 0:
        return Estimate(None, None, 0, 0.0, "no observation")
    value = float(np.mean(values))
    deviations = values - value
    error = standard_error(deviations, rounds)
    if error is None:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    half = t_quantile(0.5 + level / 2.0, error.freedom) * error.size
    effective = float(np.mean(deviations * deviations)) / error.size ** 2 if error.size > 0.0 else float(n)
    return Estimate(value, Interval(value - half, value + half, level), n, effective)


def _too_short(n: int, rounds: int | None) -> str:
    if rounds is not None and rounds < min(n, LEAST_BATCHES):
        return f"no interval: it needs at least {LEAST_BATCHES} rounds of requests, there are {rounds}"
    return f"no interval: it needs at least {LEAST_BATCHES} observations, there are {n}"


def quantile(values: Floats, share: float, *, level: float = 0.9, rounds: int | None = None,
             ordered: Floats | None = None, unit: str = "observations") -> Estimate:
    """The quantile at `share` of observations in the order of time, with an interval of order statistics.

    n dependent observations are worth m = n / inflation independent ones (`_inflation`), and because the inflation is
    itself an estimate, the interval is that of m (z/t)^2 of them (Korn and Graubard, "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", Survey Methodology 24, 1998).
    The interval of the share that lies below the quantile (Jeffreys: quantiles of Beta(share m + 1/2,
    (1 - share) m + 1/2)) is read off the ordered observations, between two of them where it falls there (Woodruff,
    "Confidence intervals for medians and other position measures", JASA 47, 1952).

    `ordered` are the sorted values, where they are at hand; `unit` names the observations.  The value is None with
    fewer than `needed` observations.  The interval is None, and `why_not` says so, where they are worth fewer
    independent ones at the quantile or at the median, or where a bound would be the largest or the least value itself.
    """
    n, least = len(values), needed(share, level)
    if n < least:
        return Estimate(None, None, n, float(n), f"needs at least {least} {unit}, there are {n}")
    ordered = np.sort(values) if ordered is None else ordered
    value = _between(ordered, share * (n - 1))
    if min(n, n if rounds is None else rounds) < LEAST_BATCHES:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    here = _tail_inflation(values, ordered, share, rounds)
    middle = here if share == 0.5 else _inflation(values, ordered, 0.5, rounds)
    effective = n / max(here.size, middle.size)
    spread = (1.0 + level) / 2.0
    worth = n / here.size * (t_quantile(spread, inf) / t_quantile(spread, here.freedom)) ** 2
    a, b = share * worth + 0.5, (1.0 - share) * worth + 0.5
    low, high = (beta_quantile(bound, a, b) * (n + 1) - 1.0 for bound in (1.0 - spread, spread))
    if min(worth, effective) < least or low <= 0.0 or high >= n - 1:
        return Estimate(value, None, n, effective, f"no interval: {n} {unit} that move together are worth "
                        f"{min(worth, effective):.0f} independent ones, it needs {least}")
    return Estimate(value, Interval(_between(ordered, low), _between(ordered, high), level), n, effective)


def _inflation(values: Floats, ordered: Floats, share: float, rounds: int | None) -> _Error:
    """How many dependent observations are worth one independent one at a quantile.

    The share of observations at or below the quantile is a mean of zeros and ones: the inflation is the square of its
    standard error under dependence (`standard_error`) over the one without, share (1 - share) / n.
    """
    n = len(values)
    below = (values <= _between(ordered, share * (n - 1))).astype(np.float64)
    found = float(np.mean(below))
    error = standard_error(below - found, rounds)
    if found >= 1.0 or error is None:
        return _Error(1.0, n - 1)
    return _Error(max(error.size ** 2 * n / (found * (1.0 - found)), 0.25), error.freedom)


def _tail_inflation(values: Floats, ordered: Floats, share: float, rounds: int | None) -> _Error:
    """The inflation at a quantile that may lie far out.

    There few clusters of observations lie beyond and their dependence is seen badly.  It is therefore averaged with
    the dependence at the quantile that has five times as many beyond (p99: p95), unless it is more than twice as strong
    as there, as when rare stalls hit many requests at once; benchmarks/intervals.py shows what that rule is worth.
    """
    own, tail = _inflation(values, ordered, share, rounds), 5.0 * min(share, 1.0 - share)
    if tail > 0.5:
        return own
    nearer = _inflation(values, ordered, 1.0 - tail if share > 0.5 else tail, rounds)
    if own.size > 2.0 * nearer.size:
        return own
    return _Error((own.size + nearer.size) / 2.0, own.freedom + nearer.freedom)


def _between(ordered: Floats, place: float) -> float:
    """The ordered values at a place counted from 0, on the line between two of them."""
    below = min(max(int(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def ratio(amounts: Floats, times: Floats, *, level: float = 0.9, rounds: int | None = None) -> Estimate:
    """The sum of amounts over the sum of times, from pairs in the order of time.

    R = sum(a) / sum(t) has, to first order, the standard error of the mean of a_i - R t_i, which is 0, over the mean
    time: the classical ratio estimator (Cochran, "Sampling Techniques", 6.3), here with the error of a dependent
    series (`standard_error`).
    """
    n, whole = len(amounts), float(np.sum(times))
    if whole <= 0.0:
        return Estimate(None, None, n, 0.0, "nothing was measured")
    value = float(np.sum(amounts)) / whole
    error = standard_error(amounts - value * times, rounds)
    if error is None:
        return Estimate(value, None, n, 0.0, _too_short(n, rounds))
    half = t_quantile(0.5 + level / 2.0, error.freedom) * error.size * n / whole
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
