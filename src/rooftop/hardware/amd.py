"""AMD GPUs and their links, as rocm-smi tells them in JSON or in text."""

import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

from rooftop.domain.host import Host, Probe
from rooftop.domain.machine import Gpu, GpuState, Group, Link, Slot
from rooftop.hardware import _matrix, _pci

_QUERY = ("rocm-smi", "--showproductname", "--showbus", "--showmeminfo", "vram", "--showtopo")
_PATIENCE_S = 60.0
_SAME_SOCKET, _OTHER_SOCKET = 2, 3
"""Hops of a PCIe pair: both at one socket, or at two (AMD's MI200 optimization guide)."""

_TITLES = {"Hops between two GPUs": "Hops", "Link Type between two GPUs": "Link type"}


class AmdProbe:
    """`rocm-smi` with product name, bus, memory and topology; sysfs for the PCIe link."""

    def gpus(self, host: Host) -> tuple[Gpu, ...]:
        """As rocm-smi numbers them; () where it is not there."""
        told = _ask(host)
        cards = sorted((key for key in told if re.fullmatch(r"card\d+", key)), key=lambda key: int(key[4:]))
        found = [_gpu(host, told[card]) for card in cards]
        slots = _pci.slots(host, (gpu.bus for gpu in found))
        return tuple(replace(gpu, slot=_pci.completed(slots.get(gpu.bus, Slot()), gpu.slot or Slot())) for gpu in found)

    def groups(self, host: Host, gpus: tuple[Gpu, ...]) -> tuple[Group, ...]:
        """XGMI where rocm-smi says so; PCIe pairs on one socket or on two by their hops."""
        system = _ask(host).get("system", {}) if len(gpus) > 1 else {}
        links = {}
        for one, other in combinations(range(len(gpus)), 2):
            kind = str(system.get(f"(Topology) Link type between DRM devices {one} and {other}", "")).upper()
            hops = str(system.get(f"(Topology) Hops between DRM devices {one} and {other}", ""))
            if kind:
                links[one, other] = _link(kind, int(hops) if hops.isdigit() else 0, gpus[one], gpus[other])
        return _matrix.group(links)


def _ask(host: Host) -> dict[str, Any]:
    """What rocm-smi says, in the shape of its JSON; {} where it says nothing."""
    text = host.run((*_QUERY, "--json"), _PATIENCE_S) or ""
    try:
        told = json.loads(text[text.find("{"):]) if "{" in text else {}
    except ValueError:
        told = {}
    return told if isinstance(told, dict) and told else read_text(host.run(_QUERY, _PATIENCE_S) or "")


def read_text(text: str) -> dict[str, Any]:
    """The text of rocm-smi as its JSON has it: `GPU[0] : key: value` lines, and the matrices of hops and link types."""
    told: dict[str, Any] = {}
    for number, key, value in re.findall(r"^\s*GPU\s?\[?(\d+)\]?\s*:\s*(.+?):[ \t]+(\S.*?)\s*$", text, re.M):
        told.setdefault(f"card{number}", {})[key] = value
    for section in re.split(r"^=+ (?=\S)", text, flags=re.M):
        title, _, body = section.partition("\n")
        name = _TITLES.get(title.strip(" ="))
        if name:
            words = _matrix.read_matrix(body).words
            told.setdefault("system", {}).update({
                f"(Topology) {name} between DRM devices {one} and {other}": word
                for (one, other), word in words.items() if one < other})
    return told


def _gpu(host: Host, card: dict[str, Any]) -> Gpu:
    said = {key.lower(): str(value).strip() for key, value in card.items()}
    series = next((said[key] for key in ("card series", "device name", "card model")
                   if said.get(key, "N/A") not in ("N/A", "")), "unknown AMD GPU")
    bracketed = re.search(r"\[((?:Instinct|Radeon)[^\]]*)\]", series)
    bus, numa = _pci.address(said.get("pci bus", "")), said.get("(topology) numa node", "")
    total, used = said.get("vram total memory (b)", ""), said.get("vram total used memory (b)", "")
    gfx = said.get("gfx version", "")
    return Gpu(f"AMD {bracketed[1]}" if bracketed else series, int(total) if total.isdigit() else None, vendor="amd",
               sm=gfx if gfx.startswith("gfx") else "", slot=_slot(said.get("pcie clock level", "")),
               numa=int(numa) if numa.isdigit() else _pci.numa_node(host, bus) if bus else None, bus=bus,
               state=GpuState(int(used) if used.isdigit() else None))


def _slot(level: str) -> Slot:
    """The link of the moment, by rocm-smi's clock level (`0 (16.0GT/s x16)`)."""
    width = re.search(r"GT/s x(\d+)", level)
    return Slot(now_generation=_pci.generation(level), now_width=int(width[1]) if width else None)


def _link(kind: str, hops: int, one: Gpu, other: Gpu) -> Link:
    if kind == "XGMI":
        return Link("xgmi", word="XGMI")
    rates = [gpu.slot.bytes_per_s for gpu in (one, other) if gpu.slot is not None and gpu.slot.bytes_per_s]
    rate = min(rates) if len(rates) == 2 else None
    if kind != "PCIE" or hops not in (_SAME_SOCKET, _OTHER_SOCKET):
        return Link("unknown", word=kind)
    return Link("pcie_host_bridge" if hops == _SAME_SOCKET else "inter_socket", rate, word=f"PCIE, {hops} hops")


PROBE: Probe = AmdProbe()
