"""SGLang's command by version, its refusals, asks, phases and pages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop import registry
from rooftop.domain.engine import Seat
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.vocabulary import strongest
from rooftop.engines._options import NEWEST, for_version, number
from rooftop.engines.sglang import ENGINE

RUNS = Path(__file__).parent.parent / "cases" / "engine-logs"
SEAT = Seat(("python", "-m", "sglang.launch_server"), 8000)


def plan(layout: Layout | None = None, version: str = "", env: tuple[Setting, ...] = (),
 **settings: SettingValue) -> Plan:
    given = tuple(Setting(name.replace("_", "-"), value) for name, value in settings.items())
    return Plan(Model("m", "/models/m"), "sglang", layout, given, env, engine_version=version)


def words(asked: Plan, seat: Seat = SEAT) -> str:
    return " ".join(ENGINE.command(asked, seat).argv)


HEAD = ("python -m sglang.launch_server --model-path /models/m --served-model-name m --host 127.0.0.1 --port 8000")


@pytest.mark.parametrize(("asked", "tail"), [
    (plan(), ""),
    (plan(Layout(tp=8)), " --tp-size 8"),
    (plan(Layout(tp=4, pp=2)), " --tp-size 4 --pp-size 2"),
    (plan(Layout(tp=4, dp=2)), " --tp-size 4 --dp-size 2"),
    (plan(Layout(tp=8, ep=4)), " --tp-size 8 --ep-size 4"),
    (plan(Layout(tp=8, attention_dp=8)), " --tp-size 8 --attn-dp-size 8"),
    (plan(Layout(tp=8, attention_dp=8), "0.5.22"), " --tp-size 8 --attn-dp-size 8"),
    (plan(Layout(tp=8, attention_dp=8), "0.5.21"), " --tp-size 8 --dp-size 8 --enable-dp-attention"),
    (plan(Layout(tp=8, attention_dp=4), "0.4.6"), " --tp-size 8 --dp-size 4 --enable-dp-attention"),
    (plan(Layout(tp=8, ep=8), "0.4.9"), " --tp-size 8 --ep-size 8 --enable-ep-moe"),
    (plan(Layout(tp=8, dcp=2)), " --tp-size 8 --dcp-size 2"),
    (plan(max_running_requests=64, disable_radix_cache=True, enable_mixed_chunk=False, mem_fraction_static=0.8),
     " --max-running-requests 64 --disable-radix-cache --mem-fraction-static 0.8"),
    (plan(cuda_graph_bs_decode="1 2 4"), " --cuda-graph-bs-decode 1 2 4"),
    (plan(cuda_graph_bs_decode="1,2,4"), " --cuda-graph-bs-decode 1 2 4"),
    (plan(enable_tf32_matmul=False), " --no-enable-tf32-matmul"),
    (plan(disable_cuda_graph=True), " --cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"),
    (plan(None, "0.5.10", disable_cuda_graph=True), " --disable-cuda-graph"),
    (plan(chunked_prefill=4096), " --chunked-prefill-size 4096"),
])
def test_command(asked: Plan, tail: str) -> None:
    assert words(asked) == f"{HEAD}{tail} --enable-metrics"


def test_command_of_other_programs() -> None:
    assert words(plan(), Seat(("/opt/v/bin/sglang",), 1)).startswith("/opt/v/bin/sglang serve --model-path /models/m ")
    assert words(plan(), Seat(("sglang", "serve"), 1)).startswith("sglang serve --model-path /models/m ")


def test_metrics_are_asked_once_and_may_be_refused() -> None:
    assert words(plan(enable_metrics=True)).count("--enable-metrics") == 1
    assert "--enable-metrics" not in words(plan(enable_metrics=False))


def test_environment_is_the_users() -> None:
    mine = (Setting("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", True), Setting("X", 3))
    assert ENGINE.command(plan(env=mine), SEAT).environment == (("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1"), ("X", "3"))


# What a version lacks, ignores, renamed, rewrites: (plan, words of the rule, words of the remedy).
OPTIONS: list[tuple[Plan, str, str]] = [
    (plan(cuda_graph_max_bs=64), "ambiguous", "use cuda-graph-max-bs-decode"),
    (plan(cuda_graph_bs="1 2"), "ambiguous", "use cuda-graph-bs-decode"),
    (plan(None, "0.5.22", cuda_graph_max_bs=64), "ambiguous", "use cuda-graph-max-bs-decode"),
    (plan(None, "0.5.10", cuda_graph_max_bs_decode=64), "does not know", "use cuda-graph-max-bs"),
    (plan(num_continuous_decode_steps=4), "never reads", "leave it out"),
    (plan(None, "0.4.3", num_continuous_decode_steps=4), "never reads", "leave it out"),
    (plan(triton_attention_reduce_in_fp32=True), "never reads", "leave it out"),
    (plan(enable_dp_attention=True), "layout", "attention-dp in the layout"),
    (plan(Layout(tp=8), tp_size=8), "layout", "put it into the layout"),
    (plan(tensor_parallel_size=8), "layout", "layout"),
    (plan(enable_ep_moe=True), "layout", "layout"),
    (plan(enable_deepep_moe=True), "does not know", "moe-a2a-backend deepep"),
    (plan(enable_flashinfer_mla=True), "does not know", "attention-backend flashinfer"),
    (plan(nsa_decode_backend="fa3"), "does not know", "use dsa-decode-backend"),
    (plan(moe_a2a_backends="deepep"), "does not know", "moe-a2a-backend"),
    (plan(None, "0.4.6", moe_a2a_backend="deepep"), "does not know", ""),
    (plan(attention_backend=True), "needs a value", "value"),
    (plan(port=1), "rooftop sets", "leave it out"),
    (plan(Layout(pp=2), "0.4.0"), "no pp", "newer"),
    (plan(Layout(tp=4, dcp=2), "0.5.12"), "no dcp", "newer"),
    (plan(Layout(tp=4, ep=2), "0.4.0"), "no ep", "newer"),
]

RULES: list[tuple[Plan, str, str]] = [
    (plan(Layout(tp=4, dp=2, attention_dp=4)), "not both", "dp 1"),
    (plan(Layout(tp=4, dp=2), nnodes=2), "one node", "attention-dp"),
    (plan(Layout(tp=3), nnodes=2), "nodes", "tp 6"),
    (plan(Layout(tp=8, attention_dp=4, dcp=8)), "attention group", "dcp 2"),
    (plan(enable_dp_lm_head=True), "attention-dp", "leave it out"),
    (plan(Layout(tp=4, dp=2, ep=8)), "inside one tp group", "tp 8 with attention-dp 2 and ep 8"),
    (plan(Layout(tp=8, ep=4), "0.4.9"), "before 0.5.2", "ep 8"),
    (plan(Layout(tp=8, ep=4), moe_a2a_backend="deepep"), "makes ep = tp", "moe-a2a-backend none"),
    (plan(Layout(tp=8), moe_a2a_backend="mori"), "makes ep = tp", "ep 8"),
    (plan(Layout(tp=8, ep=4), moe_runner_backend="flashinfer_cutlass"), "flashinfer_cutlass", "ep 8 or ep 1"),
    (plan(Layout(tp=8, ep=8), moe_runner_backend="cutlass", quantization="fp8"), "cutlass", "triton"),
    (plan(Layout(tp=8, ep=8), moe_a2a_backend="flashinfer"), "one attention group a rank", "attention-dp 8"),
    (plan(Layout(tp=8, ep=8), moe_a2a_backend="pplx"), "pplx", "attention-dp 2"),
    (plan(Layout(tp=8, ep=8), moe_a2a_backend="deepep_v2", moe_runner_backend="triton"), "deepep_v2", "deep_gemm"),
    (plan(Layout(tp=8), enable_two_batch_overlap=True), "overlapping two batches", "deepep"),
    (plan(Layout(tp=8), enable_eplb=True), "balancing", "ep 8"),
    (plan(Layout(tp=8, ep=8), enable_eplb=True, ep_dispatch_algorithm="static"), "same replica", "dynamic"),
    (plan(Layout(tp=8), moe_dense_tp_size=4), "dense layers", "1 or 8"),
    (plan(Layout(tp=8, ep=2), moe_dp_size=2), "moe-dp", "ep 4"),
    (plan(Layout(tp=8, attention_dp=2), attn_cp_size=8), "attn-cp-size", "attn-cp-size 4"),
    (plan(Layout(pp=2), speculative_algorithm="EAGLE3"), "speculation", "tp instead of pp"),
    (plan(Layout(pp=2), speculative_algorithm="EAGLE"), "speculation", "no speculation"),
    (plan(Layout(pp=2), min_free_slots_delay=4), "min-free-slots-delay", "pp 1"),
    (plan(Layout(pp=2), elastic_ep_backend="mooncake"), "elastic-ep-backend", "pp 1"),
    (plan(Layout(pp=2), "0.5.10", enable_mixed_chunk=True), "mixed chunks", "leave enable-mixed-chunk out"),
    (plan(Layout(pp=2), pp_max_micro_batch_size=0), "micro-batch", "1 or more"),
    (plan(chunked_prefill_size=1000, page_size=64), "page-size", "chunked-prefill-size 960"),
    (plan(enable_pdmux=True), "multiplexing", "chunked-prefill-size -1"),
    (plan(enable_hierarchical_cache=True, disable_radix_cache=True), "hierarchical", "one of them"),
    (plan(disable_cuda_graph_padding=True, enable_torch_compile=True), "padding", "one of them"),
    (plan(retraction_policy="priority"), "priority", "add it"),
    (plan(enable_priority_scheduling=True, schedule_policy="lpm"), "fcfs", "fcfs"),
    (plan(mem_fraction_static=88), "share", "between 0 and 1"),
    (replace(plan(), model=Model("a:b")), "colon", "a-b"),
    (replace(plan(Layout(tp=8)), machine=Machine("box", "cpu", 8, 1, (Gpu("x"),) * 4)), "needs a GPU", "smaller"),
]


@pytest.mark.parametrize(("asked", "rule", "remedy"), OPTIONS + RULES)
def test_refusal_names_the_rule_and_what_works(asked: Plan, rule: str, remedy: str) -> None:
    refusal = ENGINE.refuses(asked)
    assert refusal
    assert rule in refusal.rule, refusal
    assert remedy in refusal.remedy, refusal
    assert refusal.reason
    assert refusal.remedy


@pytest.mark.parametrize("asked", [
    plan(), plan(Layout(tp=8)), plan(Layout(tp=8, ep=8)), plan(Layout(tp=8, ep=4)), plan(Layout(pp=8)),
    plan(Layout(tp=4, pp=2)), plan(Layout(tp=4, dp=2)), plan(Layout(tp=8, attention_dp=8)), plan(Layout(tp=8, dcp=2)),
    plan(Layout(tp=8, ep=8), moe_a2a_backend="deepep"), plan(Layout(tp=8, ep=8), enable_eplb=True),
    plan(Layout(tp=8, attention_dp=2), enable_two_batch_overlap=True, enable_dp_lm_head=True),
    plan(Layout(pp=2), enable_mixed_chunk=True), plan(Layout(pp=2), pp_max_micro_batch_size=16),
    plan(Layout(pp=2), speculative_algorithm="EAGLE", disaggregation_mode="prefill"),
    plan(Layout(pp=2), env=(Setting("SGLANG_ENABLE_PP_SPEC", 1),), speculative_algorithm="EAGLE"),
    plan(Layout(tp=8, ep=8), "0.4.9"), plan(Layout(tp=8, attention_dp=8), "0.4.3"), plan(disable_cuda_graph=True),
    plan(None, "0.5.10", cuda_graph_max_bs=64), plan(None, "0.5.15", cuda_graph_max_bs=64), plan(max_running=4),
     plan(cuda_graph_max_bs_decode=64), plan(chunked_prefill_size=-1, page_size=64),
    plan(Layout(tp=2), device="cpu"),
])
def test_what_sglang_takes_is_not_refused(asked: Plan) -> None:
    assert ENGINE.refuses(asked) is None


def test_versions_compare_and_unknown_ones_have_what_their_neighbours_have() -> None:
    assert number("0.4.10.post2") > number("0.4.9.post6") > number("0.4.9") > number("0.4.6.post5")
    assert number("0.5.3rc0") == number("0.5.3")
    assert for_version("sglang") == replace(for_version("sglang", NEWEST["sglang"]), version=NEWEST["sglang"])
    assert for_version("sglang", "0.5.19").has("cuda-graph-max-bs")
    assert not for_version("sglang", "0.5.20").has("cuda-graph-max-bs")
    assert for_version("sglang", "0.9.0").known == for_version("sglang", NEWEST["sglang"]).known
    assert for_version("sglang", "0.1.0").known == for_version("sglang", "0.4.0").known


def test_the_newest_options_are_those_of_the_recorded_help() -> None:
    usage = (RUNS.parent / "engine-help" / "sglang-0.5.23.txt").read_text().split()
    recorded = {word.strip("[]|").lstrip("-") for word in usage if word.strip("[]|").startswith("--")}
    known = {option.name for option in for_version("sglang", NEWEST["sglang"]).known}
    assert recorded - known == set()
    assert {name for name in known - recorded if not name.startswith("no-")} <= ALIASES


# Second names of options, which a usage line leaves out, and two that the help hides.
ALIASES = {
    "attention-context-parallel-size", "attention-data-parallel-size", "context-bucket", "data-parallel-size",
    "decode-context-parallel-size", "elastic-ep-join-rank-offset", "enable-hicache", "ep", "expert-parallel-size",
    "forward-pass-metrics-ipc-name", "forward-pass-metrics-worker-id", "grpc-http-sidecar-port", "help",
    "hierarchical-sparse-attention-extra-config", "model", "moe-data-parallel-size", "nccl-init-addr",
    "pipeline-parallel-size", "speculative-draft-model", "tensor-parallel-size"}


def test_asks() -> None:
    asked = dict(ENGINE.asks(plan(
        Layout(tp=8, attention_dp=4, ep=8), max_running_requests=64, context_length=4096, kv_cache_dtype="fp8_e5m2",
        chunked_prefill_size=8192, mem_fraction_static=0.8, disable_radix_cache=True, disable_overlap_schedule=True,
        moe_a2a_backend="deepep", moe_runner_backend="deep_gemm", attention_backend="fa3", quantization="fp8",
        cuda_graph_backend_prefill="disabled", cuda_graph_max_bs_decode=128, disable_custom_all_reduce=True,
        speculative_algorithm="EAGLE", max_total_tokens=100000, enable_symm_mem=True)))
    assert asked == {
        "layout.tp": 8, "layout.pp": 1, "layout.dp": 1, "layout.ep": 8, "layout.attention_dp": 4,
        "limits.max_running": 16, "limits.max_model_len": 4096, "limits.chunk_tokens": 2048, "limits.memory_share": 0.8,
        "kv.dtype": "fp8_e5m2", "prefix_cache.enabled": False, "overlap.enabled": False, "moe.a2a_backend": "deepep",
        "moe.backend": "deep_gemm", "attention.backend": "fa3", "quant.method": "fp8", "graphs.prefill.mode": "off",
        "graphs.decode.max_batch": 128, "allreduce.custom": False, "allreduce.symm_mem": True, "spec.enabled": True,
        "spec.method": "eagle"}


def test_asks_no_more_than_was_asked() -> None:
    assert ENGINE.asks(plan()) == ()
    assert ENGINE.asks(plan(kv_cache_dtype="auto", moe_runner_backend="auto", disable_radix_cache=False)) == ()
    assert dict(ENGINE.asks(plan(Layout(tp=4, dp=2)))) == {"layout.tp": 4, "layout.pp": 1, "layout.dp": 2}
    assert dict(ENGINE.asks(plan(disable_cuda_graph=True))) == {"graphs.decode.mode": "off",
     "graphs.prefill.mode": "off"}


def test_the_recorded_run_holds_what_its_command_asked() -> None:
    lines = (RUNS / "sglang-smollm2h12-tp2" / "server.log").read_text().splitlines()
    found = strongest(ENGINE.witness.read_log(lines))
    asked = plan(Layout(tp=2), attention_backend="torch_native", cuda_graph_backend_decode="disabled",
                 cuda_graph_backend_prefill="disabled", mem_fraction_static=0.3, disable_overlap_schedule=True)
    assert {fact: found[fact].value for fact, _ in ENGINE.asks(asked)} == dict(ENGINE.asks(asked))


def test_phases_come_in_their_order() -> None:
    lines = (RUNS / "sglang-smollm2h12-tp2" / "server.log").read_text().splitlines()
    seen: list[str] = []
    for line in lines:
        name = ENGINE.phase(line)
        if name and name not in seen:
            seen.append(name)
    assert seen == ["arguments", "distributed", "weights", "KV cache", "server", "ready"]
    assert ENGINE.phase("[2026-01-01 10:00:00 TP0] Capture target decode CUDA graph begin. backend=full") == "graphs"
    assert ENGINE.phase("[2026-01-01 10:00:00 TP0] Running FlashInfer autotune...") == "compile"
    assert ENGINE.phase("hello") is None


def page(run: str, name: str) -> str:
    return (RUNS / run / name).read_text()


def test_server_info() -> None:
    found = strongest(ENGINE.witness.read_info("/server_info", page("sglang-smollm2h12-tp2", "server_info.json")))
    assert {fact: (said.value, said.level) for fact, said in found.items()} == {
        "allreduce.symm_mem": (False, "resolved"), "attention.backend": ("torch_native", "resolved"),
        "graphs.decode.mode": ("off", "resolved"), "graphs.prefill.mode": ("off", "resolved"),
        "kv.dtype": ("auto", "resolved"), "kv.gib_per_gpu": (0.117, "built"), "kv.tokens": (8192, "built"),
        "layout.attention_dp": (1, "resolved"), "layout.dcp": (1, "resolved"), "layout.dp": (1, "resolved"),
        "layout.ep": (1, "resolved"), "layout.pp": (1, "resolved"), "layout.tp": (2, "resolved"),
        "layout.world_size": (2, "resolved"), "limits.chunk_tokens": (4096, "resolved"),
        "limits.max_running": (2048, "resolved"), "limits.memory_share": (0.3, "resolved"),
        "memory.weights_gib": (0.219, "built"), "overlap.enabled": (False, "resolved"),
        "prefix_cache.enabled": (True, "resolved"), "spec.enabled": (False, "resolved"),
        "startup.load_s": (pytest.approx(0.546, abs=0.001), "built"),
        "startup.total_s": (pytest.approx(6.251, abs=0.001), "built")}
    typed = {said.fact: said.value for said in ENGINE.witness.read_info(
        "/get_server_info", page("sglang-smollm2h12-tp2", "server_info.json")) if said.level == "asked"}
    assert typed == {"layout.tp": 2, "attention.backend": "torch_native", "limits.memory_share": 0.3, "kv.tokens": 8192,
                     "overlap.enabled": False, "graphs.decode.mode": "off", "graphs.prefill.mode": "off"}


def test_server_info_of_a_gpu_run_and_of_an_early_version() -> None:
    new = {"tp_size": 8, "dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True, "moe_runner_backend": "auto",
           "cuda_graph_config": {"decode": {"backend": "full", "bs": [1]}, "prefill": {"backend": "breakable"}},
           "startup_time": {"load_weight": 30.5, "scheduler_e2e": 90, "cuda_graph": {"decode": 12.5,
           "draft_decode": 0}},
           "internal_states": [{"decode_cuda_graph_bs": [1, 2, 4], "decode_cuda_graph_memory_gb": 1.5,
                                "avg_spec_accept_length": 3.2, "world_size": 8,
                                "memory_usage": {"weight": 10, "kvcache": 20.5, "token_capacity": 1000}}] * 8}
    found = strongest(ENGINE.witness.read_info("/server_info", json.dumps(new)))
    values = {fact: (said.value, said.level) for fact, said in found.items()}
    assert values["layout.attention_dp"] == (8, "resolved")
    assert values["layout.dp"] == (1, "resolved")
    assert values["graphs.decode.mode"] == ("full", "resolved")
    assert values["graphs.prefill.mode"] == ("breakable", "resolved")
    assert values["graphs.decode.max_batch"] == (4, "built")
    assert values["graphs.decode.sizes_count"] == (3, "built")
    assert values["graphs.memory_gib"] == (1.5, "built")
    assert values["startup.graphs_s"] == (12.5, "built")
    assert values["spec.accept_length"] == (3.2, "used")
    assert values["kv.tokens"] == (1000, "built")
    assert "moe.backend" not in values
    assert "startup.draft_graphs_s" not in values
    old = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": False, "max_total_num_tokens": 5000,
           "cuda_graph_max_bs": 160, "last_gen_throughput": 1.0}
    early = {fact: (said.value, said.level) for fact, said in strongest(
        ENGINE.witness.read_info("/get_server_info", json.dumps(old))).items()}
    assert early == {"layout.tp": (2, "resolved"), "layout.dp": (2, "resolved"), "kv.tokens": (5000, "built"),
                     "graphs.decode.max_batch": (160, "resolved")}


@pytest.mark.parametrize(("path", "text"), [
    ("/server_info", "<html>"), ("/server_info", "[]"), ("/server_info", "{}"), ("/v1/models", '{"data": [1]}'),
    ("/v1/models", '{"data": null}'), ("/props", "{}"), ("/metrics", ""), ("/metrics", "sglang:num_running_reqs NaN\n"),
    ("/server_info", '{"internal_states": [null, 3], "startup_time": [], "memory_usage": 4}')])
def test_other_pages_say_nothing(path: str, text: str) -> None:
    assert ENGINE.witness.read_info(path, text) == ()


def test_models_page() -> None:
    (said,) = ENGINE.witness.read_info("/v1/models", page("sglang-smollm2-tp1", "v1_models.json"))
    assert (said.fact, said.value, said.level) == ("limits.max_model_len", 8192, "resolved")


def test_metrics() -> None:
    text = page("sglang-smollm2h12-tp2", "metrics.txt")
    readings = {reading.series: (reading.value, reading.counter) for reading in ENGINE.witness.read_metrics(text)}
    assert readings["running"] == (0.0, False)
    assert readings["waiting"] == (0.0, False)
    assert readings["kv_usage"] == (0.0, False)
    assert readings["output_tokens"] == (1000.0, True)
    assert readings["prompt_tokens"] == (474.0, True)
    assert readings["cached_tokens"] == (366.0, True)
    assert readings["requests_done"] == (18.0, True)
    assert readings["decode_eager_steps"] == (289.0, True)
    assert "decode_graph_steps" not in readings
    found = strongest(ENGINE.witness.read_info("/metrics", text))
    assert found["graphs.decode.used_share"].value == 0.0
    assert found["prefix_cache.hit_rate"].value == pytest.approx(366 / 474, abs=1e-6)
    assert found["prefix_cache.enabled"].level == "used"
    assert found["startup.ready"].level == "used"
    assert found["kv.tokens"].value == 8192
    assert found["memory.weights_gib"].value == pytest.approx(0.221, abs=0.001)
    assert "overlap.enabled" not in found
    for said in found.values():
        assert said.text == text.splitlines()[said.line - 1]


def test_metrics_of_several_schedulers_are_summed_and_their_ranks_are_not() -> None:
    text = ('sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3.0\nsglang:num_running_reqs{dp_rank="0",tp_rank="1"} '
     '3.0\n'
            'sglang:num_running_reqs{dp_rank="1",tp_rank="2"} 4.0\nsglang:token_usage{dp_rank="0"} 0.5\n'
            'sglang:token_usage{dp_rank="1"} 0.7\nsglang:num_retracted_requests_total 5.0\n'
            'sglang:cuda_graph_passes_total{mode="decode_cuda_graph",tp_rank="0"} 30.0\n'
            'sglang:cuda_graph_passes_total{mode="decode_none",tp_rank="0"} 10.0\nsglang:gen_throughput 812.5\n'
            'sglang:scheduler_stage_seconds_total{category="run_batch",forward_overlap="full"} 3.0\n'
            'sglang:spec_accept_length 2.5\nsglang:num_queue_reqs 2.0\n')
    readings = {reading.series: reading.value for reading in ENGINE.witness.read_metrics(text)}
    assert readings == {"running": 7.0, "kv_usage": 0.7, "preemptions": 5.0, "decode_graph_steps": 30.0,
                        "decode_eager_steps": 10.0, "gen_tokens_per_s": 812.5, "accept_length": 2.5, "waiting": 2.0}
    found = {said.fact: said.value for said in ENGINE.witness.read_info("/metrics", text)}
    assert found == {"live.running": 7, "live.queued": 2, "live.kv_usage": 0.7, "live.gen_tok_s": 812.5,
                     "graphs.decode.used_share": 0.75, "overlap.enabled": True, "spec.enabled": True,
                     "spec.accept_length": 2.5}


def test_it_is_a_plug_in() -> None:
    assert registry.load("engines", "sglang") is ENGINE
    assert ENGINE.programs[0].module == "sglang"
    assert ENGINE.pages.ready == "/health"
    assert ENGINE.routes_dp
