"""nvidia-smi: the long and the short listing, processes, slots, NVLinks, damage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.machine import Gpu, GpuState, Slot
from rooftop.errors import ProbeFailed
from rooftop.hardware.nvidia import PROBE, read_nvlinks

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<driver_version>550.1</driver_version>
\t<gpu id="00000000:C1:00.0">
\t\t<product_name>NVIDIA L40S</product_name>
\t\t<persistence_mode>Disabled</persistence_mode>
\t\t<mig_mode><current_mig>Enabled</current_mig></mig_mode>
\t\t<pci><pci_gpu_link_info>
\t\t\t<pcie_gen><max_link_gen>3</max_link_gen><current_link_gen>1</current_link_gen>
\t\t\t<max_device_link_gen>4</max_device_link_gen><max_host_link_gen>3</max_host_link_gen></pcie_gen>
\t\t\t<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
\t\t</pci_gpu_link_info></pci>
\t\t<fb_memory_usage><total>46068 MiB</total><used>1024 MiB</used></fb_memory_usage>
\t\t<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
\t\t<power_readings><power_limit>300.00 W</power_limit></power_readings>
\t\t<processes>
\t\t\t<process_info><process_name>/home/someone/bin/serve --key secret</process_name>
\t\t\t<used_memory>1000 MiB</used_memory></process_info>
\t\t\t<process_info><process_name></process_name><used_memory>N/A</used_memory></process_info>
\t\t</processes>
\t</gpu>
</nvidia_smi_log>
"""


@dataclass
class Told:
    outputs: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return None

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.outputs.get(" ".join(command))


def test_the_long_listing() -> None:
    """The driver warns before its XML at times; a process is told by its program's name alone."""
    assert PROBE.gpus(Told({"nvidia-smi -q -x": "Warning: persistence\n" + XML})) == (Gpu(
        "NVIDIA L40S", 46068 << 20, vendor="nvidia", slot=Slot(4, 16, 3, None, 1, 8), bus="0000:c1:00.0",
        state=GpuState(1024 << 20, (("serve", 1000 << 20), ("unknown", None)), True, False, True, 300.0, "550.1")),)


def test_what_is_not_in_the_listing_is_unknown() -> None:
    gpu = PROBE.gpus(Told({"nvidia-smi -q -x": '<nvidia_smi_log><gpu id=""/></nvidia_smi_log>'}))[0]
    assert gpu == Gpu("unknown NVIDIA GPU", vendor="nvidia", state=GpuState())


def test_the_short_listing_where_there_is_no_long_one() -> None:
    short = "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader"
    gpus = PROBE.gpus(Told({short: "Tesla T4, 15360 MiB, 00000000:00:1E.0\nNVIDIA GB10, [N/A], [N/A]\nNo devices\n"}))
    assert gpus == (Gpu("Tesla T4", 15360 << 20, vendor="nvidia", bus="0000:00:1e.0"),
                    Gpu("NVIDIA GB10", vendor="nvidia"))


def test_no_tool_no_gpus() -> None:
    assert PROBE.gpus(Told()) == ()
    assert PROBE.groups(Told(), ()) == ()
    assert PROBE.groups(Told(), (Gpu("a"), Gpu("b"))) == ()


@pytest.mark.parametrize("text", ["NVIDIA-SMI has failed because it could not communicate with its driver",
                                  XML[:900], "<html>"])
def test_an_answer_that_is_no_xml(text: str) -> None:
    with pytest.raises(ProbeFailed, match="is not XML") as caught:
        PROBE.gpus(Told({"nvidia-smi -q -x": text}))
    assert caught.value.where == "nvidia-smi -q -x"


@given(st.integers(0, len(XML)))
def test_a_listing_cut_anywhere_is_read_or_refused(end: int) -> None:
    try:
        gpus = PROBE.gpus(Told({"nvidia-smi -q -x": XML[:end]}))
    except ProbeFailed:
        return
    assert len(gpus) in (0, 1)


def test_nvlink_speeds() -> None:
    text = ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-x)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
            "\t Link 2: 26.562 GB/s\n"
            "GPU 1: NVIDIA RTX A6000\n\t Link 0: 14.062 GB/s\nGPU 2: X\nNVML: Unable to retrieve NVLink information\n")
    assert read_nvlinks(text) == {0: (25e9, 25e9), 1: (14.062e9,)}
    assert read_nvlinks("") == read_nvlinks("Link 0: 25 GB/s\n") == {}


def test_a_word_that_no_one_knows_is_an_unknown_link() -> None:
    matrix = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tWARP\tSYS\nGPU1\tWARP\t X \tNV2\nGPU2\tSYS\tNV2\t X \n"
    groups = PROBE.groups(Told({"nvidia-smi topo -m": matrix}), (Gpu("a"), Gpu("b"), Gpu("c")))
    assert {group.gpus: (group.link.kind, group.link.word, group.link.bytes_per_s) for group in groups} == {
        (1, 2): ("nvlink", "NV2", None), (0, 2): ("inter_socket", "SYS", None), (0, 1): ("unknown", "WARP", None)}
