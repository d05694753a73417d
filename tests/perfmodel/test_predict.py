"""Predictions: loads, intervals, bounds, provenance."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.stepcost import Step
from rooftop.perfmodel.predict import decode_rate, spread, spread_kind, users
from rooftop.perfmodel.queueing import Load, capacity, interval_s, prefill_s, serve
from rooftop.perfmodel.roofline import Roofline, roofline
from tests.perfmodel import bench

LLAMA, KIMI = "Meta-Llama-3.1-8B", "Kimi-K2.5"
SERVER = "8x RTX PRO 6000 Blackwell Server"


def model(name: str = LLAMA, on: str = "1x H100 SXM", layout: Layout | None = None, engine: str = "vllm") -> Roofline:
    plan = Plan(Model(name), engine, layout or Layout(), machine=machine(on))
    return roofline(plan, bench.model(name), ledger.known())


def test_one_user_sees_one_step_a_token() -> None:
    made = model()
    found = decode_rate(made, 1, 1000)
    assert found.value == pytest.approx(1 / made.cost(Step("decode", 1, 1, 1000)).seconds)
    assert found.bound == "memory"
    assert sum(seconds for _, seconds in found.causes) == pytest.approx(1 / found.value)
    assert 0.3 < found.share < 1


def test_the_interval_is_that_of_the_ledger() -> None:
    found = decode_rate(model(), 1, 1000)
    assert found.interval is not None
    assert found.interval.level == 0.8
    assert found.interval.low < found.value < found.interval.high
    many = decode_rate(model(), 64, 1000)
    assert many.interval is not None
    assert many.interval.high / many.value > found.interval.high / found.value


def test_no_spread_no_interval() -> None:
    made = model()
    bare = replace(made, ledger=replace(made.ledger, constants=tuple(
        one for one in made.ledger.constants if not one.name.startswith("spread"))))
    assert decode_rate(bare, 1, 1000).interval is None


def test_time_between_tokens_has_the_rates_spread_turned_over() -> None:
    table = ledger.known()
    rate, time = spread(table, "few", "rate"), spread(table, "few", "tpot")
    assert rate is not None
    assert time == (-rate[1], -rate[0])


def test_every_constant_used_is_named_with_its_source() -> None:
    found = decode_rate(model(KIMI, SERVER, Layout(8)), 1, 1000)
    names = {one.name for one in found.constants}
    assert {"memory bandwidth", "small_kernel_us", "all-reduce latency", "host_ahead_us", "sm120 moe int4: base",
            "sm120 mla bf16: share of bandwidth"} <= names
    assert all(one.source.startswith(("prior", "table", "data sheet", "fitted")) for one in found.constants)


def test_cohorts_of_a_pipeline() -> None:
    """Eight users on eight stages: each cohort of one waits for the sum of all stages, as one user alone does."""
    made = model(KIMI, SERVER, Layout(1, 8), "sglang")
    alone, _ = interval_s(made, 1, 1000)
    eight, _ = interval_s(made, 8, 1000)
    assert eight == alone
    assert interval_s(made, 16, 1000)[0] > eight


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(16, 9000), st.integers(2, 2000))
def test_closed_loops(one: int, other: int, before: int, after: int) -> None:
    made = model()
    few, many = (serve(made, Load(count, before, after)) for count in (min(one, other), max(one, other)))
    assert many.ttft_s >= few.ttft_s * (1 - 1e-9)
    assert few.tokens_per_s <= few.batch / few.tpot_s * (1 + 0.6 / after + 1e-9) * (after / max(1, after - 1))
    assert few.tokens_per_s > 0


def test_arrivals_bound_a_slow_stream() -> None:
    found = serve(model(), Load(50, 200, 200, rate=1.0))
    assert found.tokens_per_s == 200
    assert found.bound == "arrivals"
    assert found.batch <= 4
    fast = serve(model(), Load(50, 200, 200, rate=1000.0))
    assert fast.bound != "arrivals"
    assert fast.batch == 50


def test_slots_bound_users() -> None:
    found = serve(model(), Load(100, 200, 200, slots=10))
    free = serve(model(), Load(100, 200, 200))
    assert found.bound == "capacity"
    assert found.batch == 10
    assert found.ttft_s > free.ttft_s
    assert found.tokens_per_s < free.tokens_per_s


def test_a_burst_of_unequal_requests_has_a_tail() -> None:
    equal = serve(model(), Load(500, 200, 200, burst=True))
    unequal = serve(model(), Load(500, 200, 200, burst=True, varied=True))
    assert unequal.tokens_per_s < equal.tokens_per_s


def test_prefill_in_chunks() -> None:
    made = model()
    assert prefill_s(made, 16384) > 2 * prefill_s(made, 8192)
    assert prefill_s(made, 8192, 8) < prefill_s(made, 8192)
    assert prefill_s(made, 1) < 0.02


def test_capacity_of_the_cache() -> None:
    """Llama 8B on 80 GB: (0.9 x 81559 MiB - 3 GiB - weights without the embedding) over 131 072 bytes a token."""
    made = model()
    weights = 2 * (8.03e9 - 128256 * 4096)
    expected = (0.9 * 81559 * 2**20 - 3 * 2**30 - weights) / (131072 * 1000)
    assert capacity(made, 1000) == pytest.approx(expected, rel=0.01)


def test_above_a_few_users_the_prediction_says_that_it_is_a_bound() -> None:
    few, many = users(model(), Load(8, 200, 200)), users(model(), Load(9, 200, 200))
    assert not any("queueing" in note for one in few for note in one.notes)
    assert all(any("queueing" in note for note in one.notes) for one in many)
    assert [one.metric for one in few] == ["output rate", "TPOT", "TTFT"]


@pytest.mark.parametrize(("on", "kind"), [("1x H100 SXM", "few"), ("1x RTX 3090", "few"), ("1x GB10", "far"),
                                          ("1x MI300X", "far"), ("1x T4", "far")])
def test_errors_are_wider_where_another_gpus_kernels_stand_in(on: str, kind: str) -> None:
    gpu = machine(on).gpus[0]
    assert spread_kind(8, gpu, decodes=True) == kind
    assert (spread_kind(9, gpu, decodes=True), spread_kind(9, gpu, decodes=False)) == ("many", "loaded")
    table = ledger.known()
    few, far = spread(table, "few", "rate"), spread(table, "far", "rate")
    assert few is not None
    assert far is not None
    assert far[0] < few[0] < few[1] < far[1]
    assert spread(table, "far", "ttft") == spread(table, "few", "ttft")
