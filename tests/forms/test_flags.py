"""The engines' command lines read backwards: tables against engines, layouts and settings there and back."""

import re
import shlex
from pathlib import Path
from typing import cast

import pytest

from rooftop import registry
from rooftop.domain.engine import Engine, Seat
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines import _sglang_rules, llamacpp
from rooftop.engines._options import for_version
from rooftop.engines._vllm_config import SHORT
from rooftop.forms._flags import dialect, secret, tables, typed
from tests.forms.cases import FORMS

HELP = Path(__file__).parent.parent / "cases" / "engine-help" / "vllm-0.32.0.txt"
LAYOUTS = {
    "sglang": (Layout(), Layout(tp=8), Layout(tp=8, ep=8), Layout(tp=8, ep=4), Layout(tp=8, attention_dp=8),
               Layout(tp=8, ep=8, attention_dp=4), Layout(pp=8), Layout(tp=4, pp=2), Layout(tp=4, dp=2),
               Layout(tp=8, dcp=2)),
    "vllm": (Layout(), Layout(tp=8), Layout(tp=8, ep=8), Layout(tp=4, dp=2, ep=8), Layout(pp=8), Layout(tp=4, pp=2),
             Layout(tp=4, dp=2), Layout(tp=8, dcp=2)),
}
PROGRAMS = {"sglang": ("python", "-m", "sglang.launch_server"), "vllm": ("vllm",), "llamacpp": ("llama-server",)}
VERSIONS = {"sglang": ("0.4.9.post2", "0.5.2", "0.5.10", "0.5.21", "0.5.23", ""), "vllm": ("",)}
SETTINGS: dict[str, dict[str, SettingValue]] = {
    "sglang": {"max-running-requests": 64, "attention-backend": "fa3", "enable-mixed-chunk": True,
               "mem-fraction-static": 0.85, "enable-tf32-matmul": True, "chunked-prefill-size": -1},
    "vllm": {"max-num-seqs": 64, "max-model-len": "4k", "enforce-eager": True, "enable-prefix-caching": False,
             "gpu-memory-utilization": 0.9, "compilation-config": '{"cudagraph_mode": "FULL"}', "O": 2,
             "compilation-config.cudagraph_mode": "FULL"},
    "llamacpp": {"ctx-size": 8192, "parallel": 4, "flash-attn": "on", "mmap": False, "kv-unified": True,
                 "cache-type-k": "q8_0", "n-gpu-layers": "all", "verbosity": 3, "metrics": True, "threads": 2},
}


def engine(name: str) -> Engine:
    return cast(Engine, registry.load("engines", name))


def back(name: str, plan: Plan) -> Plan:
    argv = engine(name).command(plan, Seat(PROGRAMS[name], 8000)).argv
    return FORMS["command"].read(shlex.join(argv)).plan


@pytest.mark.parametrize(("name", "version", "layout"), [
    (name, version, layout) for name, layouts in LAYOUTS.items() for version in VERSIONS[name] for layout in layouts],
    ids=str)
def test_each_layout_comes_back(name: str, version: str, layout: Layout) -> None:
    plan = Plan(Model("m", "/models/m"), name, layout, engine_version=version)
    if engine(name).refuses(plan):
        pytest.skip(f"{name} {version} refuses it")
    assert back(name, plan).layout == layout


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_setting_comes_back(name: str) -> None:
    plan = Plan(Model("m", "/models/m"), name, Layout(), tuple(Setting(*pair) for pair in SETTINGS[name].items()))
    read = back(name, plan)
    told = {one.name: one.value for one in read.settings if one.name != "enable-metrics"}
    assert told == SETTINGS[name]
    assert (read.model, read.engine) == (plan.model, name)


@pytest.mark.parametrize(("words", "layout"), [
    ("vllm serve m -tp 2 -pp 2", Layout(tp=2, pp=2)),
    ("vllm serve m -tp=2 --data_parallel_size=2 -ep", Layout(tp=2, dp=2, ep=4)),
    ("vllm serve m --tensor-parallel-size 2 --no-enable-expert-parallel", Layout(tp=2)),
    ("vllm serve --trust-remote-code m --tensor-parallel-size 2", Layout(tp=2)),
    ("sglang serve --model m --tp 8 --dp 8 --enable-dp-attention", Layout(tp=8, attention_dp=8)),
    ("sglang serve --model m --tensor-parallel-size=8 --expert-parallel-size=4", Layout(tp=8, ep=4)),
    ("sglang serve --model m --tp-size 8 --enable-ep-moe", Layout(tp=8, ep=8)),
    ("sglang serve --model m --tp-size 8 --moe-a2a-backend deepep", Layout(tp=8, ep=8)),
    ("sglang serve --model m --tp 8 --dp 3 --enable-dp-attention", None),
    ("vllm serve m -tp $TP", None),
    ("llama-server -m m -ngl 0", Layout()),
    ("llama-server -m m -ngl 99", None),
    ("CUDA_VISIBLE_DEVICES=0,1 llama-server -m m -ngl 99", Layout(pp=2)),
    ("llama-server -m m -sm tensor -ts 1,1,0,1", Layout(tp=3)),
    ("llama-server -m m -sm row -ts 1,1", None),
])
def test_every_spelling_of_a_layout(words: str, layout: Layout | None) -> None:
    deployment = FORMS["command"].read(words)
    assert deployment.plan.layout == layout
    assert deployment.plan.model.path == "m"
    if layout is None:
        assert any("layout" in note or "parallel sizes" in note or "-parallel-size" in note
                   for note in deployment.notes), deployment.notes


