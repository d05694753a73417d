"""Measure a server that somebody else started: URL in, trials out."""

import sys
from dataclasses import dataclass, replace
from typing import Literal

from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.progress import Progress, Tell
from rooftop.domain.trial import Trial
from rooftop.domain.workload import Api, Arrivals, Stop, Workload
from rooftop.errors import EngineDied, Interrupted, StoreFailed
from rooftop.load.place import check_url
from rooftop.load.target import probe
from rooftop.store import Store
from rooftop.workflows.run import Slot, recover, run_level
from rooftop.workflows.soundness import DAY_S, check_bounds


@dataclass(frozen=True, slots=True)
class Bench:
    """What `rooftop bench` was asked: where to send, the levels, and how often each is repeated.

    `requests` and `seconds` end a level (both None: eight requests a user).  `rates` asks for open-loop levels instead
    of `concurrency`.  `processes` load processes share each level.  `key_env` names the environment
    variable that holds the API key.
    """

    urls: tuple[str, ...]
    model: str = ""
    api: Api | None = None
    concurrency: tuple[int, ...] = (1,)
    rates: tuple[float, ...] = ()
    arrivals: Literal["constant", "poisson", "gamma"] = "poisson"
    cv: float = 1.0
    ramp_s: float = 0.0
    input_tokens: int = 128
    output_tokens: int = 128
    natural: bool = False
    shared_prefix_tokens: int = 0
    requests: int | None = None
    seconds: float | None = None
    precision: float | None = None
    repeats: int = 1
    seed: int = 0
    tokenizer: str = ""
    key_env: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    verify_tls: bool = True
    timeout_s: float = 120.0
    processes: int = 1


REQUESTS_PER_USER = 8
PAGE_S = 10.0


def workloads(bench: Bench, api: Api) -> tuple[Workload, ...]:
    """The levels that were asked, in their order."""
    shape = Workload(input_tokens=bench.input_tokens, output_tokens=bench.output_tokens, natural=bench.natural,
                     shared_prefix_tokens=bench.shared_prefix_tokens, seed=bench.seed, api=api)
    if bench.rates:
        return tuple(replace(shape, warmup=min(8, max(1, round(rate))), stop=_stop(bench, max(16, round(rate * 10))),
                             arrivals=Arrivals(kind=bench.arrivals, concurrency=0, rate_per_s=rate, cv=bench.cv,
                                               ramp_s=bench.ramp_s))
                     for rate in bench.rates)
    return tuple(replace(shape, warmup=users, arrivals=Arrivals(concurrency=users),
                         stop=_stop(bench, REQUESTS_PER_USER * users)) for users in bench.concurrency)


def _stop(bench: Bench, usual: int) -> Stop:
    if bench.requests is None and bench.seconds is None and bench.precision is None:
        return Stop(requests=usual)
    return Stop(requests=bench.requests, seconds=bench.seconds, precision=bench.precision)


def bench(asked: Bench, *, store: Store, tell: Tell) -> tuple[Trial, ...]:
    """Probe the server, then measure each level; repeats interleave the levels.

    Raises BadInput for a URL that is none or a number out of any reason, ServerUnreachable or ServerRefused before
    the first level, EngineDied when the server is gone after one, Interrupted and StoreFailed; every level that ended
    is in the store by then.
    """
    _check(asked)
    recover(store)
    tell(Progress("probe", asked.urls[0]))
    target = probe(asked.urls, model=asked.model, api=asked.api, key_env=asked.key_env, headers=asked.headers,
                   verify_tls=asked.verify_tls, timeout_s=min(PAGE_S, asked.timeout_s))
    levels = [(repeat, load) for repeat in range(asked.repeats) for load in workloads(asked, target.api)]
    plan = Plan(model=Model(name=target.model))
    trials: list[Trial] = []
    for done, (repeat, load) in enumerate(levels):
        users = f"{load.level} user{'' if load.level == '1' else 's'}"
        tell(Progress("level", users if load.arrivals.kind == "closed" else load.level, done, len(levels)))
        slot = Slot(plan=plan, repeat=repeat, tokenizer=asked.tokenizer, timeout_s=asked.timeout_s,
                    processes=asked.processes)
        trial = run_level(target, load, slot, store=store, tell=tell)
        trials.append(trial)
        _stop_if_gone(trial, target.urls[0], store)
    tell(Progress("level", done=len(levels), total=len(levels), last=True))
    return tuple(trials)


def _check(asked: Bench) -> None:
    for url in asked.urls:
        check_url(url)
    check_bounds((
        *(("--concurrency", users, 1, 10_000) for users in asked.concurrency),
        *(("--rate", rate, 1e-6, 100_000) for rate in asked.rates),
        ("--cv", asked.cv, 1e-3, 1000), ("--ramp", asked.ramp_s, 0, 30 * DAY_S),
        ("--input-tokens", asked.input_tokens, 1, 10_000_000), ("--output-tokens", asked.output_tokens, 1, 10_000_000),
        ("--requests", asked.requests, 1, 10_000_000), ("--seconds", asked.seconds, 1e-3, 30 * DAY_S),
        ("--precision", asked.precision, 1e-6, 1), ("--repeats", asked.repeats, 1, 10_000),
        ("--processes", asked.processes, 1, 64),
        ("--seed", asked.seed, -sys.maxsize, sys.maxsize), ("--timeout", asked.timeout_s, 1e-3, 30 * DAY_S)))


def _stop_if_gone(trial: Trial, url: str, store: Store) -> None:
    kept = f"what was measured is in {store.path}"
    kind = trial.fault.kind if trial.fault is not None else ""
    if trial.fault is not None and kind == "stopped":
        raise Interrupted("stopped", where=url, remedy=kept)
    if trial.fault is not None and kind == "killed":
        raise Interrupted(trial.fault.reason, where=url,
                          remedy=f"somebody killed it, or memory ran out (see dmesg); {kept}")
    if trial.fault is not None and kind == "spool":
        raise StoreFailed(trial.fault.reason, where=str(store.path), remedy=f"free space there; {kept}")
    if trial.fault is not None or (trial.replies and not any(reply.ok for reply in trial.replies)):
        reason = trial.fault.reason if trial.fault else next(r.detail or str(r.error) for r in trial.replies)
        remedy = (trial.fault.remedy if trial.fault else "") or "look at the server's log"
        raise EngineDied(f"no request of this level was answered: {reason}", where=url, remedy=f"{remedy}; {kept}")
