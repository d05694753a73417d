"""Predicted speed of the deployments that fit, and their order by a goal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rooftop.catalog import kernel_tables, ledger
from rooftop.domain.architecture import Architecture
from rooftop.domain.finding import Finding
from rooftop.domain.fit import Option
from rooftop.domain.plan import Plan
from rooftop.domain.stepcost import Ledger
from rooftop.errors import BadInput
from rooftop.perfmodel.gains import gains
from rooftop.perfmodel.predict import decode_rate, users
from rooftop.perfmodel.queueing import Load, serve
from rooftop.perfmodel.roofline import Roofline, roofline

GOALS = ("users", "one", "many", "slo")


@dataclass(frozen=True, slots=True)
class Aim:
    """What the options are ordered by; the service-level objective in milliseconds, None = no limit."""

    goal: str = "users"
    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise BadInput(f"there is no goal {self.goal!r}", where="--goal", remedy=f"one of {', '.join(GOALS)}")
        if self.goal == "slo" and self.ttft_ms is None and self.tpot_ms is None:
            raise BadInput("the goal slo needs a limit", where="--goal", remedy="give --ttft-ms or --tpot-ms")

    @property
    def limited(self) -> bool:
        """Whether there is a service-level objective."""
        return self.ttft_ms is not None or self.tpot_ms is not None


USERS = Aim()
"""The default: most users first."""


def with_speed(option: Option, architecture: Architecture, input_tokens: int, output_tokens: int, aim: Aim) -> Option:
    """The option with its predicted speed; unchanged where the GPUs have no data sheet."""
    machine = option.plan.machine
    if machine is None or not machine.gpus or machine.gpus[0].memory_bytes_per_s is None:
        return option
    model = roofline(option.plan, architecture, ledger_for(option.plan, architecture))
    together = Load(option.fit.users, input_tokens, output_tokens)
    within = _within(model, together, aim) if aim.limited else None
    return replace(option, one=decode_rate(model, 1, input_tokens + output_tokens / 2), many=users(model, together)[0],
                   within=within)


def ledger_for(plan: Plan, architecture: Architecture) -> Ledger:
    """The catalog's ledger; with the kernel times of an installed aiconfigurator-core for the plan's shapes."""
    known, data = ledger.known(), kernel_tables.folder()
    if data is None or plan.machine is None or plan.engine is None:
        return known
    asked = roofline(plan, architecture, known).shapes
    return replace(known, grids=kernel_tables.grids(data, plan.machine.gpus[0].kind, plan.engine, asked))


def ranked(options: Sequence[Option], aim: Aim) -> list[Option]:
    """Best for the goal first; options without a prediction last."""
    def order(option: Option) -> tuple[float, ...]:
        one, many = option.one.value if option.one else 0.0, option.many.value if option.many else 0.0
        room = float(option.fit.kv_tokens * option.fit.pools)
        return {"users": (-option.fit.users, -room), "one": (-one, -many),
                "many": (-many / option.fit.layout.ranks, -one),
                "slo": (-(option.within or 0), -many)}[aim.goal]
    return sorted(options, key=order)


def settings_worth(option: Option, architecture: Architecture, input_tokens: int, output_tokens: int
                   ) -> tuple[Finding, ...]:
    """Settings that would move the option's speed; none where it has no prediction."""
    if option.one is None:
        return ()
    table = ledger_for(option.plan, architecture)
    return gains(option.plan, architecture, table, option.fit.users, input_tokens + output_tokens / 2)


def tables_used(option: Option) -> tuple[str, ...]:
    """A note on each table of measured kernels that the option's prediction used in place of the catalog's fits."""
    used = option.one.constants if option.one else ()
    found = [(one.name.removesuffix(": measured points"), one.source.removeprefix("table: "))
             for one in used if one.name.endswith(": measured points")]
    return tuple(f"kernels as timed: {shape} ({source})" for shape, source in found)


def _within(model: Roofline, load: Load, aim: Aim) -> int:
    """The most users, up to those that fit, whose mean TTFT and TPOT stay within the objective; by halving."""
    def meets(count: int) -> bool:
        found = serve(model, replace(load, users=count))
        return (found.ttft_s * 1e3 <= (aim.ttft_ms or float("inf"))
                and found.tpot_s * 1e3 <= (aim.tpot_ms or float("inf")))
    low, high = 0, load.users
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if meets(middle) else (low, middle - 1)
    return low
