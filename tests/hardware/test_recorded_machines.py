"""Real machines, as they told themselves: GPUs, links, NUMA nodes and warnings."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rooftop.workflows.look_machine import look_at_machine
from rooftop.workflows.machine_warnings import warnings

CASES = sorted(folder for folder in (Path(__file__).parents[1] / "cases" / "machines").iterdir() if folder.is_dir())


def test_there_are_machines_of_every_sort() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_recorded_machine_is_understood(folder: Path) -> None:
    expected: dict[str, Any] = tomllib.loads((folder / "expected.toml").read_text())
    machine = look_at_machine(str(folder))
    assert len(machine.gpus) == expected["gpus"]
    assert machine.gpus[0].kind == expected["kind"]
    assert [gpu.numa for gpu in machine.gpus] == expected.get("numa", [gpu.numa for gpu in machine.gpus])
    for one, other, kind, rate in expected["pairs"]:
        link = machine.pair(one, other)
        assert (link.kind, machine.pair(other, one)) == (kind, link)
        assert link.bytes_per_s == (pytest.approx(rate, rel=1e-3) if rate else None)
        assert not link.assumed
    assert len(machine.groups) == expected.get("groups", len(machine.groups))
    slowest = machine.slowest(range(machine.world))
    assert slowest is not None
    assert slowest.kind == expected.get("slowest", "unknown")
    assert [finding.rule for finding in warnings(machine)] == expected["warnings"]
    assert expected.get("notes", "") in " ".join(machine.notes)
    assert machine.gpus[0].memory_bytes == expected.get("memory", machine.gpus[0].memory_bytes)
    assert machine.cpu == expected.get("cpu", machine.cpu)
    assert machine.sockets == expected.get("sockets", machine.sockets)
    assert len(machine.acs or ()) == expected.get("acs", 0)


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_recorded_machine_names_its_source_and_no_one(folder: Path) -> None:
    readme = (folder / "README.md").read_text()
    assert "Source: " in readme
    for file in folder.rglob("*.txt"):
        text = file.read_text()
        assert "<serial>" not in text
        assert not any(line.startswith("GPU-") and "0000-0000" not in line for line in text.split())
