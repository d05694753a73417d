"""What fits, how many users, what is refused and whether the change named really fits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.fit import Fit
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, GpuState, Machine
from rooftop.perfmodel.cuts import ranks
from rooftop.perfmodel.fitting import fit
from rooftop.perfmodel.memory import GIB, Cache, caches
from rooftop.perfmodel.pools import held
from tests.perfmodel.bench import MIB, fitted, machine, model, plan

STUDY = (60, 1575)


def kimi(layout: Layout, **flags: object) -> Fit:
    return fitted(model("Kimi-K2.6"), "sglang", layout, machine("pro6000", 8), STUDY, **flags)  # type: ignore[arg-type]


def test_k26_int4_on_eight_96_gb_cards_holds_90_to_140_users_in_tp8() -> None:
    """A share of 0.88 to 0.91 leaves what the estimates need and holds 150,000 to 230,000 tokens."""
    for share in (0.88, 0.89, 0.9):
        found = kimi(Layout(8), mem_fraction_static=share)
        assert 150_000 <= found.kv_tokens <= 230_000
        assert 90 <= found.users <= 140
        assert found.left_bytes > 0
    by_default = kimi(Layout(8))
    assert by_default.raised is not None
    assert 0.88 <= float(by_default.raised.value) <= 0.92
    assert 90 <= by_default.raised_users <= 140


def test_k26_layouts_differ_because_tp_copies_the_latent_cache() -> None:
    tokens = {str(layout): kimi(layout, mem_fraction_static=0.9, **flags) for layout, flags in (
        (Layout(8), {}), (Layout(4, 2), {}), (Layout(1, 8), {}), (Layout(8, attention_dp=8), {}))}
    assert tokens["tp 4 x pp 2"].users > 1.7 * tokens["tp 8"].users
    assert tokens["pp 8"].users > 3 * tokens["tp 8"].users
    assert tokens["tp 8 x attention-dp 8"].pools == 8
    eighths = kimi(Layout(8), mem_fraction_static=0.9, kv_cache_dtype="fp8_e4m3")
    assert eighths.users == pytest.approx(2 * tokens["tp 8"].users, abs=1)
    assert any("the same on all 8 ranks" in note for note in tokens["tp 8"].notes)
    assert not any("the same on all" in note for note in tokens["tp 8 x attention-dp 8"].notes)


@pytest.mark.parametrize(("name", "layout", "bytes_a_token"), [
    ("Meta-Llama-3.1-8B", Layout(1), 32 * 2 * 8 * 128 * 2), ("Meta-Llama-3.1-8B", Layout(4), 32 * 2 * 2 * 128 * 2),
    ("Qwen3-30B-A3B", Layout(8), 48 * 2 * 1 * 128 * 2), ("DeepSeek-V3", Layout(8), 61 * 576 * 2),
    ("DeepSeek-V3", Layout(8, attention_dp=8), 61 * 576 * 2), ("DeepSeek-V3", Layout(8, dcp=4), 61 * 576 * 2 / 4),
    ("Qwen3-30B-A3B", Layout(8, dcp=2), 48 * 2 * 128 * 2 / 2), ("Qwen3.5-35B-A3B", Layout(1), 10 * 2 * 2 * 256 * 2)])
def test_kv_bytes_a_token(name: str, layout: Layout, bytes_a_token: float) -> None:
    made = caches(model(name), layout, ranks("sglang", layout, {}), range(model(name).layers), 2.0)
    assert sum(cache.growth for cache in made) == bytes_a_token


def test_fp8_cache_of_sparse_mla_carries_scales_and_16_bit_rope() -> None:
    made = caches(model("DeepSeek-V3.2"), Layout(8), ranks("vllm", Layout(8), {}), range(61), 1.0)
    assert sum(cache.growth for cache in made) == 61 * (656 + 132)


def test_the_smallest_stage_bounds_the_cache() -> None:
    found = fitted(model("DeepSeek-V3"), "sglang", Layout(8, 2), machine("h200", 16))
    assert [len(stage.layers) for stage in found.stages] == [30, 31]
    assert found.kv_tokens == min(stage.kv_tokens for stage in found.stages)
    assert found.fullest.number == 1


def test_a_small_gpu_in_a_stage_decides() -> None:
    """vllm#34076: 16 and 32 GB cards in pp 2."""
    cards = (Gpu("small", 16303 * MIB, sm="12.0"), Gpu("big", 32607 * MIB, sm="12.0"))
    mixed = Machine("mixed", "", 8, 64 << 30, cards)
    found = fitted(model("Qwen3-8B"), "vllm", Layout(1, 2), mixed, max_model_len=8192)
    assert found.fullest.number == 0
    assert any("2 kinds" in note for note in found.notes)


