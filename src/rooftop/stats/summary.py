"""Measurements from the replies of a level: latencies, rates, counts, goodput."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from rooftop.domain.finding import Interval, Measurement
from rooftop.domain.trial import Trial
from rooftop.domain.workload import Slo
from rooftop.errors import BadInput
from rooftop.stats import intervals, latencies
from rooftop.stats.columns import STOPPED, Columns, Flags, Floats, columns, credited
from rooftop.stats.dependence import MOST_WAVES
from rooftop.stats.distortion import marked
from rooftop.stats.intervals import Estimate
from rooftop.stats.window import Window, find_window

Span = Literal["steady", "whole"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
LATENCIES = ("ttft", "tpot", "itl", "chunk_gap", "e2e")


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """What every figure of a trial is made from.

    `inside` marks the replies, `inside_chunks` the chunks whose latencies count; `caution` is why they are not of a
    steady window.  `slots` is the number of users of a closed loop, 0 for an open one; `level` the confidence of the
    intervals.
    """

    columns: Columns
    window: Window
    inside: Flags
    inside_chunks: Flags
    caution: str
    slo: Slo
    slots: int
    level: float

    @property
    def rounds(self) -> int:
        """Rounds of requests that the figures are made from: the most batches that may be taken as independent."""
        return max(1, round(self.window.length_s / self.window.round_s)) if self.window.steady else 1


def summarise(trial: Trial, *, only: Collection[str] | None = None, span: Span = "steady", slo: Slo | None = None,
              level: float = 0.9) -> tuple[Measurement, ...]:
    """Every figure of a trial, or `only` those named, with intervals at `level`.

    Latencies are in seconds and count from the time a request was due.
      ttft: until the first chunk that carried tokens.  e2e: until the last byte.
      tpot: one value a reply, (last - first) / (n - k), with k the tokens of the first chunk.  Where only n is known
        and not how it falls on the reply's c chunks, k is their mean n/c.
      itl: one value a token after the first chunk; a gap before a chunk of k tokens counts k times as gap / k.
      chunk_gap: one value a chunk after the first, whatever it carries.
    They are of the replies that came whole and were due in the steady window (`span` "steady"; gaps: those that ended
    in it), or of all that came whole ("whole", and where there is no steady window, as `why_not` then says).

    Rates are per second.  output_tokens_per_s, input_tokens_per_s and requests_per_s: replies that came whole over the
    length of the whole level.  output_tokens_per_s_busy: tokens that came within the steady window, by the stamps of
    their chunks, over its length.  tokens_per_s_per_user: 1 / tpot_p50.  goodput_requests_per_s: requests that came
    whole and kept every limit of `slo` (the workload's own where none is given); only where there is a limit.

    Shares are of one: ramp_share and tail_share of the level's length, output_tokens_asked_share of the tokens that
    the replies that came whole were asked for, goodput_share of all requests.

    A value is None where the data cannot carry it, and `why_not` says what is missing; beside a value, `why_not` is a
    caution, also where the load client itself may have moved it by more than its interval tells (`distortion`).
    An imported trial without replies gives what it reported.
    """
    if not trial.replies and trial.reported:
        return tuple(one for one in trial.reported if only is None or one.metric in only)
    table = columns(trial.replies)
    window = find_window(table, trial.workload.arrivals, trial.measured_s)
    inside, inside_chunks, caution = table.ok, table.ok[table.chunk_reply], ""
    if span == "steady" and window.steady:
        inside = inside & (table.due_s >= window.begin_s) & (table.due_s < window.end_s)
        inside_chunks = inside_chunks & (table.chunk_s >= window.begin_s) & (table.chunk_s < window.end_s)
    elif span == "steady":
        caution = window.why
    arrivals = trial.workload.arrivals
    of = _Level(table, window, inside, inside_chunks, caution, slo or trial.workload.slo,
                arrivals.concurrency if arrivals.kind == "closed" else 0, level)
    figures = (one for names, make in GROUPS if only is None or _wanted(names, only) for one in make(of))
    wanted = tuple(one for one in figures if only is None or one.metric in only)
    if trial.client is None:
        return wanted
    spans = latencies.e2e_s(table)[table.ok]
    typical_s = float(np.median(spans)) if len(spans) else 0.0
    return tuple(marked(one, trial.client, closed=bool(of.slots), request_s=typical_s) for one in wanted)


def measure(trial: Trial, metric: str, *, level: float = 0.9) -> Measurement:
    """One figure of a trial.  Raises BadInput for a metric there is not."""
    found = summarise(trial, only=(metric,), level=level)
    if found:
        return found[0]
    if metric not in METRICS and not metric.startswith(FAILED):
        raise BadInput(f"there is no metric {metric!r}", remedy=f"choose one of: {', '.join(METRICS)}")
    return Measurement(metric, "", None, why_not="this trial does not have it")


def window_of(trial: Trial) -> Window:
    """Ramp, steady window and tail of a trial."""
    return find_window(columns(trial.replies), trial.workload.arrivals, trial.measured_s)


FAILED = "requests_failed: "


def _wanted(names: Collection[str], only: Collection[str]) -> bool:
    return any(name in names or (name.startswith(FAILED) and "requests_failed" in names) for name in only)


def _reply_latency(of: _Level, kind: str) -> Iterator[Measurement]:
    make = {"ttft": latencies.ttft_s, "tpot": latencies.tpot_s, "e2e": latencies.e2e_s}[kind]
    values = make(of.columns)[of.inside]
    known = values[~np.isnan(values)]
    figures = tuple(_figures(of, kind, known, _missing(of, kind, len(values) - len(known))))
    yield from figures
    if kind == "tpot":
        yield _per_user(figures[1])


def _missing(of: _Level, kind: str, count: int) -> str:
    if kind == "tpot":
        table = of.columns
        guessed = int(np.sum(of.inside & ~table.counted & ~np.isnan(table.tokens) & (table.chunks > 1)))
        if guessed:
            return f"{guessed} replies tell only their sum of tokens: the first chunk was taken to carry the mean"
        if count:
            return f"{count} of {int(np.sum(of.inside))} replies do not say how many tokens they have or are one chunk"
    return f"{count} of {int(np.sum(of.inside))} replies had no tokens" if count else ""


def _per_user(median: Measurement) -> Measurement:
    """Tokens a second that a user sees: the inverse of the median TPOT, and of its interval."""
    value = 1.0 / median.value if median.value else None
    bounds = median.interval
    interval = Interval(1.0 / bounds.high, 1.0 / bounds.low, bounds.level) if value and bounds and bounds.low else None
    return Measurement("tokens_per_s_per_user", "tokens/s", value, interval, median.count, median.why_not)


def _gap_latency(of: _Level, kind: str) -> Iterator[Measurement]:
    table = of.columns
    if kind == "chunk_gap":
        gaps, why_not = latencies.chunk_gaps(table, of.inside_chunks), ""
    else:
        gaps = latencies.token_gaps(table, of.inside_chunks)
        without = int(np.sum(table.ok & ~table.counted & (table.chunks > 1)))
        why_not = f"{without} replies do not say how many tokens each chunk carries; see chunk_gap" if without else ""
    yield from _figures(of, kind, gaps, why_not)


def _figures(of: _Level, kind: str, values: Floats, missing: str) -> Iterator[Measurement]:
    """Mean and quantiles of values in the order of time."""
    ordered = np.sort(values)
    unit = "gaps" if kind in ("itl", "chunk_gap") else "requests"
    mean = intervals.mean(values, level=of.level, rounds=of.rounds)
    yield _measurement(of, f"{kind}_mean", "s", mean, missing)
    for name, share in QUANTILES.items():
        one = intervals.quantile(values, share, level=of.level, rounds=of.rounds, ordered=ordered, unit=unit)
        yield _measurement(of, f"{kind}_{name}", "s", one, missing)


def _measurement(of: _Level, metric: str, unit: str, one: Estimate, *reasons: str) -> Measurement:
    why_not = "; ".join(reason for reason in (one.why_not, *reasons, of.caution) if reason)
    return Measurement(metric, unit, one.value, one.interval, one.count, why_not)


def _rates(of: _Level) -> Iterator[Measurement]:
    table = of.columns
    stopped = np.isin(table.errors, STOPPED)
    came = np.bincount(table.chunk_reply, np.nan_to_num(table.chunk_tokens), len(table.ok))
    tokens = np.where(table.ok, np.nan_to_num(table.tokens), np.where(stopped, came, 0.0))
    missing = _unknown(table.tokens[table.ok], "output")
    yield _whole_rate(of, "output_tokens_per_s", "tokens/s", tokens, missing)
    yield _busy_rate(of, tokens, missing)
    yield _whole_rate(of, "input_tokens_per_s", "tokens/s", np.where(table.ok, np.nan_to_num(table.prompt_tokens), 0.0),
                      _unknown(table.prompt_tokens[table.ok], "prompt"))
    yield _whole_rate(of, "requests_per_s", "requests/s", table.ok.astype(np.float64), "")


def _unknown(numbers: Floats, which: str) -> str:
    unknown = int(np.sum(np.isnan(numbers)))
    return f"{unknown} of {len(numbers)} replies do not say how many {which} tokens they have" if unknown else ""


def _spread(of: _Level, amounts: Floats) -> Estimate:
    """The rate of something that each request brings, in the steady window, with its interval.

    Closed loop: every slot is always busy, so the rate is slots x sum of amounts / sum of times of the requests due in
    the window.  Open loop: amounts in parts of the window of at least two rounds, each request's credited evenly from
    its due time to its end.
    """
    table, window = of.columns, of.window
    if of.slots:
        within = (table.due_s >= window.begin_s) & (table.due_s < window.end_s)
        return intervals.ratio(amounts[within], latencies.e2e_s(table)[within] / of.slots, level=of.level,
                               rounds=of.rounds)
    parts = max(1, min(MOST_WAVES, int(window.length_s / (2.0 * window.round_s))))
    edges = np.linspace(window.begin_s, window.end_s, parts + 1)
    return intervals.ratio(np.diff(credited(table.due_s, table.end_s, amounts, edges)), np.diff(edges), level=of.level)


def _whole_rate(of: _Level, metric: str, unit: str, amounts: Floats, missing: str) -> Measurement:
    """Amounts over the length of the level; its interval is that of the steady window, as if it varied like it."""
    count, window = int(np.sum(of.columns.ok)), of.window
    if missing or not count or window.whole_s <= 0.0:
        return Measurement(metric, unit, None, None, count, missing or "no request came whole")
    value = float(np.sum(amounts)) / window.whole_s
    if not window.steady:
        return Measurement(metric, unit, value, None, count, f"no interval: {window.why}")
    spread = _spread(of, amounts)
    return Measurement(metric, unit, value, _scaled(value, spread, (window.length_s / window.whole_s) ** 0.5), count,
                       spread.why_not)


def _busy_rate(of: _Level, tokens: Floats, missing: str) -> Measurement:
    """Tokens that came in the steady window, by the stamps of their chunks, over its length."""
    metric, unit, window, table = "output_tokens_per_s_busy", "tokens/s", of.window, of.columns
    if missing or not window.steady:
        return Measurement(metric, unit, None, None, 0, missing or window.why)
    came = (table.chunk_s >= window.begin_s) & (table.chunk_s < window.end_s) & ~np.isnan(table.chunk_tokens)
    value = float(np.sum(table.chunk_tokens[came])) / window.length_s
    spread = _spread(of, tokens)
    return Measurement(metric, unit, value, _scaled(value, spread, 1.0), int(np.sum(of.inside)), spread.why_not)


def _scaled(value: float, spread: Estimate, factor: float) -> Interval | None:
    """An interval about `value` as wide, in proportion to it, as that of `spread`, times a factor."""
    if spread.interval is None or not spread.value:
        return None
    half = (spread.interval.high - spread.interval.low) / 2.0 * factor * value / spread.value
    return Interval(value - half, value + half, spread.interval.level)


def _counts(of: _Level) -> Iterator[Measurement]:
    table, window = of.columns, of.window
    failed = Counter(error for error in table.errors if error not in ("", STOPPED))
    whole = len(table.errors)
    yield Measurement("requests_ok", "requests", float(np.sum(table.ok)), count=whole)
    yield Measurement("requests_failed", "requests", float(failed.total()), count=whole)
    for kind, number in sorted(failed.items()):
        yield Measurement(FAILED + kind, "requests", float(number), count=whole)
    yield Measurement("requests_stopped", "requests", float(table.errors.count(STOPPED)), count=whole)
    for name, seconds in (("ramp_share", window.ramp_s), ("tail_share", window.tail_s)):
        share = seconds / window.whole_s if window.whole_s > 0.0 else None
        yield Measurement(name, "share", share, count=whole, why_not="" if share is not None else "nothing was sent")
    got, asked = table.tokens[table.ok], table.asked[table.ok]
    missing = _unknown(got, "output") or ("" if len(got) else "no request came whole")
    yield Measurement("output_tokens", "tokens", None if missing else float(np.sum(got)), None, len(got), missing)
    share = None if missing or not np.sum(asked) else float(np.sum(got) / np.sum(asked))
    yield Measurement("output_tokens_asked_share", "share", share, None, len(got),
                      "" if share is not None else missing or "no length was asked")


def _goodput(of: _Level) -> Iterator[Measurement]:
    table, slo = of.columns, of.slo
    limits = {"ttft": slo.ttft_s, "tpot": slo.tpot_s, "e2e": slo.e2e_s}
    if all(limit is None for limit in limits.values()):
        return
    tpot = latencies.tpot_s(table)
    tpot[(table.chunks == 1) & (table.tokens == 1)] = 0.0
    found = {"ttft": latencies.ttft_s(table), "tpot": tpot, "e2e": latencies.e2e_s(table)}
    held = [found[name] <= limit for name, limit in limits.items() if limit is not None]
    unknown = int(np.sum(table.ok & np.isnan(tpot))) if slo.tpot_s is not None else 0
    missing = f"{unknown} of {int(np.sum(table.ok))} replies have no TPOT to hold against the limit" if unknown else ""
    good = (table.ok & np.all(held, axis=0)).astype(np.float64)
    yield _whole_rate(of, "goodput_requests_per_s", "requests/s", good, missing)
    ended = good[~np.isin(table.errors, STOPPED)]
    one = Estimate(None, None, len(ended), 0.0, missing)
    if not missing:
        one = intervals.mean(ended, level=of.level, rounds=of.rounds)
    yield Measurement("goodput_share", "share", one.value, one.interval, one.count, one.why_not)


def _names(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}_{figure}" for figure in ("mean", *QUANTILES))


GROUPS: tuple[tuple[tuple[str, ...], Callable[[_Level], Iterator[Measurement]]], ...] = (
    (_names("ttft"), partial(_reply_latency, kind="ttft")),
    ((*_names("tpot"), "tokens_per_s_per_user"), partial(_reply_latency, kind="tpot")),
    (_names("itl"), partial(_gap_latency, kind="itl")),
    (_names("chunk_gap"), partial(_gap_latency, kind="chunk_gap")),
    (_names("e2e"), partial(_reply_latency, kind="e2e")),
    (("output_tokens_per_s", "output_tokens_per_s_busy", "input_tokens_per_s", "requests_per_s"), _rates),
    (("requests_ok", "requests_failed", "requests_stopped", "ramp_share", "tail_share", "output_tokens",
      "output_tokens_asked_share"), _counts),
    (("goodput_requests_per_s", "goodput_share"), _goodput))
"""Names that are made together, and how."""

METRICS = tuple(name for names, _ in GROUPS for name in names)
"""All names that `summarise` gives; failures by kind, `requests_failed: KIND`, come on top."""
