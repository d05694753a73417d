"""Measured kernel times in place of the fitted ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.stepcost import Grid, Shape, Step
from rooftop.perfmodel.grids import kernel_s
from rooftop.perfmodel.predict import decode_rate
from rooftop.perfmodel.roofline import Roofline, roofline
from tests.perfmodel import bench

SERVER = "8x RTX PRO 6000 Blackwell Server"
KIND = "RTX PRO 6000 Blackwell Server"
EXPERTS = Shape("moe", "int4", (7168, 2048, 384, 8, 8, 1))
TABLE = Grid(KIND, "sglang", EXPERTS, ((1, 0, 1e-3), (4, 0, 2e-3), (16, 0, 8e-3)), "table: made for a test")
CACHE = Grid(KIND, "sglang", Shape("mla", "bf16", (8,)), tuple(
    (batch, context, 1e-6 * batch * context) for batch in (1, 8) for context in (100, 1000)), "table: made for a test")


def kimi(*tables: Grid, layout: Layout | None = None) -> Roofline:
    plan = Plan(Model("Kimi-K2.5"), "sglang", layout or Layout(8), machine=machine(SERVER))
    return roofline(plan, bench.model("Kimi-K2.5"), replace(ledger.known(), grids=tables))


def test_points_are_met_and_joined_in_logarithms() -> None:
    assert kernel_s(TABLE, 4, 0) == pytest.approx(2e-3)
    assert kernel_s(TABLE, 2, 0) == pytest.approx((1e-3 * 2e-3) ** 0.5)
    assert kernel_s(TABLE, 32, 0) == pytest.approx(16e-3)
    assert kernel_s(CACHE, 8, 1000) == pytest.approx(8e-3)
    assert kernel_s(CACHE, 1, 50) == pytest.approx(1e-4)


@given(st.floats(1, 100), st.floats(1, 100), st.floats(50, 1e5), st.floats(50, 1e5))
def test_more_takes_no_less(one: float, other: float, near: float, far: float) -> None:
    assert kernel_s(CACHE, min(one, other), near) <= kernel_s(CACHE, max(one, other), near) * (1 + 1e-9)
    assert kernel_s(CACHE, one, min(near, far)) <= kernel_s(CACHE, one, max(near, far)) * (1 + 1e-9)


def test_what_a_plan_asks_for() -> None:
    assert set(kimi().shapes) == {EXPERTS, Shape("mla", "bf16", (8,))}
    assert Shape("moe", "int4", (7168, 2048, 384, 8, 2, 4)) in kimi(layout=Layout(8, ep=4)).shapes


def test_a_table_replaces_the_fit() -> None:
    fitted, measured = (made.cost(Step("decode", 4, 4, 1000)).by_operation for made in (kimi(), kimi(TABLE, CACHE)))
    assert measured["experts"] == pytest.approx(60 * 2e-3)
    assert measured["attention"] == pytest.approx(61 * kernel_s(CACHE, 4, 1001))
    same = set(fitted) - {"experts", "attention"}
    assert {name: measured[name] for name in same} == {name: fitted[name] for name in same}


def test_a_kernel_that_found_its_bytes_in_a_cache_takes_as_long_as_memory() -> None:
    quick = replace(TABLE, points=tuple((rows, 0.0, 1e-9) for rows, _, _ in TABLE.points))
    terms = [one for one in kimi(quick).cost(Step("decode", 4, 4, 1000)).terms if one.operation == "experts"]
    assert [one.cause for one in terms] == ["memory"]
    assert terms[0].seconds > 1e-4


def test_another_gpu_or_engine_has_no_use_for_it() -> None:
    for other in (replace(TABLE, gpu="H100 SXM"), replace(TABLE, engine="vllm")):
        assert kimi(other).cost(Step("decode", 1, 1, 1000)) == kimi().cost(Step("decode", 1, 1, 1000))


def test_a_prediction_says_which_table_it_used() -> None:
    found = {one.name: one.source for one in decode_rate(kimi(TABLE), 1, 1000).constants}
    assert found["moe int4 7168x2048x384x8x8x1: measured points"] == "table: made for a test"
