"""benchmarks/accuracy.py: how rows are read, what is refused, and that no row ends it."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import ledger
from rooftop.errors import BadInput

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def benchmarks() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


ROW = {"source_url": "https://example.org/page", "hardware": "H100 SXM", "gpus": "1", "model": "Qwen/Qwen3-8B",
       "quant": "bf16", "engine": "vLLM", "engine_version": "0.20.0", "tp": "1", "input_len": "1000",
       "output_len": "200", "concurrency": "4", "metric": "tpot_ms_mean", "value": "8"}


def ran(tmp_path: Path, rows: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    file = tmp_path / "rows.csv"
    with file.open("w", newline="", encoding="utf-8") as place:
        writer = csv.DictWriter(place, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(sys, "argv", ["accuracy.py", str(file), str(tmp_path), *flags])
    import_module("accuracy").main()
    return capsys.readouterr().out


def test_rows_are_answered_or_refused_by_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    odd = [{"hardware": "Abacus"}, {"quant": "wat"}, {"engine": ""}, {"model": "no/such"}, {"value": "nan"},
           {"concurrency": ""}, {"model": "Qwen/Qwen3-235B-A22B"}, {"tp": ""},
           {"tp": "7", "gpus": "8"}, {"input_len": "1e15"},
           {"metric": "startup_s"}]
    said = ran(tmp_path, [ROW, *({**ROW, **one} for one in odd), {**ROW, "tp": "", "gpus": "2"}], monkeypatch, capsys)
    assert "12 rows, 2 answered, 10 refused" in said
    for reason in ("GPU Abacus", "number format 'wat'", "engine not stated", "no configuration of the model",
                   "no value", "concurrency not stated", "layout not stated", "layout of 7 ranks on 8 GPUs",
                   "beyond any server", "weights are more"):
        assert reason in said
    assert "up to 8 users  TPOT" in said


def test_a_row_faster_than_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 rows are faster than" in ran(tmp_path, [{**ROW, "value": "0.5"}], monkeypatch, capsys)
    assert "faster than" not in ran(tmp_path, [ROW], monkeypatch, capsys)


def test_the_first_rows_of_a_machine_set_its_factor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**ROW, "value": "20"} for _ in range(3)]
    said = ran(tmp_path, rows, monkeypatch, capsys, "--fit-per-machine", "1")
    line = next(line for line in said.splitlines() if line.startswith("up to 8 users"))
    assert line.split()[5:7] == ["2", "0.0%"]


@pytest.mark.parametrize(("said", "name"), [
    ("FP8", "fp8 128x128"), ("w8a8-fp8", "fp8 128x128"), ("W8A8", "int8"), ("AWQ 4bit", "int4 g128"),
    ("GPTQ-Int8", "int8"), ("NVFP4A16", "nvfp4"), ("Q4_K_M", "int4 g32"), ("IQ4_XS", "int4 g32"), ("float16", "bf16"),
    ("fp8 + mxfp4 experts", "mxfp4"), ("int4 experts (native)", None), ("", None)])
def test_number_formats(said: str, name: str | None) -> None:
    found = import_module("measured").wanted(said)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(("one", "other"), [
    ("Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3-30B-A3B"), ("Meta-Llama-3.1-8B", "Llama-3.1-8B-Instruct-quantized.w8a8"),
    ("nvidia-Kimi-K2.5-NVFP4", "Kimi-K2.5"), ("DeepSeek-R1-0528", "DeepSeek-R1")])
def test_names_of_one_shape(one: str, other: str) -> None:
    words = import_module("measured").words
    assert words(one) == words(other)


def test_a_family_that_is_not_known_is_read_as_the_nearest(tmp_path: Path) -> None:
    like = import_module("likeness").like
    file = tmp_path / "config.json"
    common = ('"model_type": "new", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, '
              '"num_key_value_heads": 2, "vocab_size": 1000, "intermediate_size": 4096')
    file.write_text(f"{{{common}}}", encoding="utf-8")
    assert like(file).experts is None
    file.write_text(f'{{{common}, "num_local_experts": 16, "moe_topk": [2, 2], "num_shared_expert": 1}}',
                    encoding="utf-8")
    experts = like(file).experts
    assert experts is not None
    assert (experts.count, experts.active, experts.width, experts.shared) == (16, 2, 4096, 1)
    file.write_text(f'{{{common}, "ssm_state_size": 128}}', encoding="utf-8")
    with pytest.raises(BadInput, match="layers of a kind"):
        like(file)


@given(st.dictionaries(st.sampled_from(sorted({*ROW, "other_flags", "notes", "interconnect", "cuda_graphs"})),
                       st.text(max_size=12) | st.sampled_from(["8", "0", "-1", "1e30", "inf", "H100", "vLLM"])))
def test_no_row_ends_the_benchmark(changes: dict[str, str]) -> None:
    measured = import_module("measured")
    fields = dict.fromkeys(measured.COLUMNS, "") | ROW | changes
    try:
        row = measured.read_row(fields, "TPOT", shapes())
    except measured.Refused:
        return
    refused: Counter[str] = Counter()
    assert len(import_module("scoring").score([row], ledger.known(), refused=refused)) + refused.total() == 1


@cache
def shapes() -> Any:
    return import_module("measured").Shapes(FOLDER)
