"""Each engine's own arithmetic of what a GPU's memory may be used for."""

from dataclasses import dataclass

from rooftop.domain.fit import Use
from rooftop.domain.machine import Gpu
from rooftop.domain.plan import Plan, Setting
from rooftop.perfmodel import memory
from rooftop.perfmodel.case import Case
from rooftop.perfmodel.memory import GIB, MIB

VLLM_SHARE = 0.92
"""`--gpu-memory-utilization` where it is not given (V:config/cache.py; 0.9 before 0.2x)."""
OTHERS = "held by other processes"
IDLE_BYTES = 512 * MIB
"""What an idle card may show as used."""
STATE_RATIO, STATES_A_REQUEST = 0.9, 3
"""SGLang: memory of recurrent states to that of the KV cache, and states that a running request may hold
(fields/schedule.py:220, kv_cache_configurator.py:227; up to 5 with its extra buffer)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What an engine allows on one GPU.

    total: memory that CUDA shows.  allowed: for weights, KV cache and whatever in `charged`.  uses: all that is neither
    weights nor KV cache; those whose purpose is in `charged` are taken from what is allowed.
    settings: the flags, given or default, that the arithmetic went by.  share: name of the flag behind `allowed`.
    under, factor: `allowed` falls by factor x bytes with each use of these purposes.
    requests: the engine's limit on running requests, None = none.
    """

    total: float
    allowed: float
    uses: tuple[Use, ...]
    charged: tuple[str, ...]
    settings: tuple[Setting, ...]
    share: str = ""
    under: tuple[str, ...] = ("system",)
    factor: float = 1.0
    requests: int | None = None

    def room(self, end: str = "") -> float:
        """Bytes for weights and KV cache; with "low" or "high" as they would be at that end of each estimate."""
        moved = sum(_at(use, end) - use.bytes for use in self.uses if use.purpose in self.under)
        return self.allowed - self.factor * moved - self.charge(end)

    def charge(self, end: str = "") -> float:
        """Bytes taken from what is allowed; with "low" or "high" at that end of each estimate."""
        return sum(_at(use, end) for use in self.uses if use.purpose in self.charged)

    @property
    def base(self) -> float:
        """The bytes that `share` is a share of."""
        return self.allowed / self.factor

    @property
    def most_share(self) -> float:
        """The share at which the high end of all estimates leaves nothing over; what is charged lies inside it."""
        return (self.total - self.rest("high") + self.charge("high")) / self.base

    def rest(self, end: str = "") -> float:
        """Bytes of all that is neither weights nor KV cache, memory that CUDA does not show aside."""
        return sum(_at(use, end) for use in self.uses if use.purpose != "system" or use.basis == "rule")


def _at(use: Use, end: str) -> float:
    value = use.low if end == "low" else use.high if end == "high" else None
    return use.bytes if value is None else value


def budget(case: Case, gpu: Gpu, stage: tuple[int, int], host_bytes: int, plan: Plan) -> Budget:
    """The engine's budget on one GPU of a `stage` (its number, its layers); without GPUs, of the host's memory.

    Raises ValueError for a GPU whose memory is not known.
    """
    if case.engine == "llamacpp":
        return _llamacpp(case, gpu, host_bytes)
    if gpu.memory_bytes is None:
        raise ValueError(f"the memory of {gpu.name} is not known")
    reported = float(gpu.memory_bytes)
    hidden = _hidden(reported)
    if case.engine == "sglang":
        return _sglang(case, reported, hidden, stage, gpu)
    return _vllm(case, reported - hidden.bytes, hidden, stage, gpu, plan)


def _hidden(reported: float) -> Use:
    """What the driver reports but CUDA does not show: 0.4 GiB and 0.12 %, by logs (24 GB cards 0.36 to 0.48, H100 0.46,
    96 GB cards 0.62, H200 0.6 to 0.68, B200 0.71, A100 80 GB 0.75 to 0.86).
    """
    return Use("system", 0.4 * GIB + 0.0012 * reported, basis="estimate", low=0.3 * GIB, high=0.9 * GIB,
               note="what the driver keeps")


def _others(gpu: Gpu) -> tuple[Use, ...]:
    """What other processes held at the moment of looking, where a driver told."""
    used = (gpu.state.used_bytes or 0) if gpu.state else 0
    return (Use("system", float(used), basis="rule", note=OTHERS),) if used > IDLE_BYTES else ()


def _links(case: Case, gpu: Gpu) -> tuple[float, float, float]:
    """Bytes of communication buffers and their bounds: with NVLink 2.0 to 2.2 GiB at tp 2 to 8 (vLLM 0.19 and SGLang
    0.5 on H100 and H200: NCCL, custom all-reduce, symmetric memory), over PCIe about 0.6; 0.1 between stages alone.
    """
    if case.layout.tp > 1:
        return (0.6 * GIB, 0.2 * GIB, 2.2 * GIB) if gpu.fabric_bytes_per_s == 0 else (2.1 * GIB, 0.4 * GIB, 2.6 * GIB)
    return (0.1 * GIB, 0.0, 0.6 * GIB) if case.layout.pp > 1 else (0.0, 0.0, 0.0)


