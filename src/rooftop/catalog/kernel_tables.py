"""Kernel times of an installed aiconfigurator-core, read from its parquet files as grids.

Only its data files are read (Apache-2.0, NVIDIA), never its code and never the serving measurements beside them.  Needs
pyarrow, which that package brings along; both are the extra `tables`.
"""

import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rooftop.domain.stepcost import Grid, Shape

PACKAGE = "aiconfigurator_core"
SYSTEMS = {"a100_sxm": "A100 80GB SXM", "h100_sxm": "H100 SXM", "h200_sxm": "H200 SXM", "b200_sxm": "B200 SXM",
           "b300_sxm": "B300 SXM", "gb200": "GB200", "l40s": "L40S",
           "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server"}
"""Its folder for a GPU -> the catalog's name."""
FILES = {"gemm": "gemm/{}/*/gemm_perf.parquet", "moe": "moe/{}/*/moe_perf.parquet",
         "attention": "attention/{}/*/generation_attention_perf.parquet",
         "mla": "mla/{}/*/generation_mla_perf.parquet", "linear": "linear_attention/{}/*/gdn_perf.parquet"}
FORMATS = {"bfloat16": ("bf16", 16.0, "bf16"), "fp8": ("fp8", 8.0, "fp8"), "fp8_block": ("fp8 block", 8.0, "fp8"),
           "nvfp4": ("nvfp4", 4.5, "fp4"), "int4_wo": ("int4", 4.5, "bf16"), "w4a16_mxfp4": ("mxfp4", 4.25, "bf16"),
           "w4a8_mxfp4_mxfp8": ("mxfp4", 4.25, "fp8")}
"""Its words for weights -> (the ledger's, bits a weight with its scales, the peak that bounds it)."""
CACHES = {"bfloat16": ("bf16", 2), "fp8": ("fp8", 1)}
ROUTING = ("power_law_1.2", "balanced")
"""Routing of the tables, the more lifelike first: the ledger's own routing is as skewed as the first."""
ODD = ("nongated", "situ", "modeloptfp8moe_flashinfer_cutlass")
SIZES = {"moe": ("hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size"),
         "attention": ("num_heads", "num_key_value_heads", "head_dim"), "mla": ("num_heads",)}
"""Columns that are a shape's sizes, in the order of `Shape.sizes`."""
WORDS = {"moe": "moe_dtype", "attention": "kv_cache_dtype", "mla": "kv_cache_dtype"}


def skipped(operation: str, engine: str, system: str, row: Mapping[str, Any]) -> bool:
    """Kernels that the engines do not choose, or whose times hold launch costs (vLLM's fp8 blocks, 67 to 112 us)."""
    source = row["kernel_source"]
    if any(word in source for word in ODD):
        return True
    if operation == "gemm":
        return (engine, row["gemm_dtype"]) in (("vllm", "fp8_block"), ("trtllm", "fp8"), ("trtllm", "int4_wo"))
    if operation == "moe":
        odd = {"sglang_flashinfer_cutlass_moe": "bfloat16", "sglang_fused_moe_triton": "w4a16_mxfp4"}
        return bool(odd.get(source) == row["moe_dtype"])
    if operation == "linear":
        return "packed_decode" not in source or not row["phase"].startswith("gen")
    if operation == "mla" and engine == "trtllm" and not system.startswith(("h", "b", "g")):
        return True
    return operation == "mla" and (engine, row["kv_cache_dtype"]) == ("sglang", "fp8") and system.startswith("h")


def folder() -> Path | None:
    """The data of an installed aiconfigurator-core, whose code is not run; None where it or pyarrow is missing."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found else None
    if not places or importlib.util.find_spec("pyarrow") is None:
        return None
    data = Path(next(iter(places))) / "systems" / "data"
    return data if data.is_dir() else None


def newest(data: Path, system: str, operation: str, engine: str) -> Path | None:
    """The file of an engine's last version that was timed; None where there is none."""
    files = (data / system).glob(FILES[operation].format(engine))
    return max(files, key=lambda file: _version(file.parent.name), default=None)


def grids(data: Path, gpu: str, engine: str, shapes: Iterable[Shape]) -> tuple[Grid, ...]:
    """The kernel times of those of the shapes that were timed on a GPU (the catalog's name) with an engine's kernels.

    Where several kernels were timed for a point, the fastest counts: engines choose so.
    """
    system = next((system for system, name in SYSTEMS.items() if name == gpu), None)
    if system is None:
        return ()
    found = []
    for shape in sorted(set(shapes), key=str):
        file = newest(data, system, shape.operation, engine) if shape.operation in SIZES else None
        points = _points(_rows(file, shape.operation), shape, engine, system) if file else ()
        if points and file:
            source = f"table: aiconfigurator-core, {file.relative_to(data)}; {len(points)} kernel times"
            found.append(Grid(gpu, engine, shape, points, source))
    return tuple(found)


def _points(rows: Mapping[tuple[object, ...], list[dict[str, Any]]], shape: Shape, engine: str, system: str
            ) -> tuple[tuple[float, float, float], ...]:
    best: dict[tuple[str, float, float], float] = {}
    for row in rows.get(shape.sizes, ()):
        word = FORMATS.get(row[WORDS[shape.operation]], ("",))[0]
        if word != shape.format or skipped(shape.operation, engine, system, row):
            continue
        at = (float(row["num_tokens"]), 0.0) if shape.operation == "moe" else (float(row["batch_size"]),
                                                                             float(row["step"] + 1))
        key = (row.get("distribution", ""), *at)
        best[key] = min(best.get(key, float("inf")), row["latency"] * 1e-3)
    routing = next((one for one in (*ROUTING, "") if any(key[0] == one for key in best)), "")
    return tuple(sorted((rows_, context, time) for (kind, rows_, context), time in best.items() if kind == routing))


@cache
def _rows(file: Path, operation: str) -> dict[tuple[object, ...], list[dict[str, Any]]]:
    """A file's rows by the sizes of their shape; windowed attention is left out."""
    parquet: Any = import_module("pyarrow.parquet")
    found: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in parquet.read_table(file).to_pylist():
        if not row.get("window_size"):
            found[tuple(row[name] for name in SIZES[operation])].append(row)
    return dict(found)


def _version(name: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in name.split("."))