REFUSED = [
    ("Kimi-K2.6", "sglang", Layout(1), ("pro6000", 1), {}, "exceed"),
    ("Qwen3-32B", "sglang", Layout(1), ("h100", 1), {"mem_fraction_static": 0.7}, "exceed"),
    ("Qwen3-32B", "vllm", Layout(1), ("h100", 1), {}, "max-model-len is 40960"),
    ("Qwen3-8B", "vllm", Layout(1), ("4090", 1), {}, "max-model-len is 40960"),
    ("Qwen3-8B", "vllm", Layout(1), ("4090", 1), {"gpu_memory_utilization": 0.7}, ""),
]


@pytest.mark.parametrize(("name", "engine", "layout", "on", "flags", "words"), REFUSED)
def test_refusals_say_why_and_the_change_that_they_name_fits(
        name: str, engine: str, layout: Layout, on: tuple[str, int], flags: dict[str, float], words: str) -> None:
    asked = plan(model(name), engine, layout, machine(*on), **flags)
    found = fit(asked, model(name), 512, 512)
    assert found.refusal is not None
    assert words in found.refusal.reason
    assert found.refusal.remedy
    for _ in range(3):
        new = {one.name for one in found.change}
        asked = replace(asked, settings=(*(one for one in asked.settings if one.name not in new), *found.change))
        found = fit(asked, model(name), 512, 512)
    assert found.fits or not found.change


def test_the_number_of_gpus_that_a_refusal_names_is_enough() -> None:
    found = fitted(model("Kimi-K2.6"), "sglang", Layout(1), machine("h200", 1), STUDY)
    assert found.refusal is not None
    count = int(found.refusal.remedy.split()[0])
    enough = fitted(model("Kimi-K2.6"), "sglang", Layout(1, count), machine("h200", count), STUDY)
    assert enough.fits or [setting.name for setting in enough.change] == ["mem-fraction-static"]
    fewer = fitted(model("Kimi-K2.6"), "sglang", Layout(1, count - 1), machine("h200", count - 1), STUDY)
    assert not fewer.fits
    assert not fewer.change


def test_a_request_longer_than_the_model_is_refused() -> None:
    found = fitted(model("Qwen3-8B"), "vllm", Layout(1), machine("h100", 1), (40000, 2000))
    assert found.refusal is not None
    assert "at most 40960" in found.refusal.remedy


def test_limits_of_the_engine_end_users_too() -> None:
    many = fitted(model("SmolLM2-135M"), "vllm", Layout(1), machine("h100", 1), (64, 64))
    assert (many.users, many.bound) == (1024, "max-num-seqs 1024")
    few = fitted(model("SmolLM2-135M"), "sglang", Layout(1), machine("h100", 1), (64, 64), max_running_requests=10)
    assert (few.users, few.bound) == (10, "max-running-requests 10")


def test_states_of_linear_layers_take_their_share_in_sglang() -> None:
    found = fitted(model("Qwen3.5-35B-A3B"), "sglang", Layout(1), machine("h200", 1))
    stage = found.stages[0]
    assert stage.bytes_of("states") / stage.pool_bytes == pytest.approx(0.9 / 1.9, abs=0.01)


