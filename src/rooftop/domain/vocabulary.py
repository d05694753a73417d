"""The closed list of facts and error kinds that engines may report."""

import re
from dataclasses import dataclass
from typing import Literal

from rooftop.domain.launch import Evidence, Fact, Level

LEVELS: tuple[Level, ...] = ("asked", "resolved", "built", "used")
Kind = Literal["int", "float", "str", "bool", "enum"]
Class = Literal["fatal", "stall", "degraded", "bottleneck", "none"]


@dataclass(frozen=True, slots=True)
class Term:
    """What one fact may be: its type, the levels that can be proven for it, its unit and the words of an enum."""

    kind: Kind
    levels: tuple[Level, ...]
    meaning: str
    unit: str = ""
    allowed: tuple[str, ...] = ()


def _term(kind: Kind, levels: str, meaning: str, unit: str = "", allowed: str = "") -> Term:
    """`levels` are the first letters of asked, resolved, built, used."""
    return Term(kind, tuple(level for level in LEVELS if level[0] in levels), meaning, unit, tuple(allowed.split()))


_KV_DTYPES = "auto bf16 fp16 fp32 fp8 fp8_e4m3 fp8_e5m2 fp4 int8 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl"
_GRAPHS = "off full piecewise breakable"
_TRANSPORTS = "p2p shm net_socket net_ib nvls mixed"
_REFUSED = "full full_decode_only full_and_piecewise piecewise breakable"

