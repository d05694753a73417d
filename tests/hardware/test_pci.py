"""PCI by sysfs and lspci: addresses, links, bridges above a device, ACS, IOMMU."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.machine import Slot
from rooftop.hardware import _pci

DEVICE = "/sys/bus/pci/devices"


@dataclass
class Told:
    files: dict[str, str] = field(default_factory=dict)
    outputs: dict[tuple[str, ...], str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.outputs.get(tuple(command))


@pytest.mark.parametrize(("text", "address"), [
    ("00000000:81:00.0", "0000:81:00.0"), ("0000:81:00.0", "0000:81:00.0"), ("C1:00.0", "0000:c1:00.0"),
    ("00010000:0A:00.1", "10000:0a:00.1"), ("", ""), ("81:00", ""), ("GPU-81:00.0", "")])
def test_addresses(text: str, address: str) -> None:
    assert _pci.address(text) == address


@pytest.mark.parametrize(("text", "generation"), [
    ("2.5 GT/s PCIe", 1), ("16.0 GT/s PCIe\n", 4), ("32GT/s", 5), ("64.0 GT/s", 6),
    ("Unknown", None), ("7 GT/s", None), ("", None)])
def test_generations(text: str, generation: int | None) -> None:
    assert _pci.generation(text) == generation


def test_sysfs_tells_card_and_port() -> None:
    """nokyan/resources#512: a card that could do 32 GT/s x16 runs at 16 GT/s x8."""
    card, port = f"{DEVICE}/0000:01:00.0", f"{DEVICE}/0000:00:01.1"
    host = Told({f"{card}/max_link_speed": "32.0 GT/s PCIe\n", f"{card}/max_link_width": "16\n",
                 f"{card}/current_link_speed": "16.0 GT/s PCIe\n", f"{card}/current_link_width": "8\n",
                 f"{port}/max_link_speed": "16.0 GT/s PCIe\n", f"{port}/max_link_width": "8\n",
                 f"{card}/numa_node": "1\n", f"{DEVICE}/0000:02:00.0/numa_node": "-1\n"},
                {("readlink", "-f", card): "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0\n"})
    slot = _pci.slot(host, "0000:01:00.0")
    assert slot == Slot(5, 16, 4, 8, 4, 8)
    assert _pci.slots(host, ["0000:01:00.0", ""]) == {"0000:01:00.0": slot}
    assert _pci.numa_node(host, "0000:01:00.0") == 1
    assert _pci.numa_node(host, "0000:02:00.0") is None
    assert _pci.slot(host, "0000:09:00.0") == Slot()


LISTING = """
00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] GPP Bridge (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=03, sec-latency=0
\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <64us
\t\tLnkSta:\tSpeed 32GT/s, Width x16
\t\tLnkCap2: Supported Link Speeds: 2.5-32GT/s, Crosslink- Retimer+ 2Retimers+ DRS-
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-

02:08.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (prog-if 00 [Normal decode])
\tBus: primary=02, secondary=03, subordinate=03, sec-latency=0
\t\tLnkCap:\tPort #8, Speed 16GT/s, Width x8, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

03:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)

40:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\tCapabilities: <access denied>
"""


def test_lspci_tells_links_bridges_and_acs() -> None:
    listing = _pci.read_listing(LISTING)
    assert [device.address for device in listing] == ["0000:00:01.1", "0000:02:08.0", "0000:03:00.0", "0000:40:00.0"]
    assert [bridge.address for bridge in _pci.above("0000:03:00.0", listing)] == ["0000:02:08.0", "0000:00:01.1"]
    assert _pci.listed_slot("0000:03:00.0", listing) == Slot(4, 16, 4, 8, 1, 4)
    assert _pci.listed_slot("0000:40:00.0", listing) == _pci.listed_slot("0000:99:00.0", listing) == Slot()
    assert _pci.redirecting(["0000:03:00.0"], listing) == ("0000:02:08.0",)


def test_acs_that_is_off_and_acs_that_is_not_told_differ() -> None:
    off = _pci.read_listing(LISTING.replace("ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-",
                                            "ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-"))
    assert _pci.redirecting(["0000:03:00.0"], off) == ()
    assert _pci.redirecting(["0000:40:00.0"], off) is None
    assert _pci.redirecting(["0000:03:00.0"], _pci.read_listing(LISTING.replace("ACSCtl", "NoCtl"))) is None
    assert _pci.redirecting([""], ()) is None


def test_domains_do_not_mix() -> None:
    listing = _pci.read_listing("10000:00:01.1 PCI bridge: x\n"
                                 "\tBus: primary=00, secondary=01, subordinate=03, sec-latency=0")
    assert _pci.above("10000:02:00.0", listing) == listing
    assert _pci.above("0000:02:00.0", listing) == ()


@given(st.text(max_size=300))
def test_any_listing_is_read(text: str) -> None:
    assert all(device.address for device in _pci.read_listing(text))


UNITS = ("ls", "/sys/class/iommu")


@pytest.mark.parametrize(("kind", "command", "units", "expected"), [
    ("identity\n", "", None, "passthrough"), ("DMA-FQ\n", "", None, "on"), ("DMA\n", "iommu=pt", None, "on"),
    ("", "ro quiet amd_iommu=off", "ivhd0\n", "off"), ("", "intel_iommu=off", None, "off"),
    ("", "iommu=pt quiet", "dmar0\n", "passthrough"),
    ("", "quiet", "dmar0\n", "on"), ("", "quiet", "\n", "off"), ("", "", None, ""), ("", "", "", "off")])
def test_the_iommu(kind: str, command: str, units: str | None, expected: str) -> None:
    host = Told({"/proc/cmdline": command})
    if kind:
        host.files["/sys/kernel/iommu_groups/0/type"] = kind
    if units is not None:
        host.outputs[UNITS] = units
    assert _pci.iommu(host) == expected
