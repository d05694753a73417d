"""The derivation in docs/speed.md is the code's own, to its last digit."""

import re
from pathlib import Path

import pytest

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.stepcost import Cost, Step
from rooftop.perfmodel.queueing import Load, serve
from rooftop.perfmodel.roofline import Roofline, roofline
from tests.perfmodel import bench

PAGE = (Path(__file__).parent.parent.parent / "docs" / "speed.md").read_text(encoding="utf-8")
HAND = PAGE[PAGE.index("## One prediction by hand"):PAGE.index("## How far it can be trusted")]
ROWS = {"QKV": "attention qkv", "output": "attention o_proj", "gate and up": "mlp gate_up", "down": "mlp down_proj",
        "LM head": "lm_head lm_head"}


@pytest.fixture(scope="module")
def model() -> Roofline:
    plan = Plan(Model("Qwen3-8B"), "sglang", Layout(), machine=machine("1x H100 SXM"))
    return roofline(plan, bench.model("Qwen3-8B"), ledger.known())


@pytest.fixture(scope="module")
def step(model: Roofline) -> Cost:
    return model.cost(Step("decode", 4, 4, 343.5))


def microseconds(step: Cost, operation: str, cause: str) -> float:
    return 1e6 * sum(one.seconds for one in step.terms if (one.operation, one.cause) == (operation, cause))


@pytest.mark.parametrize("name", ROWS)
def test_each_product(step: Cost, name: str) -> None:
    cells = next(line for line in HAND.splitlines() if line.startswith(f"| {name} |")).split("|")
    memory, base = (float(cell.split("=")[-1]) for cell in cells[4:6])
    assert microseconds(step, ROWS[name], "memory") == pytest.approx(memory, abs=0.051)
    assert microseconds(step, ROWS[name], "launch") == pytest.approx(base, abs=0.051)


def test_attention_small_kernels_and_host(step: Cost, model: Roofline) -> None:
    memory, base = re.findall(r"36 x [\d.]+ = ([\d.]+) us", HAND)[-2:]
    assert microseconds(step, "attention", "memory") == pytest.approx(float(memory), abs=0.051)
    assert microseconds(step, "attention", "launch") == pytest.approx(float(base), abs=0.051)
    small = re.search(r"(\d+) x 2.5 = ([\d.]+) us", HAND)
    assert small is not None
    assert model.works[0].small == int(small[1])
    assert microseconds(step, "small kernels", "launch") == pytest.approx(float(small[2]), abs=0.051)
    assert f"= {microseconds(step, 'host', 'host'):.1f} us" in HAND


def test_causes_and_the_whole(step: Cost, model: Roofline) -> None:
    for cause in ("memory", "launch", "host"):
        line = next(line for line in HAND.splitlines() if line.startswith(f"| {cause}"))
        assert f"{step.by_cause[cause] * 1e3:.3f}" == line.split("|")[2].strip()
    assert f"**{step.seconds * 1e3:.3f}**" in HAND
    assert f"**{serve(model, Load(4, 233, 221)).tpot_s * 1e3:.2f} ms**" in HAND
    limit = model.limit(Step("decode", 4, 4, 343.5))
    said = HAND.replace("\n", " ").replace(" %", "%")
    assert f"is {limit * 1e3:.2f} ms: the step is at {limit / step.seconds:.0%} of it" in said
