"""Matrices of nvidia-smi and rocm-smi, and groups that say the same as the pairs."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.machine import Gpu, Group, Link, Machine
from rooftop.hardware import _matrix


def links_of(groups: tuple[Group, ...], count: int) -> dict[tuple[int, int], Link]:
    machine = Machine("box", "", 0, 0, tuple(Gpu("gpu") for _ in range(count)), groups=groups)
    return {(one, other): machine.pair(one, other) for one, other in combinations(range(count), 2)}


@pytest.mark.parametrize("text", ["", "\n\n", "no devices were found", "GPU0",
                                  "\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n"])
def test_no_matrix_is_an_empty_one(text: str) -> None:
    assert _matrix.read_matrix(text).words == {}


def test_a_single_gpu_has_its_numa_node() -> None:
    matrix = _matrix.read_matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n")
    assert (matrix.words, matrix.cpus, matrix.numa) == ({}, {0: "0-15"}, {0: 0})


def test_the_old_heading_with_the_adapters_name() -> None:
    """lattice/quda#669 (2018): no NUMA column, an adapter by its name."""
    matrix = _matrix.read_matrix("\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\tPXB\tSYS\t0-13\n"
                                 "GPU1\tPIX\t X \tPXB\tSYS\t0-13\nGPU2\tPXB\tPXB\t X \tPHB\t14-27\n"
                                 "mlx5_0\tSYS\tSYS\tPHB\t X \t\n\nLegend:\n  PIX  = at most a single PCIe switch\n")
    assert matrix.words[0, 1] == "PIX"
    assert matrix.words[2, 0] == "PXB"
    assert matrix.cpus == {0: "0-13", 1: "0-13", 2: "14-27"}
    assert matrix.numa == {}


def test_column_names_that_ran_into_each_other() -> None:
    """vllm-project/vllm#31594 (2026): `NIC11NIC12`."""
    matrix = _matrix.read_matrix("        GPU0    GPU1    NIC11NIC12    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                                 "GPU0     X      NV18    NODE    PIX  0-15    0               N/A\n"
                                 "GPU1    NV18     X      PIX     NODE 16-31    1               N/A\n")
    assert matrix.words == {(0, 1): "NV18", (1, 0): "NV18"}
    assert matrix.numa == {0: 0, 1: 1}


def test_colours_do_not_matter() -> None:
    plain = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-3\nGPU1\tSYS\t X \t4-7\n"
    coloured = plain.replace("GPU", "\x1b[1;4mGPU").replace("\t", "\x1b[0m\t")
    assert _matrix.read_matrix(coloured) == _matrix.read_matrix(plain)


def test_an_empty_affinity_column_moves_no_other() -> None:
    """A container may show no processors but a node; several nodes are no node."""
    head = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    matrix = _matrix.read_matrix(head + "GPU0\t X \tNV4\t\t1\t\tN/A\nGPU1\tNV4\t X \t0,64\t0-3\t\tN/A\n")
    assert (matrix.cpus, matrix.numa) == ({1: "0,64"}, {0: 1})
    spaced = _matrix.read_matrix("  GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
                                 "GPU0 X NV4 1 N/A\nGPU1 NV4 X N/A\n")
    assert (spaced.cpus, spaced.numa) == ({}, {})
    assert spaced.words[0, 1] == "NV4"


@given(st.text(alphabet="GPUNIC0123XSY \t\n\x1b[m", max_size=200))
def test_any_text_is_read_or_empty(text: str) -> None:
    matrix = _matrix.read_matrix(text)
    assert all(one != other for one, other in matrix.words)


KINDS = (Link("nvlink", 50e9), Link("pcie_switch", 30e9, word="PIX"), Link("pcie_host_bridge", 30e9, word="PHB"),
         Link("inter_socket", 20e9), Link("unknown"))


@given(st.integers(2, 8).flatmap(lambda count: st.tuples(st.just(count), st.lists(
    st.sampled_from(KINDS), min_size=count * (count - 1) // 2, max_size=count * (count - 1) // 2))))
def test_groups_say_the_same_as_the_pairs(drawn: tuple[int, list[Link]]) -> None:
    count, links = drawn
    pairs = dict(zip(combinations(range(count), 2), links, strict=True))
    assert links_of(_matrix.group(pairs), count) == pairs


@given(st.integers(2, 8), st.data())
def test_pairs_without_a_word_stay_without(count: int, data: st.DataObject) -> None:
    every = list(combinations(range(count), 2))
    pairs = dict.fromkeys(data.draw(st.sets(st.sampled_from(every))), KINDS[0])
    expected = {pair: pairs.get(pair, Link("unknown")) for pair in every}
    assert links_of(_matrix.group(pairs), count) == expected


def test_nested_links_make_few_groups() -> None:
    def link(one: int, other: int) -> Link:
        return KINDS[1] if one // 2 == other // 2 else KINDS[2] if one // 4 == other // 4 else KINDS[3]

    pairs = {pair: link(*pair) for pair in combinations(range(8), 2)}
    groups = _matrix.group(pairs)
    assert [group.gpus for group in groups] == [
        (0, 1), (2, 3), (4, 5), (6, 7), (0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))]