def sglang_defaults(case: Case, gpu_mib: float) -> dict[str, float]:
    """SGLang's defaults by the device's memory in MiB: chunk, largest decode graph, mem-fraction-static.

    share = (G - R) / G to three digits; R = 512 + 1.5 max(chunk, 2048) + 128 tp pp + 2 graph + (attention-dp > 1:
    (3, or 4.5 above 300) graph x attention-dp) + (prefill graphs: 8 a bucket, MLA 1536; with DeepEP 1024 more), at
    least 10240 above 60 GiB, + 2048 for DeepEP (S:arg_groups/memory_hook.py:84-450).
    """
    layout = case.layout
    few = layout.tp < 4
    chunk, graph = next((chunk, small if few else large) for below, chunk, small, large in (
        (20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512),
        (float("inf"), 16384, 512, 512)) if gpu_mib < below * 1024)
    running = case.whole("max-running-requests")
    chunk = case.whole("chunked-prefill-size") or chunk
    graph = case.whole("cuda-graph-max-bs-decode") or (min(graph, running) if running else graph)
    off = case.says("disable-cuda-graph") == "true"
    decode_off = off or case.says("cuda-graph-backend-decode") == "disabled"
    deepep = case.says("moe-a2a-backend") == "deepep"
    reserve = 512 + 1.5 * max(chunk if chunk > 0 else 16384, 2048) + 128 * layout.tp * layout.pp
    reserve += 0 if decode_off else 2 * graph
    if layout.attention_dp > 1:
        reserve += (4.5 if graph > 300 else 3) * graph * layout.attention_dp
    buckets = prefill_buckets(case, chunk)
    mla = any(kind.kind in ("mla", "compressed") for kind in case.architecture.attention)
    if buckets:
        reserve += (1536 if mla else 8 * buckets) + (1024 if deepep else 0)
    reserve = max(reserve, 10240) if gpu_mib > 60 * 1024 else reserve
    reserve += 2048 if deepep and not decode_off else 0
    share = round((gpu_mib - reserve) / gpu_mib, 3) * _encoder_share(case)
    given = case.settings.get("mem-fraction-static")
    return {"chunked-prefill-size": chunk, "cuda-graph-max-bs-decode": 0 if decode_off else graph,
            "mem-fraction-static": float(given) if isinstance(given, int | float) else share}


def _encoder_share(case: Case) -> float:
    """SGLang scales its share beside a vision encoder: 0.95 x (1 - 0.1 (layers x width^2 / ViT-L's - 1)), the second
    factor within 0.8 and 1.05; an encoder that does not say is taken for ViT-L, 24 x 1024 (memory_hook.py:453-470).
    """
    if not case.architecture.multimodal:
        return 1.0
    layers, width = case.architecture.encoder
    size = (layers or 24) * (width or 1024) ** 2 / (24 * 1024 ** 2)
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (size - 1)))


def prefill_buckets(case: Case, chunk: int) -> int:
    """How many prefill graphs SGLang captures: none under pp, dcp, beside an encoder, for DeepSeek-V4, or when off."""
    off = (case.says("disable-cuda-graph") == "true" or case.says("cuda-graph-backend-prefill") == "disabled"
           or case.layout.pp > 1 or case.layout.dcp > 1 or case.architecture.multimodal
           or any(kind.kind == "compressed" for kind in case.architecture.attention))
    sizes = (*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64),
             *range(1280, 4097, 256), *range(4608, chunk + 1, 512))
    return 0 if off else sum(size <= chunk for size in sizes)


def decode_buckets(largest: int) -> int:
    """How many decode graphs SGLang captures up to a batch (S:arg_groups/cuda_graph_hook.py:478)."""
    sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 497, 16), *range(512, 1 << 12, 32)}
    return len({size for size in sizes if size <= largest} | ({largest} if largest else set()))


def _sglang(case: Case, reported: float, hidden: Use, stage: tuple[int, int], gpu: Gpu) -> Budget:
    """KV = free after weights - (1 - share) x free before them (S:mem_cache/kv_cache_configurator.py:2990), so weights
    and KV cache share `share` of what is free before the weights; all else must fit into the rest.
    """
    values = sglang_defaults(case, reported / MIB)
    links, fewest, most = _links(case, gpu)
    runtime = Use("runtime", 0.5 * GIB + links, basis="estimate", low=0.4 * GIB + fewest, high=0.9 * GIB + most,
                  note="CUDA context and communication buffers")
    others = _others(gpu)
    free = reported - hidden.bytes - runtime.bytes - sum(use.bytes for use in others)
    share = values["mem-fraction-static"]
    chunk, graph = int(values["chunked-prefill-size"]), int(values["cuda-graph-max-bs-decode"])
    working = memory.activations(case.architecture, case.ranks, max(chunk, 2048) // case.layout.attention_dp,
                                 graph if stage[0] == case.layout.pp - 1 else 0)
    count = decode_buckets(graph) + prefill_buckets(case, chunk)
    uses = (hidden, *others, runtime, _working(working), _captured(stage[1], count))
    limit = case.whole("max-running-requests") or None
    settings = tuple(Setting(name, round(value, 4) if name == "mem-fraction-static" else int(value))
                     for name, value in values.items())
    return Budget(reported - hidden.bytes, share * free, uses, (), settings, "mem-fraction-static",
                  ("system", "runtime"), share, limit)


