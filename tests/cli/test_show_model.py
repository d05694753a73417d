import json

import pytest

from rooftop.cli.show_model import count, show_model
from rooftop.workflows.look import look_at_model
from tests.models.published import CASES, NAMES, REFUSED


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


def shown(name: str, capsys: pytest.CaptureFixture[str], as_json: bool = False) -> str:
    show_model(look_at_model(str(CASES / name)), as_json)
    return capsys.readouterr().out


def test_what_is_shown_of_kimi(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown("Kimi-K2.6", capsys)
    assert "Kimi-K2.6: deepseek_v3, 61 layers, hidden 7168, vocabulary 163840, context 262144" in out
    assert "1.03 T in all, 31.7 B active a token (32.9 B with the embedding table)" in out
    assert "553 GiB (594.2 GB)" in out
    assert "8 of 384, 2048 wide, 1 shared 2048 wide, in 60 of 61 layers" in out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["experts"][1:] != []
    assert any("int4 g32" in line and "1.01 T" in line and "96 %" in line for line in out.splitlines())
    assert lines["MLA"] == ["MLA", "61", "64", "1", "512", "+", "64", "latent", "68.6", "KiB"]
    assert lines["262144"][1:5] == ["17.2", "GiB", "8.58", "GiB"]
    assert "note: only the text part is counted" in out


@pytest.mark.parametrize(("name", "said"), [
    ("SmolLM2-135M", "tied: the LM head is the same matrix"),
    ("DeepSeek-V3", "11.6 B more"),
    ("gpt-oss-20b", "for the last 128"),
    ("Qwen3.5-27B", "none; 147 MiB a sequence"),
    ("DeepSeek-V4-Pro", "hyper-connections"),
])
def test_what_is_special(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in shown(name, capsys)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_every_model_can_be_shown_in_both_forms(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name in shown(name, capsys)
    table = json.loads(shown(name, capsys, as_json=True))
    assert table["schema"] == 1
    assert sum(row["parameters"] for row in table["by_part"]) == table["parameters"] > 0
    assert len(table["attention_names"]) == len(table["attention"])
    assert table["flops_per_token"] > table["active"] > 0


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (999, "999"), (134_515_008, "135 M"), (8_030_261_248, "8.03 B"),
                                              (999_600_000, "1.00 B"), (1.026e12, "1.03 T")])
def test_counts(number: float, text: str) -> None:
    assert count(number) == text
