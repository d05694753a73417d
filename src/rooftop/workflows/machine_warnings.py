"""What about a machine costs people days: one rule a function, in one closed list."""

from collections.abc import Callable, Iterator
from itertools import combinations

from rooftop import units
from rooftop.catalog import gpus
from rooftop.domain.finding import Finding
from rooftop.domain.machine import Gpu, Link, Machine

HELD = 0.03
"""Share of a GPU's memory in use from which someone else holds it; drivers alone take up to about 2 %."""
LESS = 0.99
"""Share of the catalog's memory below which a card has less than it should."""
CAPPED = 0.95
"""Share of the data sheet's power below which a card is capped."""
IDLE = "an idle link lowers its generation by itself, so the number of this moment means little without load"


def warnings(machine: Machine) -> tuple[Finding, ...]:
    """Every rule's findings, in the order of the list; () for a machine that nothing is known to be wrong with."""
    return tuple(finding for rule in _RULES for finding in rule(machine))


def _mixed(machine: Machine) -> Iterator[Finding]:
    kinds = {gpu.name: [n for n, other in enumerate(machine.gpus) if other.name == gpu.name] for gpu in machine.gpus}
    if len(kinds) > 1:
        yield Finding("mixed_gpus", f"the GPUs are of {len(kinds)} kinds",
                      tuple(f"{name}: GPU {_list(numbers)}" for name, numbers in kinds.items()),
                      "serve on one kind at a time (CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER=PCI_BUS_ID): a layout "
                      "over both runs at the pace, and with the memory, of the lesser one")


def _narrow(machine: Machine) -> Iterator[Finding]:
    for number, gpu in enumerate(machine.gpus):
        slot = gpu.slot
        if slot is None or not slot.width or not slot.used_width or slot.used_width >= slot.width:
            continue
        told = [f"card x{slot.width}", f"port x{slot.host_width}" if slot.host_width else "",
                f"now x{slot.now_width}" if slot.now_width else ""]
        idle = "" if slot.host_width and slot.host_width < slot.width else (
            "; some cards lower their width when idle, so look again under load")
        yield Finding("narrow_slot", f"GPU {number} has {slot.used_width} of {slot.width} PCIe lanes",
                      (_at(gpu), ", ".join(filter(None, told))),
                      "put it into a slot with all lanes, or mind bifurcation in the BIOS, the riser and the seat of "
                      f"the card{idle}", f"up to {slot.width / slot.used_width:.3g} times its PCIe bandwidth")


def _old_port(machine: Machine) -> Iterator[Finding]:
    for number, gpu in enumerate(machine.gpus):
        slot = gpu.slot
        if slot and slot.generation and slot.host_generation and slot.host_generation < slot.generation:
            yield Finding("old_port", f"GPU {number} can do PCIe {slot.generation}, its port only PCIe "
                                      f"{slot.host_generation}", (_at(gpu),),
                          "use a port of the card's generation, or set the port's speed to automatic in the BIOS",
                          f"{2 ** (slot.generation - slot.host_generation)} times its PCIe bandwidth")


def _no_peers(machine: Machine) -> Iterator[Finding]:
    blocked = [(pair, link) for pair, link in _pairs(machine) if link.p2p is False]
    if blocked:
        words = sorted({link.p2p_word for _, link in blocked if link.p2p_word})
        reasons = {"GNS": "the GPU's driver does not offer it (usual for GeForce)", "CNS": "the chipset does not",
                   "TNS": "not over this topology", "DR": "switched off in the driver's registry"}
        yield Finding("p2p_blocked", f"P2P is blocked between {_some(pair for pair, _ in blocked)}",
                      tuple(f"{word}: {reasons.get(word, 'not supported')}" for word in words),
                      "expect tensor parallelism to copy through host memory: prefer pp or replicas, and keep custom "
                      "all-reduce kernels off")


def _far(machine: Machine) -> Iterator[Finding]:
    far = [pair for pair, link in _pairs(machine) if link.kind == "inter_socket"]
    if not far or machine.sockets == 1:
        yield from _other_node(machine, far)
        return
    sides: dict[int | None, list[int]] = {}
    for number, gpu in enumerate(machine.gpus):
        sides.setdefault(gpu.numa, []).append(number)
    side = max(sides.values(), key=len)
    who = " and ".join(f"GPU {_list(numbers)}" for numbers in sides.values()) if len(sides) > 1 else _some(far)
    yield Finding("other_socket", f"{who} reach each other only over the link between sockets",
                  tuple(f"NUMA node {node if node is not None else 'not told'}: GPU {_list(numbers)}"
                        for node, numbers in sides.items()),
                  "keep each tensor-parallel group on one socket and cross with pp or replicas: for instance "
                  f"CUDA_VISIBLE_DEVICES={','.join(map(str, side))}")


def _other_node(machine: Machine, far: list[tuple[int, int]]) -> Iterator[Finding]:
    if far:
        yield Finding("other_numa_node", f"{_some(far)} sit on different NUMA nodes of one socket",
                      tuple(f"GPU {n}: node {gpu.numa}" for n, gpu in enumerate(machine.gpus) if gpu.numa is not None),
                      "one NUMA node a socket (NPS1 or SNC off in the BIOS) makes them neighbours")


