"""Fits catalog/kernels.csv to measured kernel times, for each engine and for all together: `kernels.py FOLDER`.

FOLDER is `systems/data` of an unpacked aiconfigurator-core 0.12.0 wheel (Apache-2.0): kernel times by operation, engine
and GPU, measured alone.  Needs pyarrow.  The fit is time = base + max(bytes / (memory x bandwidth), operations /
(compute x peak)) by least absolute log error; attention's share of bandwidth is memory x B / (B + fill) for a batch B.
Data-sheet bandwidths and peaks come from rooftop's own catalog.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

from rooftop.catalog import gpus
from rooftop.catalog.kernel_tables import CACHES, FILES, FORMATS, SYSTEMS, newest, skipped
from rooftop.perfmodel.efficiency import generation

ENGINES = ("sglang", "trtllm", "vllm")
EVEN = "balanced"
"""The routing of kernels of experts that are fitted: how many experts they met is known."""
ATTENDS = ("attention", "mla")
TOKENS = {"gemm": "m", "moe": "num_tokens"} | dict.fromkeys(("attention", "mla", "linear"), "")
DECODE = 64
"""Tokens of a kernel up to which it is taken for one of a decode step."""
LEAST, MOST = 60, 4000
"""Rows of a table that are worth a fit, and that are drawn from one."""
CACHES_MB = {"a100_sxm": 40, "h100_sxm": 50, "h200_sxm": 50, "b200_sxm": 126, "b300_sxm": 126, "gb200": 126,
             "l40s": 96, "rtx_pro_6000_server": 128}
"""Second-level caches (data sheets, recalled): a kernel timed again and again finds there what fits, a model not."""
SMALL_MB = 4
"""Bytes up to which a kernel's time is all base, cached or not."""
MOST_SHARE = 0.92
"""No share of bandwidth above what streams of bytes reach on such GPUs (recalled: 3.07 of an H100's 3.35 TB/s)."""


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
    if operation == "linear":
        state = row["num_v_heads"] * row["head_k_dim"] * row["head_v_dim"]
        return "bf16", 8.0 * row["batch_size"] * state, 4.0 * row["batch_size"] * state, "bf16"
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


def fit(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """(base, share of bandwidth, share of peak, fill) and the median absolute log error of a step's kernels.

    rows: memory us, compute us, measured us, batch, tokens.  Base, share of bandwidth and fill come from kernels of up
    to DECODE tokens, the share of peak from larger ones, since no one straight line holds for both.
    """
    small, large = rows[rows[:, 4] <= DECODE], rows[rows[:, 4] > DECODE]
    filled = bool(rows[:, 3].max() > 1)
    found = descend(small, np.log([4.0, 0.7, 0.5, 0.3]), (0, 1, 2, 3) if filled else (0, 1, 2))
    off = float(np.median(np.abs(errors(small, found))))
    if len(large) >= LEAST:
        found = descend(large, found, (2,))
    values = np.exp(found)
    return np.array([*values[:3], values[3] if filled else 0.0]), off


def errors(rows: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Logarithm of predicted over measured."""
    base, high, top, fill = np.exp(point)
    memory, compute, times, batch, _ = rows.T
    reach = high * (batch / (batch + fill) if batch.max() > 1 else 1.0)
    return np.log(base + np.maximum(memory / reach, compute / top)) - np.log(times)


def descend(rows: np.ndarray, start: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The logarithms of the constants that err least, moving only along `axes`."""
    wide = np.array([1.5, 0.7, 0.7, 1.0])

    def loss(point: np.ndarray) -> float:
        far = max(0.0, point[1] - np.log(MOST_SHARE)) * 100
        return float(np.mean(np.sqrt(1 + (errors(rows, point) / 0.2) ** 2) - 1)
                     + 0.002 * np.sum(((point - start) / wide) ** 2) + far)

    point, step = start.copy(), np.array([0.5, 0.3, 0.3, 0.5])
    best = loss(point)
    for _ in range(60):
        for axis in axes:
            for sign in (1, -1):
                other = point.copy()
                other[axis] += sign * step[axis]
                found = loss(other)
                if found < best:
                    best, point = found, other
                    break
        step *= 0.85
    return point


def uncached(rows: np.ndarray, bandwidth: float, cache_mb: float) -> np.ndarray:
    """The rows whose bytes a cache cannot hold or hardly have; all, where these are too few to fit both constants."""
    moved, decode = rows[:, 0] * bandwidth / 1e12, rows[:, 4] <= DECODE
    small, large = moved <= SMALL_MB, moved >= cache_mb
    enough = (small & decode).sum() >= LEAST // 2 and (large & decode).sum() >= 2 * LEAST
    return rows[small | large] if enough else rows


def gather(folder: Path, operation: str, rng: np.random.Generator) -> Iterator[tuple[str, str, str, str, np.ndarray]]:
    """(generation, format, engine, system, rows as `fit` takes them) of an operation."""
    for system, name in SYSTEMS.items():
        gpu = gpus.sheet(name).gpu
        for engine in ENGINES:
            file = newest(folder, system, operation, engine)
            groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
            for row in parquet.read_table(file).to_pylist() if file else ():
                left_out = skipped(operation, engine, system, row) or row.get("distribution", EVEN) != EVEN
                found = None if left_out else work(operation, row)
                if found:
                    form, size, flops, peak = found
                    rate = gpu.flops_per_s(peak) or gpu.flops_per_s("bf16") or 0.0
                    groups[form].append((size / (gpu.memory_bytes_per_s or 1) * 1e6, flops / rate * 1e6,
                                         row["latency"] * 1e3, row["batch_size"] if operation in ATTENDS else 1,
                                         row.get(TOKENS[operation], 1)))
            for form, rows in groups.items():
                if len(rows) >= LEAST:
                    array = uncached(np.array(rows), gpu.memory_bytes_per_s or 1, CACHES_MB[system])
                    yield generation(gpu), form, engine, system, array[rng.permutation(len(array))[:MOST]]


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    print("generation,operation,format,engine,base_us,memory,compute,fill,rows,error,systems")
    for operation in FILES:
        pools: dict[tuple[str, str, str], list[np.ndarray]] = defaultdict(list)
        systems: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for made, form, engine, system, array in gather(folder, operation, rng):
            for key in ((made, form, ""), (made, form, engine)):
                pools[key].append(array)
                systems[key].add(system)
        for (made, form, engine), arrays in sorted(pools.items()):
            array = np.concatenate(arrays)
            (base, high, top, fill), off = fit(array)
            print(f"{made},{operation},{form},{engine},{base:.1f},{high:.2f},{top:.2f},{fill:.2f},{len(array)},"
                  f"{off:.2f},{' '.join(sorted(systems[made, form, engine]))}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
