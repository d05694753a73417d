"""Every rule of the engines on layouts, as a table; every public crash in one layout that arithmetic foresees."""

from dataclasses import replace
from typing import Any

import pytest

from rooftop.domain.architecture import Architecture
from rooftop.domain.engine import Refusal
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.engines.llamacpp import ENGINE as LLAMACPP
from rooftop.engines.sglang import ENGINE as SGLANG
from rooftop.engines.vllm import ENGINE as VLLM
from rooftop.perfmodel.case import case_of
from rooftop.perfmodel.rules import RULES, refusals, refuses
from tests.perfmodel.bench import changed, machine, model, plan

ENGINES = {"sglang": SGLANG, "vllm": VLLM, "llamacpp": LLAMACPP}


def refused(engine: str, architecture: Architecture, layout: Layout, on: Machine | None = None, path: str = "",
            **flags: Any) -> Refusal | None:
    """What the engine's own rules or the model's say, as `rooftop plan` asks them."""
    asked = plan(architecture, engine, layout, on, path, **flags)
    return ENGINES[engine].refuses(replace(asked, machine=None)) or refuses(case_of(asked, architecture))


def gqa(heads: int, kv_heads: int, **more: Any) -> Architecture:
    return changed("Qwen3-8B", num_attention_heads=heads, num_key_value_heads=kv_heads, **more)


LEGAL = [
    ("sglang", "Qwen3-8B", Layout(8)), ("sglang", "Qwen3-8B", Layout(16)), ("sglang", "Qwen3-8B", Layout(2, 3)),
    ("sglang", "Qwen3-8B", Layout(8, dp=2)), ("sglang", "DeepSeek-V3", Layout(8, attention_dp=8)),
    ("sglang", "DeepSeek-V3", Layout(8, ep=4)), ("sglang", "DeepSeek-V3", Layout(8, dcp=8)),
    ("sglang", "Kimi-K2.6", Layout(4, 2)), ("sglang", "gpt-oss-120b", Layout(4)), ("vllm", "gpt-oss-120b", Layout(8)),
    ("vllm", "DeepSeek-V3", Layout(8, dcp=8)), ("vllm", "DeepSeek-V3", Layout(2, dp=4, ep=8)),
    ("vllm", "Qwen3-235B-A22B", Layout(16, dcp=4)), ("vllm", "Qwen3.5-35B-A3B", Layout(8)),
    ("vllm", "nvidia-Qwen3-235B-A22B-NVFP4", Layout(8)), ("vllm", "Meta-Llama-3.1-405B", Layout(8, 2)),
]


@pytest.mark.parametrize(("engine", "name", "layout"), LEGAL)
def test_legal_layouts_pass(engine: str, name: str, layout: Layout) -> None:
    assert refused(engine, model(name), layout) is None


