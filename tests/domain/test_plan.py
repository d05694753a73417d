from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rooftop.domain import codec
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from tests.domain import nouns

PLANS = nouns.of(Plan)
KEYED = [field.name for field in fields(Plan) if field.name != "title"]
FEW = settings(max_examples=40, deadline=None)


@FEW
@given(PLANS, st.randoms(use_true_random=False))
def test_the_key_knows_no_order_of_settings_and_no_title(plan: Plan, random: Any) -> None:
    shuffled = [list(plan.settings), list(plan.environment)]
    for part in shuffled:
        random.shuffle(part)
    other = replace(plan, settings=tuple(shuffled[0]), environment=tuple(shuffled[1]), title=plan.title + "x")
    assert other.key == plan.key


@pytest.mark.parametrize("name", KEYED)
def test_the_key_differs_for_every_other_field(name: str) -> None:
    @FEW
    @given(PLANS, nouns.of(get_type_hints(Plan)[name]))
    def check(plan: Plan, value: Any) -> None:
        other = replace(plan, **{name: value})
        same = codec.to_plain(getattr(plan, name)) == codec.to_plain(value)
        if name == "machine":  # of the machine only the name counts
            same = (plan.machine and plan.machine.name) == (value and value.name)
        if not same:
            assume(name not in ("settings", "environment") or set(value) != set(getattr(plan, name)))
            assert other.key != plan.key

    check()


@FEW
@given(PLANS)
def test_the_key_outlives_the_codec(plan: Plan) -> None:
    key = codec.from_json(Plan, codec.to_json(plan)).key
    assert key == plan.key
    assert len(key) == 16
    assert set(key) <= set("0123456789abcdef")


def test_the_key_is_for_ever() -> None:
    """Where this value changes, every study that was begun before starts over."""
    plan = Plan(Model("m", path="m.gguf"), engine="llamacpp", settings=(Setting("parallel", 8),))
    assert plan.key == "4fae01c03fe44ff4"


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (1, "1"), (0, False), (0.0, -0.0)])
def test_the_key_tells_types_apart(values: tuple[Any, Any]) -> None:
    one, two = (Plan(Model("m"), settings=(Setting("a", value),)) for value in values)
    assert one.key != two.key


def test_setting_finds_the_value_asked_for() -> None:
    plan = Plan(Model("m"), settings=(Setting("parallel", 8), Setting("mlock", False)))
    assert plan.setting("parallel") == 8
    assert plan.setting("mlock") is False
    assert plan.setting("threads") is None
