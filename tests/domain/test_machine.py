"""Machines: PCIe rates, the link between two ranks, the link that bounds a group."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.machine import Gpu, Group, Link, Machine, Slot, pcie_bytes_per_s

NVLINK = Link("nvlink", 50e9)
SWITCH = Link("pcie_switch", 60e9)
SOCKET = Link("inter_socket", 40e9, shared_by=4)


def box(*groups: Group, count: int = 8, nodes: int = 1, network: Link | None = None) -> Machine:
    return Machine("box", "", 0, 0, tuple(Gpu(f"gpu {n}") for n in range(count)), groups=groups, nodes=nodes,
                   network=network)


@pytest.mark.parametrize(("generation", "width", "gb_per_s"), [
    (1, 16, 4.0), (2, 4, 2.0), (3, 16, 15.754), (4, 16, 31.508), (5, 16, 63.015), (5, 8, 31.508), (6, 16, 121.0)])
def test_pcie_rates_are_those_of_the_specification(generation: int, width: int, gb_per_s: float) -> None:
    assert pcie_bytes_per_s(generation, width) == pytest.approx(gb_per_s * 1e9, rel=1e-4)


@pytest.mark.parametrize(("generation", "width"), [(0, 16), (7, 16), (4, 0), (4, 3), (4, -8)])
def test_there_is_no_such_pcie_link(generation: int, width: int) -> None:
    with pytest.raises(ValueError, match="there is no PCIe"):
        pcie_bytes_per_s(generation, width)


@pytest.mark.parametrize(("slot", "generation", "width"), [
    (Slot(5, 16), 5, 16), (Slot(5, 16, 4, 16, 1, 16), 4, 16), (Slot(4, 16, 4, 8, 1, 8), 4, 8),
    (Slot(4, 16, None, None, 1, 4), 4, 4),
    (Slot(None, 16), None, 16), (Slot(), None, None)])
def test_a_slot_is_as_good_as_its_lesser_part(slot: Slot, generation: int | None, width: int | None) -> None:
    """The generation of the moment does not count, the lanes that are up do."""
    assert (slot.used_generation, slot.used_width) == (generation, width)
    known = pcie_bytes_per_s(generation, width) if generation and width else None
    assert slot.bytes_per_s == known


def test_a_link_of_no_known_generation_has_no_rate() -> None:
    assert Slot(9, 16).bytes_per_s is None
    assert Slot(4, 5).bytes_per_s is None


def test_the_smallest_group_says_how_two_gpus_meet() -> None:
    machine = box(Group(tuple(range(8)), SOCKET), Group((0, 1, 2, 3), SWITCH), Group((0, 1), NVLINK))
    assert machine.pair(0, 1) == machine.pair(1, 0) == NVLINK
    assert machine.pair(1, 2) == SWITCH
    assert machine.pair(3, 4) == machine.pair(4, 5) == SOCKET
    assert machine.pair(4, 5).share_bytes_per_s == 10e9


def test_what_no_group_says_is_unknown() -> None:
    assert box(Group((0, 1), NVLINK)).pair(0, 2) == Link("unknown")
    assert box().pair(0, 1).bytes_per_s is None


@pytest.mark.parametrize("pair", [(0, 8), (-1, 0), (8, 0), (3, 3)])
def test_there_is_no_such_pair(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="GPU"):
        box(Group(tuple(range(8)), SOCKET)).pair(*pair)


def test_ranks_count_through_the_nodes() -> None:
    network = Link("network", 25e9)
    machine = box(Group((0, 1), NVLINK), count=2, nodes=3, network=network)
    assert machine.world == 6
    assert [machine.gpu(rank).name for rank in range(6)] == ["gpu 0", "gpu 1"] * 3
    assert machine.pair(4, 5) == NVLINK
    assert machine.pair(1, 2) == network
    assert box(count=2, nodes=2).pair(0, 2) == Link("unknown")


def test_the_slowest_link_bounds_a_group() -> None:
    machine = box(Group(tuple(range(8)), SOCKET), Group((0, 1, 2, 3), SWITCH), Group((0, 1), NVLINK))
    assert machine.slowest([0]) is None
    assert machine.slowest([]) is None
    assert machine.slowest([0, 1]) == NVLINK
    assert machine.slowest([0, 1, 1, 0]) == NVLINK
    assert machine.slowest([0, 1, 2]) == NVLINK  # 50 GB/s against 60
    assert machine.slowest(range(8)) == SOCKET


def test_a_link_of_unknown_speed_bounds_all() -> None:
    assert box(Group((0, 1), NVLINK)).slowest([0, 1, 2]) == Link("unknown")


def test_equal_rates_are_told_apart_by_latency_and_distance() -> None:
    near, far = Link("pcie_host_bridge", 60e9), Link("inter_socket", 60e9)
    assert box(Group((0, 1, 2), far), Group((0, 1), near)).slowest([0, 1, 2]) == far
    late = Link("pcie_switch", 60e9, latency_s=2e-6)
    assert box(Group((0, 1, 2), far), Group((0, 1), late)).slowest([0, 1, 2]) == late


@given(st.lists(st.floats(1e9, 1e12), min_size=3, max_size=3), st.sets(st.integers(0, 7), min_size=2))
def test_no_pair_of_a_group_is_slower_than_its_slowest(rates: list[float], ranks: set[int]) -> None:
    machine = box(Group(tuple(range(8)), Link("inter_socket", rates[0])),
                  Group((0, 1, 2, 3), Link("pcie_switch", rates[1])), Group((4, 5), Link("nvlink", rates[2])))
    slowest = machine.slowest(ranks)
    assert slowest is not None
    assert slowest.bytes_per_s == min(machine.pair(*pair).bytes_per_s or 0 for pair in combinations(ranks, 2))
