"""The cost of a step: sums by hand, and what must hold for any of them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.catalog import gpus, ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.stepcost import Cost, Step
from rooftop.errors import BadInput
from rooftop.perfmodel.efficiency import generation, kernel, peak
from rooftop.perfmodel.operations import Mixture, met
from rooftop.perfmodel.roofline import Roofline, roofline
from tests.perfmodel import bench

LLAMA, KIMI, QWEN = "Meta-Llama-3.1-8B", "Kimi-K2.5", "Qwen3-30B-A3B"
SERVER = "8x RTX PRO 6000 Blackwell Server"


def model(name: str, on: str, layout: Layout, engine: str = "vllm", version: str = "",
          **flags: SettingValue) -> Roofline:
    architecture = bench.model(name)
    values = tuple(Setting(key.replace("_", "-"), value) for key, value in flags.items())
    plan = Plan(bench.plan(architecture, engine, layout).model, engine, layout, values, machine=machine(on),
                engine_version=version)
    return roofline(plan, architecture, ledger.known())


def decode(made: Roofline, requests: int = 1, context: float = 1000) -> Cost:
    return made.cost(Step("decode", requests, requests, context))


def test_one_dense_step_by_hand() -> None:
    """Llama 3.1 8B in bf16 on one H100: every term written out."""
    made = model(LLAMA, "1x H100 SXM", Layout())
    table = ledger.known()
    gemm = kernel(table, made.gpu, "gemm", "bf16", "vllm")
    cost = decode(made, context=1000)
    bandwidth = 3350e9
    sizes = {"qkv": 4096 * 6144, "o": 4096 * 4096, "gate_up": 4096 * 28672, "down": 4096 * 14336}
    weights = 32 * sum(2 * size + 4 * size ** 0.5 for size in sizes.values())
    head = 2 * 4096 * 128256 + 4 * (4096 * 128256) ** 0.5
    attention = kernel(table, made.gpu, "attention", "bf16", "vllm")
    cache = 32 * 1001 * 2 * 8 * 128 * 2 / (attention.memory / (1 + attention.fill) * bandwidth)
    memory = (weights + head) / (gemm.memory * bandwidth) + cache
    assert cost.by_cause["memory"] == pytest.approx(memory, rel=1e-3)
    small = 2 * 32 + 2 * 32 + 32 + 2 + 8
    launch = (4 * 32 + 1) * gemm.base_s + 32 * attention.base_s + small * table.value("small_kernel_us") * 1e-6
    assert cost.by_cause["launch"] == pytest.approx(launch, rel=1e-3)
    assert cost.by_cause["host"] == pytest.approx(305e-6)
    assert set(cost.by_cause) == {"memory", "launch", "host"}
    assert cost.bound == "memory"


def test_terms_add_up() -> None:
    cost = decode(model(KIMI, SERVER, Layout(8), "sglang"), 4)
    assert sum(cost.by_cause.values()) == pytest.approx(cost.seconds)
    assert sum(cost.by_operation.values()) == pytest.approx(cost.seconds)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([(LLAMA, Layout(1)), (LLAMA, Layout(4)), (QWEN, Layout(4, ep=4)), (KIMI, Layout(8)),
                        (KIMI, Layout(1, 8)), (QWEN, Layout(4, attention_dp=4))]),
       st.integers(1, 200), st.integers(1, 200), st.floats(0, 1e5), st.floats(0, 1e5))
def test_more_work_takes_no_less(case: tuple[str, Layout], one: int, other: int, near: float, far: float) -> None:
    name, layout = case
    made = model(name, SERVER, layout, "sglang")
    few, many = min(one, other), max(one, other)
    assert decode(made, few, near).seconds <= decode(made, many, near).seconds * (1 + 1e-9)
    assert decode(made, few, min(near, far)).seconds <= decode(made, few, max(near, far)).seconds * (1 + 1e-9)
    assert made.limit(Step("decode", few, few, near)) <= decode(made, few, near).seconds


def test_without_graphs_the_host_launches_every_kernel() -> None:
    with_graphs, without = (decode(model(KIMI, SERVER, Layout(8), "sglang", **flags))
                            for flags in ({}, {"disable_cuda_graph": True}))
    assert without.seconds > 2 * with_graphs.seconds
    assert without.bound == "launch"
    assert without.by_cause["memory"] == with_graphs.by_cause["memory"]


def test_eager_costs_nothing_more_where_the_gpu_is_the_slower() -> None:
    """A long context keeps the GPU longer than the host needs to launch."""
    graph, eager = (decode(model(LLAMA, "1x H100 SXM", Layout(), **flags), 64, 60000)
                    for flags in ({}, {"enforce_eager": True}))
    assert eager.seconds == pytest.approx(graph.seconds)


def test_old_vllm_waits_for_each_result() -> None:
    old, new, asked = (decode(model(LLAMA, "1x H100 SXM", Layout(), "vllm", version, **flags)).by_cause["host"]
                       for version, flags in (("0.11.0", {}), ("0.19.1", {}), ("0.11.0", {"async_scheduling": True})))
    assert new == asked < old


def test_an_fp8_cache_halves_its_bytes() -> None:
    wide, narrow = (decode(model(LLAMA, "1x H100 SXM", Layout(), **flags), 32, 30000).by_operation["attention"]
                    for flags in ({}, {"kv_cache_dtype": "fp8_e4m3"}))
    assert narrow < 0.9 * wide


def test_dcp_shares_the_cache_and_pays_with_exchanges() -> None:
    alone, shared = (decode(model(KIMI, SERVER, Layout(8, dcp=dcp)), 1, 131072) for dcp in (1, 8))
    assert shared.by_operation["attention"] < 0.5 * alone.by_operation["attention"]
    assert "context exchange" in shared.by_operation
    assert shared.seconds < alone.seconds
    short = [decode(model(KIMI, SERVER, Layout(8, dcp=dcp)), 1, 100).seconds for dcp in (1, 8)]
    assert short[0] < short[1]


def test_stages_read_everything_one_after_another() -> None:
    tensor, pipeline = (decode(model(KIMI, SERVER, layout, "sglang")) for layout in (Layout(8), Layout(1, 8)))
    assert pipeline.by_cause["memory"] > 4 * tensor.by_cause["memory"]
    assert "all-reduce" not in pipeline.by_operation
    assert "stage hop" in pipeline.by_operation


def test_whole_experts_are_spread_unevenly_for_one_user() -> None:
    shares = [decode(model(KIMI, SERVER, Layout(8, ep=ep), "sglang")).by_operation["experts"] for ep in (1, 4, 8)]
    assert all(low < high for low, high in pairwise(shares))


def test_attention_groups_bring_tokens_together() -> None:
    made = model(QWEN, "4x H100 SXM", Layout(4, attention_dp=4), "sglang")
    assert "experts' exchange" in decode(made, 64).by_operation
    assert made.tensor.ranks == 4


@given(st.integers(1, 600), st.integers(1, 8), st.integers(0, 300))
def test_experts_met_are_bounded(count: int, active: int, tokens: int) -> None:
    active = min(active, count)
    found = met(count, active, tokens)
    assert -1e-9 <= found <= min(count, active * tokens) + 1e-6


def test_the_busiest_rank_is_between_mean_and_all() -> None:
    mixture = Mixture("int4", 60, 1.0, 1.0, 384, 8, 8)
    most, share = mixture.touched(1)
    assert 1 < most < 8
    assert 1 <= share <= 8
    assert mixture.touched(4096)[0] == pytest.approx(48, abs=0.5)


def test_a_gpu_without_data_sheet_is_refused() -> None:
    architecture = bench.model(LLAMA)
    with pytest.raises(BadInput, match="data sheet"):
        roofline(bench.plan(architecture, "vllm", Layout(), bench.machine("h100", 1)), architecture, ledger.known())


@pytest.mark.parametrize("gpu", [sheet.gpu for sheet in gpus.known()], ids=[sheet.name for sheet in gpus.known()])
def test_every_gpu_of_the_catalog_has_efficiencies_and_a_peak(gpu: Gpu) -> None:
    table = ledger.known()
    assert generation(gpu)
    for operation, forms in (("gemm", ("bf16", "fp8", "fp8 block", "nvfp4", "int4")), ("attention", ("bf16", "fp8")),
                             ("moe", ("bf16", "fp8", "fp8 block", "nvfp4", "mxfp4", "int4")), ("mla", ("bf16", "fp8"))):
        for form in forms:
            found = kernel(table, gpu, operation, form)
            assert 0 < found.memory <= 0.95
            assert (peak(form, gpu) or 0) > 0


def test_every_constant_says_where_it_is_from() -> None:
    table = ledger.known()
    words = ("prior", "table", "fitted", "data sheet")
    assert all(one.source.startswith(words) for one in (*table.constants, *table.kernels))
    assert all(one.source for one in table.timings)


@pytest.mark.parametrize(("texts", "where"), [
    (('[[kernel]]\ngeneration = "x"', "", ""), "efficiency.toml"), (("constant = [", "", ""), "efficiency.toml"),
    (("", "generation,operation\nx,gemm\n", ""), "kernels.csv"),
    (("", "generation,operation,format,engine,base_us,memory,compute,fill,rows,error,systems\n"
          "x,gemm,bf16,,1,3,1,0,1,0,y\n", ""), "kernels.csv"),
    (("", "", "gpu,ranks\nH100,many\n"), "allreduce.csv")])
def test_a_broken_ledger_names_its_place(texts: tuple[str, str, str], where: str) -> None:
    with pytest.raises(BadInput) as caught:
        ledger.read(*texts)
    assert caught.value.where == where


def test_an_engines_own_kernel_comes_before_that_of_all() -> None:
    table, gpu = ledger.known(), machine("1x H100 SXM").gpus[0]
    assert kernel(table, gpu, "attention", "bf16", "sglang").engine == "sglang"
    assert kernel(table, gpu, "attention", "bf16", "llamacpp").engine == ""
    assert kernel(table, gpu, "moe", "mxfp4", "sglang").engine == ""


def test_shared_experts_run_beside_the_routed_ones_in_a_graph() -> None:
    """Their launches are hidden; their bytes are not.  An old vLLM and a step without graphs show both."""
    new, old, eager = (decode(model("GLM-4.5", SERVER, Layout(8), "vllm", version, **flags)) for version, flags in (
        ("0.20.0", {}), ("0.11.0", {}), ("0.20.0", {"enforce_eager": True})))
    names = ("shared_experts gate_up", "shared_experts down_proj")
    launch, memory = ([sum(one.seconds for one in cost.terms if one.operation in names and one.cause == cause)
                       for cost in (new, old, eager)] for cause in ("launch", "memory"))
    assert launch[0] == 0 < launch[1] == launch[2]
    assert memory[0] == memory[1] == memory[2] > 0
    many = decode(model("GLM-4.5", SERVER, Layout(8), "vllm", "0.20.0"), 512)
    assert sum(one.seconds for one in many.terms if one.operation in names and one.cause == "launch") > 0


def test_a_stage_schedules_while_the_one_before_it_works() -> None:
    one, eight = (decode(model(KIMI, SERVER, layout, "sglang")).by_cause["host"]
                  for layout in (Layout(1, 1), Layout(1, 8)))
    assert eight == pytest.approx(ledger.known().value("host_behind_us") * 1e-6 + 5e-6)
    assert one < eight
