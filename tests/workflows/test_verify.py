"""Claims: what was asked against what was said."""

from dataclasses import replace
from math import inf

import pytest

from rooftop.domain.launch import Claim, Evidence, Fact, Launch, Level
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.workflows import decode
from rooftop.workflows.verify import check, merge, split


def said(value: Fact, level: Level, source: str = "log", line: int = 1) -> Evidence:
    return Evidence("limits.max_running", value, level, source, line, "text")


@pytest.mark.parametrize(("evidence", "holds", "found"), [
    ([], None, None),
    ([said(8, "asked")], None, None),
    ([said(8, "resolved")], True, 8),
    ([said(4, "resolved")], False, 4),
    ([said(4, "resolved"), said(8, "built")], False, 4),
    ([said(8, "resolved"), said(4, "built")], False, 4),
    ([said(4, "built"), said(8, "used")], False, 4),
    ([said(8, "built"), said(8, "used")], True, 8),
    ([said(8, "resolved"), said(4, "resolved", "/props")], False, 4),
    ([said(4, "asked"), said(8, "resolved")], True, 8),
    ([said(True, "resolved")], False, True),
])
def test_a_claim(evidence: list[Evidence], holds: bool | None, found: Fact | None) -> None:
    (claim,) = check([("limits.max_running", 8)], evidence)
    assert (claim.holds, claim.found) == (holds, found)
    assert (claim.proof is None) == (holds is None)
    assert claim.proof is None or claim.proof.value == found


def test_other_facts_do_not_count() -> None:
    (claim,) = check([("kv.dtype", "fp16")], [said(8, "used")])
    assert claim == Claim("kv.dtype", "fp16", None, None)


@pytest.mark.parametrize(("holds", "merged"), [
    ([True, True], True), ([True, None], None), ([None, False], False), ([True, False, None], False), ([True], True),
])
def test_all_replicas_count(holds: list[bool | None], merged: bool | None) -> None:
    (claim,) = merge([[Claim("x", 1, None, one)] for one in holds])
    assert claim.holds is merged


def test_no_replicas() -> None:
    assert merge([]) == ()


def launch(text: str, *margins: tuple[str, float]) -> Launch:
    return Launch("id", Plan(Model("m")), (), "2026-01-01", greedy=(text,), margins=(margins,) if margins else ())


ONE = launch("a b", ("a", 3.0), (" b", 0.05))


@pytest.mark.parametrize(("other", "apart"), [
    (ONE, 0.0), (launch("a c", ("a", 3.0), (" c", 0.5)), 0.05), (launch("a c", ("a", 3.0), (" c", 0.01)), 0.01),
    (launch("x b", ("x", 1.0), (" b", 0.05)), 1.0), (launch("a c"), inf), (replace(ONE, greedy=()), None),
    (launch("a b "), inf),
])
def test_how_firmly_two_layouts_part(other: Launch, apart: float | None) -> None:
    assert split(ONE, other) == apart


@pytest.mark.parametrize(("logprobs", "margins"), [
    ({"tokens": ["a"], "top_logprobs": [{"a": -0.25, "b": -1.5}]}, (("a", 1.25),)),
    ({"content": [{"token": "a", "top_logprobs": [{"logprob": -0.5}, {"logprob": -1.0}]}]}, (("a", 0.5),)),
    ({"tokens": ["a"], "top_logprobs": [{"a": -0.25}]}, ()), (None, ()), ({}, ()), ({"content": None}, ()),
])
def test_margins_as_engines_give_them(logprobs: object, margins: object) -> None:
    assert decode._margins(logprobs) == margins
