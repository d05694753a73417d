"""Machine files and names: whole, their links where they are said, what is wrong named."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import gpus, machines
from rooftop.domain.machine import Machine, pcie_bytes_per_s
from rooftop.errors import BadInput

WHOLE = """
title = "mine"
gpu = "RTX 4090"
count = 4
source = "I built it"
sockets = 2
numa = [[0, 1], [2, 3]]

[[links]]
kind = "pcie_host_bridge"
gpus = [[0, 1], [2, 3]]
generation = 4
width = 8

[[links]]
kind = "inter_socket"
gpus = [[0, 1, 2, 3]]
gb_per_s = [12, "measured"]
latency_us = [2, "measured"]
"""


@pytest.mark.parametrize(("name", "machine"), machines.known(), ids=lambda part: part if isinstance(part, str) else "")
def test_every_machine_file_is_whole(name: str, machine: Machine) -> None:
    """Any two GPUs have a link of known rate that is no assumption; the file name begins with the number of GPUs."""
    count = len(machine.gpus)
    assert count == (int(name.split("x")[0]) if name[0].isdigit() else 1)
    for one, other in combinations(range(count), 2):
        link = machine.pair(one, other)
        assert link.bytes_per_s
        assert not link.assumed
        far = link.kind == "inter_socket"
        assert far == (machine.gpus[one].numa != machine.gpus[other].numa) or link.kind in ("nvlink", "xgmi")
    assert all(gpu.kind and gpu.numa is not None for gpu in machine.gpus)
    assert any(note.startswith("source of the topology: ") for note in machine.notes)
    assert machines.machine(name) is machines.machine(machine.name) is machine


def test_the_machines_people_ask_for_are_there() -> None:
    stems = {stem for stem, _ in machines.known()}
    assert len(stems) >= 23
    assert stems >= {"8x-h100-sxm", "8x-h200-sxm", "8x-b200-sxm", "8x-a100-80gb-sxm", "8x-rtx-pro-6000-two-sockets",
                     "8x-rtx-pro-6000-one-socket", "4x-rtx-pro-6000", "2x-rtx-pro-6000", "1x-rtx-pro-6000", "8x-l40s",
                     "4x-rtx-4090", "2x-rtx-4090", "2x-rtx-3090-nvlink", "1x-rtx-5090", "8x-mi300x"}


def test_a_machine_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(WHOLE)
    machine = machines.machine(str(file))
    assert (machine.name, len(machine.gpus), machine.sockets) == ("mine", 4, 2)
    assert [gpu.numa for gpu in machine.gpus] == [0, 0, 1, 1]
    assert machine.pair(0, 1).bytes_per_s == pcie_bytes_per_s(4, 8)
    far = machine.slowest(range(4))
    assert far is not None
    assert (far.kind, far.bytes_per_s, far.latency_s) == ("inter_socket", 12e9, 2e-6)
    assert "source of inter_socket, 12 GB/s: measured" in machine.notes


@pytest.mark.parametrize(("old", "new", "what"), [
    ("count = 4", "count = 0", "count and nodes must be at least 1, not 0 and 1"),
    ("count = 4", "count = -4", "count and nodes must be at least 1"),
    ("count = 4", "count = 3", "numa[1] names GPU 3, and there are GPUs 0 to 2"),
    ("count = 4", "cuont = 4", "unknown key 'cuont'"),
    ('gpu = "RTX 4090"', 'gpu = ["RTX 4090", "RTX 3090"]', "GPUs of 2 kinds (RTX 3090, RTX 4090)"),
    ('gpu = "RTX 4090"', "gpu = []", "GPUs of 0 kinds (none)"),
    ('gpu = "RTX 4090"', 'gpu = "RTX 4091"', "no GPU named 'RTX 4091'"),
    ("[12,", "[-12,", "links[1]: gb_per_s must be above 0, not -12"),
    ('[2, "', '[0, "', "links[1]: latency_us must be above 0"),
    ('[12, "measured"]', '[12, " "]', "gb_per_s needs its source"),
    ("generation = 4", "generation = 9", "there is no PCIe generation 9 x8"),
    ("width = 8", "width = 7", "there is no PCIe generation 4 x7"),
    ('kind = "inter_socket"', 'kind = "upi"', "links[1].kind must be one of"),
    ("[[0, 1, 2, 3]]", "[[0, 1, 2, 3, 3]]", "links[1].gpus names a GPU twice"),
    ("width = 8", "width = 8\nshared_by = 0", "shared_by must be at least 1"),
    ('source = "I built it"', "", "missing key 'source'"),
    ("title = ", "title ", "not valid TOML")])
def test_what_is_wrong_in_a_machine_file_is_named(old: str, new: str, what: str) -> None:
    assert old in WHOLE
    with pytest.raises(BadInput, match=re.escape(what)) as caught:
        machines.read(WHOLE.replace(old, new, 1), "mine.toml")
    assert caught.value.where == "mine.toml"


def test_an_unknown_gpu_in_a_file_names_the_nearest() -> None:
    with pytest.raises(BadInput) as caught:
        machines.read(WHOLE.replace("RTX 4090", "RTX 4091"), "mine.toml")
    assert "RTX 4090" in caught.value.remedy


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        machines.machine(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(("name", "count", "nodes", "kind"), [
    ("8x RTX PRO 6000", 8, 1, "RTX PRO 6000 Blackwell Server"), ("4 x L4", 4, 1, "L4"),
    ("6×RTX A6000", 6, 1, "RTX A6000"),
    ("2x 8x H100 SXM", 8, 2, "H100 SXM"), ("RTX 4090", 1, 1, "RTX 4090"), ("1x MI355X", 1, 1, "MI355X")])
def test_count_and_gpu_make_a_machine(name: str, count: int, nodes: int, kind: str) -> None:
    machine = machines.machine(name)
    assert (len(machine.gpus), machine.nodes, machine.world) == (count, nodes, count * nodes)
    assert {gpu.kind for gpu in machine.gpus} == {kind}
    assert all(group.link.assumed for group in machine.groups)
    assert count == 1 or any(note.startswith("links are assumed") for note in machine.notes)


@pytest.mark.parametrize(("name", "sockets", "numa"), [
    ("4x L4", 1, [0] * 4), ("8x L4", 2, [0] * 4 + [1] * 4), ("5x L4", 2, [0] * 3 + [1] * 2),
    ("8x B200", 2, [0] * 4 + [1] * 4)])
def test_four_cards_are_assumed_on_one_socket(name: str, sockets: int, numa: list[int]) -> None:
    machine = machines.machine(name)
    assert machine.sockets == sockets
    assert [gpu.numa for gpu in machine.gpus] == numa


def test_a_name_that_stands_for_several_says_which_is_taken_and_what_else_there_is() -> None:
    notes = " ".join(machines.machine("8x RTX PRO 6000").notes)
    assert "'RTX PRO 6000' is taken as RTX PRO 6000 Blackwell Server" in notes
    assert "8x-rtx-pro-6000-switches" in notes


@pytest.mark.parametrize(("name", "what", "remedy"), [
    ("0x L4", "1 x 0 x L4 is no machine", "nodes x GPUs"), ("17x L4", "a node has 1 to 16", ""),
    ("9x MI300X", "a node has 1 to 8", ""), ("0x 8x L4", "0 x 8 x L4 is no machine", ""),
    ("8x RTX 4091", "no GPU named 'RTX 4091'", "RTX 4090"),
    ("8x-h100-sxn", "no machine named '8x-h100-sxn'", "8x-h100-sxm"),
    ("", "no machine named ''", "count x GPU")])
def test_a_machine_that_cannot_be(name: str, what: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=re.escape(what)) as caught:
        machines.machine(name)
    assert remedy in caught.value.remedy


@given(st.sampled_from(gpus.known()), st.integers(1, 16))
def test_every_assumed_machine_says_how_any_two_gpus_meet(sheet: gpus.Sheet, count: int) -> None:
    if count > machines.MOST_GPUS[sheet.fabric]:
        with pytest.raises(BadInput):
            machines.assumed(sheet, count)
        return
    machine = machines.assumed(sheet, count)
    for one, other in combinations(range(count), 2):
        link = machine.pair(one, other)
        assert link.assumed
        assert link.kind != "unknown"
        if link.kind == "inter_socket":
            assert machine.gpus[one].numa != machine.gpus[other].numa
