"""SGLang's recorded runs and public excerpts: every fact and every cause."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rooftop.domain.vocabulary import same, strongest
from rooftop.engines.sglang import ENGINE

CASES = Path(__file__).parent.parent / "cases"
RUNS = sorted(path for path in (CASES / "engine-logs").glob("sglang-*") if path.is_dir())
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "evidence.py"


def lines(run: Path) -> list[str]:
    return (run / "server.log").read_text(encoding="utf-8").splitlines()


def test_there_are_runs() -> None:
    assert len(RUNS) == 4


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_recorded_run(run: Path) -> None:
    expected = json.loads((run / "facts.json").read_text())
    found = strongest(ENGINE.witness.read_log(lines(run)))
    assert {fact: said.level for fact, said in found.items()} == {
        fact: wanted["level"] for fact, wanted in expected["facts"].items()}
    for fact, wanted in expected["facts"].items():
        assert same(fact, found[fact].value, wanted["value"]), (fact, found[fact])
    for exit_code in (None, 1) if expected["error"] else (None, 0):
        fault = ENGINE.witness.fault(lines(run), exit_code)
        assert (fault.kind if fault else None) == expected["error"]
        assert (fault.last_phase if fault else None) == expected["last_phase"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_each_proof_is_its_line(run: Path) -> None:
    text = lines(run)
    for said in ENGINE.witness.read_log(text):
        assert said.text in text[said.line - 1]
        assert said.source == "log"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_cut_log_says_no_more_than_the_whole(run: Path) -> None:
    """What a log has not reached is absent; what it has begun and not ended is not built."""
    whole = {(said.fact, said.level) for said in ENGINE.witness.read_log(lines(run))}
    for share in (0.1, 0.3, 0.5, 0.8):
        part = lines(run)[:int(len(lines(run)) * share)]
        assert {(said.fact, said.level) for said in ENGINE.witness.read_log(part)} <= whole


def test_no_fault_without_a_log() -> None:
    assert ENGINE.witness.fault((), None) is None
    assert ENGINE.witness.read_log(()) == ()


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_benchmark_of_sglang", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_public_excerpts(benchmark: ModuleType) -> None:
    (score,) = benchmark.score(CASES / "public-logs" / "sglang" / "index.csv")
    assert score.engine == "sglang"
    assert score.logs == 15
    assert score.clean, score.misses
    assert score.right == 66
    assert score.extra == 0, score.misses
