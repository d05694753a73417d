"""Recording a machine and asking the recording: the same answers, no identities."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rooftop.errors import BadInput, ProbeFailed
from rooftop.hardware.recorded import RecordedHost, Recorder, file_name


@dataclass(frozen=True)
class Told:
    text: str | None

    def read(self, path: str) -> str | None:
        return self.text

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.text


def test_a_recording_answers_as_the_machine_did(tmp_path: Path) -> None:
    recorder = Recorder(Told("GPU0\t X \n"), tmp_path)
    said = recorder.run(("nvidia-smi", "topo", "-m")), recorder.read("/proc/cpuinfo")
    silent = Recorder(Told(None), tmp_path)
    assert silent.run(("rocm-smi",)) is None
    assert silent.read("/none") is None
    host = RecordedHost(tmp_path)
    assert (host.run(("nvidia-smi", "topo", "-m")), host.read("/proc/cpuinfo")) == said == ("GPU0\t X \n",) * 2
    assert host.run(("rocm-smi",)) is None
    assert host.read("/none") is None


@pytest.mark.parametrize(("said", "kept"), [
    ("GPU 0: X (UUID: GPU-1aff65f8-8897-eaee-29e4-6871ef7491a0)",
     "GPU 0: X (UUID: GPU-00000000-0000-0000-0000-000000000000)"),
    ("<serial>1234567890123</serial>", "<serial>N/A</serial>"),
    ("<uuid>GPU-12345678-aaaa-bbbb-cccc-0123456789cd</uuid>", "<uuid>N/A</uuid>"),
    ("<board_id>0xc100</board_id><pdi>0x12</pdi>", "<board_id>N/A</board_id><pdi>N/A</pdi>"),
    ('"Unique ID": "0x79ccd55167a2124a",', '"Unique ID": "N/A",'),
    ("GPU[0]\t\t: Serial Number: \t\tPCB1", "GPU[0]\t\t: Serial Number: \t\tN/A"),
    ("BOOT_IMAGE=/vmlinuz root=UUID=ab-cd ro iommu=pt", "redacted redacted ro iommu=pt"),
    ("<process_name>/home/me/serve --key x</process_name>", "<process_name>serve</process_name>"),
    ("<product_name>NVIDIA H200</product_name>", "<product_name>NVIDIA H200</product_name>")])
def test_identities_are_left_out(said: str, kept: str, tmp_path: Path) -> None:
    assert Recorder(Told(said), tmp_path).run(("x",)) == kept
    assert RecordedHost(tmp_path).run(("x",)) == kept


def test_names_of_outputs() -> None:
    name = file_name(("nvidia-smi", "--query-gpu=name,memory.total", "a/../b"))
    assert name == "nvidia-smi_--query-gpu=name_memory.total_a_.._b.txt"


def test_a_folder_that_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no recorded machine"):
        RecordedHost(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(ProbeFailed, match="cannot be recorded"):
        Recorder(Told("x"), tmp_path).run(("x",))
