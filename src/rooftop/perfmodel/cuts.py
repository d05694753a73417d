"""How a layout cuts a model: layers to stages, matrices to ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from rooftop.domain.architecture import Matrix
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, SettingValue

VOCAB_BLOCK = 64
"""Rows to which the vocabulary is padded before it is cut (SGLang and vLLM, vocab_parallel_embedding.py)."""
OWN_BLOCKS = ("mxfp4",)
"""Formats whose cut weights the engines pad to whole blocks themselves, so that no width is refused."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Over how many ranks an engine cuts each kind of matrix; 1 = every rank holds all of it.

    attention, embedding, head, mlp, shared: ranks that share a matrix.  experts: ranks that share the experts out
    among themselves; expert_width: ranks that share one expert.
    """

    attention: int
    embedding: int
    head: int
    mlp: int
    shared: int
    experts: int
    expert_width: int


def settings_of(plan: Plan) -> dict[str, SettingValue]:
    """The plan's flags by name, with dashes and without leading ones; a later flag wins."""
    return {setting.name.lstrip("-").replace("_", "-"): setting.value for setting in plan.settings}


def ranks(engine: str, layout: Layout, settings: Mapping[str, SettingValue]) -> Ranks:
    """The widths at which an engine cuts (SGLang runtime_context.py:138, deepseek_v2.py:875-897 and 2069-2160,
    vocab_parallel_embedding.py; vLLM fused_moe/config.py:1105-1215 and parallel.py:768 for the shared experts).
    """
    tp = layout.tp
    if engine == "sglang":
        attention = tp // layout.attention_dp
        apart = str(settings.get("moe-a2a-backend", "none")) not in ("none", "ascend_tp")
        dense = settings.get("moe-dense-tp-size")
        head = attention if settings.get("enable-dp-lm-head") is True else tp
        return Ranks(attention, attention, head, 1 if dense == 1 else tp, 1 if apart else tp, layout.ep,
                     max(1, tp // layout.ep))
    if engine == "vllm":
        shared = 1 if layout.ep > 1 and tp > 1 and layout.dp > 1 else tp
        return Ranks(tp, tp, tp, tp, shared, layout.ep, 1 if layout.ep > 1 else tp * layout.dp)
    return Ranks(tp, 1, tp, tp, tp, 1, tp)


def width_of(matrix: Matrix, ranks: Ranks) -> int:
    """Over how many ranks a matrix is cut along its axis."""
    match matrix.cut:
        case "whole":
            return 1
        case "heads" | "kv_heads":
            return ranks.attention
        case "experts":
            return ranks.expert_width
        case "vocab":
            return ranks.embedding if matrix.part == "embedding" else ranks.head
        case "width":
            return ranks.shared if matrix.part == "shared_experts" else ranks.mlp


def cut_size(matrix: Matrix, ranks: Ranks) -> tuple[int, int]:
    """Rows and cols of one rank's share, rounded up to what it must hold.

    KV heads fewer than ranks are copied: a rank holds one whole head.  The vocabulary is padded first.
    """
    width = width_of(matrix, ranks)
    full = matrix.rows if matrix.axis == "rows" else matrix.cols
    if matrix.cut == "kv_heads" and matrix.pieces:
        share = ceil(matrix.pieces / width) * (full // matrix.pieces)
    elif matrix.cut == "vocab":
        share = ceil(ceil(full / VOCAB_BLOCK) * VOCAB_BLOCK / width)
    else:
        share = ceil(full / width)
        block = matrix.format.block_rows if matrix.axis == "rows" else matrix.format.block_cols
        if width > 1 and block > 1 and matrix.format.name in OWN_BLOCKS:
            share = ceil(share / block) * block
    return (share, matrix.cols) if matrix.axis == "rows" else (matrix.rows, share) if matrix.axis else (
        matrix.rows, matrix.cols)


def share_bytes(matrix: Matrix, ranks: Ranks) -> float:
    """Bytes of one rank's share of one matrix in one layer, its experts counted as many as the rank holds."""
    rows, cols = cut_size(matrix, ranks)
    count = ceil(matrix.count / ranks.experts) if matrix.cut == "experts" else matrix.count
    return matrix.format.bytes(rows, cols) * count


def stages(engine: str, layers: int, pp: int, partition: str = "") -> tuple[tuple[int, ...], ...]:
    """The layers of each pipeline stage.

    SGLang gives the layers that are left over to the last stages (distributed/utils.py:110), vLLM to those before the
    last one, backwards (distributed/utils.py:198), llama.cpp by the share that a layer's number is of layers + 1, the
    output counting as a layer.  partition: "20,21,20", as the engines' environment variables have it.
    """
    if partition:
        sizes = [int(size) for size in partition.split(",")]
    elif engine == "llamacpp":
        homes = [layer * pp // (layers + 1) for layer in range(layers)]
        sizes = [homes.count(stage) for stage in range(pp)]
    else:
        least, over = divmod(layers, pp)
        sizes = [least] * pp
        for number in range(over):
            sizes[pp - over + number if engine == "sglang" else pp - 2 - number] += 1
    starts = [sum(sizes[:stage]) for stage in range(pp)]
    return tuple(tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True))


def held(matrix: Matrix, stage: int, pp: int, layers: frozenset[int]) -> int:
    """How many layers' worth of a matrix a stage holds (1 for one that stands before or after the layers).

    The embedding stands on the first stage, all else outside the layers on the last; where they are the same weights,
    both ends hold them and a single stage holds them once.
    """
    if matrix.layers:
        return len(layers.intersection(matrix.layers))
    if matrix.tied:
        return 1 if pp > 1 and stage == pp - 1 else 0
    return int(stage == (0 if matrix.part == "embedding" else pp - 1))


def partition_of(plan: Plan) -> str:
    """The stages' sizes that the plan's environment asks for, "" where it leaves them to the engine."""
    names = ("SGLANG_PP_LAYER_PARTITION", "VLLM_PP_LAYER_PARTITION")
    return next((str(one.value) for one in plan.environment if one.name in names), "")
