"""Ramp, steady window and tail of a level, found from its replies."""

from dataclasses import dataclass

import numpy as np

from rooftop.domain.workload import Arrivals
from rooftop.stats.beta import t_quantile
from rooftop.stats.columns import Columns, Floats, Ints, credited

MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a level whose figures are of the load that was asked; seconds after the level's origin.

    The window lasts from `begin_s` to `end_s`; both are 0 where there is none (`steady` is False).  `ramp_s` is the
    time before all slots were busy and the rate of tokens had settled, `tail_s` the time from the moment a slot stayed
    empty, `whole_s` the length of the level.  `round_s` is the mean time of a request: replies that began together
    move together for about as long.  `why` says how the window was found or why there is none.
    """

    begin_s: float
    end_s: float
    ramp_s: float
    tail_s: float
    whole_s: float
    why: str
    round_s: float = 0.0

    @property
    def steady(self) -> bool:
        """There is a window."""
        return self.end_s > self.begin_s

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return self.end_s - self.begin_s


def in_flight(level: Columns) -> tuple[Floats, Ints]:
    """Streams in flight: moments at which their number changes, and the number from each moment on.

    A request is in flight from when it is due until its last byte (or its failure).
    """
    moments = np.concatenate([level.due_s, level.end_s])
    change = np.concatenate([np.ones(len(level.due_s), np.int64), -np.ones(len(level.end_s), np.int64)])
    order = np.lexsort((change, moments))
    moments, change = moments[order], np.cumsum(change[order])
    last = np.append(moments[1:] != moments[:-1], True)
    return moments[last], change[last]


def find_window(level: Columns, arrivals: Arrivals, whole_s: float = 0.0) -> Window:
    """The steady window of a level.  `whole_s` is the length of the level, 0 = until its last reply.

    Closed loop: between the first moment at which every slot was busy and the last one, after which a slot stays
    empty.  Open loop: from the end of the ramp of the rate to the last due time.  From the begin of this span whole
    rounds (a round is the mean time of a request) are then cut off until the rate of tokens (open loop: the streams in
    flight) has settled, by the rule MSER (`settled_after`).  Rounds, because requests that start together make the
    rate swing with just this period, and part of a swing is not the whole.
    """
    if len(level.due_s) == 0:
        return Window(0.0, 0.0, 0.0, 0.0, whole_s, "no request was sent")
    whole_s = max(whole_s, float(np.max(level.end_s)))
    round_s = float(np.mean(level.end_s - level.due_s))
    if arrivals.kind == "closed":
        slots = arrivals.concurrency
        moments, streams = in_flight(level)
        full = np.flatnonzero(streams >= slots)
        if len(full) == 0:
            return Window(0.0, 0.0, whole_s, 0.0, whole_s, round_s=round_s,
                          why=f"no steady window: never more than {int(np.max(streams))} of {slots} slots were busy")
        begin, end, note = float(moments[full[0]]), float(moments[full[-1] + 1]), ""
        what, advice = "all slots were busy", f"send more requests a user (here {len(level.due_s) / slots:.3g})"
    else:
        begin, end = max(arrivals.ramp_s, float(level.due_s[0])), float(level.due_s[-1])
        note = _piled_up(level, begin, end)
        what, advice = "requests arrived", "let the level last several times as long as a request"
    rounds = min(MOST_ROUNDS, round((end - begin) / round_s)) if round_s > 0 else 0
    if rounds < 2:
        return Window(0.0, 0.0, min(begin, whole_s), max(0.0, whole_s - end), whole_s, round_s=round_s,
                      why=f"no steady window: {what} for less than 2 rounds of requests; {advice}{note}")
    edges = np.linspace(begin, end, rounds + 1)
    signal = np.diff(_progress(level, edges) if arrivals.kind == "closed" else _streams(level, edges))
    cut = settled_after(signal)
    why = f"{what} for {rounds} rounds of requests{_settling(signal, cut)}{note}"
    return Window(float(edges[cut]), end, float(edges[cut]), whole_s - end, whole_s, why, round_s)


def _piled_up(level: Columns, begin: float, end: float) -> str:
    """A warning where streams in flight grow from the second to the last quarter beyond three Poisson errors."""
    quarters = np.linspace(begin, end, 5)
    early, late = (np.diff(_streams(level, quarters)) / max((end - begin) / 4.0, 1e-9))[[1, 3]]
    if late - early <= max(3.0 * (late + early) ** 0.5, 0.25 * early):
        return ""
    return f"; requests pile up ({early:.0f} in flight in the second quarter, {late:.0f} in the last): more is asked " \
           "than is served"


def settled_after(signal: Floats) -> int:
    """How many entries to cut off the front of `signal` so that the rest looks settled; at most half of them.

    MSER: the cut d with the least sum of squares of the rest about its mean, divided by (n - d)^2, that is, with the
    least standard error of the mean (White, "An effective truncation heuristic for bias reduction in simulation
    output", Simulation 69(6), 1997).  Its known weakness is to cut where there is only noise, so a cut counts only if
    the mean before it differs from the mean after by more than 1 % and more than noise would make of it once in 500
    times (t quantile of the entries after).  Below four entries nothing is cut.
    """
    n = len(signal)
    if n < 4:
        return 0
    error = [float(np.var(signal[cut:])) / (n - cut) for cut in range(n // 2 + 1)]
    cut = int(np.argmin(error))
    return cut if cut and _differs(signal[:cut], signal[cut:]) else 0


def _differs(before: Floats, after: Floats) -> bool:
    spread = float(np.std(after, ddof=1)) * (1.0 / len(before) + 1.0 / len(after)) ** 0.5
    gap = abs(float(np.mean(before)) - float(np.mean(after)))
    return bool(gap > max(t_quantile(0.999, len(after) - 1) * spread, 0.01 * abs(float(np.mean(after)))))


def _settling(signal: Floats, cut: int) -> str:
    rest = signal[cut:]
    if len(signal) < 4:
        return ", too few to see whether the rate had settled"
    half = len(rest) // 2
    if half >= 2 and _differs(rest[:half], rest[half:]):
        drift = float(np.mean(rest[half:]) / np.mean(rest[:half]) - 1.0) if np.mean(rest[:half]) else 0.0
        return f", {cut} cut off; the rate still moves, by {drift:+.0%} from the first to the second half"
    return f", the rate settled after {cut}" if cut else ", the rate was steady from the first"


def _progress(level: Columns, edges: Floats) -> Floats:
    """Tokens that had come at each edge; chunks stand for them where tokens are not known."""
    order = np.argsort(level.chunk_s, kind="stable")
    weight = level.chunk_tokens if not np.any(np.isnan(level.chunk_tokens)) else np.ones(len(order))
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    return total[np.searchsorted(level.chunk_s[order], edges, side="left")]


def _streams(level: Columns, edges: Floats) -> Floats:
    """Seconds of streams in flight that had passed at each edge."""
    return credited(level.due_s, level.end_s, level.end_s - level.due_s, edges)
