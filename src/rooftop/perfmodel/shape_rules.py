"""What shapes allow: heads, experts, widths, quantization blocks, layers."""

from rooftop.domain.architecture import Matrix
from rooftop.perfmodel.case import Case, Reason
from rooftop.perfmodel.cuts import OWN_BLOCKS, VOCAB_BLOCK, stages, width_of

NO_TENSOR_SPLIT = frozenset((
    "grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe",
    "deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5", "nemotron_h", "nemotron_h_moe",
    "granitehybrid", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3",
    "glm5-next", "qwen3tts"))
"""Architectures for which llama.cpp refuses split mode tensor (src/llama-arch.cpp:1196, build 11434)."""


def heads(case: Case) -> Reason:
    """Query heads, and heads of linear attention, are cut whole."""
    width = case.ranks.attention
    group = f"tp {width}" if width == case.layout.tp else f"attention groups of {width} (tp / attention-dp)"
    for kind in case.architecture.attention:
        what = "linear attention heads" if kind.kind == "linear" else "attention heads"
        for name, count in (("value" if kind.kind == "linear" else "query", kind.heads),
                            *((("key", kind.kv_heads),) if kind.kind == "linear" else ())):
            if count % width:
                return f"{count} {what} ({name}) do not divide by {group}"
    return None


def kv_heads(case: Case) -> Reason:
    """KV heads are cut whole, or each is copied to as many ranks."""
    width = case.ranks.attention
    for kind in case.architecture.attention:
        count = kind.kv_heads
        if kind.kind in ("linear", "mla", "compressed") or width == 1:
            continue
        if count % width if count >= width else width % count:
            how = "divide by" if count >= width else "divide"
            return f"{count} KV heads do not {how} the {width} ranks of attention"
    return None


def vocabulary(case: Case) -> Reason:
    """vLLM pads the vocabulary to whole blocks of 64 and then divides it."""
    padded, tp = -(-case.architecture.vocab // VOCAB_BLOCK) * VOCAB_BLOCK, case.layout.tp
    return f"{case.architecture.vocab} words, padded to {padded}, do not divide by tp {tp}" if padded % tp else None


def experts(case: Case) -> Reason:
    """Whole experts, as many on each rank."""
    experts, ep = case.architecture.experts, case.layout.ep
    redundant = case.whole("ep-num-redundant-experts")
    if experts is None or (experts.count + redundant) % ep == 0:
        return None
    more = f" and {redundant} redundant ones" if redundant else ""
    return f"{experts.count} experts{more} do not divide by ep {ep}"


def widths(case: Case) -> Reason:
    """A matrix cut in its width must leave each rank as much."""
    ranks = case.ranks
    for matrix in case.architecture.matrices:
        width, full = width_of(matrix, ranks), _along(matrix)
        padded = matrix.format.name in OWN_BLOCKS and matrix.cut == "experts"
        if matrix.cut in ("width", "experts") and full % width and not padded:
            return f"{_name(matrix)}: {full} does not divide by {_by(matrix, case)}"
    return None


def blocks(case: Case) -> Reason:
    """A share of a quantized matrix must be of whole quantization blocks."""
    ranks = case.ranks
    for matrix in case.architecture.matrices:
        width, full = width_of(matrix, ranks), _along(matrix)
        block = matrix.format.block_rows if matrix.axis == "rows" else matrix.format.block_cols
        if width == 1 or block < 2 or matrix.format.name in OWN_BLOCKS or matrix.cols == 1 or matrix.cut == "vocab":
            continue
        share = full // min(width, matrix.pieces) if matrix.cut == "kv_heads" and matrix.pieces else full // width
        if share % block:
            return (f"{_name(matrix)}: {full} at {_by(matrix, case)} is {share} a rank, and {matrix.format.name} needs "
                    f"a multiple of {block}")
    return None


def _along(matrix: Matrix) -> int:
    return matrix.rows if matrix.axis == "rows" else matrix.cols


def _name(matrix: Matrix) -> str:
    part = {"shared_experts": "shared experts"}.get(matrix.part, matrix.part)
    return f"{part} {matrix.name} ({'rows' if matrix.axis == 'rows' else 'cols'})"


def _by(matrix: Matrix, case: Case) -> str:
    width = width_of(matrix, case.ranks)
    if matrix.cut != "experts":
        return f"tp {width}"
    return f"moe_tp {width} (tp{' x dp' if case.engine == 'vllm' and case.layout.dp > 1 else ''} / ep)"


def every_stage(case: Case) -> Reason:
    """No stage without a layer."""
    layers, pp = case.architecture.layers, case.layout.pp
    if pp > layers:
        return f"pp {pp} needs {pp} layers, {case.architecture.name} has {layers}"
    sizes = [len(stage) for stage in stages(case.engine, layers, pp)]
    return f"stage {sizes.index(0)} of {pp} would hold no layer of {layers}" if 0 in sizes else None


def no_experts(case: Case) -> Reason:
    """ep on a dense model."""
    if case.layout.ep > 1 and case.architecture.experts is None:
        return f"{case.architecture.name} has no experts for ep {case.layout.ep}"
    return None


def dcp_heads(case: Case) -> Reason:
    """vLLM shares out by context what GQA would copy."""
    tp, dcp = case.layout.tp, case.layout.dcp
    for kind in case.architecture.attention if dcp > 1 else ():
        if kind.kind in ("mla", "linear"):
            continue
        if tp <= kind.kv_heads:
            return f"tp {tp} does not exceed {kind.kv_heads} KV heads: no rank holds a copy to share out"
        if dcp > tp // kind.kv_heads:
            return f"dcp {dcp} exceeds the {tp // kind.kv_heads} ranks that hold the same KV head at tp {tp}"
        if (kind.heads // kind.kv_heads) % dcp:
            return f"{kind.heads // kind.kv_heads} query heads a KV head do not divide by dcp {dcp}"
    return None


def dcp_gain(case: Case) -> Reason:
    """SGLang takes dcp anywhere; where no cache is copied it gains nothing."""
    ranks_held = case.ranks.attention
    kinds = [kind for kind in case.architecture.attention if kind.kind != "linear"]
    if case.layout.dcp > 1 and all(kind.kind != "mla" and ranks_held <= kind.kv_heads for kind in kinds):
        return f"every one of {ranks_held} ranks has KV heads of its own: dcp {case.layout.dcp} saves nothing"
    return None


def tensor_split(case: Case) -> Reason:
    """Architectures that llama.cpp does not cut."""
    family = case.architecture.family
    return f"split mode tensor is not made for {family}" if case.layout.tp > 1 and family in NO_TENSOR_SPLIT else None


def context(case: Case) -> Reason:
    """A context flag beyond what the model was made for."""
    flag = {"sglang": "context-length", "vllm": "max-model-len"}[case.engine]
    asked, longest = case.whole(flag), case.architecture.context
    if longest and asked > longest:
        return f"--{flag} {asked} exceeds the {longest} tokens that {case.architecture.name} was made for"
    return None