FACTS: dict[str, Term] = {
    "layout.tp": _term("int", "arb", "tensor-parallel size"),
    "layout.pp": _term("int", "arb", "pipeline stages"),
    "layout.dp": _term("int", "arb", "data-parallel replicas"),
    "layout.attention_dp": _term("int", "arb", "attention replicas inside the tensor-parallel group"),
    "layout.ep": _term("int", "arb", "expert-parallel size"),
    "layout.dcp": _term("int", "arb", "decode context-parallel size"),
    "layout.world_size": _term("int", "rb", "ranks of the whole deployment", "ranks"),
    "layout.ranks_seen": _term("str", "b", "highest rank named on each axis (dp pp tp ep gpu), zeros left out"),
    "layout.split_mode": _term("enum", "arb", "how a model is cut over GPUs", allowed="none layer row tensor"),
    "layout.layers_off_gpu": _term("int", "b", "layers that stayed on the CPU", "layers"),
    "kv.tokens": _term("int", "arb", "KV capacity", "tokens"),
    "kv.dtype": _term("enum", "arb", "number format of the KV cache", allowed=_KV_DTYPES),
    "kv.gib_per_gpu": _term("float", "b", "KV memory of the fullest GPU", "GiB"),
    "kv.full_requests": _term("float", "rb", "requests of full context length that fit", "requests"),
    "limits.max_running": _term("int", "ar", "most requests that may run at once", "requests"),
    "limits.max_model_len": _term("int", "ar", "context length of one request", "tokens"),
    "limits.chunk_tokens": _term("int", "ar", "most prompt tokens in one step", "tokens"),
    "limits.fitting_tokens": _term("int", "r", "longest request that fits, as the engine says", "tokens"),
    "limits.memory_share": _term("float", "ar", "share of GPU memory that may be taken", "share"),
    "limits.memory_share_advised": _term("float", "r", "share that the engine tells the user to set", "share"),
    "graphs.decode.mode": _term("enum", "arbu", "CUDA graph kind of pure decode steps", allowed=_GRAPHS),
    "graphs.decode.max_batch": _term("int", "arb", "largest decode batch with a graph", "requests"),
    "graphs.decode.sizes_count": _term("int", "rb", "decode batch sizes captured", "sizes"),
    "graphs.decode.used_share": _term("float", "u", "share of decode steps that replayed a graph", "share"),
    "graphs.prefill.mode": _term("enum", "arbu", "CUDA graph kind of prefill and mixed steps", allowed=_GRAPHS),
    "graphs.prefill.sizes_count": _term("int", "rb", "prefill or mixed sizes captured", "sizes"),
    "graphs.refused_mode": _term("enum", "a", "graph mode that was wanted and given up", allowed=_REFUSED),
    "graphs.refused_by": _term("str", "r", "part that made the engine give it up"),
    "graphs.memory_gib": _term("float", "rb", "memory of the decode graphs on one GPU", "GiB"),
    "attention.backend": _term("str", "arbu", "attention backend of the target model"),
    "attention.draft_backend": _term("str", "arbu", "attention backend of the draft model"),
    "moe.backend": _term("str", "arbu", "kernel family that runs the experts"),
    "moe.a2a_backend": _term("str", "arb", "all-to-all used for experts"),
    "moe.kernel_table": _term("enum", "b", "tuned kernel table of the experts", allowed="exact other_version default"),
    "quant.method": _term("str", "arb", "weight format in force"),
    "quant.linear_kernel": _term("str", "rb", "kernel of the dense quantized layers"),
    "allreduce.backend": _term("str", "rbu", "first all-reduce in dispatch order"),
    "allreduce.custom": _term("bool", "arbu", "the engine's own all-reduce kernel is there"),
    "allreduce.symm_mem": _term("bool", "arb", "symmetric-memory all-reduce is there"),
    "nccl.transport": _term("enum", "b", "how NCCL channels are connected", allowed=_TRANSPORTS),
    "nccl.p2p": _term("bool", "ab", "peer-to-peer allowed, as NCCL says"),
    "nccl.channels": _term("int", "b", "collective channels of the main communicator", "channels"),
    "nccl.gpu_direct": _term("bool", "b", "GPUDirect RDMA is in force"),
    "prefix_cache.enabled": _term("bool", "arbu", "prompt prefixes are kept and found again"),
    "prefix_cache.hit_rate": _term("float", "u", "share of prompt tokens taken from the cache", "share"),
    "overlap.enabled": _term("bool", "aru", "the scheduler overlaps with the GPU step"),
    "overlap.pipeline": _term("bool", "arb", "micro-batches are pipelined over GPUs"),
    "spec.enabled": _term("bool", "arbu", "speculative decoding is on"),
    "spec.method": _term("str", "ar", "speculation method"),
    "spec.accept_length": _term("float", "u", "mean tokens accepted in a step", "tokens"),
    "memory.weights_gib": _term("float", "b", "weights on the fullest GPU", "GiB"),
    "memory.free_gib": _term("float", "b", "free memory of the fullest GPU", "GiB"),
    "memory.kv_budget_gib": _term("float", "r", "memory left for KV on one GPU", "GiB"),
    "memory.kv_needed_gib": _term("float", "r", "KV memory that one full request needs on one GPU", "GiB"),
    "startup.load_s": _term("float", "b", "model loading", "s"),
    "startup.compile_s": _term("float", "b", "torch.compile in total", "s"),
    "startup.graphs_s": _term("float", "b", "capture of the decode graphs", "s"),
    "startup.draft_graphs_s": _term("float", "b", "capture of the draft model's graphs", "s"),
    "startup.total_s": _term("float", "b", "the engine's own sum for getting ready", "s"),
    "startup.ready": _term("bool", "bu", "the server said that it is ready, or answered with tokens"),
    "live.running": _term("int", "u", "requests running in the last sample", "requests"),
    "live.queued": _term("int", "u", "requests waiting in the last sample", "requests"),
    "live.kv_usage": _term("float", "u", "used share of the KV pool in the last sample", "share"),
    "live.gen_tok_s": _term("float", "u", "generation rate of the last sample", "token/s"),
    "live.prompt_tok_s": _term("float", "u", "prompt rate of the last sample", "token/s"),
    "error.gpu": _term("int", "r", "device number named by the error"),
    "error.needed_bytes": _term("float", "r", "bytes that the failed request asked for", "bytes"),
    "error.limit_bytes": _term("int", "r", "hardware limit that the error quotes", "bytes"),
    "error.width": _term("int", "r", "size that cannot be cut"),
    "error.multiple_of": _term("int", "r", "what that size must be a multiple of"),
}

