"""What was asked held against what the engine said: claims."""

from collections.abc import Sequence

from rooftop.domain.launch import Claim, Evidence, Fact
from rooftop.domain.vocabulary import LEVELS, same

Asks = Sequence[tuple[str, Fact]]


def check(asks: Asks, evidence: Sequence[Evidence]) -> tuple[Claim, ...]:
    """A claim for each fact asked.

    Of evidence for a fact, what a source said last at a level counts.  A claim is broken by any other value at the
    strongest level said, or at a proven one (built, used): whoever contradicts there speaks of something that exists.
    What is only asked proves nothing: the claim is then unknown.
    """
    return tuple(_claim(fact, asked, [one for one in evidence if one.fact == fact]) for fact, asked in asks)


def _claim(fact: str, asked: Fact, said: Sequence[Evidence]) -> Claim:
    last: dict[tuple[str, str], Evidence] = {}
    for one in said:
        if one.level != "asked":
            last[one.level, one.source] = one
    if not last:
        return Claim(fact, asked, None, None)
    ranked = sorted(last.values(), key=lambda one: LEVELS.index(one.level), reverse=True)
    best = ranked[0]
    for one in ranked:
        counts = one.level == best.level or one.level in ("built", "used")
        if counts and not same(fact, one.value, asked):
            return Claim(fact, asked, one.value, False, one)
    return Claim(fact, asked, best.value, True, best)


def merge(replicas: Sequence[Sequence[Claim]]) -> tuple[Claim, ...]:
    """One claim a fact over all replicas: broken where one breaks it, unknown where one does not tell."""
    if not replicas:
        return ()
    order = {False: 0, None: 1, True: 2}
    return tuple(min(claims, key=lambda claim: order[claim.holds]) for claims in zip(*replicas, strict=True))
