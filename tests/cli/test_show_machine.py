"""A machine on the terminal and as JSON."""

import json
from pathlib import Path

import pytest

from rooftop.cli.show_machine import numbers, show_machine
from rooftop.domain import codec
from rooftop.domain.machine import Machine
from rooftop.workflows.look_machine import look_at_machine
from rooftop.workflows.machine_warnings import warnings

CASES = Path(__file__).parents[1] / "cases" / "machines"


def shown(machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    show_machine(machine, warnings(machine))
    return capsys.readouterr().out


def test_a_machine_shows_what_counts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(look_at_machine("8x-rtx-pro-6000-switches"), capsys, monkeypatch)
    for words in ("8x RTX PRO 6000, two sockets, PCIe switches",
                  "95.6 GiB at 1 597 GB/s", "bf16 468, fp8 936",
                  "5 x16", "PCIe switch", "63.0 GB/s", "31.5 GB/s", "0.730 us", "between sockets",
                  "warning: GPU 0-3 and GPU 4-7",
                  "note: measured with ACS off", "source of inter_socket, 47 GB/s", "aic:rtx_pro_6000_server.yaml"):
        assert words in out


def test_what_is_assumed_or_not_known_is_marked(capsys: pytest.CaptureFixture[str],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(look_at_machine("2x 2x L4"), capsys, monkeypatch)
    assert "PCIe host bridge, assumed" in out
    assert "network, assumed" in out
    assert "2, 4 GPUs in all" in out
    words = shown(Machine("box", "", 0, 0), capsys, monkeypatch).split()
    assert " ".join(words).startswith("box processor not known, not known cores memory not known")


def test_an_idle_link_is_explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(look_at_machine(str(CASES / "eight-pro-6000-switches")), capsys, monkeypatch)
    assert "idle links are lower just now" in out
    assert "0000:f3:00.0" in out
    assert "(PIX)" in out


def test_a_machine_without_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no GPU that nvidia-smi or rocm-smi lists" in shown(Machine("box", "cpu", 2, 1 << 30), capsys, monkeypatch)


def test_json_is_the_noun_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    machine = look_at_machine(str(CASES / "mixed-five"))
    show_machine(machine, warnings(machine), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["world"] == 5
    assert told["slowest"]["kind"] == "inter_socket"
    assert [finding["rule"] for finding in told["warnings"]] == ["narrow_slot", "other_socket", "mixed_gpus"]
    own = {key: value for key, value in told.items() if key not in ("world", "slowest", "warnings", "schema")}
    assert codec.from_plain(Machine, own, where="JSON") == machine


@pytest.mark.parametrize(("members", "said"), [
    ((0,), "0"), ((0, 1), "0, 1"), ((0, 1, 2, 3), "0-3"), ((0, 2, 3), "0, 2, 3")])
def test_numbers_in_one_phrase(members: tuple[int, ...], said: str) -> None:
    assert numbers(members) == said