def test_estimates_say_that_they_are_and_between_what() -> None:
    for engine in ("sglang", "vllm"):
        for use in fitted(model("Qwen3-8B"), engine, Layout(1), machine("h100", 1)).stages[0].uses:
            assert use.basis in ("counted", "rule") or (use.low is not None and use.high is not None
                                                        and use.low <= use.bytes <= use.high)


def test_everything_on_a_gpu_adds_up() -> None:
    found = fitted(model("Qwen3-8B"), "sglang", Layout(1), machine("h100", 1))
    stage = found.stages[0]
    seen = sum(use.bytes for use in stage.uses if use.note != "what the driver keeps")
    assert seen + stage.left_bytes == pytest.approx(found.gpu_bytes)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("sglang", "vllm")), st.sampled_from((1, 2, 4, 8)), st.integers(1, 4000), st.integers(1, 4000))
def test_longer_requests_never_fit_more_users(engine: str, tp: int, first: int, second: int) -> None:
    short, long = sorted((first, second))
    users = [fitted(model("Qwen3-8B"), engine, Layout(tp), machine("h100", tp), (length, 64)).users
             for length in (short, long)]
    assert users[0] >= users[1]


@given(st.integers(1, 10_000), st.floats(0, 1e11))
def test_a_pool_holds_what_its_users_need(request: int, pool: float) -> None:
    rows = (Cache(1000.0), Cache(500.0, window=128))
    for engine in ("vllm", "llamacpp"):
        found = held(engine, rows, pool, request, 32768)
        assert found.users * sum(cache.request_bytes(request) for cache in rows) <= max(pool, 0.0)


def test_windows_hold_only_their_last_tokens() -> None:
    assert Cache(100.0, window=128).request_bytes(4096) == 12_800
    assert Cache(100.0, window=128).request_bytes(64) == 6_400
    assert Cache(0.0, state_bytes=7.0).request_bytes(1000) == 7.0
    assert Cache(100.0).request_bytes(17, page=16) == 3_200


def test_memory_that_is_not_known_is_not_guessed() -> None:
    unknown = Machine("unknown", "", 8, 64 << 30, (Gpu("mystery"),))
    with pytest.raises(ValueError, match="memory of mystery is not known"):
        fit(plan(model("Qwen3-8B"), "vllm", Layout(1), unknown), model("Qwen3-8B"), 64, 64)
    with pytest.raises(ValueError, match="without a machine"):
        fit(plan(model("Qwen3-8B"), "vllm", Layout(1)), model("Qwen3-8B"), 64, 64)


def test_llamacpp_on_a_processor_takes_the_hosts_memory() -> None:
    host = Machine("host", "", 8, 64 << 30)
    found = fit(plan(model("Qwen3-8B"), "llamacpp", Layout(1), host, path="x.gguf"), model("Qwen3-8B"), 512, 512)
    assert found.fits
    assert 40 * GIB < found.stages[0].pool_bytes < 48 * GIB


def test_memory_that_others_hold_is_missing() -> None:
    """vllm#20305: 31.4 of 47.4 GiB free at utilization 0.95."""
    busy = Machine("busy", "", 8, 64 << 30, (Gpu("card", 49140 * MIB, state=GpuState(used_bytes=16 << 30)),))
    found = fitted(model("Qwen3-8B"), "vllm", Layout(1), busy, (512, 512), gpu_memory_utilization=0.95)
    assert found.refusal is not None
    assert "31.5 GiB of 47.5 GiB are free, other processes hold 16.0 GiB" in found.refusal.reason
    lower = plan(model("Qwen3-8B"), "vllm", Layout(1), busy)
    assert fit(replace(lower, settings=found.change), model("Qwen3-8B"), 512, 512).fits
    idle = replace(busy, gpus=(replace(busy.gpus[0], state=None),))
    tokens = [fitted(model("Qwen3-8B"), "sglang", Layout(1), machine_).kv_tokens for machine_ in (busy, idle)]
    assert tokens[0] < tokens[1]
