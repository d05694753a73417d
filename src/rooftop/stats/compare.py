"""Is one configuration faster than another, and does the spread allow the claim?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np

from rooftop.domain.finding import Interval, Measurement
from rooftop.domain.trial import Trial
from rooftop.stats.beta import t_quantile
from rooftop.stats.intervals import across
from rooftop.stats.summary import measure

LEVEL = 0.9


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of `a` held against `b`: a / b and a - b, with intervals from the spread of the repeats.

    `sure`: the interval of the ratio does not hold 1; `why` says it in words.  `left_out` names the trials that were
    not valid or had no value.
    """

    metric: str
    a: Measurement
    b: Measurement
    ratio: Measurement
    difference: Measurement
    sure: bool
    why: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best of several groups of trials.

    `margin` is the advantage over the runner-up as a ratio above 1 (1.23 = 23 % better), None where there is no
    runner-up; `winner` is "" where no group has a value.  `sure`: the winner is better than every other group beyond
    the spread of the repeats; `why` says it in one sentence.
    """

    metric: str
    winner: str
    value: Measurement
    runner_up: str = ""
    runner_up_value: Measurement | None = None
    margin: Measurement | None = None
    sure: bool = False
    why: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    """Repeats of one configuration: their figures, those with values as `values`, the trials left out."""

    figure: Measurement
    values: tuple[float, ...]
    left_out: tuple[str, ...]
    starts: int


def compare(a: Sequence[Trial], b: Sequence[Trial], metric: str) -> Difference:
    """`metric` of the repeats `a` against the repeats `b`.

    The ratio is of geometric means, with Welch's interval on the logarithms of the repeats; the difference is of means,
    with Welch's interval on the values (Welch, Biometrika 34, 1947).  With one repeat on a side there is no spread:
    the ratio and the difference are given without interval, and `sure` is False.
    """
    return _difference(_group(a, metric), _group(b, metric))


def best(groups: Mapping[str, Sequence[Trial]], metric: str, *, higher_is_better: bool) -> Verdict:
    """The group with the best mean of `metric`, its margin over the next, and whether the spread allows the claim.

    Sure only where the winner's ratio to each other group excludes 1 at 90 %, not only to the runner-up: a group that
    was measured badly may be the better one.
    """
    found = {name: _group(trials, metric) for name, trials in groups.items()}
    left_out = tuple(f"{name}: {why}" for name, group in found.items() for why in group.left_out)
    ranked = sorted((name for name in found if found[name].values), reverse=higher_is_better,
                    key=lambda name: found[name].figure.value or 0.0)
    if not ranked:
        why = f"no valid trial has a value of {metric}"
        return Verdict(metric, "", Measurement(metric, "", None, why_not=why), why=why, left_out=left_out)
    winner = found[ranked[0]]
    if len(ranked) == 1:
        return Verdict(metric, ranked[0], winner.figure, left_out=left_out, why="there is nothing to hold it against")
    against = {name: _difference(winner, found[name]) if higher_is_better else _difference(found[name], winner)
               for name in ranked[1:]}
    next_one = against[ranked[1]]
    doubtful = [name for name in ranked[1:] if not against[name].sure]
    return Verdict(metric, ranked[0], winner.figure, ranked[1], found[ranked[1]].figure, next_one.ratio,
                   not doubtful, _reason(ranked[0], doubtful, against), left_out)


def _reason(winner: str, doubtful: Sequence[str], against: Mapping[str, Difference]) -> str:
    if doubtful:
        return f"{winner} against {doubtful[0]}: {against[doubtful[0]].why}"
    nearest = next(iter(against.values()))
    before = "" if len(against) == 1 else f"better than each of the {len(against)} others; the next: "
    return before + nearest.why


def _group(trials: Sequence[Trial], metric: str) -> _Group:
    left_out, figures, starts = [], [], set()
    for trial in trials:
        if not trial.valid:
            reason = trial.fault.reason if trial.fault else "it did not run as asked"
            left_out.append(f"trial {trial.id} is not valid: {reason}")
            continue
        figure = measure(trial, metric, level=LEVEL)
        if figure.value is None:
            left_out.append(f"trial {trial.id} has no {metric}: {figure.why_not}")
            continue
        figures.append(figure)
        starts.add(trial.launch_id)
    if not figures:
        return _Group(Measurement(metric, "", None, why_not="no valid trial has a value"), (), tuple(left_out), 0)
    values = tuple(figure.value for figure in figures if figure.value is not None)
    return _Group(across(figures), values, tuple(left_out), len(starts))


def _difference(a: _Group, b: _Group) -> Difference:
    metric, unit = a.figure.metric, a.figure.unit or b.figure.unit
    left_out = a.left_out + b.left_out
    if not a.values or not b.values:
        none = Measurement(metric, unit, None, why_not="no valid trial has a value")
        return Difference(metric, a.figure, b.figure, replace(none, unit="ratio"), none, False, none.why_not, left_out)
    count = len(a.values) + len(b.values)
    gap = float(np.mean(a.values)) - float(np.mean(b.values))
    half = _welch(a.values, b.values)
    difference = Measurement(metric, unit, gap, _around(gap, half), count)
    if min(a.values + b.values) <= 0.0:
        why = "a ratio needs values above 0"
        return Difference(metric, a.figure, b.figure, Measurement(metric, "ratio", None, None, count, why), difference,
                          False, why, left_out)
    logs_a, logs_b = [log(value) for value in a.values], [log(value) for value in b.values]
    middle = float(np.mean(logs_a)) - float(np.mean(logs_b))
    half = _welch(logs_a, logs_b)
    interval = None if half is None else Interval(exp(middle - half), exp(middle + half), LEVEL)
    ratio = Measurement(metric, "ratio", exp(middle), interval, count,
                        "" if interval else "one repeat has no spread; run at least 2, better 3 or more")
    sure = interval is not None and not interval.low <= 1.0 <= interval.high
    return Difference(metric, a.figure, b.figure, ratio, difference, sure, _words(ratio, sure, a, b), left_out)


def _words(ratio: Measurement, sure: bool, a: _Group, b: _Group) -> str:
    repeats = f"{len(a.values)} and {len(b.values)} repeats"
    if ratio.interval is None:
        return f"one repeat: the spread of {repeats} is not known"
    inside = f"the 90 % interval of the ratio, {ratio.interval.low:.3g} to {ratio.interval.high:.3g} ({repeats})"
    text = f"{inside}, excludes 1" if sure else f"{inside}, holds 1: the spread of the repeats does not allow the claim"
    same = a.starts == 1 and b.starts == 1 and sure
    return f"{text}; all repeats of each ran on one start, so how starts differ is not seen" if same else text


def _around(value: float, half: float | None) -> Interval | None:
    return None if half is None else Interval(value - half, value + half, LEVEL)


def _welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Half width of Welch's interval of mean(a) - mean(b), with the degrees of freedom of Satterthwaite.

    None where neither side, or only one, has a spread to speak of.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    errors = [float(np.var(side, ddof=1)) / len(side) for side in (a, b)]
    total = sum(errors)
    if total == 0.0:
        return 0.0
    freedom = total ** 2 / sum(error ** 2 / (len(side) - 1) for error, side in zip(errors, (a, b), strict=True))
    return t_quantile(0.5 + LEVEL / 2.0, freedom) * sqrt(total)
