"""vLLM's recorded runs and public excerpts: every fact and every cause."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rooftop.domain.vocabulary import same, strongest
from rooftop.engines.vllm import ENGINE

CASES = Path(__file__).parent.parent / "cases"
RUNS = sorted(path for path in (CASES / "engine-logs").glob("vllm-*") if path.is_dir())
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "evidence.py"


def lines(run: Path) -> list[str]:
    return (run / "server.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_recorded_run(run: Path) -> None:
    expected = json.loads((run / "facts.json").read_text())
    found = strongest(ENGINE.witness.read_log(lines(run)))
    assert {fact: said.level for fact, said in found.items()} == {
        fact: wanted["level"] for fact, wanted in expected["facts"].items()}
    for fact, wanted in expected["facts"].items():
        assert same(fact, found[fact].value, wanted["value"]), (fact, found[fact])
    fault = ENGINE.witness.fault(lines(run), None)
    assert (fault.kind if fault else None) == expected["error"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_each_proof_is_its_line(run: Path) -> None:
    text = lines(run)
    for said in ENGINE.witness.read_log(text):
        assert said.text in text[said.line - 1]
        assert said.source == "log"


def test_no_fault_without_a_log() -> None:
    assert ENGINE.witness.fault((), None) is None
    assert ENGINE.witness.read_log(()) == ()


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_benchmark", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_public_excerpts(benchmark: ModuleType) -> None:
    (score,) = benchmark.score(CASES / "public-logs" / "vllm" / "index.csv")
    assert score.engine == "vllm"
    assert score.logs == 20
    assert score.clean, score.misses
    assert score.right == 83
    assert score.extra == 0, score.misses


def test_the_score_sees_errors(benchmark: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("INFO 01-01 10:00:00 [x.py:1] GPU KV cache size: 100 tokens\n"
                                    "INFO 01-01 10:00:00 [x.py:1] Using max model len 7\n")
    facts = {"kv.tokens": {"value": 99, "level": "built"}, "limits.max_model_len": {"value": 7, "level": "resolved"},
             "layout.tp": {"value": 2, "level": "resolved"}}
    quoted = json.dumps(facts).replace('"', '""')
    (tmp_path / "index.csv").write_text("file,engine,facts_expected,unproven,error_kind,error_also\n"
                                        f'a.log,vllm,"{quoted}","[""kv.tokens""]",oom_kv,[]\n')
    (score,) = benchmark.score(tmp_path / "index.csv")
    assert (score.right, score.wrong, score.missed, score.false) == (1, 1, 1, 1)
    assert score.causes_right == 0
    assert not score.clean
    assert score.share == pytest.approx(1 / 3)
