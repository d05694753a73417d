"""A healthy log with one fact changed breaks exactly that claim."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rooftop.domain.launch import Claim
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.engines.vllm import ENGINE
from rooftop.workflows.verify import check

RUNS = Path(__file__).parent.parent / "cases" / "engine-logs"
EAGER, GRAPHED = Setting("enforce-eager", True), Setting("cc.cudagraph_mode", "NONE")
COMMON = (Setting("max-model-len", 2048), Setting("max-num-seqs", 16), Setting("disable-custom-all-reduce", True))
HEALTHY: dict[str, tuple[Layout, bool, bool]] = {
    "smollm2-tp1": (Layout(), True, True), "smollm2-tp1-auto": (Layout(), True, True),
    "smollm2-tp1-bind1core": (Layout(), True, True), "smollm2-dp2": (Layout(dp=2), True, True),
    "smollm2-pp2": (Layout(pp=2), False, True), "smollm2h12-tp2": (Layout(tp=2), True, True),
    "smollm2h12-tp2-pp2": (Layout(tp=2, pp=2), False, True), "qwen3moe-tp1": (Layout(), True, True),
    "qwen3moe-tp2": (Layout(tp=2), True, True), "qwen3moe-pp2": (Layout(pp=2), False, True),
    "qwen3moe-tp2-ep-shim": (Layout(tp=2, ep=2), True, True), "dsv3-tp1": (Layout(), True, False),
    "dsv3-tp2": (Layout(tp=2), True, False), "dsv3-tp2-ep-shim": (Layout(tp=2, ep=2), True, False),
}


def plan(run: str) -> Plan:
    layout, eager, prefix = HEALTHY[run]
    settings = (*COMMON, Setting("enable-prefix-caching", prefix), EAGER if eager else GRAPHED)
    chunk = re.search(r"max_num_batched_tokens=(\d+)", text(run))
    if chunk:
        settings = (*settings, Setting("max-num-batched-tokens", int(chunk[1])))
    return Plan(Model("m", "/models/m"), "vllm", layout, settings)


def text(run: str) -> str:
    return (RUNS / f"vllm-{run}" / "server.log").read_text(encoding="utf-8")


def claims(asked: Plan, log: str) -> dict[str, Claim]:
    return {claim.fact: claim for claim in check(ENGINE.asks(asked), ENGINE.witness.read_log(log.splitlines()))}


@pytest.mark.parametrize("run", HEALTHY)
def test_healthy_run_keeps_every_claim_it_speaks_of(run: str) -> None:
    found = claims(plan(run), text(run))
    assert [fact for fact, claim in found.items() if claim.holds is False] == []
    unknown = {fact for fact, claim in found.items() if claim.holds is None}
    assert unknown == {"limits.max_running"}, "the configuration line does not carry max_num_seqs"
    assert all(claim.proof for claim in found.values() if claim.holds)


def replace(pattern: str, put: str) -> Callable[[str, random.Random], str]:
    return lambda log, _: re.sub(pattern, put, log)


def grow(axis: str, key: str) -> Callable[[str, random.Random], str]:
    """A layout of one more on an axis, in the configuration and in all that ranks say of themselves."""

    def change(log: str, draw: random.Random) -> str:
        size = int(re.search(rf"{key}=(\d+)", log)[1])  # type: ignore[index]
        world = max(int(found) for found in re.findall(r"in world size (\d+)", log))
        more = size * draw.choice((2, 3, 5))
        log = re.sub(rf"(?<!\w)(['\"]?{key}['\"]?[=:] ?)\d+", rf"\g<1>{more}", log)
        log = log.replace(f"in world size {world} ", f"in world size {world * more // size} ")
        if size > 1:
            return re.sub(rf"(_{axis}){size - 1}\b(?=[_ ])", rf"\g<1>{more - 1}", log)
        last = re.search(r"\(Worker(\w*) pid=", log)[0]  # type: ignore[index]
        named = last.replace(" pid=", f"_{axis}{more - 1} pid=")
        return log + f"\n{named}9) INFO 11-29 17:10:53 [worker.py:1] ready"

    return change


# What changes, the claim that must break, and where it can be changed.
MUTATIONS: list[tuple[str, str, Callable[[str, random.Random], str]]] = [
    ("layout.tp", r"tensor_parallel_size=", grow("TP", "tensor_parallel_size")),
    ("layout.pp", r"pipeline_parallel_size=", grow("PP", "pipeline_parallel_size")),
    ("layout.ep", r"\[EP Rank", replace(r"\[EP Rank (\d)/2\]", r"[EP Rank \1/1]")),
    ("limits.max_model_len", r"max_seq_len=2048", lambda log, draw: re.sub(
        r"max_seq_len=2048", f"max_seq_len={draw.choice((1024, 4096, 32768))}", log)),
    ("limits.max_model_len", r"Maximum concurrency for 2,048", replace(r"concurrency for 2,048",
     "concurrency for 1,024")),
    ("limits.max_model_len", r"Using max model len 2048", replace(r"Using max model len 2048",
     "Using max model len 512")),
    ("limits.chunk_tokens", r"Chunked prefill is enabled", lambda log, draw: re.sub(
        r"(max_num_batched_tokens=)\d+", rf"\g<1>{draw.choice((256, 512, 16384))}", log)),
    ("prefix_cache.enabled", r"enable_prefix_caching=True", replace("enable_prefix_caching=True",
     "enable_prefix_caching=False")),
    ("prefix_cache.enabled", r"enable_prefix_caching=False", replace("enable_prefix_caching=False",
     "enable_prefix_caching=True")),
    ("allreduce.custom", r"disable_custom_all_reduce=True", lambda log, draw: log.replace(
        "disable_custom_all_reduce=True", "disable_custom_all_reduce=False")
        + f"\n(Worker pid=9) INFO 11-29 17:10:53 [car.py:1] Registering {draw.randint(1, 9999)} cuda graph addresses"),
]
GRAPHS = ("graphs.decode.mode", "graphs.prefill.mode")


def test_two_hundred_changed_logs_are_all_caught() -> None:
    draw = random.Random(20261129)
    caught = 0
    while caught < 200:
        run = draw.choice(sorted(HEALTHY))
        fact, needs, change = draw.choice(MUTATIONS)
        log = text(run)
        if not re.search(needs, log):
            continue
        changed = change(log, draw)
        assert changed != log
        broken = [name for name, claim in claims(plan(run), changed).items() if claim.holds is False]
        assert broken == [fact], (run, fact, broken)
        caught += 1


@pytest.mark.parametrize("run", HEALTHY)
def test_graphs_that_were_to_be_off(run: str) -> None:
    changed = re.sub(r"<CUDAGraphMode\.NONE: 0>", "<CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>", text(run))
    changed = changed.replace("enforce_eager=True", "enforce_eager=False")
    broken = {name for name, claim in claims(plan(run), changed).items() if claim.holds is False}
    assert broken == set(GRAPHS)


def test_a_replica_that_never_came() -> None:
    """dp 2 was asked and only the first engine speaks: unknown, and never taken for proven."""
    lines = [line for line in text("smollm2-dp2").splitlines()
             if "EngineCore_DP1" not in line and "Defaulting" not in line]
    claim = claims(plan("smollm2-dp2"), "\n".join(lines))["layout.dp"]
    assert claim.holds is not True
