"""For which decode batches an engine captures graphs, and at which size a batch runs."""

import re
from bisect import bisect_left
from collections.abc import Mapping

from rooftop.domain.architecture import Architecture
from rooftop.domain.plan import Plan, SettingValue
from rooftop.perfmodel.budget import sglang_defaults
from rooftop.perfmodel.case import case_of

EAGER = {"disable-cuda-graph": "true", "enforce-eager": "true", "cuda-graph-backend-decode": "disabled"}
LISTS = {"sglang": ("cuda-graph-bs-decode", "cuda-graph-bs"), "vllm": ("cudagraph-capture-sizes",)}
LARGEST = {"sglang": ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"), "vllm": ("max-cudagraph-capture-size",)}
"""Flags that list the captured batches, and that name the largest; the newer of two first."""
USUAL = 512


def captured(plan: Plan, architecture: Architecture, settings: Mapping[str, SettingValue]) -> tuple[int, ...]:
    """The captured batches in rising order; () without graphs.

    SGLang: 1, 2, 4, 8, 12, 16 to 256 by 8, to 512 by 16, on by 32, up to a largest that depends on the GPU's memory
    (S:arg_groups/cuda_graph_hook.py:478, memory_hook.py:84-160).  vLLM: 1, 2, 4, to 248 by 8, on by 16, up to
    min(2 x max-num-seqs, 512; 1024 on compute capability 10) (V:config/vllm.py:2398-2610).
    """
    if any(str(settings.get(name, "")).lower() == value for name, value in EAGER.items()):
        return ()
    engine = plan.engine or ""
    for name in LISTS.get(engine, ()):
        listed = sorted({int(number) for number in re.findall(r"\d+", str(settings.get(name, "")))} - {0})
        if listed:
            return tuple(listed)
    most = next((value for name in LARGEST.get(engine, ()) if (value := _whole(settings.get(name)))), 0)
    most = most or _largest(plan, architecture, settings)
    usual = (1, 2, 4, 8, 12, *range(16, 256, 8), *range(256, 512, 16), *range(512, most + 1, 32)) \
        if engine == "sglang" else (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16))
    return (*(size for size in usual if size < most), most)


def padded(requests: int, sizes: tuple[int, ...]) -> int:
    """The captured batch at which a decode step of so many requests runs; itself above the largest."""
    place = bisect_left(sizes, requests)
    return sizes[place] if place < len(sizes) else requests


def _largest(plan: Plan, architecture: Architecture, settings: Mapping[str, SettingValue]) -> int:
    gpu = plan.machine.gpus[0] if plan.machine and plan.machine.gpus else None
    if plan.engine == "sglang" and gpu is not None and gpu.memory_bytes is not None:
        return max(1, int(sglang_defaults(case_of(plan, architecture), gpu.memory_bytes / 2**20)
                          ["cuda-graph-max-bs-decode"]))
    if plan.engine == "vllm":
        seqs = _whole(settings.get("max-num-seqs"))
        limit = 2 * USUAL if gpu is not None and gpu.sm.startswith("10.") else USUAL
        return min(2 * seqs, limit) if seqs else limit
    return USUAL


def _whole(value: SettingValue | None) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
