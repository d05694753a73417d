"""The engines' own arithmetic, against evaluations of it by hand and what they printed."""

import pytest

from rooftop.domain.layout import Layout
from rooftop.perfmodel.budget import decode_buckets, prefill_buckets, sglang_defaults, vllm_defaults, vllm_graphs
from rooftop.perfmodel.case import case_of
from tests.perfmodel.bench import model, plan

GQA, MLA, VISION = "Qwen3-32B", "DeepSeek-V3", "Kimi-K2.6"


@pytest.mark.parametrize(("mib", "name", "layout", "share"), [
    (81559, GQA, Layout(8), 0.812), (81559, GQA, Layout(1), 0.830), (97887, GQA, Layout(8), 0.844),
    (143771, MLA, Layout(8), 0.886), (143771, MLA, Layout(8, attention_dp=8), 0.758), (32607, GQA, Layout(2), 0.773),
    (24564, GQA, Layout(1), 0.704)])
def test_sglangs_default_share(mib: float, name: str, layout: Layout, share: float) -> None:
    case = case_of(plan(model(name), "sglang", layout), model(name))
    assert sglang_defaults(case, mib)["mem-fraction-static"] == share


def test_sglangs_share_printed_for_qwen3_32b_on_an_h100() -> None:
    """sglang#29092 saw 0.828 by default; this version's formula gives 0.830."""
    case = case_of(plan(model(GQA), "sglang", Layout(1)), model(GQA))
    assert sglang_defaults(case, 81559)["mem-fraction-static"] == pytest.approx(0.828, abs=0.003)


def test_an_encoder_lowers_sglangs_share() -> None:
    """Kimi's encoder of 27 layers of 1152: 0.95 x (1 - 0.1 x 0.424) of (97887 - 14848) / 97887."""
    case = case_of(plan(model(VISION), "sglang", Layout(8)), model(VISION))
    assert sglang_defaults(case, 97887)["mem-fraction-static"] == pytest.approx(0.848 * 0.95 * 0.9576, abs=1e-4)


def test_what_was_asked_comes_before_the_defaults() -> None:
    asked = plan(model(GQA), "sglang", Layout(8), chunked_prefill_size=2048, mem_fraction_static=0.9,
                 max_running_requests=64)
    values = sglang_defaults(case_of(asked, model(GQA)), 81559)
    assert values == {"chunked-prefill-size": 2048, "cuda-graph-max-bs-decode": 64, "mem-fraction-static": 0.9}


def test_graphs_off_leave_more() -> None:
    def share(**flags: bool) -> float:
        return sglang_defaults(case_of(plan(model(GQA), "sglang", Layout(8), **flags), model(GQA)),
                               81559)["mem-fraction-static"]
    assert share(disable_cuda_graph=True) > share()


@pytest.mark.parametrize(("largest", "count"), [(512, 52), (256, 36), (32, 8), (0, 0), (1, 1), (100, 17)])
def test_decode_buckets(largest: int, count: int) -> None:
    """52 sizes to 512, 36 to 256 and 8 to 32 stand in public logs (sglang#11716, #12978, #33483)."""
    assert decode_buckets(largest) == count


def test_prefill_buckets() -> None:
    """58 sizes up to 8192 tokens stand in a public log (sglang#12978)."""
    assert prefill_buckets(case_of(plan(model(GQA), "sglang", Layout(2)), model(GQA)), 8192) == 58
    assert prefill_buckets(case_of(plan(model(GQA), "sglang", Layout(1, 2)), model(GQA)), 8192) == 0


@pytest.mark.parametrize(("gib", "name", "defaults"), [
    (79.19, "NVIDIA H100 80GB HBM3", (1024, 8192)), (79.2, "NVIDIA A100-SXM4-80GB", (256, 2048)),
    (23.6, "NVIDIA GeForce RTX 4090", (256, 2048)), (178.4, "NVIDIA B200", (1024, 16384)),
    (119.0, "NVIDIA GB10", (256, 2048))])
def test_vllms_defaults(gib: float, name: str, defaults: tuple[int, int]) -> None:
    assert vllm_defaults(case_of(plan(model(GQA), "vllm", Layout(1)), model(GQA)), gib * 2**30, name) == defaults


def test_vllms_graphs() -> None:
    """51 sizes up to 512 stand in vLLM 0.19's configuration, made as full and as piecewise graphs."""
    case = case_of(plan(model(GQA), "vllm", Layout(1)), model(GQA))
    assert vllm_graphs(case, 1024, 8192, "9.0") == 2 * 51
    eager = case_of(plan(model(GQA), "vllm", Layout(1), enforce_eager=True), model(GQA))
    assert vllm_graphs(eager, 1024, 8192, "9.0") == 0
