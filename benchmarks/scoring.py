"""Rows with their predictions, and the table of errors by kind and metric."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from measured import Row

from rooftop.domain.architecture import Architecture
from rooftop.domain.plan import Plan
from rooftop.domain.stepcost import Ledger, Step
from rooftop.errors import RooftopError
from rooftop.perfmodel.predict import spread
from rooftop.perfmodel.queueing import Load, capacity, held_bytes, interval_s, serve
from rooftop.perfmodel.roofline import Roofline, roofline

Spreads = dict[tuple[str, str], tuple[float, float]]
Own = Callable[[Plan, Architecture], Ledger]
MOST_SLOTS = 1024
"""Requests at once where a row does not say (engine-facts 2: the API server's default on large GPUs)."""
KINDS = ("decode rate", "up to 8 users", "loaded")


@dataclass(frozen=True)
class Scored:
    """One row with its prediction and the baseline's, in the row's own unit.

    impossible: faster than what every token must read at least takes at the data sheet's bandwidth.
    """

    row: Row
    predicted: float
    sheet: float
    bound: str
    impossible: bool = False

    @property
    def error(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.row.value / self.predicted)

    @property
    def spread_key(self) -> tuple[str, str]:
        """Which spread its error belongs to: at few users a time between tokens is a rate turned over."""
        kind, metric = self.row.spread_kind, self.row.spread_metric
        return kind, "rate" if kind in ("few", "far") and metric == "tpot" else metric

    @property
    def spread_error(self) -> float:
        return -self.error if self.spread_key[1] != self.row.spread_metric else self.error


def model_of(row: Row, ledger: Ledger, own: Own | None, cache: dict[object, Roofline]) -> Roofline:
    key = (row.plan.key, row.architecture.name, row.quant)
    if key not in cache:
        cache[key] = roofline(row.plan, row.architecture, own(row.plan, row.architecture) if own else ledger)
    return cache[key]


def predict(row: Row, model: Roofline) -> tuple[float, float, str]:
    """(predicted, data-sheet baseline, bound) in the row's unit."""
    if row.kind == "decode rate":
        interval, cost = interval_s(model, row.users, row.context)
        sheet = model.limit(Step("decode", row.users, row.users, row.context))
        return row.users / interval, row.users / sheet, cost.bound
    slots = max(1, min(row.slots or MOST_SLOTS, capacity(model, row.input_tokens + row.output_tokens)))
    found = serve(model, Load(row.users, row.input_tokens, row.output_tokens, row.rate, slots, row.burst, row.varied))
    sheet = model.limit(Step("decode", found.batch, found.batch, row.context))
    first = model.limit(Step("prefill", 1, row.input_tokens, 0))
    values = {"tok/s": (found.tokens_per_s, found.batch / sheet), "TPOT": (found.tpot_s * 1e3, sheet * 1e3),
              "ITL": (found.tpot_s * 1e3, sheet * 1e3), "TTFT": (found.ttft_s * 1e3, first * 1e3)}
    return (*values[row.metric], found.bound)


def score(rows: list[Row], ledger: Ledger, own: Own | None = None, refused: Counter[str] | None = None
          ) -> list[Scored]:
    """The rows with their predictions; own: makes a plan's own ledger.

    refused: counts rows that cannot be predicted, by reason; where it is None such a row raises.
    """
    cache: dict[object, Roofline] = {}
    scored = []
    for row in rows:
        try:
            model = model_of(row, ledger, own, cache)
            if max(map(held_bytes, model.works)) > (model.gpu.memory_bytes or model.gpu.nominal_bytes or 0):
                raise ValueError("the weights are more than the GPUs' memory")
            scored.append(Scored(row, *predict(row, model), beats(row, model)))
        except (RooftopError, ValueError, LookupError, ArithmeticError) as error:
            if refused is None:
                raise
            refused[f"cannot be predicted: {error}"[:80]] += 1
    return scored


def beats(row: Row, model: Roofline) -> bool:
    """Whether a rate or a time between tokens is beyond the limit of one request alone without a cache."""
    least = model.limit(Step("decode", 1, 1, 0))
    if row.spread_metric == "tpot":
        return row.value * 1e-3 < least
    return row.spread_metric == "rate" and row.value > row.users * model.layout.dp / least


def adapted(scored: list[Scored], count: int) -> list[Scored]:
    """The rest after the first `count` rows of each machine, model, engine and metric set their common factor."""
    groups: dict[tuple[str, ...], list[Scored]] = defaultdict(list)
    for one in scored:
        groups[one.row.machine_key].append(one)
    rest = []
    for found in groups.values():
        seen = found[:count]
        factor = math.exp(statistics.fmean(one.error for one in seen)) if seen else 1.0
        rest += [replace(one, predicted=one.predicted * factor) for one in found[count:]]
    return rest


def table(scored: list[Scored], ledger: Ledger, others: Mapping[str, Spreads] | None = None) -> None:
    """Errors, share inside the ledger's interval with its median half-width, and the same with intervals that the
    other sources give (others: spreads by the source that they leave out); the data sheet's errors beside them.
    """
    print(f"\n{'kind':14s} {'metric':7s} {'rows':>5s} {'median':>7s} {'mean':>7s} {'bias':>6s} {'in 80 %':>8s} "
          f"{'half':>6s} {'left out':>9s} {'half':>6s}   {'data sheet':>10s} {'mean':>8s}")
    for kind in KINDS:
        for metric in ("tok/s", "TPOT", "ITL", "TTFT"):
            found = [one for one in scored if one.row.kind == kind and one.row.metric == metric]
            if not found:
                continue
            off = [abs(one.predicted / one.row.value - 1) for one in found]
            base = [abs(one.sheet / one.row.value - 1) for one in found]
            bias = statistics.median(one.error for one in found)
            spreads = [(one, spread(ledger, one.row.spread_kind, one.row.spread_metric)) for one in found]
            known = [(one.error, both) for one, both in spreads if both]
            inside = half = ""
            if known:
                share = sum(low <= error <= high for error, (low, high) in known) / len(known)
                halves = [(math.exp(high) - math.exp(low)) / 2 for _, (low, high) in known]
                inside, half = f"{share:7.0%}", f"{statistics.median(halves):6.0%}"
            held, wide = left_out(found, others or {})
            print(f"{kind:14s} {metric:7s} {len(found):5d} {statistics.median(off):7.1%} {statistics.fmean(off):7.1%} "
                  f"{bias:+6.2f} {inside:>8s} {half:>6s} "
                  f"{held:>9s} {wide:>6s}   {statistics.median(base):10.1%} {statistics.fmean(base):8.0%}")


def left_out(found: list[Scored], others: Mapping[str, Spreads]) -> tuple[str, str]:
    """(share inside, median half-width) of the intervals that the other sources' errors give; "" where none do."""
    hits, widths = [], []
    for one in found:
        both = others.get(one.row.source, {}).get(one.spread_key)
        if both:
            hits.append(both[0] <= one.spread_error <= both[1])
            turned = one.spread_key[1] != one.row.spread_metric
            low, high = (-both[1], -both[0]) if turned else both
            widths.append((math.exp(high) - math.exp(low)) / 2)
    return (f"{sum(hits) / len(hits):.0%}", f"{statistics.median(widths):.0%}") if hits else ("", "")