ERRORS: dict[str, tuple[Class, str]] = {
    "oom_weights": ("fatal", "out of memory while weights load"),
    "oom_kv": ("fatal", "the KV cache allocation itself failed"),
    "oom_graph_capture": ("fatal", "out of memory while graphs are captured"),
    "oom_compute": ("fatal", "a working buffer did not fit"),
    "no_memory_for_kv": ("fatal", "nothing is left for KV after weights"),
    "kv_too_small_for_context": ("fatal", "the KV cache holds less than one request of the configured length"),
    "request_too_long": ("degraded", "a request was refused because it is too long"),
    "peer_process_holds_memory": ("fatal", "something else holds memory of this device"),
    "heads_not_divisible": ("fatal", "attention heads cannot be cut by this tp"),
    "fp8_block_not_divisible": ("fatal", "a quantized matrix cut by tp is no multiple of its block or group"),
    "layout_not_supported": ("fatal", "the engine refuses this layout for this model or host"),
    "kernel_missing_for_gpu": ("fatal", "the build has no kernel for this GPU"),
    "kernel_shared_memory": ("fatal", "a kernel asks for more shared memory than the GPU has"),
    "cuda_driver_mismatch": ("fatal", "driver and CUDA libraries do not match"),
    "model_not_found": ("fatal", "model folder, file or repository cannot be read"),
    "model_config_invalid": ("fatal", "the model's configuration is incomplete, contradictory or unknown here"),
    "unknown_flag": ("fatal", "the command line holds an option that this version does not know"),
    "flag_ambiguous": ("fatal", "an option matches several"),
    "flag_not_effective": ("degraded", "a value asked for was ignored or overridden"),
    "port_in_use": ("fatal", "the port is taken"),
    "shm_too_small": ("fatal", "/dev/shm is too small"),
    "nccl_error": ("fatal", "a collective failed or never completed"),
    "p2p_hang": ("stall", "the start stops once GPUs begin to talk"),
    "p2p_unavailable": ("degraded", "traffic between GPUs does not use peer-to-peer"),
    "worker_died": ("fatal", "a worker or peer rank ended"),
    "segfault_first_token": ("fatal", "the start was fine and the process crashed at a request"),
    "compile_in_progress_not_hang": ("none", "compilation before readiness, with notices that are expected"),
    "slow_start": ("degraded", "a start-up phase took a minute or more"),
    "hang_after_ready": ("stall", "start-up was over and then workers stopped answering"),
    "graphs_downgraded": ("degraded", "the engine gave up the wanted graph mode for a lesser one"),
    "graph_ceiling_below_batch": ("bottleneck", "batches may run above the largest captured size"),
    "graphs_not_used": ("bottleneck", "no decode step replays a graph"),
    "kv_capacity_bound": ("bottleneck", "the KV pool is nearly full while requests run or wait"),
    "allreduce_fallback": ("degraded", "a fast all-reduce is not available"),
    "kernel_fallback": ("degraded", "a generic, emulated or untuned kernel stands in for the fast one"),
    "partial_offload": ("degraded", "layers or KV sit on the CPU"),
    "degraded_start": ("degraded", "an allocation failed at start and the server went on with less"),
    "layout_poor": ("bottleneck", "the layout works but wastes"),
    "prefill_starves_decode": ("bottleneck", "steps are full of prompt tokens while requests wait"),
    "warm_prefix_cache": ("none", "the measurement reads a warm prefix cache"),
    "unknown": ("fatal", "the log does not tell"),
}


def stops(kind: str) -> bool:
    """Whether an error of this kind means that nothing is served: it did not start, died or stands still."""
    return ERRORS[kind][0] in ("fatal", "stall")


def state(fact: str, value: Fact, level: Level, source: str, line: int, text: str) -> Evidence:
    """Evidence whose name, level, type and word are in the vocabulary.  Raises ValueError for anything else."""
    term = FACTS.get(fact)
    if term is None:
        raise ValueError(f"{fact} is no fact of the vocabulary")
    if level not in term.levels:
        raise ValueError(f"{fact} cannot be {level}: only {', '.join(term.levels)}")
    if term.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    wanted: type = {"int": int, "float": float, "bool": bool}.get(term.kind, str)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"{fact} must be {term.kind}, not {value!r}")
    if term.allowed and value not in term.allowed:
        raise ValueError(f"{fact} must be one of {', '.join(term.allowed)}, not {value!r}")
    return Evidence(fact, value, level, source, line, text)


def same(fact: str, one: Fact, other: Fact) -> bool:
    """Whether two values of a fact mean the same: names by their letters and digits, floats within half a per cent."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= 0.005 * max(abs(one), abs(other)) if isinstance(one + other, float) else one == other
    if fact == "layout.ranks_seen":
        return str(one).lower() == str(other).lower()
    return _bare(str(one)) == _bare(str(other))


def _bare(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower()).replace("attention", "attn")
    plain = plain.removeprefix("attnbackendenum")
    return re.sub(r"(backend|all2allmanager)$", "", plain) or plain


def strongest(evidence: tuple[Evidence, ...]) -> dict[str, Evidence]:
    """The evidence of the highest level for each fact; of several at that level, the last one."""
    best: dict[str, Evidence] = {}
    for item in evidence:
        known = best.get(item.fact)
        if known is None or LEVELS.index(item.level) >= LEVELS.index(known.level):
            best[item.fact] = item
    return best
