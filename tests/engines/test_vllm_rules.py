"""vLLM's options by version and its own rules: refused before the launch, with what to use instead."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.engine import Seat
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines._options import NEWEST, advise, for_version, version_of
from rooftop.engines.vllm import ENGINE

HELP = Path(__file__).parent.parent / "cases" / "engine-help" / "vllm-0.32.0.txt"


def plan(layout: Layout | None = None, version: str = "", env: tuple[Setting, ...] = (),
         **settings: SettingValue) -> Plan:
    return Plan(Model("m", "/models/m"), "vllm", layout, environment=env, engine_version=version,
                settings=tuple(Setting(name.replace("__", ".").replace("_", "-"), value)
                               for name, value in settings.items()))


# What a version does not take as it was given: (plan, words of the rule, words of the remedy).
REFUSED = [
    (plan(version="0.13.0", guided_decoding_backend="xgrammar"), "does not know", "structured-outputs-config.backend"),
    (plan(version="0.10.2", structured_outputs_config="{}"), "does not know", ""),
    (plan(version="0.33.0", swap_space=16), "does not know", "kv-offloading-size"),
    (plan(version="0.16.0", swap_space=16), "never reads", "computed again"),
    (plan(version="0.9.2", num_scheduler_steps=8), "old engine", "leave it out"),
    (plan(version="0.11.2", num_scheduler_steps=8), "does not know", "async-scheduling"),
    (plan(version="0.10.2", preemption_mode="swap"), "old engine", "computed again"),
    (plan(version="0.12.0", preemption_mode="swap"), "does not know", "computed again"),
    (plan(version="0.10.0", device="cuda"), "does not know", "installed build"),
    (plan(version="0.13.0", cuda_graph_sizes="1 2 4"), "does not know", "cudagraph-capture-sizes"),
    (plan(version="0.10.2", cudagraph_capture_sizes="1 2 4"), "does not know", "cuda-graph-sizes"),
    (plan(version="0.10.2", max_cudagraph_capture_size=64), "does not know", "max-seq-len-to-capture"),
    (plan(version="0.13.0", task="embed"), "does not know", "runner"),
    (plan(version="0.10.0", enable_reasoning=True), "does not know", "reasoning-parser"),
    (plan(version="0.12.0", attention_backend="FLASHINFER"), "does not know", "VLLM_ATTENTION_BACKEND"),
    (plan(version="0.33.0", env=(Setting("VLLM_ATTENTION_BACKEND", "FLASHINFER"),)), "does not read",
     "attention-backend"),
    (plan(version="0.24.0", env=(Setting("VLLM_USE_FLASHINFER_MOE_FP4", 1),)), "does not read", "moe-backend"),
    (plan(version="0.16.0", env=(Setting("VLLM_ALL2ALL_BACKEND", "naive"),)), "does not read", "all2all-backend"),
    (plan(version="0.11.2", env=(Setting("VLLM_USE_V1", 0),)), "does not read", "one engine"),
    (plan(version="0.20.2", max_num_active_seqs=8), "does not know", "max-num-seqs"),
    (plan(version="0.13.0", rope_theta=1e6), "does not know", "hf-overrides"),
    (plan(version="0.28.0", max_num_partial_prefills=4), "does not know", "long-prefill-token-threshold"),
    (plan(version="0.12.0", max_num_partial_prefills=4), "one long prompt", "long-prefill-token-threshold"),
    (plan(version="0.12.0", num_redundant_experts=8), "does not know", "eplb-config"),
    (plan(max_num=4), "ambiguous", "max-num-seqs"),
    (plan(max_num_seq=4, max_num_batched_tokens=True), "needs a value", "value"),
    (plan(nonsense=4), "does not know", ""),
    (plan(served_model_name="x"), "rooftop sets", "leave it out"),
    (plan(tensor_parallel_size=2), "the layout sets", "layout"),
    (plan(tp=2), "the layout sets", "layout"),
    (plan(Layout(tp=8, dcp=2), "0.9.2"), "has no dcp", "newer version"),
    (plan(Layout(tp=8, ep=8), enable_dbo=True), "leaves them apart", "deepep_low_latency"),
    (plan(Layout(tp=8, ep=8), all2all_backend="deepep_low_latency"), "between replicas", "dp 2"),
    (plan(Layout(tp=4, dp=2, ep=8), "0.33.0", all2all_backend="pplx"), "is gone", "allgather_reducescatter"),
    (plan(Layout(tp=8), enable_eplb=True), "needs expert parallelism", "ep 8"),
    (plan(Layout(tp=8, ep=8), eplb_config='{"num_redundant_experts": 8}'), "need enable-eplb", "enable-eplb"),
    (plan(Layout(tp=8, ep=8), eplb_config__num_redundant_experts=8), "need enable-eplb", "enable-eplb"),
    (plan(Layout(tp=8, pp=2, ep=8), enable_elastic_ep=True, enable_eplb=True), "elastic", "pp 1"),
    (plan(Layout(tp=8), data_parallel_external_lb=True), "needs replicas", "dp 2"),
    (plan(Layout(tp=2, dp=2), data_parallel_size_local=4), "at most all replicas", "2 or less"),
    (plan(Layout(tp=8), nnodes=2, distributed_executor_backend="ray"), "nnodes is for", "mp"),
    (plan(Layout(tp=3), nnodes=2), "number of nodes", "tp 6"),
    (plan(Layout(pp=2), "0.13.0", async_scheduling=True), "no pipeline", "pp 1"),
    (plan(max_num_active_seqs=64, max_num_seqs=32), "below max-num-seqs", "32 or less"),
]


@pytest.mark.parametrize(("asked", "rule", "remedy"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_with_what_to_use_instead(asked: Plan, rule: str, remedy: str) -> None:
    refusal = ENGINE.refuses(asked)
    assert refusal
    assert rule in refusal.rule
    assert remedy in refusal.remedy
    assert refusal.reason


@pytest.mark.parametrize("asked", [
    plan(), plan(version="0.9.2", guided_decoding_backend="xgrammar"), plan(version="0.8.5", swap_space=4),
    plan(version="0.14.1", env=(Setting("VLLM_ATTENTION_BACKEND", "FLASHINFER"),)),
    plan(version="0.13.0", attention_backend="FLASHINFER"), plan(Layout(pp=2), "0.20.2", async_scheduling=True),
    plan(Layout(tp=4, dp=2, ep=8), all2all_backend="deepep_low_latency", enable_dbo=True),
    plan(Layout(tp=8, ep=8), enable_eplb=True, eplb_config='{"num_redundant_experts": 8}'),
    plan(O=2), plan(cc__mode=0), plan(compilation_config__cudagraph_mode="PIECEWISE"), plan(q="fp8"),
    plan(max_num_seq=4), plan(no_enable_prefix_caching=True), plan(enable_prefix_caching=False),
    plan(version="0.10.2", disable_async_output_proc=False), plan(version="0.99.0", max_num_active_seqs=4),
    plan(env=(Setting("VLLM_LOGGING_LEVEL", "DEBUG"), Setting("NCCL_DEBUG", "INFO"))),
    plan(Layout(tp=8), nnodes=2, distributed_executor_backend="mp"),
])
def test_what_vllm_takes_is_not_refused(asked: Plan) -> None:
    assert ENGINE.refuses(asked) is None


def test_ranks_without_a_gpu_are_refused_but_not_where_other_machines_help() -> None:
    machine = Machine("m", "x86", 16, 2**37, gpus=tuple(Gpu("H100") for _ in range(4)))
    asked = Plan(Model("m", "/models/m"), "vllm", Layout(tp=4, dp=2), machine=machine)
    refusal = ENGINE.refuses(asked)
    assert refusal
    assert "needs a GPU" in refusal.rule
    for setting in (Setting("nnodes", 2), Setting("distributed-executor-backend", "ray"),
                    Setting("data-parallel-size-local", 1)):
        assert ENGINE.refuses(Plan(asked.model, "vllm", asked.layout, (setting,), machine=machine)) is None


def test_the_options_of_the_recorded_version_are_those_of_its_help() -> None:
    recorded = set(re.findall(r"(?<![\w-])--([A-Za-z][\w-]*)", HELP.read_text(encoding="utf-8")))
    known = {option.name for option in for_version("vllm", "0.32.0").known}
    assert recorded - known == set()
    assert known - recorded == set()


def test_versions_between_two_sampled_ones_have_what_either_has() -> None:
    assert for_version("vllm").version == NEWEST["vllm"]
    assert for_version("vllm", "0.10.1").has("num-scheduler-steps")
    assert not for_version("vllm", "0.10.2").has("num-scheduler-steps")
    assert for_version("vllm", "0.8.0").known == for_version("vllm", "0.8.1").known


@pytest.mark.parametrize(("flag", "words"), [
    ("--enable_reasoning", "reasoning-parser alone"), ("--swap-space", "kv-offloading-size"),
    ("--max_num_active_seqs", "write --max-num-active-seqs"), ("--max-num-active-seqs", "newer one"),
    ("--max-num-seq", "max-num-seqs"), ("", ""),
])
def test_advice_for_an_option_that_was_not_known(flag: str, words: str) -> None:
    assert words in advice if (advice := advise("vllm", flag)) else words == ""


def test_the_fault_of_an_unknown_flag_names_what_replaced_it() -> None:
    fault = ENGINE.witness.fault(["vllm: error: unrecognized arguments: --enable-reasoning"], None)
    assert fault
    assert "reasoning-parser" in fault.remedy


def test_a_switch_without_an_opposite_is_left_out_when_it_is_off() -> None:
    seat = Seat(("vllm", "serve"), 8000)
    old, new = plan(version="0.10.2", disable_async_output_proc=False), plan(enforce_eager=False)
    assert not any("async-output" in word for word in ENGINE.command(old, seat).argv)
    assert "--no-enforce-eager" in ENGINE.command(new, seat).argv


@pytest.mark.parametrize(("engine", "image", "version"), [
    ("vllm", "vllm/vllm-openai:v0.9.1", "0.9.1"), ("sglang", "lmsysorg/sglang:v0.5.4-cu129", "0.5.4"),
    ("vllm", "localhost:5000/mirror/vllm-openai:0.8.5.post1", "0.8.5.post1"), ("vllm", "localhost:5000/vllm", ""),
    ("vllm", "vllm/vllm-openai:latest", ""), ("vllm", "team/serving:v0.9.1", ""), ("vllm", "vllm/vllm-openai", ""),
    ("vllm", "", ""),
])
def test_the_tag_of_an_image_tells_the_version_whose_rules_hold(engine: str, image: str, version: str) -> None:
    assert version_of(Plan(Model("m", "/m"), engine, image=image)) == version
    assert version_of(Plan(Model("m", "/m"), engine, image=image, engine_version="0.7.3")) == "0.7.3"


def test_an_old_image_is_held_to_its_own_rules() -> None:
    asked = replace(plan(guided_decoding_backend="xgrammar"), image="vllm/vllm-openai:v0.9.2")
    assert ENGINE.refuses(asked) is None
    refusal = ENGINE.refuses(replace(asked, image="vllm/vllm-openai:v0.24.0"))
    assert refusal
    assert "vLLM 0.24.0" in refusal.rule
