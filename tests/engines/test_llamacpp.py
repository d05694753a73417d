"""llama.cpp's commands, rules and what must hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.engine import Seat
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.vocabulary import FACTS, state
from rooftop.engines.llamacpp import ENGINE

MODEL = Model("tiny", "/models/tiny.gguf")
SEAT = Seat(("llama-server",), 8971, cores=(2, 3))
NO_GPU = Machine("box", "cpu", 2, 1 << 34)
FOUR_GPUS = Machine("box", "cpu", 64, 1 << 38, tuple(Gpu(f"gpu {n}") for n in range(4)))


def plan(layout: Layout | None = None, machine: Machine | None = None, /, **settings: Any) -> Plan:
    made = tuple(Setting(name.replace("_", "-"), value) for name, value in settings.items())
    return Plan(MODEL, "llamacpp", layout, made, machine=machine)


def test_the_whole_command() -> None:
    command = ENGINE.command(plan(Layout(), parallel=8, ctx_size=4096), SEAT)
    assert command.argv == (
        "llama-server", "--model", "/models/tiny.gguf", "--alias", "tiny", "--host", "127.0.0.1", "--port", "8971",
        "--metrics", "--verbosity", "4", "--threads", "2", "--parallel", "8", "--ctx-size", "4096")


@pytest.mark.parametrize(("settings", "words", "absent"), [
    ({"threads": 1}, "--threads 1", "--threads 2"),
    ({"t": 1}, "--threads 1", "-t"),
    ({"flash_attn": True}, "--flash-attn on", "--no-"),
    ({"flash_attn": False}, "--flash-attn off", "--no-"),
    ({"warmup": False}, "--no-warmup", "--warmup"),
    ({"metrics": False}, "--alias tiny", "metrics"),
    ({"verbosity": 1}, "--verbosity 1", "--verbosity 4"),
    ({"kv_unified": True}, "--kv-unified", "True"),
    ({"tensor_split": "3,1"}, "--tensor-split 3,1", "'"),
])
def test_settings_are_flags(settings: dict[str, Any], words: str, absent: str) -> None:
    argv = ENGINE.command(plan(Layout(), **settings), SEAT).argv
    assert f" {words}" in " ".join(argv)
    assert absent not in argv
    assert absent not in " ".join(argv).replace(words, "")


def test_layouts_are_split_modes() -> None:
    assert "tensor" in ENGINE.command(plan(Layout(tp=2), FOUR_GPUS), SEAT).argv
    assert "layer" in ENGINE.command(plan(Layout(pp=2), FOUR_GPUS), SEAT).argv
    assert ("layout.split_mode", "tensor") in ENGINE.asks(plan(Layout(tp=2), FOUR_GPUS))
    assert ("layout.ranks_seen", "gpu1") in ENGINE.asks(plan(Layout(pp=2), FOUR_GPUS))


@pytest.mark.parametrize(("asked", "reason"), [
    (plan(Layout(), NO_GPU), None),
    (plan(Layout(dp=2), NO_GPU, parallel=4), None),
    (plan(Layout(tp=2), NO_GPU), "this machine has none"),
    (plan(Layout(pp=2), NO_GPU), "this machine has none"),
    (plan(Layout(tp=2)), None),
    (plan(Layout(tp=4), FOUR_GPUS), None),
    (plan(Layout(tp=4, dp=2), FOUR_GPUS), "has 4"),
    (plan(Layout(tp=2, pp=2), FOUR_GPUS), "are two"),
    (plan(Layout(tp=2, ep=2), FOUR_GPUS), "ep 2"),
    (plan(Layout(tp=2), FOUR_GPUS, split_mode="layer"), "not layer"),
    (plan(Layout(tp=2), FOUR_GPUS, flash_attn=False), "flash-attn is off"),
    (plan(Layout(tp=2), FOUR_GPUS, cache_type_k="q8_0"), "quantised"),
    (plan(Layout(), NO_GPU, port=8080), "port"),
    (plan(Layout(), NO_GPU, m="/x.gguf"), "m"),
    (plan(Layout(), NO_GPU, threads=1, t=2), "same flag"),
    (plan(Layout(), NO_GPU, parallel=0), "0"),
    (plan(Layout(), NO_GPU, parallel=True), "is true"),
    (plan(Layout(), NO_GPU, threads=False), "threads is false"),
    (plan(Layout(), NO_GPU, ctx_size=True), "ctx-size is true"),
    (plan(Layout(), NO_GPU, lora=False), "lora is false"),
    (plan(Layout(), NO_GPU, metrics=False, warmup=False, fit=False), None),
    (plan(Layout(), NO_GPU, cache_type_v="q8_0", flash_attn="off"), "flash-attn is off"),
])
def test_refusals(asked: Plan, reason: str | None) -> None:
    refusal = ENGINE.refuses(asked)
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal.reason
        assert refusal.rule
        assert refusal.remedy


@pytest.mark.parametrize(("settings", "asks"), [
    ({}, {}),
    ({"parallel": 8}, {"limits.max_running": 8}),
    ({"parallel": -1, "ctx_size": 2048}, {}),
    ({"parallel": 8, "ctx_size": 4096}, {"limits.max_running": 8, "limits.max_model_len": 512}),
    ({"np": 3, "c": 2048}, {"limits.max_running": 3, "limits.max_model_len": 768}),
    ({"parallel": 4, "ctx_size": 2048, "kv_unified": True}, {"limits.max_running": 4, "limits.max_model_len": 2048}),
    ({"batch_size": 512}, {"limits.chunk_tokens": 512}),
    ({"batch_size": 4096, "ctx_size": 2048}, {}),
    ({"cache_type_k": "f16", "cache_type_v": "f16"}, {"kv.dtype": "fp16"}),
    ({"cache_type_k": "q8_0", "cache_type_v": "f16"}, {}),
    ({"flash_attn": True}, {"attention.backend": "flash"}),
    ({"flash_attn": "off"}, {"attention.backend": "plain"}),
    ({"flash_attn": "auto"}, {}),
    ({"n_gpu_layers": "all"}, {"layout.layers_off_gpu": 0}),
])
def test_what_must_hold(settings: dict[str, Any], asks: dict[str, Any]) -> None:
    assert dict(ENGINE.asks(plan(Layout(), **settings))) == asks


VALUES = st.one_of(st.booleans(), st.integers(-1, 5000), st.sampled_from(["on", "off", "auto", "f16", "q8_0", "all"]))
NAMES = st.sampled_from(["parallel", "ctx-size", "batch-size", "cache-type-k", "cache-type-v", "flash-attn",
                         "kv-unified", "n-gpu-layers", "split-mode", "threads", "warmup", "mmap"])


@given(st.dictionaries(NAMES, VALUES))
def test_every_ask_is_of_the_vocabulary(settings: dict[str, Any]) -> None:
    asked = Plan(MODEL, "llamacpp", Layout(), tuple(Setting(*item) for item in settings.items()))
    if ENGINE.refuses(asked) is not None:
        return
    for fact, value in ENGINE.asks(asked):
        assert fact in FACTS
        if fact not in ("kv.dtype", "layout.split_mode"):
            state(fact, value, FACTS[fact].levels[-1], "", 0, "")
    argv = ENGINE.command(asked, SEAT).argv
    assert all(isinstance(word, str) and word for word in argv)
    assert len([word for word in argv if word == "--threads"]) == 1
