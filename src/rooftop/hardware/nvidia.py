"""NVIDIA GPUs and their links, as nvidia-smi tells them."""

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

from rooftop.domain.host import Host, Probe
from rooftop.domain.machine import Gpu, GpuState, Group, Link, LinkKind, Slot
from rooftop.errors import ProbeFailed
from rooftop.hardware import _matrix, _pci

_QUERY = ("nvidia-smi", "-q", "-x")
_SHORT = ("nvidia-smi", "--query-gpu=name,memory.total,pci.bus_id", "--format=csv,noheader")
_TOPOLOGY = ("nvidia-smi", "topo", "-m")
_PEERS = ("nvidia-smi", "topo", "-p2p", "r")
_LINKS = ("nvidia-smi", "nvlink", "-s")
_PATIENCE_S = 30.0

KINDS: dict[str, LinkKind] = {"PIX": "pcie_switch", "PXB": "pcie_switch", "PHB": "pcie_host_bridge",
                              "NODE": "pcie_host_bridge", "SYS": "inter_socket", "SOC": "inter_socket"}
"""Words of `nvidia-smi topo -m`; SOC is the old word for SYS, NV and a number are that many NVLinks."""

_PAYLOAD = {26.562: 25e9, 53.125: 50e9, 25.781: 25e9}
"""GB/s of one NVLink as the driver prints it: bytes/s without line coding.  Other figures are taken as printed."""

_P2P = {"OK": True, "CNS": False, "GNS": False, "TNS": False, "NS": False, "DR": False}


class NvidiaProbe:
    """`nvidia-smi -q -x`, `topo -m`, `topo -p2p r` and `nvlink -s`, with sysfs for what they leave out."""

    def gpus(self, host: Host) -> tuple[Gpu, ...]:
        """As nvidia-smi numbers them; by its short listing where it prints no XML; () where it is not there."""
        text = host.run(_QUERY, _PATIENCE_S)
        found = _short_listing(host) if text is None or not text.strip() else _long_listing(text)
        numa = _matrix.read_matrix(host.run(_TOPOLOGY, _PATIENCE_S) or "").numa
        slots = _pci.slots(host, (gpu.bus for gpu in found))
        return tuple(_placed(gpu, slots.get(gpu.bus, Slot()), numa.get(n, _pci.numa_node(host, gpu.bus)))
                     for n, gpu in enumerate(found))

    def groups(self, host: Host, gpus: tuple[Gpu, ...]) -> tuple[Group, ...]:
        """The links that `topo -m` names, PCIe rates by the slots, NVLink rates by `nvlink -s` where it is told."""
        words = _matrix.read_matrix(host.run(_TOPOLOGY, _PATIENCE_S) or "").words if len(gpus) > 1 else {}
        if not words:
            return ()
        peers = _matrix.read_matrix(host.run(_PEERS, _PATIENCE_S) or "").words
        lanes = read_nvlinks(host.run(_LINKS, _PATIENCE_S) or "")
        links = {}
        for one, other in combinations(range(len(gpus)), 2):
            word = words.get((one, other))
            if word is not None:
                link = _link(word, gpus[one], gpus[other], lanes.get(one, ()))
                said = peers.get((one, other), "")
                links[one, other] = Link(link.kind, link.bytes_per_s, None, 1, link.generation, link.width,
                                         _P2P.get(said), word, said)
        return _matrix.group(links)


def read_nvlinks(text: str) -> dict[int, tuple[float, ...]]:
    """Bytes/s, one direction, of each NVLink that is up, by GPU, from `nvidia-smi nvlink -s`."""
    lanes: dict[int, tuple[float, ...]] = {}
    gpu = -1
    for line in text.splitlines():
        card = re.match(r"\s*GPU (\d+):", line)
        gpu = int(card[1]) if card else gpu
        link = re.match(r"\s*Link \d+: ([\d.]+) GB/s", line)
        if link and gpu >= 0:
            lanes[gpu] = (*lanes.get(gpu, ()), _PAYLOAD.get(float(link[1]), float(link[1]) * 1e9))
    return lanes


