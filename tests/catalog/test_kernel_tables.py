"""Kernel times of another package: found without running it, read by shape, the newest version and fastest kernel."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rooftop.catalog import gpus, kernel_tables
from rooftop.domain.stepcost import Shape

EXPERTS = Shape("moe", "int4", (7168, 2048, 384, 8, 8, 1))
CACHE = Shape("attention", "bf16", (8, 1, 128))


def test_systems_are_gpus_of_the_catalog() -> None:
    assert {sheet.name for sheet in gpus.known()} >= set(kernel_tables.SYSTEMS.values())


def test_without_the_package_there_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_tables, "PACKAGE", "no_such_package")
    assert kernel_tables.folder() is None


def test_the_package_is_found_but_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    room = tmp_path / "told_of_kernels"
    (room / "systems" / "data").mkdir(parents=True)
    (room / "__init__.py").write_text("raise SystemExit('run')", encoding="utf-8")
    monkeypatch.setattr(kernel_tables, "PACKAGE", room.name)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kernel_tables.folder() == room / "systems" / "data"
    assert room.name not in sys.modules


def test_the_last_version_counts(tmp_path: Path) -> None:
    for version in ("0.5.9", "0.5.14", "0.5.9.post2"):
        place = tmp_path / "h100_sxm" / "moe" / "sglang" / version
        place.mkdir(parents=True)
        (place / "moe_perf.parquet").touch()
    found = kernel_tables.newest(tmp_path, "h100_sxm", "moe", "sglang")
    assert found is not None
    assert found.parent.name == "0.5.14"
    assert kernel_tables.newest(tmp_path, "h100_sxm", "moe", "vllm") is None


def test_grids_of_a_made_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    experts = [{"kernel_source": source, "moe_dtype": word, "num_tokens": tokens, "hidden_size": 7168,
                "inter_size": 2048, "topk": 8, "num_experts": 384, "moe_tp_size": 8, "moe_ep_size": 1,
                "distribution": routing, "latency": latency}
               for source, word, tokens, routing, latency in (
                   ("slow", "int4_wo", 1, "power_law_1.2", 0.03), ("fast", "int4_wo", 1, "power_law_1.2", 0.02),
                   ("fast", "int4_wo", 8, "power_law_1.2", 0.09), ("fast", "int4_wo", 1, "balanced", 0.01),
                   ("fast", "nvfp4", 1, "power_law_1.2", 0.001), ("x_nongated", "int4_wo", 1, "power_law_1.2", 0.001))]
    cache = [{"kernel_source": "any", "kv_cache_dtype": "bfloat16", "num_heads": 8, "num_key_value_heads": 1,
              "head_dim": 128, "window_size": window, "batch_size": batch, "step": 127, "latency": latency}
             for window, batch, latency in ((0, 4, 0.01), (128, 4, 0.001), (0, 1, 0.008))]
    write(tmp_path / "h100_sxm/moe/vllm/1.0/moe_perf.parquet", experts)
    write(tmp_path / "h100_sxm/attention/vllm/1.0/generation_attention_perf.parquet", cache)
    found = {one.shape: one for one in kernel_tables.grids(
        tmp_path, "H100 SXM", "vllm", [EXPERTS, CACHE, Shape("mla", "bf16", (8,))])}
    assert [point[:2] for point in found[EXPERTS].points] == [(1.0, 0.0), (8.0, 0.0)]
    assert [point[2] for point in found[EXPERTS].points] == pytest.approx([2e-5, 9e-5])
    assert found[CACHE].points == ((1.0, 128.0, 8e-6), (4.0, 128.0, 1e-5))
    assert found[CACHE].source.endswith("attention/vllm/1.0/generation_attention_perf.parquet; 2 kernel times")
    assert len(found) == 2
    assert kernel_tables.grids(tmp_path, "RTX 3090", "vllm", [EXPERTS]) == ()


def write(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True)
    arrow: Any = import_module("pyarrow")
    import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), file)