def test_programs_that_are_known() -> None:
    for words in ("vllm serve m", "/opt/bin/vllm serve m", "python -m vllm.entrypoints.openai.api_server --model m",
                  "python3 /src/vllm/entrypoints/openai/api_server.py --model m", "uv run vllm serve m",
                  "numactl -N 0 vllm serve m", "nohup env A=1 vllm serve m &", "bash -c 'exec vllm serve m'",
                  "python -m vllm.entrypoints.cli.main serve m", "if true; then vllm serve m; fi"):
        assert FORMS["command"].read(words).plan.engine == "vllm", words
    for words in ("pip install vllm", "vllm bench serve", "grep vllm serve", "docker run x vllm serve m"):
        assert not FORMS["command"].reads(words), words


def test_the_tables_hold_what_the_engines_know() -> None:
    assert set(dialect("sglang")["spanning"]) == set(_sglang_rules._SPANNING)
    assert set(dialect("llamacpp")["negatable"]) == llamacpp.NEGATABLE
    assert {short: dialect("llamacpp")["alias"].get(short) for short in llamacpp.SHORT} == llamacpp.SHORT
    assert {short: dialect("vllm")["alias"].get(short, "").replace("-", "_") for short in SHORT if short != "O"} == {
        short: name for short, name in SHORT.items() if short != "O"}
    assert set(tables()) <= set(registry.names("engines"))


def test_vllm_switches_take_no_value_and_lists_take_several() -> None:
    lines = {line.split()[0].strip(",").lstrip("-"): line for line in HELP.read_text(encoding="utf-8").splitlines()
             if line.startswith("--")}
    for name in set(dialect("vllm")["switches"]) & set(lines):
        assert re.fullmatch(rf"--{name}(, --?[\w-]+)*( .*)?", lines[name]), name
        assert " " not in lines[name].split(", ")[0], name
    told = {name for name, line in lines.items() if "..." in re.sub(r"\{.*?\}", "", line).split(", ")[0]}
    assert told <= {*dialect("vllm")["lists"], "sleep-preserve-parameter-names"}


def test_sglang_degrees_are_options_of_its_parser() -> None:
    known = {option.name for option in for_version("sglang", "0.5.23").known}
    assert set(dialect("sglang")["degrees"]) <= known


@pytest.mark.parametrize(("name", "value", "wanted"), [
    ("api-key", "x", True), ("HF_TOKEN", "", True), ("HUGGING_FACE_HUB_TOKEN", "", True),
    ("AWS_SECRET_ACCESS_KEY", "", True), ("DB_PASSWORD", "", True),
    ("admin-api-key", "", True), ("hf-token", "", True), ("VLLM_API_KEY", "", True),
    ("max-num-batched-tokens", "8192", False), ("TOKENIZERS_PARALLELISM", "false", False), ("ssl-keyfile", "/k", False),
    ("tokenizer", "t", False), ("NOTHING", "hf_0123456789abcdef", True), ("URL", "https://u:p@host/x", True),
    ("otlp", '{"authorization": "Bearer abc"}', True), ("extra", '{"api_key": "abc"}', True), ("MONKEY", "1", False),
    ("override", '{"num_speculative_tokens": 3}', False), ("seed", "42", False), ("KV_CACHE", "fp8", False),
])
def test_what_is_a_secret(name: str, value: str, wanted: bool) -> None:
    assert secret(name, value) is wanted


@pytest.mark.parametrize(("text", "value"), [
    ("8", 8), ("-1", -1), ("0.90", 0.9), ("4k", "4k"), ("007", "007"), ("1e-3", "1e-3"), ("", ""), ("true", "true"),
    ("1.", "1."), ("9" * 30, int("9" * 30)),
])
def test_values(text: str, value: SettingValue) -> None:
    assert typed(text) == value
    assert type(typed(text)) is type(value)
