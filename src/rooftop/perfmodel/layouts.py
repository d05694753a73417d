"""The layouts there are for a model on some GPUs, and which of them are legal."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import log2

from rooftop.domain.architecture import Architecture
from rooftop.domain.engine import Refusal
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan
from rooftop.perfmodel.case import case_of
from rooftop.perfmodel.rules import refuses


@dataclass(frozen=True, slots=True)
class Layouts:
    """Every layout that was looked at: the legal ones, and the others with the rule that refuses each."""

    legal: tuple[Layout, ...]
    refused: tuple[tuple[Layout, Refusal], ...]


def candidates(architecture: Architecture, engine: str, gpus: int) -> Iterator[Layout]:
    """Layouts of up to `gpus` GPUs that the engine has words for: tp x pp of any size, replicas on what is left.

    ep appears only for models with experts, attention-dp only in SGLang, dcp only beside plain tp (no ep below the
    whole, no attention-dp) and where it is more than 1 only for attention that leaves copies.  A machine without GPUs
    has the one layout tp 1.
    """
    for tp in range(1, max(1, gpus) + 1):
        for pp in range(1, max(1, gpus) // tp + 1):
            if engine == "llamacpp" and tp > 1 and pp > 1:
                continue
            dp = max(1, max(1, gpus) // (tp * pp))
            yield Layout(tp, pp, dp)
            yield from _with_experts(architecture, engine, Layout(tp, pp, dp))
            if engine in ("sglang", "vllm") and dp == 1:
                yield from (Layout(tp, pp, dp, dcp=dcp) for dcp in _divisors(tp)[1:])


def _with_experts(architecture: Architecture, engine: str, plain: Layout) -> Iterator[Layout]:
    """The same GPUs with experts spread, and with attention groups."""
    moe = architecture.experts is not None
    if engine == "vllm" and moe and plain.tp * plain.dp > 1:
        yield replace(plain, ep=plain.tp * plain.dp)
    if engine == "sglang":
        groups = _divisors(plain.tp) if plain.dp == 1 else (1,)
        for attention_dp in groups:
            for ep in _divisors(plain.tp) if moe else (1,):
                if ep > 1 or attention_dp > 1:
                    yield replace(plain, ep=ep, attention_dp=attention_dp)


def sort_out(plan: Plan, architecture: Architecture, layouts: Iterable[Layout],
             own: Callable[[Plan], Refusal | None] | None = None) -> Layouts:
    """Which of the layouts the engine of `plan` would take; each refusal names the nearest legal one as its remedy.

    own: the engine's own rules on a plan (`Engine.refuses`), asked first, and not about the machine.
    """
    legal: list[Layout] = []
    refused: list[tuple[Layout, Refusal]] = []
    for layout in layouts:
        asked = replace(plan, layout=layout)
        refusal = (own(replace(asked, machine=None)) if own else None) or refuses(case_of(asked, architecture))
        if refusal is None:
            legal.append(layout)
        else:
            refused.append((layout, refusal))
    return Layouts(tuple(legal), tuple((layout, with_remedy(layout, refusal, legal)) for layout, refusal in refused))


def nearest(layout: Layout, others: Iterable[Layout]) -> Layout | None:
    """The layout that differs least: as many GPUs first, then fewest degrees changed, then by the smallest factors."""
    own = _degrees(layout)

    def apart(other: Layout) -> tuple[int, int, float]:
        pairs = list(zip(own, _degrees(other), strict=True))
        return (abs(layout.ranks - other.ranks), sum(one != two for one, two in pairs),
                sum(abs(log2(one / two)) for one, two in pairs))
    return min((other for other in others if other != layout), key=apart, default=None)


def with_remedy(layout: Layout, refusal: Refusal, legal: Iterable[Layout]) -> Refusal:
    """The refusal with the nearest legal layout as its remedy, unless it has one."""
    near = nearest(layout, legal) if not refusal.remedy else None
    return replace(refusal, remedy=f"use {near}") if near is not None else refusal


def _degrees(layout: Layout) -> tuple[int, ...]:
    return layout.tp, layout.pp, layout.dp, layout.ep, layout.attention_dp, layout.dcp


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)
