"""Predictions of a plan's speed with interval, bound, share of the limit and provenance."""

from collections.abc import Iterable
from math import exp

from rooftop.domain.finding import Interval
from rooftop.domain.machine import Gpu
from rooftop.domain.stepcost import Bound, Constant, Cost, Kernel, Ledger, Prediction, Step
from rooftop.perfmodel.efficiency import kernel, timed
from rooftop.perfmodel.queueing import Load, Service, capacity, interval_s, serve
from rooftop.perfmodel.roofline import Roofline

LEVEL = 0.8
WORDS = {"decode rate": "rate", "output rate": "rate", "TPOT": "tpot", "TTFT": "ttft"}
FEW_USERS = 8
"""Up to so many users a step's time is all there is; above, a queueing bound stands in for the simulator."""


def decode_rate(model: Roofline, requests: int, context: float) -> Prediction:
    """Tokens a second of `requests` that all decode at `context` tokens, prefill excluded."""
    interval, cost = interval_s(model, requests, context)
    kind = spread_kind(requests, model.gpu, decodes=True)
    return _made(model, ("decode rate", "tok/s", requests / interval), kind, cost, cost.bound,
                 Step("decode", requests, requests, context), _slots_note(model, requests, context))


def users(model: Roofline, load: Load) -> tuple[Prediction, Prediction, Prediction]:
    """(output tokens a second, TPOT, TTFT) of a load; above a few users by a queueing bound, which a note says."""
    found = serve(model, load)
    kind = spread_kind(load.users, model.gpu, decodes=False)
    step = Step("decode", found.batch, found.batch, load.input_tokens + load.output_tokens / 2)
    notes = _notes(load, found)

    def made(metric: str, unit: str, value: float) -> Prediction:
        return _made(model, (metric, unit, value), kind, found.step, found.bound, step, notes)
    return (made("output rate", "tok/s", found.tokens_per_s), made("TPOT", "s", found.tpot_s),
            made("TTFT", "s", found.ttft_s))


def _notes(load: Load, found: Service) -> tuple[str, ...]:
    if load.users <= FEW_USERS:
        return found.notes
    return (*found.notes, f"{load.users} users: a queueing bound of mean values, not a simulation")


def _slots_note(model: Roofline, requests: int, context: float) -> tuple[str, ...]:
    most = capacity(model, max(1, round(context)))
    return (f"about {most} requests of {context:.0f} tokens fit in the cache",) if most < requests else ()


def _made(model: Roofline, figure: tuple[str, str, float], kind: str, cost: Cost, bound: Bound, step: Step,
          notes: tuple[str, ...]) -> Prediction:
    metric, unit, value = figure
    both = spread(model.ledger, kind, WORDS[metric])
    interval = Interval(value * exp(both[0]), value * exp(both[1]), LEVEL) if both else None
    share = min(1.0, model.limit(step) / cost.seconds)
    causes = tuple(cost.by_cause.items())
    return Prediction(metric, unit, value, interval, bound, share, causes, used(model), notes)


def spread_kind(users: int, gpu: Gpu, *, decodes: bool) -> str:
    """The ledger's word for rows whose errors are alike: far where the kernels of other GPUs stand in."""
    if users > FEW_USERS:
        return "many" if decodes else "loaded"
    return "few" if timed(gpu) else "far"


def spread(ledger: Ledger, kind: str, metric: str) -> tuple[float, float] | None:
    """Log errors (measured over predicted) that 10 and 90 % of the rows stay below; None where none are known.

    kind: few (users), far (few, on a GPU whose kernels were not timed), many (that decode together), loaded.  metric:
    rate, tpot, ttft.  At few users TPOT has the rate's spread turned over, and TTFT is the same far or not.
    """
    if kind in ("few", "far") and metric == "tpot":
        both = spread(ledger, kind, "rate")
        return (-both[1], -both[0]) if both else None
    kind = "few" if (kind, metric) == ("far", "ttft") else kind
    try:
        return ledger.value(f"spread_{kind}_{metric}_low"), ledger.value(f"spread_{kind}_{metric}_high")
    except KeyError:
        return None


def used(model: Roofline) -> tuple[Constant, ...]:
    """Every constant that a step of this plan uses, kernels' three numbers each, with its source."""
    names = ("small_kernel_us", "kernel_base", "host_request_us", "allreduce_skew_us", f"host_{model.host}_us")
    made = [one for one in model.ledger.constants if one.name in names]
    made.append(Constant("memory bandwidth", model.gpu.memory_bytes_per_s or 0.0, "bytes/s", "data sheet"))
    if model.tensor.ranks > 1:
        made.append(Constant("all-reduce latency", model.tensor.points[0][1], "s", f"table: {model.tensor.source}"))
    made += [Constant(f"{one.shape}: measured points", len(one.points), "1", one.source)
             for one in model.ledger.grids if one.shape in model.shapes]
    for found in dict.fromkeys(_kernels(model)):
        name = f"{found.generation} {found.operation} {found.format}"
        made += [Constant(f"{name}: base", found.base_s, "s", found.source),
                 Constant(f"{name}: share of bandwidth", found.memory, "1", found.source),
                 Constant(f"{name}: share of peak", found.compute, "1", found.source)]
    return tuple(made)


def _kernels(model: Roofline) -> Iterable[Kernel]:
    cached = "fp8" if model.kv_bytes < 2 else "bf16"
    for part in model.works:
        for operation, form in (*(("gemm", one.form) for one in part.products),
                                *(("moe", one.form) for one in part.mixtures),
                                *(_reads(one.kind.kind, cached) for one in part.readings)):
            yield kernel(model.ledger, model.gpu, operation, form, model.engine)


def _reads(kind: str, cached: str) -> tuple[str, str]:
    """(operation, format) of the kernel of one kind of attention."""
    return ("linear", "bf16") if kind == "linear" else ("mla" if kind == "mla" else "attention", cached)
