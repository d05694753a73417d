"""A healthy SGLang log with one fact changed breaks exactly that claim."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rooftop.domain.launch import Claim
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines.sglang import ENGINE
from rooftop.workflows.verify import check

CASES = Path(__file__).parent.parent / "cases"
COMMON: dict[str, SettingValue] = {
    "attention-backend": "torch_native", "cuda-graph-backend-decode": "disabled", "mem-fraction-static": 0.3,
    "cuda-graph-backend-prefill": "disabled", "disable-overlap-schedule": True}
# Settings that the recorded runs left to the engine, whose values its log tells.
TOLD: dict[str, SettingValue] = {"max-running-requests": 2048, "chunked-prefill-size": 4096, "context-length": 8192}
HEALTHY = {"smollm2-tp1": Layout(), "smollm2h12-tp2": Layout(tp=2), "smollm2-pp2-fail": Layout(pp=2)}


def plan(run: str) -> Plan:
    given = tuple(Setting(name, value) for name, value in {**COMMON, **TOLD}.items())
    return Plan(Model("m", "/models/m"), "sglang", HEALTHY[run], given)


def text(run: str) -> str:
    return (CASES / "engine-logs" / f"sglang-{run}" / "server.log").read_text(encoding="utf-8")


def claims(asked: Plan, log: str) -> dict[str, Claim]:
    return {claim.fact: claim for claim in check(ENGINE.asks(asked), ENGINE.witness.read_log(log.splitlines()))}


@pytest.mark.parametrize("run", HEALTHY)
def test_healthy_run_keeps_every_claim(run: str) -> None:
    found = claims(plan(run), text(run))
    assert [(fact, claim.found) for fact, claim in found.items() if not claim.holds] == []
    assert len(found) == 11


def choose(pattern: str, *values: str) -> Callable[[str, random.Random], str]:
    return lambda log, draw: re.sub(pattern, rf"\g<1>{draw.choice(values)}", log)


MUTATIONS: list[tuple[str, Callable[[str, random.Random], str]]] = [
    ("layout.tp", choose(r"('tp_size': )\d", "4", "8", "16")),
    ("layout.pp", choose(r"('pp_size': )\d", "4", "8")),
    ("layout.dp", choose(r"('dp_size': )\d", "2", "4")),
    ("limits.max_running", choose(r"(max_running_requests=)2048", "64", "48", "4096")),
    ("limits.chunk_tokens", choose(r"(chunked_prefill_size=)4096", "2048", "-1", "8192")),
    ("limits.max_model_len", choose(r"(context_len=)8192", "4096", "131072")),
    ("limits.memory_share", choose(r"('mem_fraction_static': )0\.3", "0.8", "0.88")),
    ("attention.backend", choose(r"('attention_backend': )'torch_native'", "'triton'", "'fa3'")),
    ("overlap.enabled", choose(r"('disable_overlap_schedule': )True", "False")),
    ("graphs.prefill.mode", choose(r"('prefill': \{'backend': )'disabled'", "'breakable'", "'full'")),
    ("graphs.decode.mode", lambda log, _: log + "\n[2026-11-29 17:24:09 TP0] Capture target decode CUDA graph end. "
     "bs=[1, 2], elapsed=1.00 s, mem usage=0.10 GB, avail mem=4.40 GB."),
]


def test_a_hundred_changed_logs_are_all_caught() -> None:
    draw = random.Random(20261129)
    for _ in range(100):
        run = draw.choice(sorted(HEALTHY))
        fact, change = draw.choice(MUTATIONS)
        log = text(run)
        changed = change(log, draw)
        assert changed != log
        broken = [name for name, claim in claims(plan(run), changed).items() if claim.holds is False]
        assert broken == [fact], (run, fact, broken)


def test_a_rank_that_never_came() -> None:
    """tp 2 was resolved and only the first rank speaks: not proven."""
    lines = [line for line in text("smollm2h12-tp2").splitlines() if " TP1]" not in line]
    said = [one for one in ENGINE.witness.read_log(lines) if one.fact == "layout.tp"]
    assert {one.level for one in said} == {"resolved"}
