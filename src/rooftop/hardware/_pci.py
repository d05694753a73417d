"""PCI as the kernel and lspci tell it: links of a device, bridges above it, ACS, IOMMU."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from rooftop.domain.host import Host
from rooftop.domain.machine import Slot

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_LISTING = ("lspci", "-D", "-vvv")


@dataclass(frozen=True, slots=True)
class Device:
    """One block of `lspci -vvv`: its link, the buses below it (a bridge), whether ACS sends peer traffic up.

    None = not told; without root lspci tells no ACS.
    """

    address: str
    title: str
    generation: int | None = None
    width: int | None = None
    now_generation: int | None = None
    now_width: int | None = None
    buses: tuple[int, int] | None = None
    redirects: bool | None = None


def address(text: str) -> str:
    """A PCI address as sysfs writes it (`0000:81:00.0`), from `00000000:81:00.0`, `81:00.0` or upper case."""
    found = re.fullmatch(r"\s*(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s*", text.lower())
    return f"{int(found[1] or '0', 16):04x}:{found[2]}" if found else ""


def numa_node(host: Host, bus: str) -> int | None:
    """The NUMA node that sysfs names for a device; None where it knows none."""
    node = (host.read(f"/sys/bus/pci/devices/{bus}/numa_node") or "").strip()
    return int(node) if node.isdigit() else None


def slots(host: Host, buses: Iterable[str]) -> dict[str, Slot]:
    """The PCIe links of these devices by sysfs, and by lspci where sysfs leaves something out."""
    told = {bus: slot(host, bus) for bus in buses if bus}
    if any(getattr(found, field.name) is None for found in told.values() for field in fields(Slot)):
        listing = devices(host)
        told = {bus: completed(found, listed_slot(bus, listing)) for bus, found in told.items()}
    return told


def completed(one: Slot, other: Slot) -> Slot:
    """What `one` tells, and what only `other` does."""
    return Slot(*(getattr(one, field.name) or getattr(other, field.name) for field in fields(Slot)))


def slot(host: Host, bus: str) -> Slot:
    """A device's link by sysfs, and what the port above it could do where the path to it is known."""
    card, port = f"/sys/bus/pci/devices/{bus}", _parent(host, bus)
    return Slot(_speed(host, f"{card}/max_link_speed"), _width(host, f"{card}/max_link_width"),
                _speed(host, f"{port}/max_link_speed") if port else None,
                _width(host, f"{port}/max_link_width") if port else None,
                _speed(host, f"{card}/current_link_speed"), _width(host, f"{card}/current_link_width"))


def _parent(host: Host, bus: str) -> str:
    path = (host.run(("readlink", "-f", f"/sys/bus/pci/devices/{bus}")) or "").strip()
    parts = path.split("/")
    return f"/sys/bus/pci/devices/{parts[-2]}" if len(parts) > 2 and address(parts[-2]) else ""


def _speed(host: Host, path: str) -> int | None:
    return generation(host.read(path) or "")


def generation(text: str) -> int | None:
    """The PCIe generation of `16.0 GT/s PCIe` or `16GT/s`; None for `Unknown`."""
    found = re.search(r"([\d.]+)\s*GT/s", text)
    return GENERATIONS.get(float(found[1])) if found else None


def _width(host: Host, path: str) -> int | None:
    text = (host.read(path) or "").strip()
    return int(text) if text.isdigit() and 0 < int(text) <= 32 else None


def devices(host: Host) -> tuple[Device, ...]:
    """Every device that lspci lists, () where it is not there."""
    return read_listing(host.run(_LISTING, 20.0) or "")


def read_listing(text: str) -> tuple[Device, ...]:
    """The blocks of `lspci -vvv`, with or without the domain before each address."""
    blocks = re.split(r"\n(?=\S)", text.strip("\n"))
    return tuple(_device(block) for block in blocks if address(block.split(" ", 1)[0]))


def _device(block: str) -> Device:
    where, _, title = block.partition("\n")[0].partition(" ")
    can, now = _link(block, "LnkCap"), _link(block, "LnkSta")
    below = re.search(r"secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", block)
    control = re.search(r"^\s*ACSCtl:.*ReqRedir([+-]) CmpltRedir([+-])", block, re.M)
    return Device(address(where), title, *can, *now, (int(below[1], 16), int(below[2], 16)) if below else None,
                  "+" in control.groups() if control else None)


def _link(block: str, name: str) -> tuple[int | None, int | None]:
    line = re.search(rf"^\s*{name}:(.*)$", block, re.M)
    width = re.search(r"Width x(\d+)", line[1]) if line else None
    return generation(line[1]) if line else None, int(width[1]) if width and int(width[1]) else None


def above(device: str, listing: Iterable[Device]) -> tuple[Device, ...]:
    """The bridges on the way from a device to the root, nearest first, by the ranges of buses below each."""
    domain, bus = device.split(":")[0], int(device.split(":")[1], 16)
    holding = [item for item in listing if item.buses and item.address.split(":")[0] == domain
               and item.buses[0] <= bus <= item.buses[1]]
    return tuple(sorted(holding, key=lambda item: (item.buses or (0, 0))[1] - (item.buses or (0, 0))[0]))


def listed_slot(device: str, listing: tuple[Device, ...]) -> Slot:
    """A device's link by lspci: its own block and that of the port above it."""
    card = next((item for item in listing if item.address == device), None)
    port = next(iter(above(device, listing)), None)
    if card is None:
        return Slot()
    return Slot(card.generation, card.width, port.generation if port else None, port.width if port else None,
                card.now_generation, card.now_width)


def redirecting(buses: Iterable[str], listing: tuple[Device, ...]) -> tuple[str, ...] | None:
    """Bridges above these devices whose ACS sends peer-to-peer packets to the root; None where lspci tells no ACS."""
    bridges = {bridge.address: bridge for bus in buses if bus for bridge in above(bus, listing)}
    if not any(bridge.redirects is not None for bridge in bridges.values()):
        return None
    return tuple(sorted(place for place, bridge in bridges.items() if bridge.redirects))


def iommu(host: Host) -> str:
    """`off`, `passthrough`, `on`, or "" where nothing tells: the default domain's type, the kernel's command line."""
    kind = (host.read("/sys/kernel/iommu_groups/0/type") or "").strip()
    if kind:
        return "passthrough" if kind == "identity" else "on"
    command = f" {(host.read('/proc/cmdline') or '').strip()} "
    if re.search(r" (?:amd_|intel_)?iommu=off ", command):
        return "off"
    units = host.run(("ls", "/sys/class/iommu"))
    if units is None:
        return ""
    if not units.strip():
        return "off"
    return "passthrough" if re.search(r" iommu=pt | iommu\.passthrough=1 ", command) else "on"
