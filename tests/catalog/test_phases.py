"""The table of start-up phases: every phase of every engine has a row, every number a source."""

import re
from pathlib import Path

import pytest

from rooftop import registry
from rooftop.catalog.phases import known, read
from rooftop.errors import BadInput

ROW = """[[phase]]
kind = "start"
names = ["start process"]
usual_s = 1
silence_s = 2
longest_s = 3
causes = ["c"]
source = "s"
"""
LINES = {
    "llamacpp": ["srv    load_model: loading model 'x'", "warming up the model with an empty run",
                 "llama_context: constructing llama_context"],
    "vllm": ["INFO 01-01 15:00:36 [utils.py:319] non-default args: {'model': 'm'}",
             "INFO 01-01 15:00:36 [backends.py:1128] Dynamo bytecode transform time: 14.14 s",
             "INFO 01-01 15:00:36 [x.py:1] Loading model from scratch..."],
    "sglang": ["[2026-01-01 19:59:09 TP1] Load weight begin. avail mem=1 GB",
               "[2026-01-01 19:59:09 TP1] Capture cuda graph begin. This can take up to several minutes."],
}


@pytest.mark.parametrize("name", sorted(LINES))
def test_phases_of_the_engines_have_rows(name: str) -> None:
    engine = registry.load("engines", name)
    for line in LINES[name]:
        assert engine.phase(line) in known(), line  # type: ignore[attr-defined]


def test_each_row_has_causes_and_a_source_with_a_number() -> None:
    for row in set(known().values()):
        assert all(row.causes)
        assert re.search(r"\d", row.source)
        assert row.usual_s <= row.silence_s < row.longest_s or row.silence_s == row.longest_s


@pytest.mark.parametrize(("change", "words"), [
    (("usual_s = 1", "usual_s = 9"), "must be above 0"),
    (("silence_s = 2", "silence_s = 0"), "must be above 0"),
    (('source = "s"', 'source = " "'), "source must not be empty"),
    (('names = ["start process"]', 'names = ["other"]'), "no row names"),
])
def test_rows_that_cannot_be(change: tuple[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(ROW.replace(*change))


def test_a_name_in_two_rows() -> None:
    with pytest.raises(BadInput, match="named by"):
        read(ROW + ROW)


def test_the_page_shows_each_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "study.md").read_text(encoding="utf-8")
    shown = {line.split("|")[1].partition("(")[0].strip(): line for line in page.splitlines() if line.startswith("|")}
    for row in set(known().values()):
        usual, silent = (f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
                         for seconds in (row.usual_s, row.silence_s))
        assert f"| {usual}" in shown[row.kind]
        assert f"| {silent} |" in shown[row.kind]
