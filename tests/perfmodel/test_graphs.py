"""Captured batches by engine, GPU and flags, and what they do to a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.stepcost import Step
from rooftop.perfmodel.graphs import padded
from rooftop.perfmodel.roofline import Roofline, roofline
from tests.perfmodel import bench

LLAMA = "Meta-Llama-3.1-8B"


def model(engine: str, on: str = "1x H100 SXM", layout: Layout | None = None, **flags: SettingValue) -> Roofline:
    values = tuple(Setting(name.replace("_", "-"), value) for name, value in flags.items())
    plan = Plan(Model(LLAMA), engine, layout or Layout(), values, machine=machine(on))
    return roofline(plan, bench.model(LLAMA), ledger.known())


@pytest.mark.parametrize(("made", "first", "largest"), [
    (model("vllm"), (1, 2, 4, 8, 16, 24), 512), (model("vllm", "1x B200 SXM"), (1, 2, 4, 8, 16), 1024),
    (model("vllm", max_num_seqs=10), (1, 2, 4, 8, 16, 20), 20),
    (model("vllm", max_cudagraph_capture_size=100), (1, 2, 4, 8, 16), 100),
    (model("vllm", cudagraph_capture_sizes="[1, 3, 9]"), (1, 3, 9), 9),
    (model("sglang"), (1, 2, 4, 8, 12, 16, 24), 256),
    (model("sglang", "8x H100 SXM", Layout(8)), (1, 2, 4, 8, 12), 512),
    (model("sglang", "1x RTX 4090"), (1, 2, 4, 8, 12, 16), 48),
    (model("sglang", cuda_graph_max_bs=30), (1, 2, 4, 8, 12, 16, 24, 30), 30),
    (model("sglang", cuda_graph_bs_decode="1 5"), (1, 5), 5), (model("trtllm"), (1, 2, 4, 8), 512)])
def test_captured_batches(made: Roofline, first: tuple[int, ...], largest: int) -> None:
    assert made.sizes[:len(first)] == first
    assert made.sizes[-1] == largest


@pytest.mark.parametrize("flags", [{"enforce_eager": True}, {"disable_cuda_graph": True},
                                   {"cuda_graph_backend_decode": "disabled"}])
def test_no_graphs(flags: dict[str, SettingValue]) -> None:
    assert model("sglang", "1x H100 SXM", Layout(), **flags).sizes == ()


@given(st.lists(st.integers(1, 500), unique=True), st.integers(1, 600))
def test_a_batch_runs_at_the_next_size(sizes: list[int], requests: int) -> None:
    ordered = tuple(sorted(sizes))
    found = padded(requests, ordered)
    assert found >= requests
    assert found in ordered or (found == requests and not any(size >= requests for size in ordered))


def test_above_the_largest_every_kernel_is_launched() -> None:
    small = model("sglang", cuda_graph_max_bs_decode=8)
    at, above = (small.cost(Step("decode", count, count, 100)) for count in (8, 9))
    assert "launches" not in at.by_operation
    assert above.by_operation["launches"] > 0
    assert above.seconds > 1.2 * at.seconds
