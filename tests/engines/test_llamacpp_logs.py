"""llama.cpp's recorded runs and public excerpts: every fact and every cause."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.vocabulary import ERRORS, same, strongest
from rooftop.engines.llamacpp import ENGINE

CASES = Path(__file__).parent.parent / "cases"
RUNS = sorted(path for path in (CASES / "engine-logs").glob("llamacpp-*") if path.is_dir())
PUBLIC = CASES / "public-logs" / "llamacpp"
with (PUBLIC / "index.csv").open(encoding="utf-8", newline="") as _index:
    EXCERPTS = list(csv.DictReader(_index))


def lines(run: Path) -> list[str]:
    return (run / "server.log").read_text(encoding="utf-8").splitlines()


def check_facts(text: list[str], wanted: dict[str, Any]) -> None:
    found = strongest(ENGINE.witness.read_log(text))
    assert {fact: said.level for fact, said in found.items()} == {fact: one["level"] for fact, one in wanted.items()}
    for fact, one in wanted.items():
        assert same(fact, found[fact].value, one["value"]), (fact, found[fact])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_recorded_run(run: Path) -> None:
    expected = json.loads((run / "facts.json").read_text())
    check_facts(lines(run), expected["facts"])
    fault = ENGINE.witness.fault(lines(run), 1 if expected["error"] else None)
    assert (fault.kind if fault else None) == expected["error"]
    if fault:
        assert fault.reason in lines(run)[fault.line - 1]
        assert fault.remedy


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_each_proof_is_its_line(run: Path) -> None:
    text = lines(run)
    for said in ENGINE.witness.read_log(text):
        assert said.text in text[said.line - 1]
        assert said.source == "log"


@pytest.mark.parametrize("row", EXCERPTS, ids=lambda row: row["file"])
def test_public_excerpt(row: dict[str, str]) -> None:
    text = (PUBLIC / row["file"]).read_text(encoding="utf-8").splitlines()
    check_facts(text, json.loads(row["facts_expected"]))
    proven = {said.fact for said in ENGINE.witness.read_log(text) if said.level in ("built", "used")}
    assert proven.isdisjoint(json.loads(row["unproven"]))
    fault = ENGINE.witness.fault(text, None)
    wanted = row["error_kind"]
    assert (fault.kind if fault else "") == wanted


@pytest.mark.parametrize(("path", "wanted"), [
    ("props.json", {"limits.max_running": 8, "limits.max_model_len": 1024, "quant.method": "q4_1"}),
    ("slots.json", {"limits.max_running": 8, "live.running": 0, "spec.enabled": False}),
    ("metrics.txt", {"live.running": 0, "live.queued": 0, "prefix_cache.enabled": True,
                     "prefix_cache.hit_rate": 591 / (591 + 163)}),
])
def test_pages(path: str, wanted: dict[str, Any]) -> None:
    text = (CASES / "engine-logs" / "llamacpp-b10434-np8" / path).read_text(encoding="utf-8")
    said = ENGINE.witness.read_info("/" + path.partition(".")[0], text)
    assert {one.fact: one.value for one in said} == pytest.approx(wanted)


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", "null", "3", '{"default_generation_settings": 4}'])
@pytest.mark.parametrize("path", ["/props", "/slots", "/metrics", "/v1/models"])
def test_a_strange_page_says_nothing(path: str, text: str) -> None:
    assert ENGINE.witness.read_info(path, text) == ()


def test_metrics() -> None:
    text = (CASES / "engine-logs" / "llamacpp-b10434-np8" / "metrics.txt").read_text(encoding="utf-8")
    read = {reading.series: (reading.value, reading.counter) for reading in ENGINE.witness.read_metrics(text)}
    assert read["running"] == (0, False)
    assert read["output_tokens"] == (1696, True)
    assert read["prompt_tokens"] == (163, True)
    assert read["cached_tokens"] == (591, True)
    assert read["busy_slots"] == (pytest.approx(4.06715), False)


READY = "0.00.5.1 I srv  llama_server: listening on http://127.0.0.1:8971"


@pytest.mark.parametrize(("log", "code", "kind"), [
    ([], None, None),
    ([], 0, None),
    ([READY], None, None),
    ([READY], -11, "segfault_first_token"),
    ([], -11, "unknown"),
    ([READY], -9, "unknown"),
    ([], 3, "unknown"),
    (["rooftop: cannot start /opt/nothing: [Errno 2] No such file or directory"], 127, "unknown"),
    (["error: invalid argument: --parallels"], 1, "unknown_flag"),
    (["llama_model_load: error loading model: unknown model architecture: 'x'"], 1, "model_config_invalid"),
    (["ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 5",
      "graph_reserve: failed to allocate compute buffers"], 1, "oom_compute"),
    (["alloc_tensor_range: failed to allocate CUDA0 buffer of size 9", "x: failed to load model"], 1, "oom_weights"),
    (["ggml_cuda_compute_forward: no kernel image is available for execution on the device"], 1,
     "kernel_missing_for_gpu"),
])
def test_causes(log: list[str], code: int | None, kind: str | None) -> None:
    fault = ENGINE.witness.fault(log, code)
    assert (fault.kind if fault else None) == kind
    if fault:
        assert fault.kind in ERRORS
        assert fault.reason
        assert fault.remedy


def test_the_last_phase_is_told() -> None:
    run = CASES / "engine-logs" / "llamacpp-xllamacpp-kv-fail"
    fault = ENGINE.witness.fault(lines(run), 1)
    assert fault is not None
    assert fault.last_phase == "build context"
    assert fault.reason == "failed to allocate buffer for kv cache"


def test_phases_in_order() -> None:
    run = CASES / "engine-logs" / "llamacpp-xllamacpp-np2"
    assert [name for line in lines(run) if (name := ENGINE.phase(line))] == [
        "open model", "fit memory", "read metadata", "load weights", "build context", "warm up", "open slots"]


RUN = ["ggml_cuda_init: found {} CUDA devices:",
       "print_timings: prompt eval time = 1 ms / 5 tokens ( 1 ms per token, 9 tokens per second)",
       "print_timings:        eval time = 1 ms / 5 runs ( 1 ms per token, {} tokens per second)"]


@pytest.mark.parametrize(("runs", "poor"), [
    ([(1, 50.0), (2, 20.0)], True), ([(2, 20.0), (1, 50.0)], True), ([(1, 50.0), (2, 49.0)], False),
    ([(1, 50.0), (2, 80.0)], False), ([(2, 20.0)], False), ([(1, 50.0), (2, 90.0), (3, 60.0)], True),
])
def test_more_gpus_that_are_slower(runs: list[tuple[int, float]], poor: bool) -> None:
    lines = [line for gpus, rate in runs for line in (RUN[0].format(gpus), RUN[1], RUN[2].format(rate))]
    fault = ENGINE.witness.fault(lines, None)
    assert (fault is not None and fault.kind == "layout_poor") is poor
