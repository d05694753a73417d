"""What was asked held against what the engine said: claims."""

from collections.abc import Sequence

from rooftop.domain.launch import Claim, Evidence, Fact
from rooftop.domain.vocabulary import LEVELS, same

Asks = Sequence[tuple[str, Fact]]


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


def merge(replicas: Sequence[Sequence[Claim]]) -> tuple[Claim, ...]:
    """One claim a fact over all replicas: broken where one breaks it, unknown where one does not tell."""
    if not replicas:
        return ()
    order = {False: 0, None: 1, True: 2}
    return tuple(min(claims, key=lambda claim: order[claim.holds]) for claims in zip(*replicas, strict=True))
