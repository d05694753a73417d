"""SGLang's log lines: the prefixes of its ranks, and the shapes of one line that say a fact (0.4 to 0.5.23)."""

import re
from collections.abc import Sequence

from rooftop.domain.launch import Fact
from rooftop.engines._lines import Line, Notes, Say, Shape, constant, number, shape, size_bytes, whole, word
from rooftop.engines._wrapping import parts, stamp_s

_RANKS = r"(?:DP|PP|ATTN_CP|MOE_DP|TP|EP|CP|DCP)\d+"
# The first sign of a line may be lost where it was copied; old and forked builds write ranks without a time.
_STAMP = re.compile(
    r"(?:\[|^\d{0,2}(?=\d\d-))(?:(?:\d{2,4}-)?(?P<month>\d\d)-(?P<day>\d\d) )?(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?:[.,]\d+)?(?P<ranks>(?: [A-Z][A-Z_]*\d+)*)\] ?|"
    rf"^\[(?P<bare>{_RANKS}(?: {_RANKS})*)\] ")
# What Ray puts before a line: `(Worker pid=38138) `, `(Engine pid=1, ip=10.0.0.2) `.
_WRAPPED = re.compile(r"(?:\([A-Za-z]\w*(?: pid=\d+)[^)]*\) ?)+")
_SOURCE = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<file>\w+\.py):\d+: ")
_SEAM = re.compile(r"\r|(?<=\S)(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z][A-Z_]*\d+)*\] )")


def parse(lines: Sequence[str]) -> list[Line]:
    """The lines without colours and prefixes; `process` holds the ranks (`DP0 TP1`), none for the parent process."""
    return [_parse(*one) for one in parts(lines, _SEAM)]


def _parse(count: int, text: str, part: str) -> Line:
    wrapped = _WRAPPED.match(part)
    body = part[wrapped.end():] if wrapped else part
    stamp = _STAMP.search(body, 0, 240)
    if not stamp:
        return Line(count, text, body)
    if stamp["bare"]:
        return Line(count, text, body[stamp.end():], stamp["bare"])
    at_s = stamp_s(stamp)
    body = body[stamp.end():]
    source = _SOURCE.match(body)
    return Line(count, text, body[source.end():] if source else body, stamp["ranks"].strip(),
                source["file"] if source else "", at_s)


_KV_DTYPES = {
    "auto": "auto", "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
    "fp8": "fp8", "mxfp8": "fp8", "fp8_e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "float8_e4m3fnuz": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2", "float8_e5m2fnuz": "fp8_e5m2", "nvfp4": "fp4", "fp4_e2m1": "fp4",
    "fp4_mx_block16": "fp4", "float4_e2m1fn_x2": "fp4", "int8": "int8",
}


def kv_dtype(text: str) -> str | None:
    """The vocabulary's word for a KV cache format; None for one that it has no word for (`uint8` is only a store)."""
    return _KV_DTYPES.get(word(text).removeprefix("torch."))


def _positive(text: str) -> int | None:
    value = whole(text)
    return value if value is not None and value > 0 else None


def _cached(impl: str) -> Fact | None:
    return True if "radix" in impl.lower() else False if "chunk" in impl.lower() else None


def _runner(text: str) -> str | None:
    """The kernel that a compressed-tensors expert method names, None where it names a format only."""
    return next((name for name in ("marlin", "cutlass", "trtllm", "flydsl", "emulation") if name in text.lower()), None)


