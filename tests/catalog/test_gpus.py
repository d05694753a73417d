"""The table of GPUs: whole, plausible, found by any of its names; what is wrong is named."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import gpus
from rooftop.catalog.gpus import Sheet
from rooftop.errors import BadInput

WHOLE = """
["X 1"]
vendor = "nvidia"
fabric = ""
nominal_gb = [24, "seen"]
memory_gb_per_s = [900, "seen"]
pcie_generation = [4, "seen"]
pcie_lanes = [16, "seen"]
tdp_w = [300, "seen"]
"""


def test_there_is_a_sheet_for_every_gpu_people_serve_on() -> None:
    names = {sheet.name for sheet in gpus.known()}
    assert len(names) == len(gpus.known()) >= 34
    assert names >= {"H100 SXM", "H200 SXM", "B200 SXM", "A100 80GB SXM", "RTX PRO 6000 Blackwell Server", "L40S",
                     "RTX 4090", "RTX 3090", "RTX 5090", "MI300X"}


@pytest.mark.parametrize("sheet", gpus.known(), ids=lambda sheet: sheet.name)
def test_every_figure_is_plausible_and_has_a_source(sheet: Sheet) -> None:
    gpu = sheet.gpu
    for _, (number, source) in sheet.figures:
        assert number > 0
        assert source.strip()
    assert gpu.nominal_bytes is not None
    assert 16e9 <= gpu.nominal_bytes <= 300e9
    if gpu.memory_bytes is not None:
        assert 0.93 <= gpu.memory_bytes / gpu.nominal_bytes <= 1.08
    assert gpu.memory_bytes_per_s is not None
    assert 200e9 <= gpu.memory_bytes_per_s <= 8.1e12
    half = gpu.flops_per_s("bf16") or gpu.flops_per_s("fp16")
    assert half is not None
    assert 10 <= half / gpu.memory_bytes_per_s <= 600  # operations a byte
    fp8 = gpu.flops_per_s("fp8")
    assert fp8 is None or 0.9 <= fp8 / half <= 2.1
    assert gpu.slot is not None
    assert gpu.slot.bytes_per_s is not None
    assert 40 <= (gpu.tdp_w or 0) <= 1500
    assert sheet.vendor != "nvidia" or re.fullmatch(r"\d+\.\d", gpu.sm)
    assert gpu.kind == sheet.name


@pytest.mark.parametrize("sheet", gpus.known(), ids=lambda sheet: sheet.name)
def test_a_gpu_is_found_by_each_of_its_names(sheet: Sheet) -> None:
    for name in (sheet.name, *sheet.aliases, sheet.name.lower(), f" {sheet.name.upper()} "):
        assert gpus.find(name) is sheet


@pytest.mark.parametrize(("said", "name"), [
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H200", "H200 SXM"), ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ("GeForce RTX 3090", "RTX 3090"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
    ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"), ("AMD Instinct MI300X OAM", "MI300X"), ("Tesla T4", "T4")])
def test_drivers_names_are_understood(said: str, name: str) -> None:
    assert gpus.sheet(said).name == name


@pytest.mark.parametrize(("said", "name"), [
    ("H100-PCIE-80GB", "H100 PCIe"), ("H100 SXM5 80GB", "H100 SXM"), ("8x H100 NVL (94 GB)", "H100 NVL"),
    ("A100 PCIe 40GB", "A100 40GB PCIe"), ("HGX B200 180GB", "B200 SXM"),
    ("RTX PRO 6000 SE", "RTX PRO 6000 Blackwell Server"), ("rtx5090", "RTX 5090"), ("A6000", "RTX A6000"),
    ("GB200 NVL72", "GB200"), ("RTX 4090D", "RTX 4090 D"), ("H20-3e", "H20 141GB"), ("AMD MI350X", "MI350X")])
def test_a_name_in_other_words_is_understood(said: str, name: str) -> None:
    assert gpus.sheet(said).name == name


@pytest.mark.parametrize(("said", "names"), [
    ("A100 40GB", ["A100 40GB SXM", "A100 40GB PCIe"]), ("V100 32GB", ["V100 SXM2 32GB", "V100 PCIe 32GB"]),
    ("RTX PRO 6000 Blackwell", ["RTX PRO 6000 Blackwell Workstation", "RTX PRO 6000 Blackwell Server",
                                "RTX PRO 6000 Blackwell Max-Q"]),
    ("RTX 4090 48GB", []), ("RTX PRO 6000 class (SM120)", []), ("RTX 4090 Laptop", []), ("", [])])
def test_what_a_name_leaves_open_is_named_most_usual_first(said: str, names: list[str]) -> None:
    assert [sheet.name for sheet in gpus.meant(said)] == names
    assert gpus.find(said) is None


@pytest.mark.parametrize(("asked", "near"), [("RTX 4091", "RTX 4090"), ("H100 SXN", "H100 SXM"), ("MI300", "MI300X")])
def test_an_unknown_gpu_names_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(BadInput, match=f"no GPU named '{asked}'") as caught:
        gpus.sheet(asked)
    assert near in caught.value.remedy
    assert caught.value.remedy.startswith("nearest: ")


def test_a_gpu_like_no_other_names_all() -> None:
    assert gpus.nearest("???").startswith("known: RTX 3090")


@pytest.mark.parametrize(("old", "new", "what"), [
    ('tdp_w = [300, "seen"]', "", "missing key 'X 1.tdp_w'"),
    ('tdp_w = [300, "seen"]', "tdp_w = 300", "X 1.tdp_w must be a list"),
    ('tdp_w = [300, "seen"]', 'tdp_w = [300, ""]', "tdp_w needs its source"),
    ('tdp_w = [300, "seen"]', 'tdp_w = [300]', "X 1.tdp_w must be a list of 2"),
    ("[900,", "[-900,", "memory_gb_per_s must be above 0, not -900"),
    ("[900,", "[0,", "memory_gb_per_s must be above 0"),
    ("[900,", "[nan,", "memory_gb_per_s must be above 0"),
    ("memory_gb_per_s", "memory_gb_s", "unknown key 'X 1.memory_gb_s'"),
    ('fabric = ""', 'fabric = "nvlink"', "X 1.fabric must be one of"),
    ('fabric = ""', 'fabric = "bridge"', "fabric and fabric_gb_per_s go together"),
    ('["X 1"]', "x = 1\n[y]", "x must be a table"),
    ('["X 1"]', '["X 1"', "not valid TOML")])
def test_what_is_wrong_in_a_table_is_named(old: str, new: str, what: str) -> None:
    with pytest.raises(BadInput, match=re.escape(what)) as caught:
        gpus.read(WHOLE.replace(old, new, 1), "mine.toml")
    assert caught.value.where == "mine.toml"


def test_a_typo_names_the_nearest_key() -> None:
    with pytest.raises(BadInput) as caught:
        gpus.read(WHOLE.replace("pcie_lanes", "pcie_lane"))
    assert caught.value.remedy == "did you mean 'pcie_lanes'?"


def test_what_is_not_known_stays_unknown() -> None:
    gpu = gpus.read(WHOLE)[0].gpu
    assert (gpu.memory_bytes, gpu.flops, gpu.fabric_bytes_per_s, gpu.sm) == (None, (), 0.0, "")
    assert gpu.flops_per_s("bf16") is None


@pytest.mark.parametrize(("name", "links", "gb_per_s"), [
    ("H100 SXM", None, 450), ("H100 SXM", 18, 450), ("A100 40GB SXM", 4, 100), ("RTX A6000", 3, 42.1875),
    ("MI300X", 1, 64),
    ("L40S", None, None), ("MI250", 1, None), ("H100 SXM", 99, 450)])
def test_some_of_the_links_carry_their_share(name: str, links: int | None, gb_per_s: float | None) -> None:
    rate = gpus.sheet(name).fabric_bytes_per_s(links)
    assert rate == (pytest.approx(gb_per_s * 1e9) if gb_per_s is not None else None)


@given(st.text(max_size=30))
def test_any_name_is_found_or_refused(name: str) -> None:
    found = gpus.find(name)
    assert found is None or gpus.plain(name)
    assert gpus.nearest(name)
