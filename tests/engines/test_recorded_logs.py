"""Recorded runs and public excerpts of every engine: every fact and every cause."""

import json
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from rooftop import registry
from rooftop.domain.engine import Engine
from rooftop.domain.vocabulary import same, strongest

CASES = Path(__file__).parent.parent / "cases"
RUNS = sorted(path for engine in ("sglang", "vllm") for path in (CASES / "engine-logs").glob(f"{engine}-*")
              if path.is_dir())
LEAST_RUNS = {"sglang": 4, "vllm": 20}
EXCERPTS = {"sglang": (15, 66), "vllm": (20, 83)}


def engine_of(run: Path) -> Engine:
    return cast(Engine, registry.load("engines", run.name.partition("-")[0]))


def lines(run: Path) -> list[str]:
    return (run / "server.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("engine", "least"), LEAST_RUNS.items())
def test_there_are_runs(engine: str, least: int) -> None:
    assert sum(run.name.startswith(engine) for run in RUNS) >= least


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_recorded_run(run: Path) -> None:
    witness, expected = engine_of(run).witness, json.loads((run / "facts.json").read_text())
    found = strongest(witness.read_log(lines(run)))
    assert {fact: said.level for fact, said in found.items()} == {
        fact: wanted["level"] for fact, wanted in expected["facts"].items()}
    for fact, wanted in expected["facts"].items():
        assert same(fact, found[fact].value, wanted["value"]), (fact, found[fact])
    exit_codes = () if "last_phase" not in expected else (1,) if expected["error"] else (0,)
    for exit_code in (None, *exit_codes):
        fault = witness.fault(lines(run), exit_code)
        assert (fault.kind if fault else None) == expected["error"]
        if "last_phase" in expected:
            assert (fault.last_phase if fault else None) == expected["last_phase"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_each_proof_is_its_line(run: Path) -> None:
    text = lines(run)
    for said in engine_of(run).witness.read_log(text):
        assert said.text in text[said.line - 1]
        assert said.source == "log"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_cut_log_says_no_more_than_the_whole(run: Path) -> None:
    """What a log has not reached is absent; what it has begun and not ended is not built."""
    witness, text = engine_of(run).witness, lines(run)
    whole = {(said.fact, said.level) for said in witness.read_log(text)}
    for share in (0.1, 0.3, 0.5, 0.8):
        part = text[:int(len(text) * share)]
        assert {(said.fact, said.level) for said in witness.read_log(part)} <= whole


@pytest.mark.parametrize("engine", EXCERPTS)
def test_no_fault_without_a_log(engine: str) -> None:
    witness = cast(Engine, registry.load("engines", engine)).witness
    assert witness.fault((), None) is None
    assert witness.read_log(()) == ()


@pytest.mark.parametrize(("engine", "counts"), EXCERPTS.items())
def test_public_excerpts(benchmark: ModuleType, engine: str, counts: tuple[int, int]) -> None:
    (score,) = benchmark.score(CASES / "public-logs" / engine / "index.csv")
    assert score.engine == engine
    assert score.clean, score.misses
    assert (score.logs, score.right) == counts
    assert score.extra == 0, score.misses