def vllm_defaults(case: Case, total: float, name: str) -> tuple[int, int]:
    """vLLM's `max-num-seqs` and `max-num-batched-tokens` for a server (V:engine/arg_utils.py:2940)."""
    small = total < 70 * GIB or "a100" in name.lower() or "gb10" in name.lower()
    seqs, tokens = (1024, 16384) if total >= 160 * GIB else (256, 2048) if small else (1024, 8192)
    seqs = case.whole("max-num-seqs", seqs)
    return seqs, max(case.whole("max-num-batched-tokens", tokens), seqs)


def vllm_graphs(case: Case, seqs: int, tokens: int, sm: str) -> int:
    """How many graphs vLLM captures: 1, 2, 4, every 8th to 248, every 16th; twice where full and piecewise ones are
    made (V:config/vllm.py:2398-2610).
    """
    if case.says("enforce-eager") == "true":
        return 0
    largest = min(2 * seqs, 1024 if sm.startswith("10.") else 512, tokens)
    return 2 * len({size for size in (1, 2, 4, *range(8, 249, 8), *range(256, largest + 1, 16)) if size <= largest})


def _vllm(case: Case, total: float, hidden: Use, stage: tuple[int, int], gpu: Gpu, plan: Plan) -> Budget:
    """KV = total x share - weights - peak of a dummy step - estimated graphs (V:v1/worker/gpu_worker.py:641-790).

    The snapshot before is taken with the CUDA context in place, which so lies outside the share; what NCCL and the
    kernels' libraries take later counts (0.25 GiB on one GPU).
    """
    given = case.settings.get("gpu-memory-utilization")
    share = float(given) if isinstance(given, int | float) else VLLM_SHARE
    seqs, tokens = vllm_defaults(case, total, gpu.name)
    working = _working(memory.activations(case.architecture, case.ranks, tokens,
                                          min(seqs, tokens) if stage[0] == case.layout.pp - 1 else 0))
    captured = _captured(stage[1], vllm_graphs(case, seqs, tokens, gpu.sm))
    counted = all(str(one.value) != "0" for one in plan.environment
                  if one.name == "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    links, fewest, most = _links(case, gpu)
    runtime = Use("runtime", 0.25 * GIB + links, basis="estimate", low=0.05 * GIB + fewest, high=0.5 * GIB + most,
                  note="libraries and communication buffers")
    context = Use("system", 0.5 * GIB, basis="rule", note="CUDA context, outside the share")
    charged = ("runtime", "activations", "graphs") if counted else ("runtime", "activations")
    settings = (Setting("gpu-memory-utilization", share), Setting("max-num-seqs", seqs),
                Setting("max-num-batched-tokens", tokens))
    return Budget(total, share * total, (hidden, *_others(gpu), context, runtime, working, captured), charged, settings,
                  "gpu-memory-utilization", ("system",), share, seqs)


def _llamacpp(case: Case, gpu: Gpu, host_bytes: int) -> Budget:
    """What is free, less 1 GiB that `--fit` leaves a device (`--fit-target`) and the buffers of one ubatch."""
    ubatch = case.whole("ubatch-size", 512)
    working = _working(memory.activations(case.architecture, case.ranks, ubatch, 0)
                       + 4.0 * ubatch * case.architecture.vocab)
    if gpu.memory_bytes is None:
        spare = Use("system", 1.0 * GIB, basis="estimate", note="left to the system")
        return Budget(float(host_bytes), host_bytes - spare.bytes, (spare, working), ("activations",), (), under=())
    reported = float(gpu.memory_bytes)
    hidden, runtime = _hidden(reported), Use("runtime", 0.5 * GIB, basis="estimate", low=0.3 * GIB, high=0.9 * GIB)
    spare = Use("system", 1.0 * GIB, basis="rule", note="what --fit leaves free")
    total = reported - hidden.bytes
    return Budget(total, total - runtime.bytes - spare.bytes, (hidden, runtime, spare, working), ("activations",), (),
                  under=("system", "runtime"))


def _working(size: float) -> Use:
    return Use("activations", size, basis="estimate", low=0.7 * size, high=1.5 * size,
               note="one prefill step, or sampling for a full batch")


def _captured(layers: int, count: int) -> Use:
    size = memory.graphs(layers, count)
    return Use("graphs", size, basis="estimate", low=0.4 * size, high=3.0 * size, note=f"{count} captured graphs")