def _link(word: str, one: Gpu, other: Gpu, lanes: tuple[float, ...]) -> Link:
    """What a word of the matrix means between these two."""
    nvlinks = re.fullmatch(r"NV(\d+)", word)
    if nvlinks:
        count = int(nvlinks[1])
        rate = sum(sorted(lanes, reverse=True)[:count]) if len(lanes) >= count else None
        return Link("nvlink", rate, width=count)
    kind = KINDS.get(word, "unknown")
    slots = [gpu.slot for gpu in (one, other) if gpu.slot is not None and gpu.slot.bytes_per_s is not None]
    if kind == "unknown" or len(slots) < 2:
        return Link(kind)
    slower = min(slots, key=lambda slot: slot.bytes_per_s or 0.0)
    return Link(kind, slower.bytes_per_s, generation=slower.used_generation, width=slower.used_width)


def _gpu(element: ElementTree.Element, driver: str) -> Gpu:
    used = _mebibytes(_text(element, "fb_memory_usage/used"))
    limit = _text(element, "gpu_power_readings/current_power_limit") or _text(element, "power_readings/power_limit")
    state = GpuState(used, tuple(_processes(element)), _switch(_text(element, "ecc_mode/current_ecc")),
                     _switch(_text(element, "persistence_mode")), _switch(_text(element, "mig_mode/current_mig")),
                     _number(limit), driver)
    return Gpu(_text(element, "product_name") or "unknown NVIDIA GPU",
               _mebibytes(_text(element, "fb_memory_usage/total")), vendor="nvidia", slot=_slot(element),
               bus=_pci.address(element.get("id", "")), state=state)


def _slot(element: ElementTree.Element) -> Slot:
    info = "pci/pci_gpu_link_info/"
    both = _whole(_text(element, info + "pcie_gen/max_link_gen"))
    card = _whole(_text(element, info + "pcie_gen/max_device_link_gen")) or both
    host = _whole(_text(element, info + "pcie_gen/max_host_link_gen")) or both
    return Slot(card, _whole(_text(element, info + "link_widths/max_link_width")), host, None,
                _whole(_text(element, info + "pcie_gen/current_link_gen")),
                _whole(_text(element, info + "link_widths/current_link_width")))


def _processes(element: ElementTree.Element) -> list[tuple[str, int | None]]:
    """Program and bytes of each process on the GPU; only the program's own name, never its folder or arguments."""
    found = []
    for process in element.iterfind("processes/process_info"):
        program = _text(process, "process_name").split(" ")[0].rsplit("/", 1)[-1]
        found.append((program or "unknown", _mebibytes(_text(process, "used_memory"))))
    return found


def _placed(gpu: Gpu, told: Slot, numa: int | None) -> Gpu:
    """With its NUMA node, and what only the kernel tells of its PCIe link; of a port nvidia-smi knows no width."""
    slot = _pci.completed(gpu.slot or Slot(), told)
    return replace(gpu, slot=slot if slot != Slot() else None, numa=numa)


def _long_listing(text: str) -> list[Gpu]:
    try:
        root = ElementTree.fromstring(text[max(0, text.find("<nvidia_smi_log")):])
    except ElementTree.ParseError as error:
        raise ProbeFailed(f"the answer of nvidia-smi is not XML: {error}", where=" ".join(_QUERY),
                          remedy="run that command and see what it says") from error
    driver = _text(root, "driver_version")
    return [_gpu(element, driver) for element in root.iter("gpu")]


def _short_listing(host: Host) -> list[Gpu]:
    found = []
    for line in (host.run(_SHORT, _PATIENCE_S) or "").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and cells[0]:
            found.append(Gpu(cells[0], _mebibytes(cells[1]), vendor="nvidia", bus=_pci.address(cells[2])))
    return found


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _mebibytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+) MiB", text)
    return int(found[1]) << 20 if found else None


def _whole(text: str) -> int | None:
    found = re.fullmatch(r"(\d+)x?", text)
    return int(found[1]) if found and int(found[1]) else None


def _number(text: str) -> float | None:
    found = re.fullmatch(r"([\d.]+) W", text)
    return float(found[1]) if found else None


def _switch(text: str) -> bool | None:
    return {"enabled": True, "disabled": False}.get(text.lower())


PROBE: Probe = NvidiaProbe()
