"""Settings worth trying: each told where it applies, with the gain that the model itself gives."""

from collections.abc import Mapping

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.finding import Finding
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.perfmodel.gains import gains
from tests.perfmodel import bench

LLAMA, KIMI = "Meta-Llama-3.1-8B", "Kimi-K2.5"
SERVER = "8x RTX PRO 6000 Blackwell Server"


def found(name: str, engine: str, on: str, layout: Layout, users: int, context: float = 500,
          flags: Mapping[str, SettingValue] | None = None) -> dict[str, Finding]:
    settings = tuple(Setting(key, value) for key, value in (flags or {}).items())
    plan = Plan(Model(name), engine, layout, settings, machine=machine(on))
    return {one.remedy.split(" (")[0]: one for one in gains(plan, bench.model(name), ledger.known(), users, context)}


def test_a_batch_above_the_largest_graph() -> None:
    told = found("Qwen3-0.6B", "sglang", "1x RTX 4090", Layout(), 100, 20)
    assert "largest captured batch is 48" in told["--cuda-graph-max-bs-decode 100"].claim
    assert not any("graph" in remedy for remedy in found("Qwen3-0.6B", "sglang", "1x RTX 4090", Layout(), 40, 20))


def test_a_gpu_that_is_slower_than_the_host_gains_nothing_from_graphs() -> None:
    assert not any("graph" in remedy for remedy in found(LLAMA, "sglang", "1x RTX 4090", Layout(), 100, 20))


def test_a_batch_between_two_graphs() -> None:
    flags = {"cudagraph-capture-sizes": "1 256"}
    told = found(LLAMA, "vllm", "1x H100 SXM", Layout(), 20, 4000, flags)
    assert "run as 256" in told["add 20 to --cudagraph-capture-sizes"].claim
    assert not any("capture" in remedy for remedy in found(LLAMA, "vllm", "1x H100 SXM", Layout(), 24, 4000))


def test_graphs_off() -> None:
    told = found(LLAMA, "vllm", "1x H100 SXM", Layout(), 4, flags={"enforce-eager": True})
    assert "+" in told["leave out --enforce-eager"].gain


def test_the_cap_of_a_pipeline() -> None:
    told = found(KIMI, "sglang", SERVER, Layout(1, 8), 64)
    cap = told["--pp-max-micro-batch-size 8"]
    assert cap.gain.startswith("+0% for one user, +")
    assert not any("micro-batch" in remedy for layout, users, flags in (
        (Layout(8), 64, {}), (Layout(1, 8), 8, {}), (Layout(1, 8), 64, {"pp-max-micro-batch-size": 8}))
        for remedy in found(KIMI, "sglang", SERVER, layout, users, flags=flags))
    deep = found(KIMI, "sglang", SERVER, Layout(1, 8), 64, flags={"pp-async-batch-depth": 8})
    assert "--pp-max-micro-batch-size 4" in deep


def test_gains_are_told_largest_first_and_never_small() -> None:
    told = list(found(KIMI, "sglang", SERVER, Layout(8), 32, 4000, {"disable-cuda-graph": True}).values())
    assert "disable-cuda-graph" in told[0].remedy
    assert all("%" in one.gain and one.evidence for one in told)
