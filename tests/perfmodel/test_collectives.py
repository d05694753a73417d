"""All-reduce times: interpolation, choice of timing, opt-in kernels, nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.perfmodel.collectives import Ring, interpolate, ring

POINTS = ((1024.0, 10e-6), (16384.0, 20e-6), (1048576.0, 100e-6))


@given(st.floats(1, 1e9))
def test_times_lie_between_their_neighbours(size: float) -> None:
    found = interpolate(POINTS, size)
    if size <= 1024:
        assert found == 10e-6
    elif size >= 1048576:
        assert found == pytest.approx(100e-6 * size / 1048576)
    else:
        assert 10e-6 <= found <= 100e-6


@given(st.floats(1, 1e8), st.floats(1, 1e8))
def test_more_bytes_take_no_less(one: float, other: float) -> None:
    assert interpolate(POINTS, min(one, other)) <= interpolate(POINTS, max(one, other)) * (1 + 1e-12)


def test_a_known_point_is_what_the_table_says() -> None:
    found = ring(ledger.known(), machine("8x H200 SXM"), range(8), "sglang", {})
    latency, wire = found.time(16384)
    assert latency + wire == pytest.approx(3.71e-6, rel=0.01)
    assert "h200_sxm" in found.source


def test_one_rank_needs_no_collective() -> None:
    assert ring(ledger.known(), machine("8x H200 SXM"), range(1), "vllm", {}).time(1e6) == (0.0, 0.0)


def test_pcie_is_slower_than_nvlink_and_the_opt_in_kernel_between() -> None:
    def small(name: str, settings: dict[str, str | int | float | bool]) -> float:
        return sum(ring(ledger.known(), machine(name), range(8), "vllm", settings).time(14336))
    nvlink, pcie = small("8x H100 SXM", {}), small("8x RTX PRO 6000 Blackwell Server", {})
    direct = small("8x RTX PRO 6000 Blackwell Server", {"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "1"})
    assert nvlink < direct < pcie
    off = small("8x RTX PRO 6000 Blackwell Server", {"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "0"})
    assert off == pcie


def test_nodes_cost_a_hop() -> None:
    table = ledger.known()
    one = ring(table, machine("2x 8x H100 SXM"), range(8), "vllm", {})
    two = ring(table, machine("2x 8x H100 SXM"), range(16), "vllm", {})
    assert two.network_hops == 1
    assert sum(two.time(65536)) > sum(one.time(65536)) + 15e-6


@pytest.mark.parametrize("name", ["2x RTX 3090", "4x RTX 4090", "8x MI300X", "2x GB200", "4x L40S", "6x H100 SXM"])
def test_every_machine_finds_a_timing(name: str) -> None:
    found = ring(ledger.known(), machine(name), range(len(machine(name).gpus)), "vllm", {})
    assert isinstance(found, Ring)
    assert 1e-6 < sum(found.time(8192)) < 1e-3
