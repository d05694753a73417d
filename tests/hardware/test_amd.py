"""rocm-smi: JSON of several versions, text, damage."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.machine import Gpu, GpuState, Slot
from rooftop.hardware.amd import PROBE, read_text

QUERY = "rocm-smi --showproductname --showbus --showmeminfo vram --showtopo"


@dataclass
class Told:
    outputs: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.outputs.get(" ".join(command))


def told(**cards: Any) -> Told:
    return Told({f"{QUERY} --json": "WARNING: low power\n" + json.dumps(cards)})


def test_a_card_of_a_newer_rocm_with_its_link_by_sysfs() -> None:
    host = told(card10={"Card Series": "N/A", "Card Model": "0x744c"}, card2={
        "Card Series": "AMD Instinct MI300X OAM", "GFX Version": "gfx942", "PCI Bus": "0000:05:00.0",
        "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297611264",
        "(Topology) Numa Node": "0"})
    folder = "/sys/bus/pci/devices/0000:05:00.0"
    host.files = {f"{folder}/max_link_speed": "32.0 GT/s PCIe", f"{folder}/max_link_width": "16",
                  f"{folder}/current_link_speed": "32.0 GT/s PCIe", f"{folder}/current_link_width": "16"}
    first, second = PROBE.gpus(host)
    assert first == Gpu("AMD Instinct MI300X OAM", 206141652992, vendor="amd", sm="gfx942",
                        slot=Slot(5, 16, None, None, 5, 16), numa=0, bus="0000:05:00.0", state=GpuState(297611264))
    assert second.name == "0x744c"
    assert (second.memory_bytes, second.numa, second.bus) == (None, None, "")


@pytest.mark.parametrize(("kind", "hops", "expected"), [
    ("XGMI", "1", "xgmi"), ("PCIE", "2", "pcie_host_bridge"), ("PCIE", "3", "inter_socket"), ("PCIE", "9", "unknown"),
    ("PCIE", "", "unknown"), ("CXL", "1", "unknown")])
def test_links(kind: str, hops: str, expected: str) -> None:
    host = told(card0={}, card1={}, system={"(Topology) Link type between DRM devices 0 and 1": kind,
                                            "(Topology) Hops between DRM devices 0 and 1": hops})
    groups = PROBE.groups(host, PROBE.gpus(host))
    assert [(group.gpus, group.link.kind) for group in groups] == [((0, 1), expected)]


def test_two_hives_in_text() -> None:
    """XGMI within four, PCIe between, as a box of two boards prints it."""
    def matrix(near: str, far: str) -> str:
        lines = ["       GPU0  GPU1  GPU2  GPU3"]
        for i in range(4):
            words = ["0" if i == j else near if i // 2 == j // 2 else far for j in range(4)]
            lines.append(f"GPU{i} " + " ".join(words))
        return "\n".join(lines)

    cards = "".join(f"GPU[{i}]\t\t: Card Series: \t\tAMD Instinct MI250\nGPU[{i}]\t\t: (Topology) Numa Node: {i // 2}\n"
                    for i in range(4))
    text = (f"====== ROCm System Management Interface ======\n==== Hops between two GPUs ====\n{matrix('1', '3')}\n\n"
            f"==== Link Type between two GPUs ====\n{matrix('XGMI', 'PCIE')}\n\n==== Product Info ====\n{cards}"
            "==== End of ROCm SMI Log ====\n")
    host = Told({QUERY: text})
    gpus = PROBE.gpus(host)
    assert [(gpu.name, gpu.numa) for gpu in gpus] == [("AMD Instinct MI250", i // 2) for i in range(4)]
    kinds = {group.gpus: group.link.kind for group in PROBE.groups(host, gpus)}
    assert kinds == {(0, 1): "xgmi", (2, 3): "xgmi", (0, 1, 2, 3): "inter_socket"}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "{}", "no amdgpu driver"])
def test_no_answer_no_gpus(text: str) -> None:
    host = Told({f"{QUERY} --json": text})
    assert PROBE.gpus(host) == ()
    assert PROBE.groups(host, ()) == ()


@given(st.text(alphabet="GPU[]0123: =\tXGMIHopsbetwn\n", max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(read_text(text), dict)
