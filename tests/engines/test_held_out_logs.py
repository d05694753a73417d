"""Logs written down before the readers saw them: every fact, every trap, every cause; and their wrappings."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop import registry
from rooftop.domain.engine import Engine
from rooftop.engines._wrapping import unwrap, unwrap_line

HERE = Path(__file__).parent
INDEX = HERE.parent / "cases" / "public-logs" / "held-out" / "index.csv"
LEAST = {"llamacpp": (180, 47), "sglang": (348, 70), "vllm": (487, 125)}
WORDINGS = [json.loads(line) for line in (INDEX.parent / "wordings.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_fact_and_cause(benchmark: ModuleType) -> None:
    scores = benchmark.score(INDEX)
    assert {score.engine for score in scores} == set(LEAST)
    for score in scores:
        assert score.clean, score.misses
        facts, logs = LEAST[score.engine]
        assert score.right >= facts
        assert score.logs >= logs


@pytest.mark.parametrize("row", WORDINGS, ids=lambda row: f"{row['engine']}-{row['kinds'][0]}-{row['text'][-30:]!r}")
def test_a_wording_means_its_kind(row: dict[str, Any]) -> None:
    fault = cast(Engine, registry.load("engines", row["engine"])).witness.fault(row["text"].splitlines(), None)
    assert (fault.kind if fault else "") in row["kinds"], fault


PLAIN = {
    "sglang": "[2026-01-01 10:00:01 TP1] Memory pool end. avail mem=12.00 GB",
    "vllm": "(Worker_TP1 pid=9) INFO 01-01 10:00:01 [worker.py:7] Available KV cache memory: 12.0 GiB",
    "llamacpp": "load_tensors:        CUDA1 model buffer size =  4096.00 MiB",
}
WRAPPINGS = {
    "compose": "server-1  | {}", "kubectl": "[pod/a-0/engine] {}",
    "containerd": "2026-01-01T10:00:01.123456789Z stderr F {}",
    "journald": "Jan 01 10:00:01 host engine[42]: {}", "iso syslog": "2026-01-01T10:00:01+00:00 host engine[42]: {}",
    "quoted": "> {}", "srun": "3: {}", "mpirun": "[1,3]<stderr>:{}", "actions": "2026-01-01T10:00:01.1234567Z {}",
    "tmux": "{}            │", "boxed": "│ {}      │",
    "coloured": "\x1b[1;36m{}\x1b[0m", "colours as text": "ESC[36m{}ESC[0m",
    "compose of kubectl": "log-1 | [pod/a-0/engine] {}",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_wrapping_changes_no_fact(name: str, wrapping: str) -> None:
    engine = cast(Engine, registry.load("engines", name))
    plain = engine.witness.read_log([PLAIN[name]])
    wrapped = engine.witness.read_log([WRAPPINGS[wrapping].format(PLAIN[name])])
    assert plain
    assert [(said.fact, said.value, said.level) for said in wrapped] == [
        (said.fact, said.value, said.level) for said in plain]


@pytest.mark.parametrize("key", ["log", "message", "msg"])
@pytest.mark.parametrize("name", PLAIN)
def test_an_object_of_a_log_shipper_is_its_message(name: str, key: str) -> None:
    engine = cast(Engine, registry.load("engines", name))
    plain, line = engine.witness.read_log([PLAIN[name]]), json.dumps({"time": "now", key: PLAIN[name] + "\n"})
    wrapped = engine.witness.read_log([line])
    assert [(said.fact, said.value) for said in wrapped] == [(said.fact, said.value) for said in plain]
    assert all(said.text in line for said in wrapped)


def test_a_prompt_inside_a_request_log_is_no_message() -> None:
    line = json.dumps({"event": "request.received", "text": PLAIN["sglang"]})
    assert unwrap_line(line) == line


def test_a_terminal_that_cuts_lines_is_joined() -> None:
    message = "ERROR 01-01 10:00:00 [core.py:1] ValueError: the models's max seq len (262144) is larger than what fits"
    cut = [message[:60], message[60:], "INFO 01-01 10:00:01 [core.py:1] next, as long as the one that was cut"[:60]]
    assert [inner for _, _, inner in unwrap(cut)] == [message, cut[2]]


def test_lines_of_one_width_that_are_whole_stay_apart() -> None:
    lines = ["llama_print_timings:        load time =     618.92 ms / 1 tokens", "llama_perf: eval time = 1 ms",
             "llama_print_timings:        load time =     618.93 ms / 1 tokens", "  File \"x.py\", line 1, in f"]
    assert [inner for _, _, inner in unwrap(lines)] == lines


@pytest.mark.parametrize(("name", "command", "fact", "value"), [
    ("sglang", "python -m sglang.launch_server \\\n  --model-path m \\\n  --tp 4", "layout.tp", 4),
    ("vllm", "vllm serve m \\\n  --max-num-seqs 8 \\\n  --tensor-parallel-size 4", "layout.tp", 4),
    ("llamacpp", "./llama-server -m m \\\n  -np 8 \\\n  --split-mode row", "layout.split_mode", "row"),
])
def test_a_command_over_several_lines(name: str, command: str, fact: str, value: object) -> None:
    witness = cast(Engine, registry.load("engines", name)).witness
    said = {one.fact: one for one in witness.read_log(command.splitlines())}
    assert said[fact].value == value
    assert {one.level for one in said.values()} == {"asked"}
    commented = ["# " + line for line in command.splitlines()]
    assert witness.read_log(commented) == ()


def test_a_dump_that_was_cut_goes_on() -> None:
    dump = "[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m', " + "a_field_of_no_use=None, " * 20
    lines = [dump + "chunked_prefill_size", "=8192, tp_size=2, pp_size=1, ep_size=1)", "[2026-01-01 10:00:01] next"]
    assert [inner for _, _, inner in unwrap(lines)] == ["".join(lines[:2]), lines[2]]
    engine = cast(Engine, registry.load("engines", "sglang"))
    said = {one.fact: one.value for one in engine.witness.read_log(lines)}
    assert said["limits.chunk_tokens"] == 8192
    assert said["layout.tp"] == 2


@given(st.lists(st.text(max_size=90), max_size=12))
def test_no_line_is_lost_or_counted_twice(lines: list[str]) -> None:
    numbers = [number for number, _, _ in unwrap(lines)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) <= len(lines)
    assert not lines or numbers[0] == 1
