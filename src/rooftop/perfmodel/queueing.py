"""What users see of steps: closed loops, open arrivals, and bounds under load."""

from dataclasses import dataclass
from math import exp, log

from rooftop.domain.stepcost import Bound, Cost, Step
from rooftop.perfmodel.operations import Work
from rooftop.perfmodel.roofline import Roofline

CHUNK_TOKENS = 8192
"""Prompt tokens that go through in one step (the engines' default on GPUs of 80 GB)."""


@dataclass(frozen=True, slots=True)
class Load:
    """A stationary load: requests of `input_tokens` and `output_tokens`.

    users: a closed loop of so many, or the most that are in flight.  rate: arrivals a second (None = closed loop).
    slots: requests that the engine runs at once (its own limit or its KV cache).  burst: all are sent at once and none
    follows.  varied: output lengths are spread about their mean, which gives a burst a tail.
    """

    users: int
    input_tokens: int
    output_tokens: int
    rate: float | None = None
    slots: int | None = None
    burst: bool = False
    varied: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """What the load sees: seconds to the first token and between tokens, tokens a second in all.

    batch: requests that decode together.  step: the cost of such a step.  bound: what limits the tokens a second.
    """

    ttft_s: float
    tpot_s: float
    tokens_per_s: float
    batch: int
    step: Cost
    bound: Bound
    notes: tuple[str, ...] = ()


def interval_s(model: Roofline, requests: int, context: float) -> tuple[float, Cost]:
    """Seconds between two tokens of one request while `requests` decode, and the step's cost.

    With a pipeline the requests run as up to pp cohorts; a cohort's next step waits for its own result, so that a token
    takes the sum of all stages' times at the cohort's batch (engine-facts 4.3).
    """
    cohorts = min(model.slots or model.layout.pp, requests)
    batch = -(-requests // cohorts)
    cost = model.cost(Step("decode", batch, batch, context))
    return cost.seconds, cost


def prefill_s(model: Roofline, tokens: int, requests: int = 1) -> float:
    """Seconds of the steps that read `tokens` of `requests` equal prompts, chunk by chunk."""
    done, total = 0, 0.0
    while done < tokens:
        chunk = min(CHUNK_TOKENS, tokens - done)
        alone = requests == 1 or tokens // requests > CHUNK_TOKENS
        step = Step("prefill", 1 if alone else max(1, min(chunk, requests * chunk // tokens)), chunk,
                    done if alone else 0)
        total += model.cost(step).seconds
        done += chunk
    return total


def capacity(model: Roofline, tokens: int, share: float = 0.9) -> int:
    """Requests of so many tokens whose cache fits beside the weights in `share` of the memory, over all replicas.

    A rough count for loads whose Fit was not made: 3 GiB a GPU for everything else.
    """
    memory = (model.gpu.memory_bytes or model.gpu.nominal_bytes or 0) * share - 3 * 2**30
    fitting = []
    for part in model.works:
        held = held_bytes(part)
        each = sum(one.kind.kv_bytes(tokens, model.kv_bytes) * one.layers / len(one.kind.layers)
                   * (1.0 if one.kind.kind == "mla" else one.kv_heads / one.kind.kv_heads) for one in part.readings)
        fitting.append((memory - held) / (each / model.layout.dcp))
    return max(1, int(min(fitting))) * model.layout.dp * model.layout.attention_dp


def held_bytes(part: Work) -> float:
    """Bytes of the weights that one rank of a stage multiplies with; the embedding is not among them."""
    return (sum(one.layers * one.bytes for one in part.products)
            + sum(one.layers * one.bytes * one.count / one.spread for one in part.mixtures))


def serve(model: Roofline, load: Load) -> Service:
    """The stationary state of a load, by mean values; a burst of unequal requests with its tail.

    Closed loop: each of the `batch` requests spends its prefill and output_tokens - 1 intervals, and stands still for
    the prefills of the others: cycle = batch x prefill + (output - 1) x interval.  Requests beyond the slots wait.
    Open arrivals: the batch is that at which arrivals and departures balance (Little's law), up to the slots.
    A bound of means, without the variance of arrivals: real loads above a few users do worse.
    """
    outside = model.ledger.value("request_ms") * 1e-3
    slots = min(load.users, load.slots or load.users)
    batch = slots if load.rate is None else _open_batch(model, load, slots, outside)
    interval, cost = interval_s(model, batch, load.input_tokens + load.output_tokens / 2)
    alone = prefill_s(model, load.input_tokens)
    each = _each_prefill_s(model, load, batch, alone)
    steps = max(1, load.output_tokens - 1)
    tpot = interval + each * (batch - 1) / (2 if load.burst else 1) / steps
    cycle = outside + alone + interval / 2 + steps * tpot
    rate = batch * load.output_tokens / cycle
    if load.burst:
        rounds = load.users / batch
        rate = load.users * load.output_tokens / (outside + each * load.users + _burst_s(model, load, batch) * rounds)
    waiting = cycle * (load.users / slots - 1) / 2 if load.rate is None else 0.0
    bound: Bound = cost.bound
    if load.rate is not None and (batch < slots or rate > load.rate * load.output_tokens):
        rate, bound = load.rate * load.output_tokens, "arrivals"
    elif slots < load.users:
        bound = "capacity"
    behind = each * (batch - 1) / 2 if load.rate is None else 0.0
    return Service(outside + alone + interval / 2 + behind + waiting, tpot, rate, batch, cost, bound)


def _each_prefill_s(model: Roofline, load: Load, batch: int, alone: float) -> float:
    """Seconds of prefill for each request where as many prompts as fit share a chunk; over all replicas."""
    together = max(1, min(batch, CHUNK_TOKENS // max(1, load.input_tokens)))
    each = prefill_s(model, together * load.input_tokens, together) / together if together > 1 else alone
    return each / min(model.layout.pp, batch)


def _burst_s(model: Roofline, load: Load, batch: int) -> float:
    """Seconds to decode a burst, slots after slots.

    Lengths that vary are taken as exponential: the batch thins out as N e^(-t / mean), and the step's time is summed
    over ln N mean lengths by the midpoint rule.
    """
    if not load.varied:
        return load.output_tokens * interval_s(model, batch, load.input_tokens + load.output_tokens / 2)[0]
    spans = max(1, round(2 * log(batch)) if batch > 1 else 1)
    whole = max(1.0, log(batch)) if batch > 1 else 1.0
    total = 0.0
    for number in range(spans):
        there = max(1, round(batch * exp(-whole * (number + 0.5) / spans)))
        total += interval_s(model, there, load.input_tokens + load.output_tokens)[0]
    return total * load.output_tokens * whole / spans


def _open_batch(model: Roofline, load: Load, slots: int, outside: float) -> int:
    """The batch at which as many requests leave as arrive: rate x time in the engine, by fixed-point steps."""
    batch = 1
    for _ in range(30):
        interval, _ = interval_s(model, batch, load.input_tokens + load.output_tokens / 2)
        inside = (load.rate or 0.0) * (outside + load.output_tokens * interval)
        following = max(1, min(slots, round(inside)))
        if following == batch:
            break
        batch = following
    return batch