# engine, model, layout, flags, words of the refusal (rule or reason)
DEGREES: list[tuple[str, str, Layout, dict[str, Any], str]] = [
    ("sglang", "Qwen3-8B", Layout(3), {}, "32 attention heads (query) do not divide by tp 3"),
    ("vllm", "Qwen3-8B", Layout(3), {}, "32 attention heads (query) do not divide by tp 3"),
    ("sglang", "Qwen3-8B", Layout(1, 37), {}, "pp 37 needs 37 layers, Qwen3-8B has 36"),
    ("vllm", "Qwen3-8B", Layout(1, 37), {}, "pp 37 needs 37 layers"),
    ("llamacpp", "Qwen3-8B", Layout(1, 2), {}, "no GGUF file"),
    ("sglang", "Qwen3-8B", Layout(2, ep=2), {}, "has no experts for ep 2"),
    ("vllm", "Qwen3-8B", Layout(2, ep=2), {}, "has no experts for ep 2"),
    ("sglang", "DeepSeek-V3", Layout(4, dp=2, ep=8), {}, "experts are spread inside one tp group"),
    ("vllm", "DeepSeek-V3", Layout(8, ep=4), {}, "or not at all"),
    ("vllm", "DeepSeek-V3", Layout(8, attention_dp=8), {}, "no attention replicas"),
    ("sglang", "Qwen3-30B-A3B", Layout(6, ep=6, attention_dp=6), {}, "128 experts do not divide by ep 6"),
    ("sglang", "Qwen3-30B-A3B", Layout(5, attention_dp=5), {}, "768 does not divide by moe_tp 5"),
    ("sglang", "Qwen3-8B", Layout(8, dp=2, attention_dp=2), {}, "replicas or attention replicas"),
    ("sglang", "DeepSeek-V3", Layout(8, attention_dp=4, dcp=8), {}, "dcp 8 in groups of 2"),
    ("sglang", "Qwen3-8B", Layout(8, dcp=2), {}, "dcp 2 saves nothing"),
    ("vllm", "Qwen3-8B", Layout(8, dcp=2), {}, "tp 8 does not exceed 8 KV heads"),
    ("vllm", "Qwen3-8B", Layout(16, dcp=4), {}, "dcp 4 exceeds the 2 ranks that hold the same KV head"),
    ("vllm", "Qwen3-8B", Layout(32, dcp=2), {}, ""),
    ("sglang", "DeepSeek-V3", Layout(8, ep=1), {"moe_a2a_backend": "deepep"}, "the all-to-all deepep makes ep = tp"),
    ("sglang", "DeepSeek-V3", Layout(8, ep=8), {"moe_a2a_backend": "flashinfer"}, "one attention group a rank"),
    ("sglang", "DeepSeek-V3", Layout(8, ep=8), {"moe_a2a_backend": "pplx"}, "attention-dp of at least 2"),
    ("sglang", "DeepSeek-V3", Layout(8, ep=4), {"moe_runner_backend": "flashinfer_cutlass"}, "takes ep 1 or ep = tp"),
    ("sglang", "DeepSeek-V3", Layout(8, ep=8), {"moe_runner_backend": "cutlass"}, "on fp8 experts takes ep 1"),
    ("sglang", "DeepSeek-V3", Layout(8), {"moe_dense_tp_size": 2}, "cut by 1 or by tp"),
    ("sglang", "DeepSeek-V3", Layout(8), {"enable_dp_lm_head": True}, "needs attention-dp"),
    ("sglang", "DeepSeek-V3", Layout(8), {"enable_two_batch_overlap": True}, "needs an all-to-all or attention-dp"),
    ("sglang", "DeepSeek-V3", Layout(8), {"enable_eplb": True}, "needs expert parallelism"),
    ("sglang", "DeepSeek-V3", Layout(8, ep=8), {"ep_num_redundant_experts": 3}, "256 experts and 3 redundant ones"),
    ("sglang", "DeepSeek-V3", Layout(4, 2), {"speculative_algorithm": "NGRAM"}, "speculation is EAGLE"),
    ("sglang", "DeepSeek-V3", Layout(4, 2), {"enable_pdmux": True}, "PD multiplexing"),
    ("sglang", "Qwen3-8B", Layout(1), {"context_length": 50000}, "50000 exceeds the 40960 tokens"),
    ("vllm", "Qwen3-8B", Layout(1), {"max_model_len": 50000}, "50000 exceeds the 40960 tokens"),
    ("vllm", "DeepSeek-V3", Layout(8), {"enable_eplb": True}, "ep 1"),
    ("vllm", "DeepSeek-V3", Layout(8, ep=8), {"num_redundant_experts": 8}, "does not know the option"),
    ("vllm", "DeepSeek-V3", Layout(8, ep=8), {"enable_elastic_ep": True}, "needs enable-eplb and no pipeline"),
    ("vllm", "DeepSeek-V3", Layout(8), {"data_parallel_external_lb": True}, "external-lb was asked with dp 1"),
]


