"""What was asked held against what the engine said: claims."""

from collections.abc import Sequence
from math import inf

from rooftop.domain.launch import Claim, Evidence, Fact, Launch
from rooftop.domain.vocabulary import LEVELS, same

Asks = Sequence[tuple[str, Fact]]
Margins = tuple[tuple[str, float], ...]
NEAR_TIE = 0.2
"""Nats of lead below which rounding may turn a token: some bfloat16 steps of a logit around 10 (0.0625 each)."""


def check(asks: Asks, evidence: Sequence[Evidence]) -> tuple[Claim, ...]:
    """A claim for each fact asked.

    A claim is broken by any other value that the engine resolved, built or used, and holds by the strongest level that
    is said.  What is only asked proves nothing: the claim is then unknown.  (An engine's witness leaves out values
    that the engine itself corrected later.)
    """
    return tuple(_claim(fact, asked, [one for one in evidence if one.fact == fact and one.level != "asked"])
                 for fact, asked in asks)


def _claim(fact: str, asked: Fact, said: Sequence[Evidence]) -> Claim:
    if not said:
        return Claim(fact, asked, None, None)
    strongest = sorted(said, key=lambda one: LEVELS.index(one.level), reverse=True)
    best = strongest[0]
    for one in strongest:
        if not same(fact, one.value, asked):
            return Claim(fact, asked, one.value, False, one)
    return Claim(fact, asked, best.value, True, best)


def split(one: Launch, other: Launch) -> float | None:
    """How firmly two launches answer the fixed prompts differently: 0 where all texts are equal.

    Where texts differ, the least lead in nats, in either launch, of the token at which they part, the largest over the
    prompts; infinity where no logprobs tell it.  None where one has no texts.  Ranks that add their parts in another
    order turn near ties (below `NEAR_TIE`); a layout that computes something else parts from far larger leads.
    """
    if not one.greedy or not other.greedy:
        return None
    apart = [number for number, (a, b) in enumerate(zip(one.greedy, other.greedy, strict=False)) if a != b]
    if not apart:
        return 0.0
    if not one.margins or not other.margins:
        return inf
    return max(_parting(one.margins[number], other.margins[number]) for number in apart)


def _parting(one: Margins, other: Margins) -> float:
    for (a, lead), (b, other_lead) in zip(one, other, strict=False):
        if a != b:
            return min(lead, other_lead)
    return inf


def merge(replicas: Sequence[Sequence[Claim]]) -> tuple[Claim, ...]:
    """One claim a fact over all replicas: broken where one breaks it, unknown where one does not tell."""
    if not replicas:
        return ()
    order = {False: 0, None: 1, True: 2}
    return tuple(min(claims, key=lambda claim: order[claim.holds]) for claims in zip(*replicas, strict=True))
