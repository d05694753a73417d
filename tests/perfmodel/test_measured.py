"""Predicted memory against what engines printed: tests/cases/memory."""

import statistics
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.fit import Fit
from rooftop.domain.layout import Layout
from rooftop.perfmodel.fitting import fit
from rooftop.perfmodel.memory import GIB
from tests.perfmodel.bench import machine, model, older, plan

RUNS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent.parent / "cases" / "memory" / "measured.toml").read_text(encoding="utf-8"))
# An encoder that is not counted; a vLLM that kept 2.5 times the activations.
EXPLAINED = {"llama-4-scout-tp4", "qwen3-235b-fp8-vllm-2025"}


def predicted(name: str) -> Fit:
    run = RUNS[name]
    layout = Layout(run.get("tp", 1), run.get("pp", 1))
    architecture = model(run["config"], run.get("fp8", False))
    asked = plan(architecture, run["engine"], layout, machine(run["gpu"], layout.ranks), **run.get("settings", {}))
    return fit(older(asked), architecture, 1024, 1024)


def errors(field: str) -> dict[str, float]:
    """Relative errors of all runs that measured `field`, on the stage that was measured (the first, but for tokens)."""
    found = {}
    for name, run in RUNS.items():
        if field in run:
            fitted = predicted(name)
            first = fitted.stages[0]
            value = {"kv_tokens": float(fitted.kv_tokens), "kv_gib": first.pool_bytes / GIB,
                     "weights_gib": first.bytes_of("weights") / GIB,
                     "activations_gib": first.bytes_of("activations") / GIB}[field]
            found[name] = value / run[field] - 1
    return found


def test_kv_cache() -> None:
    found = errors("kv_gib") | errors("kv_tokens")
    assert len(found) >= 12
    assert statistics.median(abs(error) for error in found.values()) < 0.01
    assert {name for name, error in found.items() if abs(error) > 0.03} == EXPLAINED


def test_weights_and_activations() -> None:
    assert max(abs(error) for error in errors("weights_gib").values()) < 0.012
    found = errors("activations_gib")
    assert statistics.median(abs(error) for error in found.values()) < 0.02
    assert max(abs(error) for error in found.values()) < 0.2


def test_the_printed_figure_lies_within_the_interval() -> None:
    for name, run in RUNS.items():
        if "kv_tokens" in run and not run.get("old"):
            fitted = predicted(name)
            assert fitted.kv_tokens_low is not None
            assert fitted.kv_tokens_high is not None
            assert fitted.kv_tokens_low <= run["kv_tokens"] <= fitted.kv_tokens_high, name


@pytest.mark.parametrize("name", sorted(EXPLAINED))
def test_what_is_missed_is_missed_on_the_side_that_its_cause_explains(name: str) -> None:
    assert errors("kv_gib")[name] > 0
