"""The launch commands of the usual layouts: every option known to the recorded parser, or the engine's rule named."""

import re
from pathlib import Path
from typing import cast

import pytest

from rooftop import registry
from rooftop.domain.engine import Engine, Seat
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting

HELP = Path(__file__).parent.parent / "cases" / "engine-help"
LAYOUTS = {
    "tp 8": Layout(tp=8), "ep 8": Layout(tp=8, ep=8), "ep 4 with tp 8": Layout(tp=8, ep=4),
    "attention-dp 8": Layout(tp=8, attention_dp=8), "pp 8": Layout(pp=8), "tp 4 x pp 2": Layout(tp=4, pp=2),
    "dp 2 x tp 4": Layout(tp=4, dp=2), "tp 1": Layout(), "dcp 2 in tp 8": Layout(tp=8, dcp=2),
}
# The layout options that each command must hold, or the words of the rule that refuses it.
SGLANG = {
    "tp 8": "--tp-size 8", "ep 8": "--tp-size 8 --ep-size 8", "ep 4 with tp 8": "--tp-size 8 --ep-size 4",
    "attention-dp 8": "--tp-size 8 --attn-dp-size 8", "pp 8": "--pp-size 8", "tp 4 x pp 2": "--tp-size 4 --pp-size 2",
    "dp 2 x tp 4": "--tp-size 4 --dp-size 2", "tp 1": "", "dcp 2 in tp 8": "--tp-size 8 --dcp-size 2",
}
VLLM = {
    "tp 8": "--tensor-parallel-size 8", "ep 8": "--tensor-parallel-size 8 --enable-expert-parallel",
    "ep 4 with tp 8": "refused: vLLM spreads experts over all tp x dp ranks",
    "attention-dp 8": "refused: vLLM has no attention replicas inside a tp group",
    "pp 8": "--pipeline-parallel-size 8", "tp 4 x pp 2": "--tensor-parallel-size 4 --pipeline-parallel-size 2",
    "dp 2 x tp 4": "--tensor-parallel-size 4 --data-parallel-size 2", "tp 1": "",
    "dcp 2 in tp 8": "--tensor-parallel-size 8 --decode-context-parallel-size 2",
}
PROGRAMS = {"sglang": Seat(("python", "-m", "sglang.launch_server"), 8000), "vllm": Seat(("vllm", "serve"), 8000)}
CASES = [(name, layout, wanted) for name, table in (("sglang", SGLANG), ("vllm", VLLM)) for layout,
 wanted in table.items()]


def options(engine: str) -> set[str]:
    (path,) = HELP.glob(f"{engine}-*.txt")
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("name", "layout", "wanted"), CASES, ids=lambda value: str(value)[:30])
def test_the_parser_knows_every_option_or_the_rule_is_named(name: str, layout: str, wanted: str) -> None:
    engine = cast(Engine, registry.load("engines", name))
    plan = Plan(Model("m", "/models/m"), name, LAYOUTS[layout])
    refusal = engine.refuses(plan)
    if wanted.startswith("refused: "):
        assert refusal
        assert wanted.removeprefix("refused: ") in refusal.rule
        assert refusal.remedy
        return
    assert refusal is None
    argv = engine.command(plan, PROGRAMS[name]).argv[len(PROGRAMS[name].program):]
    used = [word.partition("=")[0] for word in argv if word.startswith("-")]
    assert set(used) <= options(name)
    ours = {"--model-path", "--served-model-name", "--host", "--port", "--enable-metrics"}
    start = next((place for place, word in enumerate(argv) if word.startswith("-") and word not in ours), len(argv))
    assert " ".join(word for word in argv[start:] if word != "--enable-metrics") == wanted


@pytest.mark.parametrize(("name", "settings"), [
    ("sglang", {"max-running-requests": 64, "cuda-graph-max-bs-decode": 64, "disable-cuda-graph": True,
                "cuda-graph-bs-decode": "1 2 4", "attention-backend": "fa3", "moe-a2a-backend": "none",
                "enable-tf32-matmul": False, "chunked-prefill-size": 4096, "disable-radix-cache": True}),
    ("vllm", {"max-num-seqs": 64, "max-num-batched-tokens": 4096, "enforce-eager": True, "enable-prefix-caching": False,
              "gpu-memory-utilization": 0.9, "max-model-len": "4k"}),
])
def test_settings_come_out_as_options_that_the_parser_knows(name: str, settings: dict[str,
 str | int | float | bool]) -> None:
    engine = cast(Engine, registry.load("engines", name))
    plan = Plan(Model("m", "/models/m"), name, None, tuple(Setting(key, value) for key, value in settings.items()))
    assert engine.refuses(plan) is None
    argv = engine.command(plan, PROGRAMS[name]).argv[len(PROGRAMS[name].program):]
    assert {word.partition("=")[0] for word in argv if word.startswith("-")} <= options(name)