def _isolated(machine: Machine) -> Iterator[Finding]:
    """ACS and the IOMMU matter where GPUs write to each other over PCIe."""
    over_pcie = [link for _, link in _pairs(machine) if link.kind.startswith("pcie") or link.kind == "inter_socket"]
    if not over_pcie:
        return
    if machine.acs:
        yield Finding("acs_on", "ACS sends the GPUs' peer-to-peer packets up to the root",
                      tuple(f"bridge {bridge}: ReqRedir or CmpltRedir set" for bridge in machine.acs),
                      "switch ACS off in the BIOS, or with setpci on each of these bridges, unless virtual machines "
                      "share this host; it is a known cause of hangs in NCCL")
    if machine.iommu == "on":
        yield Finding("iommu_on", "the IOMMU translates what the GPUs send", ("default domain: DMA",),
                      "boot with iommu=pt, or switch the IOMMU off, where no virtual machine needs it; a known cause "
                      "of hangs and slow P2P")


def _no_fabric(machine: Machine) -> Iterator[Finding]:
    for (one, other), link in _pairs(machine):
        sheet = gpus.find(machine.gpus[one].kind)
        if sheet and sheet.fabric == "nvswitch" and link.kind not in ("nvlink", "unknown"):
            yield Finding("nvlink_down", f"GPU {one} and GPU {other} do not reach each other over NVLink",
                          (f"the topology says {link.word or link.kind}",),
                          "see whether nvidia-fabricmanager of the driver's version runs; else the board is at fault")
            return
    for number, gpu in enumerate(machine.gpus):
        sheet = gpus.find(gpu.kind)
        up = sum(link.width or 0 for pair, link in _pairs(machine) if number in pair and link.kind == "nvlink")
        if sheet and sheet.fabric_links and 0 < up < sheet.fabric_links[0]:
            yield Finding("nvlink_partial", f"{up} of {sheet.fabric_links[0]:.0f} NVLinks of GPU {number} are up", (),
                          "seat the bridge anew: a cooler or a cover may keep it from going in all the way")
            return


def _held(machine: Machine) -> Iterator[Finding]:
    for number, gpu in enumerate(machine.gpus):
        state = gpu.state
        if not state or not gpu.memory_bytes or not state.used_bytes or state.used_bytes < HELD * gpu.memory_bytes:
            continue
        who = tuple(f"{name}: {units.size(size) if size is not None else 'size not told'}"
                    for name, size in state.processes)
        yield Finding("memory_held", f"{units.size(state.used_bytes)} of {units.size(gpu.memory_bytes)} of GPU "
                                     f"{number} are in use", who or ("no process is shown: another container or user",),
                      "end what holds it, or plan with what is left")


def _less_memory(machine: Machine) -> Iterator[Finding]:
    for number, gpu in enumerate(machine.gpus):
        sheet = gpus.find(gpu.kind) if gpu.kind else None
        whole = int(sheet.reported_mib[0]) << 20 if sheet and sheet.reported_mib else None
        if gpu.memory_bytes and whole and gpu.memory_bytes < LESS * whole:
            ecc = gpu.state and gpu.state.ecc
            yield Finding("less_memory", f"GPU {number} reports {units.size(gpu.memory_bytes)}, others of its kind "
                                         f"{units.size(whole)}",
                          (_at(gpu), "ECC is on" if ecc else "ECC is off" if ecc is False else "ECC is not told"),
                          "ECC takes a sixteenth of GDDR memory (nvidia-smi -e 0 gives it back)" if ecc else
                          "see whether MIG, a virtual GPU or a card of another make is behind it")


def _settings(machine: Machine) -> Iterator[Finding]:
    states = [(number, gpu, gpu.state) for number, gpu in enumerate(machine.gpus) if gpu.state]
    loose = [number for number, _, state in states if state.persistence is False]
    if loose:
        yield Finding("persistence_off", f"persistence mode is off on GPU {_list(loose)}", (),
                      "nvidia-smi -pm 1: without it the driver unloads between programs, and each start waits for it")
    split = [number for number, _, state in states if state.mig]
    if split:
        yield Finding("mig_on", f"MIG is on on GPU {_list(split)}", (),
                      "an instance has a part of the card and no P2P: plan for the instance, or switch MIG off")
    for number, gpu, state in states:
        if state.power_limit_w and gpu.tdp_w and state.power_limit_w < CAPPED * gpu.tdp_w:
            yield Finding("power_capped", f"GPU {number} may draw {state.power_limit_w:.0f} of {gpu.tdp_w:.0f} W",
                          (_at(gpu),), "prefill slows first; nvidia-smi -pl sets another limit where cooling allows")


def _pairs(machine: Machine) -> Iterator[tuple[tuple[int, int], Link]]:
    for one, other in combinations(range(len(machine.gpus)), 2):
        yield (one, other), machine.pair(one, other)


def _at(gpu: Gpu) -> str:
    return f"{gpu.name} at {gpu.bus}" if gpu.bus else gpu.name


def _list(numbers: list[int]) -> str:
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _some(pairs: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> str:
    listed = [f"GPU {one} and {other}" for one, other in pairs]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more pairs" if len(listed) > 3 else "")


_RULES: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    _held, _no_fabric, _no_peers, _isolated, _narrow, _old_port, _far, _mixed, _less_memory, _settings)