@pytest.mark.parametrize(("engine", "name", "layout", "flags", "words"), DEGREES)
def test_degrees_and_flags(engine: str, name: str, layout: Layout, flags: dict[str, Any], words: str) -> None:
    refusal = refused(engine, model(name), layout, **flags)
    if not words:
        assert refusal is None
    else:
        assert refusal is not None
        assert words in f"{refusal.rule}: {refusal.reason}"


MACHINES = [
    ("sglang", Layout(8), machine("h100", 4), "needs"), ("vllm", Layout(8), machine("h100", 4), "needs 8 GPUs"),
    ("vllm", Layout(1), machine("h100", 0), "has no GPUs"), ("sglang", Layout(3, 1), machine("h100", 2, 2), "3 on 2"),
    ("sglang", Layout(4, dp=2), machine("h100", 4, 2), "dp 2 on 2 nodes"),
]


@pytest.mark.parametrize(("engine", "layout", "on", "words"), MACHINES)
def test_machines(engine: str, layout: Layout, on: Machine, words: str) -> None:
    refusal = refused(engine, model("Qwen3-8B"), layout, on)
    assert refusal is not None
    assert words in f"{refusal.rule}: {refusal.reason}"


def test_megamoe_is_made_for_one_family_of_gpus() -> None:
    refusal = refused("sglang", model("DeepSeek-V3"), Layout(8, ep=8), machine("pro6000", 8), moe_a2a_backend="megamoe")
    assert refusal is not None
    assert "SM100" in refusal.reason


SPARSE = changed("Qwen3-30B-A3B", fp8=True, moe_intermediate_size=320)
# Public reports of a crash in one layout only: report, engine, model, layout, words of the reason.
CRASHES = [
    ("vllm#414", "vllm", gqa(52, 52), Layout(3), "52 attention heads"),
    ("vllm#596", "vllm", gqa(40, 40), Layout(3), "40 attention heads"),
    ("vllm#2652", "vllm", gqa(52, 52), Layout(8), "52 attention heads"),
    ("vllm#4232", "vllm", gqa(40, 40), Layout(6), "40 attention heads"),
    ("vllm#1705", "vllm", gqa(25, 25), Layout(2), "25 attention heads"),
    ("vllm#1705 at 5 GPUs", "vllm", gqa(25, 25, vocab_size=50257), Layout(5), "50257 words, padded to 50304"),
    ("llm-d-planner tp 5", "vllm", gqa(40, 40), Layout(5), "151936 words, padded to 151936, do not divide by tp 5"),
    ("vllm#5951", "vllm", gqa(40, 10), Layout(4), "10 KV heads do not divide"),
    ("FSDrive#21", "vllm", gqa(12, 2), Layout(8), "12 attention heads"),
    ("gpustack#2259", "vllm", gqa(64, 8), Layout(3), "64 attention heads"),
    ("vllm#17569", "vllm", model("Qwen3-235B-A22B", fp8=True), Layout(8), "1536 at moe_tp 8 (tp / ep) is 192 a rank"),
    ("vllm#48173", "vllm", model("MiniMax-M2.7"), Layout(8), "1536 at moe_tp 8 (tp / ep) is 192 a rank"),
    ("ATOM#1488", "vllm", model("MiniMax-M2.7"), Layout(8), "multiple of 128"),
    ("vllm#54178 tp 8", "vllm", SPARSE, Layout(8), "is 40 a rank"),
    ("vllm#54178 tp 4", "vllm", SPARSE, Layout(4), "is 80 a rank"),
    ("vllm#54178 tp 2", "vllm", SPARSE, Layout(2), "is 160 a rank"),
    ("sglang#4791", "sglang", changed("Qwen3-8B", fp8=True, intermediate_size=4608), Layout(8), "is 576 a rank"),
    ("sglang#26107", "sglang", changed("DeepSeek-V3", first_k_dense_replace=0), Layout(32, ep=32),
     "shared experts gate_proj (rows): 2048 at tp 32 is 64 a rank"),
    ("humming#69", "sglang", changed("Qwen3-8B", fp8=True, intermediate_size=33792), Layout(16), "is 2112 a rank"),
    ("engine-facts 1.3", "sglang", model("Qwen3-30B-A3B-FP8"), Layout(8), "768 at moe_tp 8 (tp / ep) is 96 a rank"),
]


