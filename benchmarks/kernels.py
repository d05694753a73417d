"""Fits the [[kernel]] tables of catalog/efficiency.toml to measured kernel times: `kernels.py FOLDER`.

FOLDER is `systems/data` of an unpacked aiconfigurator-core 0.12.0 wheel (Apache-2.0): kernel times by operation, engine
and GPU, measured alone.  Needs pyarrow.  The fit is time = base + max(bytes / (memory x bandwidth), operations /
(compute x peak)) by least absolute log error; attention's share of bandwidth is memory x B / (B + fill) for a batch B.
Data-sheet bandwidths and peaks come from rooftop's own catalog.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

from rooftop.catalog import gpus
from rooftop.perfmodel.efficiency import generation

SYSTEMS = {"a100_sxm": "A100 80GB SXM", "h100_sxm": "H100 SXM", "h200_sxm": "H200 SXM", "b200_sxm": "B200 SXM",
           "b300_sxm": "B300 SXM", "gb200": "GB200", "l40s": "L40S",
           "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server"}
FILES = {"gemm": "gemm/*/*/gemm_perf.parquet", "moe": "moe/*/*/moe_perf.parquet",
         "attention": "attention/*/*/generation_attention_perf.parquet",
         "mla": "mla/*/*/generation_mla_perf.parquet"}
FORMATS = {"bfloat16": ("bf16", 16.0, "bf16"), "fp8": ("fp8", 8.0, "fp8"), "fp8_block": ("fp8 block", 8.0, "fp8"),
           "nvfp4": ("nvfp4", 4.5, "fp4"), "int4_wo": ("int4", 4.5, "bf16"), "w4a16_mxfp4": ("mxfp4", 4.25, "bf16"),
           "w4a8_mxfp4_mxfp8": ("mxfp4", 4.25, "fp8")}
CACHES = {"bfloat16": ("bf16", 2), "fp8": ("fp8", 1)}
ODD = ("nongated", "situ", "modeloptfp8moe_flashinfer_cutlass")
MOST = 4000
MOST_SHARE = 0.95
"""No share of bandwidth above: tables that read the same bytes again find them in the second-level cache."""


def skipped(operation: str, engine: str, system: str, row: dict[str, Any]) -> bool:
    """Kernels that the engines do not choose, or whose times hold launch costs (vLLM's fp8 blocks, 67 to 112 us)."""
    source = row["kernel_source"]
    if any(word in source for word in ODD):
        return True
    if operation == "gemm":
        return (engine, row["gemm_dtype"]) in (("vllm", "fp8_block"), ("trtllm", "fp8"), ("trtllm", "int4_wo"))
    if operation == "moe":
        odd = {"sglang_flashinfer_cutlass_moe": "bfloat16", "sglang_fused_moe_triton": "w4a16_mxfp4"}
        return row["distribution"] != "balanced" or odd.get(source) == row["moe_dtype"]
    if operation == "mla" and engine == "trtllm" and not system.startswith(("h", "b", "g")):
        return True
    return operation == "mla" and (engine, row["kv_cache_dtype"]) == ("sglang", "fp8") and system.startswith("h")


def work(operation: str, row: dict[str, Any]) -> tuple[str, float, float, str] | None:
    """(format, bytes, operations, name of the peak) of one row; None where it is outside what a model serves."""
    if operation == "gemm":
        name, bits, peak = FORMATS.get(row["gemm_dtype"], ("", 0.0, ""))
        m, n, k = row["m"], row["n"], row["k"]
        if not name or n < 512 or k < 256 or n * k > 2.5e8 or m > 8192:
            return None
        return name, n * k * bits / 8 + 2 * m * (n + k), 2.0 * m * n * k, peak
    if operation == "moe":
        name, bits, peak = FORMATS.get(row["moe_dtype"], ("", 0.0, ""))
        tokens, experts, top = row["num_tokens"], row["num_experts"], row["topk"]
        ep, tp, hidden = row["moe_ep_size"], row["moe_tp_size"], row["hidden_size"]
        if not name or tokens > 8192 or experts < 32 or ep > 8 or tp > 8:
            return None
        width, active = row["inter_size"] / tp, min(experts / ep, max(1.0, tokens * top / ep))
        return (name, active * 3 * hidden * width * bits / 8 + 4 * tokens * hidden,
                6.0 * tokens * top / ep * hidden * width, peak)
    name, size = CACHES[row["kv_cache_dtype"]]
    length, batch, heads = row["step"], row["batch_size"], row["num_heads"]
    if length < 127 or batch > 256:
        return None
    if operation == "mla":
        return name, batch * length * 576.0 * size, 2.0 * batch * length * heads * (576 + 512), "bf16"
    if row.get("window_size") or row.get("head_dim", 128) != 128 or heads > 64:
        return None
    return (name, batch * length * 256.0 * row["num_key_value_heads"] * size, 4.0 * batch * length * heads * 128,
            "bf16")


def fit(memory: np.ndarray, compute: np.ndarray, times: np.ndarray, batch: np.ndarray) -> tuple[np.ndarray, float]:
    """(base, share of bandwidth, share of peak, fill) and the median absolute log error, by coordinate descent."""
    filled = bool(batch.max() > 1)
    start = np.log([4.0, 0.7, 0.5, 0.3])
    wide = np.array([1.5, 0.7, 0.7, 1.0])

    def error(point: np.ndarray) -> np.ndarray:
        base, high, top, fill = np.exp(point)
        reach = high * (batch / (batch + fill) if filled else 1.0)
        return np.log(base + np.maximum(memory / reach, compute / top)) - truth

    def loss(point: np.ndarray) -> float:
        rest = error(point)
        far = max(0.0, point[1] - np.log(MOST_SHARE)) * 100
        return float(np.mean(np.sqrt(1 + (rest / 0.2) ** 2) - 1) + 0.002 * np.sum(((point - start) / wide) ** 2) + far)

    truth, point, step = np.log(times), start.copy(), np.array([0.5, 0.3, 0.3, 0.5])
    best = loss(point)
    for _ in range(60):
        for axis in range(4 if filled else 3):
            for sign in (1, -1):
                other = point.copy()
                other[axis] += sign * step[axis]
                found = loss(other)
                if found < best:
                    best, point = found, other
                    break
        step *= 0.85
    found = np.exp(point)
    if not filled:
        found[3] = 0.0
    return found, float(np.median(np.abs(error(point))))


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for operation, pattern in FILES.items():
        pools: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
        sources: dict[tuple[str, str], set[str]] = defaultdict(set)
        for system, name in SYSTEMS.items():
            gpu = gpus.sheet(name).gpu
            latest = {file.parts[-3]: file for file in sorted((folder / system).glob(pattern))}
            for engine, file in latest.items():
                groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
                for row in parquet.read_table(file).to_pylist():
                    found = None if skipped(operation, engine, system, row) else work(operation, row)
                    if found:
                        form, size, flops, peak = found
                        rate = gpu.flops_per_s(peak) or gpu.flops_per_s("bf16") or 0.0
                        groups[form].append((size / (gpu.memory_bytes_per_s or 1) * 1e6, flops / rate * 1e6,
                                             row["latency"] * 1e3, row.get("batch_size", 1)))
                for form, rows in groups.items():
                    if len(rows) < 60:
                        continue
                    array = np.array(rows)
                    key = generation(gpu), form
                    pools[key].append(array[rng.permutation(len(array))[:MOST]])
                    sources[key].add(system)
        for (made, form), arrays in sorted(pools.items()):
            array = np.concatenate(arrays)
            (base, high, top, fill), off = fit(*array.T)
            filling = f"fill = {fill:.2f}\n" if fill else ""
            print(f'[[kernel]]\ngeneration = "{made}"\noperation = "{operation}"\nformat = "{form}"\n'
                  f"base_us = {base:.1f}\nmemory = {high:.2f}\ncompute = {top:.2f}\n{filling}"
                  f'source = "table: aiconfigurator-core 0.12.0, {", ".join(sorted(sources[made, form]))}; '
                  f'{len(array)} kernel times, median error {off * 100:.0f} %"\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