SHAPES: tuple[Shape, ...] = (
    # KV cache and limits
    shape(r"^(?!.*[Dd]raft )(?:\w+ )*KV Cache is allocated\.(?: dtype: (?P<dtype>[\w.]+?),)?"
          r"(?: #tokens: (?P<tokens>\d+(?:,\d{3})*))?",
          Say("kv.dtype", "built", "dtype", kv_dtype), Say("kv.tokens", "built", "tokens", whole)),
    shape(r"KV Cache VA upper bound\. dtype: (?P<dtype>[\w.]+?), #tokens: (?P<tokens>\d+(?:,\d{3})*)",
          Say("kv.dtype", "resolved", "dtype", kv_dtype), Say("kv.tokens", "resolved", "tokens", whole)),
    shape(r"Post-capture KV sizing: KV cache allocated\. dtype: (?P<dtype>[\w.]+?), "
          r"#tokens: (?P<tokens>\d+(?:,\d{3})*), KV size: (?P<gib>[\d.]+) GB",
          Say("kv.dtype", "built", "dtype", kv_dtype), Say("kv.tokens", "built", "tokens", whole),
          Say("kv.gib_per_gpu", "built", "gib", number), supersedes=True),
    shape(r"Using KV cache dtype: (?P<dtype>[\w.]+)", Say("kv.dtype", "resolved", "dtype", kv_dtype), supersedes=True),
    shape(r"Setting KV cache dtype to (?P<dtype>[\w.]+?)(?:\.| for |$)", Say("kv.dtype", "resolved", "dtype", kv_dtype),
          supersedes=True),
    shape(r"max_total_num_tokens=(?P<tokens>\d+),", Say("kv.tokens", "built", "tokens", whole)),
    shape(r"max_total_num_tokens=-?\d+,.*chunked_prefill_size=(?P<chunk>-?\d+)",
          Say("limits.chunk_tokens", "resolved", "chunk", whole), supersedes=True),
    shape(r"max_total_num_tokens=-?\d+,.*max_running_requests=(?P<running>\d+)",
          Say("limits.max_running", "resolved", "running", whole), supersedes=True),
    shape(r"max_total_num_tokens=-?\d+,.*context_len=(?P<length>\d+)",
          Say("limits.max_model_len", "resolved", "length", whole), supersedes=True),
    shape(r"max_total_tokens=(?P<asked>\d+) is larger than the profiled value (?P<tokens>-?\d+)",
          Say("kv.tokens", "asked", "asked", whole), Say("kv.tokens", "resolved", "tokens", whole)),
    shape(r"max_running_requests was reduced from the requested (?P<asked>\d+) to (?P<got>\d+)",
          Say("limits.max_running", "asked", "asked", whole)),
    shape(r"max_running_requests (?:was reduced from the requested \d+ to|is capped to) (?P<got>\d+)",
          Say("limits.max_running", "resolved", "got", whole), supersedes=True),
    shape(r"Max concurrent requests \(per dp worker\).*max_num_reqs=(?P<got>\d+)",
          Say("limits.max_running", "resolved", "got", whole), supersedes=True),
    shape(r"available memory for KV cache is (?P<gib>-?[\d.]*\d) GB",
          Say("memory.kv_budget_gib", "resolved", "gib", number)),
    shape(r"[Mm]ax.running.requests is reset to (?P<got>\d+)|Setting max_running_requests to (?P<set>\d+)",
          Say("limits.max_running", "resolved", "got", whole), Say("limits.max_running", "resolved", "set", whole),
          supersedes=True),
    shape(r"chunked.prefill.size is adjusted (?:from \d+ )?to (?P<chunk>\d+)",
          Say("limits.chunk_tokens", "resolved", "chunk", whole), supersedes=True),
    shape(r"turn(?:ing|ed)? off (?:--)?chunked.prefill.size|"
          r"(?<![Mm]ixed )[Cc]hunked prefill (?:is|was) (?:disabled|turned off)",
          Say("limits.chunk_tokens", "resolved", 0, constant(-1)), supersedes=True),
    shape(r"KV pool holds (?P<fits>\d+) tokens, fewer than (?:--)?context-length (?P<length>\d+)",
          Say("limits.fitting_tokens", "resolved", "fits", whole),
          Say("limits.max_model_len", "resolved", "length", whole)),
    shape(r"exceeds the maximum allowed length \((?P<fits>\d+) tokens\)",
          Say("limits.fitting_tokens", "resolved", "fits", whole)),
    shape(r"max_req_input_len=(?P<fits>\d+)", Say("limits.fitting_tokens", "resolved", "fits", whole)),
    shape(r"longer than the model's context length \((?P<length>\d+) tokens\)|"
          r"exceeds the model's (?:maximum )?context length (?:of |\()(?P<other>\d+) tokens",
          Say("limits.max_model_len", "resolved", "length", whole),
          Say("limits.max_model_len", "resolved", "other", whole)),
    shape(r"User-specified context_length \((?P<length>\d+)\) is greater",
          Say("limits.max_model_len", "asked", "length", whole)),
    shape(r"mem_fraction_static=(?P<share>0?\.\d+|1\.0)(?![\d.]*, .*_size=)",
          Say("limits.memory_share", "resolved", "share", number)),
    shape(r"Raise --mem-fraction-static above (?P<share>\d?\.\d+)",
          Say("limits.memory_share_advised", "resolved", "share", number)),
    shape(r"[Rr]educe --mem-fraction-static to (?P<share>\d?\.\d+)",
          Say("limits.memory_share", "resolved", "share", number), supersedes=True),
    # loading, start-up
    shape(r"Load weight end\..*mem usage=(?P<gib>\d[\d.]*\d) GB", Say("memory.weights_gib", "built", "gib", number)),
    shape(r"Load weight end\. elapsed=(?P<s>[\d.]+) s", Say("startup.load_s", "built", "s", number)),
    shape(r"Load weight end\..*\bquant=(?P<method>\w+)", Say("quant.method", "built", "method", word)),
    shape(r"Detected (?:ModelOpt )?(?P<method>[Ff][Pp]8|int8|nvfp4|NVFP4|w4afp8) checkpoint",
          Say("quant.method", "resolved", "method", word)),
    shape(r"Engine startup timings \(s\): .*?load_weight=(?P<s>[\d.]+)", Say("startup.load_s", "built", "s", number)),
    shape(r"Engine startup timings \(s\): .*?scheduler_e2e=(?P<s>[\d.]+)",
          Say("startup.total_s", "built", "s", number)),
    shape(r"(?P<ready>The server is fired up and ready to roll)",
          Say("startup.ready", "built", "ready", constant(True))),
    # attention, experts
    shape(r"Attention backend not (?:explicitly )?(?:set|specified)\. (?:Use |Falling back to )'?(?P<name>\w+)'?",
          Say("attention.backend", "resolved", "name", word)),
    shape(r"(?:^|\. )(?:Use|Using|Auto-select) (?P<name>\w+) (?:as )?(?:the )?(?:default )?attention backend"
          r"(?= on | for |\.| by |,|$)", Say("attention.backend", "resolved", "name", word)),
    shape(r"[Ss]et(?:ting)? (?:attention backend to )?(?P<name>nsa|dsa|triton|fa3|fa4|flashinfer|flashmla|ascend)"
          r"(?: attention backend for|\.?$)", Say("attention.backend", "resolved", "name", word), supersedes=True),
    shape(r"Attention backend is (?:set|overridden) to '?(?P<name>\w+)'?",
          Say("attention.backend", "resolved", "name", word), supersedes=True),
    shape(r"MLA optimization is turned on\. Use (?P<name>\w+) backend",
          Say("attention.backend", "resolved", "name", word)),
    shape(r"(?P<name>Intel AMX) attention backend is enabled", Say("attention.backend", "resolved", "name", word)),
    shape(r"using (?P<name>torch native|torch Flex) [Aa]ttention backend",
          Say("attention.backend", "resolved", "name", word)),
    shape(r"hybrid attention backend for decode and prefill: decode_backend=(?P<name>\w+)",
          Say("attention.backend", "resolved", "name", word), supersedes=True),
    shape(r"Overriding draft attention backend to (?P<name>\w+)",
          Say("attention.draft_backend", "resolved", "name", word)),
    shape(r"^Use (?P<name>\w+) as (?:MoE|moe) runner backend", Say("moe.backend", "resolved", "name", word)),
    shape(r"[Uu]sing MoE kernel config from (?P<file>\S+)", Say("moe.backend", "built", "file", constant("triton"))),
    shape(r"^Using MoE kernel config from (?P<file>\S+)", Say("moe.kernel_table", "built", "file", constant("exact"))),
    shape(r"Fallback to triton version (?P<v>\S+) and use MoE kernel config from (?P<file>\S+)",
          Say("moe.kernel_table", "built", "v", constant("other_version")),
          Say("moe.backend", "built", "file", constant("triton"))),
    shape(r"[Uu]sing (?P<none>default) MoE (?:kernel )?config",
          Say("moe.kernel_table", "built", "none", constant("default"))),
    shape(r"DeepGEMM JIT Compiling for <(?P<kind>\w*(?:GROUPED|grouped)\w*)>",
          Say("moe.backend", "built", "kind", constant("deep_gemm"))),
    shape(r"DeepGEMM JIT Compiling for <(?P<kind>(?:GEMM|gemm)_\w*)>",
          Say("quant.linear_kernel", "built", "kind", constant("deep_gemm"))),
    shape(r"Using (?P<name>CompressedTensors\w+MoE\w*)", Say("moe.backend", "resolved", "name", _runner)),
    shape(r"enabling (?P<name>triton_kernels?|FlashInfer MXFP4) MOE kernel",
          Say("moe.backend", "resolved", "name", word)),
    shape(r"(?P<a2a>DeepEP v2|DeepEP|Mooncake|Nixl|MoRI|Ascend fused EP|Flashinfer(?= MoE A2A))"
          r"(?: MoE(?: A2A)?| a2a) is enabled",
          Say("moe.a2a_backend", "resolved", "a2a", word)),
    shape(r"(?P<a2a>[a-z]\w*) MoE is enabled\. The expert parallel size is adjusted from",
          Say("moe.a2a_backend", "resolved", "a2a", word)),
    shape(r"expert parallel size is adjusted (?:to be the same as|from \d+ to) the tensor parallel size ?"
          r"\[(?P<n>\d+)\]",
          Say("layout.ep", "resolved", "n", whole), Say("layout.tp", "resolved", "n", whole), supersedes=True),
    # communication
    shape(r"Registering (?P<n>\d+) cuda graph addresses", Say("allreduce.custom", "built", "n", constant(True))),
    shape(r"(?P<on>Custom allreduce v2 initialized successfully|All Reduce config: symmetric_memory)",
          Say("allreduce.custom", "built", "on", constant(True)),
          Say("allreduce.backend", "built", "on", constant("custom_all_reduce_v2"))),
    shape(r"(?P<off>(?:Custom allreduce|CustomAll[Rr]educe(?:V2)?) is disabled (?:because|due)|"
          r"Setup Custom allreduce failed)",
          Say("allreduce.custom", "built", "off", constant(False))),
    shape(r"(?P<on>FlashInfer PCIe-IPC all-reduce enabled)",
          Say("allreduce.backend", "built", "on", constant("flashinfer_pcie_ipc"))),
    shape(r"All-reduce call path: (?P<name>\w+) \(custom AR disabled\)",
          Say("allreduce.backend", "resolved", "name", word),
          Say("allreduce.custom", "resolved", "name", constant(False))),
    shape(r"(?P<off>SymmMemCommunicator: .*not (?:supported|available))",
          Say("allreduce.symm_mem", "built", "off", constant(False))),
    # prefix cache, overlap, speculation
    shape(r"Tree cache initialized: .*\bimpl=(?P<impl>\w+)", Say("prefix_cache.enabled", "built", "impl", _cached)),
    shape(r"(?P<off>[Rr]adix cache (?:is|are) (?:disabled|forced)|radix cache, and cuda graphs are disabled|"
          r"radix cache are disabled|[Dd]isabl(?:e|ing) [Rr]adix [Cc]ache|KV cache is forced as chunk cache)"
          r"(?! since \w+ does not| if)",
          Say("prefix_cache.enabled", "resolved", "off", constant(False)), supersedes=True),
    shape(r"(?P<off>Overlap schedule[r]? is disabled|Disabling overlap schedule|and overlap scheduler are disabled|"
          r"[Oo]verlap scheduler and mixed chunked prefill are disabled)",
          Say("overlap.enabled", "resolved", "off", constant(False)), supersedes=True),
    shape(r"(?P<on>overlap schedule is turned on)", Say("overlap.enabled", "resolved", "on", constant(True))),
    # numbers of an error
    shape(r"quantization method (?P<name>\w+) is not supported for the current GPU",
          Say("quant.method", "asked", "name", word)),
    shape(r"= (?P<width>\d+) is not divisible by (?:weight quantization )?(?:\w+ = )?(?P<block>\d+)\b",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"AssertionError: (?P<width>\d+) is not divisible by (?P<block>\d+)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"moe_intermediate_size (?P<width>\d+) must be divisible by moe_tp_size \((?P<block>\d+)\)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"num_heads \((?P<width>\d+)\) must be divisible by (?:attn_)?tp_size \((?P<block>\d+)\)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"Tried to allocate (?P<size>[\d.]+ ?[KMGT]?i?B)", Say("error.needed_bytes", "resolved", "size", size_bytes)),
    shape(r"you tried to allocate (?P<n>\d+) bytes", Say("error.needed_bytes", "resolved", "n", number)),
    shape(r"Failed to allocate memory for \w+ with size (?P<n>\d+)",
          Say("error.needed_bytes", "resolved", "n", number)),
    shape(r"\bGPU (?P<gpu>\d+)(?: has a total capacity|; [\d.]+ \w+ total capacity)",
          Say("error.gpu", "resolved", "gpu", whole)),
    shape(r"Required: (?P<n>\d+), Hardware limit: (?P<limit>\d+)",
          Say("error.needed_bytes", "resolved", "n", number), Say("error.limit_bytes", "resolved", "limit", whole)),
)

_KV_SIZES = re.compile(r"KV Cache is allocated\..*?(?:K size: (?P<k>[\d.]+) GB, V size: (?P<v>[\d.]+) GB|"
                       r"KV size: (?P<kv>[\d.]+) GB)")
_FREE = re.compile(r"\b(?:avail(?:able)?[_ ](?:gpu_|cpu_)?mem)=(?P<gib>\d[\d.]*\d|\d) GB")


class Memory:
    """Free memory (the last figure of each rank) and KV memory (K plus V), which no single group of a line says."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._free: dict[str, tuple[Line, float]] = {}

    def read(self, line: Line) -> None:
        """Read one line; figures inside a progress bar do not count."""
        sizes = _KV_SIZES.search(line.body)
        if sizes and "raft " not in line.body[:sizes.start()]:
            gib = float(sizes["kv"]) if sizes["kv"] else float(sizes["k"]) + float(sizes["v"])
            self._notes.add("kv.gib_per_gpu", round(gib, 4), "built", line)
        free = _FREE.search(line.body)
        if free and "%|" not in line.body and not line.body.startswith("Capturing "):
            self._free[line.process] = (line, float(free["gib"]))

    def close(self) -> None:
        """Note the fullest rank."""
        for line, gib in self._free.values():
            self._notes.add("memory.free_gib", gib, "built", line)
