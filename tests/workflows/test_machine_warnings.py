"""Each warning: a machine where it comes up, and one like it where it does not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rooftop.catalog import machines
from rooftop.domain.finding import Finding
from rooftop.domain.machine import Gpu, GpuState, Group, Link, Machine, Slot
from rooftop.workflows.machine_warnings import warnings

L40S = replace(machines.machine("L40S").gpus[0], numa=0, slot=Slot(4, 16, 4, 16, 1, 16))
BRIDGE = Link("pcie_host_bridge", 31.5e9)


def box(*gpus: Gpu, link: Link = BRIDGE) -> Machine:
    gpus = gpus or (L40S, L40S)
    return Machine("box", "", 0, 0, gpus, groups=(Group(tuple(range(len(gpus))), link),), iommu="passthrough", acs=())


def state(**told: object) -> Gpu:
    return replace(L40S, state=replace(GpuState(), **told))  # type: ignore[arg-type]


def slot(*told: int | None) -> Gpu:
    return replace(L40S, slot=Slot(*told))


def rules(found: Sequence[Finding]) -> list[str]:
    return [finding.rule for finding in found]


def test_a_sound_machine_has_no_warnings() -> None:
    assert warnings(box()) == ()
    assert warnings(Machine("no GPUs", "", 2, 1)) == ()
    assert warnings(machines.machine("8x H200 SXM")) == ()


FIRES: tuple[tuple[str, Machine, str], ...] = (
    ("narrow_slot", box(slot(4, 16, 4, 16, 4, 4), L40S), "GPU 0 has 4 of 16 PCIe lanes"),
    ("narrow_slot", box(L40S, slot(4, 16, 4, 8, 1, 8)), "GPU 1 has 8 of 16 PCIe lanes"),
    ("old_port", box(slot(4, 16, 3, 16, 3, 16)), "GPU 0 can do PCIe 4, its port only PCIe 3"),
    ("p2p_blocked", box(link=replace(BRIDGE, p2p=False, p2p_word="GNS")), "P2P is blocked between GPU 0 and 1"),
    ("other_socket", replace(box(L40S, replace(L40S, numa=1), link=Link("inter_socket", 20e9)), sockets=2),
     "GPU 0 and GPU 1 reach each other only over the link between sockets"),
    ("other_numa_node", replace(box(L40S, replace(L40S, numa=1), link=Link("inter_socket", 20e9)), sockets=1),
     "GPU 0 and 1 sit on different NUMA nodes of one socket"),
    ("mixed_gpus", box(L40S, replace(L40S, name="NVIDIA L4", kind="L4", memory_bytes=None)), "the GPUs are of 2 kinds"),
    ("memory_held", box(state(used_bytes=20 << 30)), "20.0 GiB of 45.0 GiB of GPU 0 are in use"),
    ("persistence_off", box(state(persistence=False), state(persistence=False)), "persistence mode is off on GPU 0, 1"),
    ("mig_on", box(state(mig=True)), "MIG is on on GPU 0"),
    ("power_capped", box(state(power_limit_w=280.0)), "GPU 0 may draw 280 of 350 W"),
    ("less_memory", box(replace(L40S, memory_bytes=40 << 30)), "GPU 0 reports 40.0 GiB, others of its kind 45.0 GiB"),
    ("acs_on", replace(box(), acs=("0000:00:01.1",)), "ACS sends the GPUs' peer-to-peer packets up to the root"),
    ("iommu_on", replace(box(), iommu="on"), "the IOMMU translates what the GPUs send"),
    ("nvlink_down", replace(machines.machine("2x H100 SXM"), sockets=1,
                            groups=(Group((0, 1), Link("inter_socket", word="SYS")),)),
     "GPU 0 and GPU 1 do not reach each other over NVLink"),
    ("nvlink_partial", replace(machines.machine("2x RTX A6000"), groups=(Group((0, 1), Link("nvlink", width=3)),)),
     "3 of 4 NVLinks of GPU 0 are up"))


@pytest.mark.parametrize(("rule", "machine", "claim"), FIRES, ids=[case[2][:40] for case in FIRES])
def test_a_warning_comes_up_and_says_what_to_do(rule: str, machine: Machine, claim: str) -> None:
    found = [finding for finding in warnings(machine) if finding.rule == rule]
    assert [finding.claim for finding in found] == [claim]
    assert found[0].remedy


SILENT: tuple[tuple[str, Machine], ...] = (
    ("an idle link has a lower generation", box(slot(4, 16, 4, 16, 1, 16))),
    ("a card with eight lanes on eight", box(slot(5, 8, 5, 16, 5, 8))),
    ("a slot of which nothing is known", box(slot())),
    ("P2P that works", box(link=replace(BRIDGE, p2p=True))), ("P2P that was not told", box()),
    ("what a driver alone takes", box(state(used_bytes=600 << 20, persistence=True, mig=False, power_limit_w=350.0))),
    ("ACS and IOMMU where all is NVLink", replace(box(link=Link("nvlink", 50e9)), acs=("0000:00:01.1",), iommu="on")),
    ("ACS and IOMMU of one GPU", replace(box(L40S), acs=("0000:00:01.1",), iommu="on")),
    ("ACS that was not told", replace(box(), acs=None, iommu="")),
    ("NVLink of four GPUs in pairs of four links", replace(machines.machine("4x A100 40GB SXM"), groups=(
        Group((0, 1, 2, 3), Link("nvlink", 100e9, width=4)),))),
    ("a GPU of no known memory", box(replace(L40S, memory_bytes=None, state=GpuState(used_bytes=1 << 40)))))


@pytest.mark.parametrize(("why", "machine"), SILENT, ids=[why for why, _ in SILENT])
def test_no_warning_where_nothing_is_wrong(why: str, machine: Machine) -> None:
    assert rules(warnings(machine)) == []


def test_a_warning_of_an_idle_link_says_so() -> None:
    """A port that is narrow for good needs no second look; a width of the moment does."""
    moment, good = (warnings(box(slot(4, 16, 4, port, 1, 8)))[0] for port in (16, 8))
    assert moment.rule == good.rule == "narrow_slot"
    assert "look again under load" in moment.remedy
    assert "look again under load" not in good.remedy


def test_memory_that_others_hold_is_named_by_its_program() -> None:
    found = warnings(box(state(used_bytes=30 << 30, processes=(("python3.12", 29 << 30), ("Xorg", None)))))[0]
    assert found.evidence == ("python3.12: 29.0 GiB", "Xorg: size not told")
    assert "another container" in warnings(box(state(used_bytes=30 << 30)))[0].evidence[0]


def test_the_other_socket_names_the_sides_and_a_way_to_stay_on_one() -> None:
    found = next(f for f in warnings(machines.machine("8x-rtx-pro-6000-two-sockets")) if f.rule == "other_socket")
    assert found.evidence == ("NUMA node 0: GPU 0-3", "NUMA node 1: GPU 4-7")
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in found.remedy


def test_ecc_explains_less_memory() -> None:
    card = replace(L40S, memory_bytes=43 << 30)
    assert "ECC takes a sixteenth" in warnings(box(replace(card, state=GpuState(ecc=True))))[0].remedy
    assert "MIG" in warnings(box(replace(card, state=GpuState(ecc=False))))[0].remedy