@pytest.mark.parametrize(("report", "engine", "architecture", "layout", "words"), CRASHES,
                         ids=[crash[0] for crash in CRASHES])
def test_public_crashes_are_refused(report: str, engine: str, architecture: Architecture, layout: Layout, words: str
                                    ) -> None:
    refusal = refused(engine, architecture, layout)
    assert refusal is not None
    assert words in refusal.reason


# Layouts that the same reports say work.
WORKING = [
    ("vllm#5951", "vllm", gqa(40, 10), Layout(2)),
    ("humming#69", "sglang", gqa(32, 8, intermediate_size=33792), Layout(8)),
    ("vllm#54178", "vllm", changed("Qwen3-30B-A3B", moe_intermediate_size=320), Layout(8, ep=8)),
    ("vllm#17569", "vllm", model("Qwen3-235B-A22B", fp8=True), Layout(4)),
    ("vllm#17569 by ep", "vllm", model("Qwen3-235B-A22B", fp8=True), Layout(8, ep=8)),
    ("engine-facts 1.3", "sglang", model("Qwen3-30B-A3B-FP8"), Layout(8, ep=8)),
]


@pytest.mark.parametrize(("report", "engine", "architecture", "layout"), WORKING, ids=[case[0] for case in WORKING])
def test_what_works_passes(report: str, engine: str, architecture: Architecture, layout: Layout) -> None:
    assert refused(engine, architecture, layout) is None


def test_a_refusal_names_matrix_width_and_block() -> None:
    refusal = refused("sglang", model("Qwen3-30B-A3B-FP8"), Layout(8))
    assert refusal == Refusal(
        "a rank's share must be of whole quantization blocks",
        "experts gate_proj (rows): 768 at moe_tp 8 (tp / ep) is 96 a rank, and fp8 128x128 needs a multiple of 128")


def test_vllm_cuts_experts_over_replicas_too() -> None:
    refusal = refused("vllm", model("Qwen3-30B-A3B-FP8"), Layout(1, dp=8))
    assert refusal is not None
    assert "moe_tp 8 (tp x dp / ep)" in refusal.reason


def gguf(family: str) -> Architecture:
    return replace(model("DeepSeek-V2-Lite"), family=family)


def test_llamacpp_splits_only_what_it_is_made_for() -> None:
    assert refused("llamacpp", gguf("llama"), Layout(2), path="model.gguf") is None
    refusal = refused("llamacpp", gguf("deepseek2"), Layout(2), path="model.gguf")
    assert refusal is not None
    assert refusal.reason == "split mode tensor is not made for deepseek2"
    assert refused("llamacpp", gguf("deepseek2"), Layout(1, 2), path="model.gguf") is None


def test_only_llamacpp_reads_gguf() -> None:
    refusal = refused("sglang", gguf("llama"), Layout(2), path="model.gguf")
    assert refusal is not None
    assert "reads safetensors" in refusal.reason


def test_every_rule_is_met_in_these_tables() -> None:
    met = set()
    for engine, name, layout, flags, _ in DEGREES:
        met |= {found.rule for found in refusals(case_of(plan(model(name), engine, layout, **flags), model(name)))}
    for engine, layout, on, _ in MACHINES:
        asked = plan(model("Qwen3-8B"), engine, layout, on)
        met |= {found.rule for found in refusals(case_of(asked, model("Qwen3-8B")))}
    for _, engine, architecture, layout, _ in CRASHES:
        met |= {found.rule for found in refusals(case_of(plan(architecture, engine, layout), architecture))}
    asked = plan(gguf("deepseek2"), "llamacpp", Layout(2), path="model.gguf")
    met |= {found.rule for found in refusals(case_of(asked, gguf("deepseek2")))}
    assert {rule.name for rule in RULES} == met
