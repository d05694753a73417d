"""Looking at a machine: by name, by its own words, through ssh, and recorded while it is asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rooftop.domain.machine import Numa
from rooftop.errors import BadInput, ProbeFailed
from rooftop.hardware.local import this_machine
from rooftop.workflows.look_machine import look_at_machine, probes

CASES = Path(__file__).parents[1] / "cases" / "machines"
NODE = "/sys/devices/system/node"


@dataclass
class Told:
    files: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.outputs.get(" ".join(command))


def server() -> Told:
    """Two sockets, two L40S of which sysfs alone tells the NUMA nodes, and an AMD card beside them."""
    short = "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader"
    amd = "rocm-smi --showproductname --showbus --showmeminfo vram --showtopo --json"
    return Told({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: EPYC\n" * 4, "/proc/meminfo": "MemTotal: 1000 kB\n",
                 "/proc/self/status": "Cpus_allowed_list:\t0-3\n", f"{NODE}/online": "0-1\n",
                 f"{NODE}/node0/cpulist": "0-1\n", f"{NODE}/node1/cpulist": "2-3\n",
                 f"{NODE}/node1/meminfo": "Node 1 MemTotal:       500 kB\nNode 1 MemFree: 1 kB\n",
                 "/sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
                 "/sys/devices/system/cpu/cpu2/topology/physical_package_id": "1\n",
                 "/sys/bus/pci/devices/0000:01:00.0/numa_node": "0\n",
                 "/sys/bus/pci/devices/0000:81:00.0/numa_node": "1\n"},
                {short: "NVIDIA L40S, 46068 MiB, 00000000:01:00.0\nNVIDIA L40S, 46068 MiB, 00000000:81:00.0\n",
                 "nvidia-smi topo -m": "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n",
                 amd: '{"card0": {"Card Series": "AMD Instinct MI300X OAM"}}'})


def test_a_machine_tells_all_its_vendors_gpus_and_its_nodes() -> None:
    machine = look_at_machine(host=server())
    assert machine.name == "EPYC, 4 cores, 1 x AMD Instinct MI300X OAM, 2 x NVIDIA L40S"
    by_kind = {gpu.kind: gpu for gpu in machine.gpus}
    assert sorted(by_kind) == ["L40S", "MI300X"]
    cards = [n for n, gpu in enumerate(machine.gpus) if gpu.kind == "L40S"]
    assert machine.pair(*cards).kind == "inter_socket"
    assert [machine.gpus[n].numa for n in cards] == [0, 1]
    assert (by_kind["L40S"].memory_bytes_per_s, by_kind["L40S"].memory_bytes) == (864e9, 46068 << 20)
    assert by_kind["MI300X"].memory_bytes is None
    assert machine.numa == (Numa(0, "0-1", 0), Numa(1, "2-3", 1, 512000))
    assert machine.sockets == 2
    assert machine.notes == ()


def test_the_same_machine_has_the_name_that_plans_know_it_by() -> None:
    """A plan's key holds the machine's name, so both ways of looking must agree."""
    assert look_at_machine().name == this_machine().name
    host = Told(server().files, {
        "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader": "NVIDIA L40S, 46068 MiB\n",
        "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader":
        "NVIDIA L40S, 46068 MiB, 00000000:01:00.0\n"})
    assert look_at_machine(host=host).name == this_machine(host).name


def test_a_host_that_tells_nothing() -> None:
    machine = look_at_machine(host=Told())
    assert machine.name == "unknown processor, unknown cores"
    assert (machine.gpus, machine.cores, machine.iommu, machine.acs, machine.sockets) == ((), 0, "", None, None)
    assert machine.notes == ("processor and memory of the host are not known",)


def test_there_is_a_probe_for_each_vendor() -> None:
    assert {type(probe).__name__ for probe in probes()} == {"NvidiaProbe", "AmdProbe"}


def test_names_lead_to_the_catalog_or_to_a_recording() -> None:
    assert look_at_machine("8x H100 SXM").name == "8x H100 SXM (HGX)"
    assert look_at_machine(str(CASES / "hgx-h100")).gpus[0].kind == "H100 SXM"
    with pytest.raises(BadInput, match="no machine named 'my box'"):
        look_at_machine("my box")
    with pytest.raises(BadInput, match="no recorded machine"):
        look_at_machine(str(CASES))


def test_a_machine_is_recorded_while_it_is_asked(tmp_path: Path) -> None:
    asked = look_at_machine(host=server(), record=tmp_path)
    assert look_at_machine(str(tmp_path)) == asked


def test_a_machine_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProbeFailed, match="ssh does not reach nowhere"):
        look_at_machine("ssh:nowhere")
