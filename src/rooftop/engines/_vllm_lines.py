"""vLLM's log lines: the prefixes of its processes, and the shapes of one line that say a fact (0.8 to 0.33)."""

import re
from collections.abc import Sequence

from rooftop.domain.launch import Fact
from rooftop.engines._lines import (
    Line,
    Notes,
    Say,
    Shape,
    constant,
    number,
    per_cent,
    shape,
    size_bytes,
    whole,
    word,
)
from rooftop.engines._wrapping import parts, stamp_s

_PROCESS = re.compile(r"\((?P<process>[A-Za-z]\w*(?:[ -](?!pid=)[\w=.]+)*),? pid=\d+[^)]*\) ?")
_STAMP = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?:\.\d+)?(?: \[(?P<source>[^\]\s]+?):\d+\]| (?P<old>[\w./]+\.py):\d+\])? ?")
_SEAM = re.compile(
    r"\r|(?=\([A-Za-z][\w =.,-]* pid=\d+[^)]*\) (?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:)|"
    r"(?<!\) )(?=(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d)")
_BARE_SOURCE = re.compile(r"^\[(?P<source>[\w./]+\.py):\d+\] ?")


def parse(lines: Sequence[str]) -> list[Line]:
    """The lines without colours and prefixes."""
    return [_parse(*one) for one in parts(lines, _SEAM)]


def _parse(count: int, text: str, part: str) -> Line:
    body, process, source, at_s = part, "", "", None
    found = _PROCESS.search(part, 0, 240)
    while found:
        process = f"{process} {found['process']}".strip()
        body = part[found.end():]
        found = _PROCESS.match(part, found.end())
    stamp = _STAMP.search(body, 0, 240)
    if stamp:
        source = (stamp["source"] or stamp["old"] or "").rsplit("/", 1)[-1]
        at_s = stamp_s(stamp)
        body = body[stamp.end():]
    else:
        bare = _BARE_SOURCE.match(body)
        if bare:
            source, body = bare["source"].rsplit("/", 1)[-1], body[bare.end():]
    return Line(count, text, body, process, source, at_s)


_KV_DTYPES = {
    "auto": "auto", "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "float32": "fp32", "float": "fp32", "fp8": "fp8", "fp8_inc": "fp8", "fp8_ds_mla": "fp8",
    "fp8_per_token_head": "fp8", "fp8_e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "fp8_e4m3fn": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "fp4", "int8": "int8",
    "int8_per_token_head": "int8",
}


def kv_dtype(text: str) -> str | None:
    """The vocabulary's word for a KV cache format; None for one it has no word for."""
    return _KV_DTYPES.get(word(text).removeprefix("torch."))


def kernel(text: str) -> str:
    """The name of a backend: `FLASH_ATTN`, `Flash Attention` and `TritonMLABackend` in their plain form."""
    plain = word(text).removeprefix("attentionbackendenum.")
    return plain.removesuffix("backend").rstrip("_").replace("attention", "attn")


def a2a(text: str) -> str:
    """The name of an all-to-all manager, lower case."""
    return word(text)


def _first(text: str) -> str | None:
    names = re.findall(r"\w+", text)
    return word(names[0]) if names else None


def _gib(text: str) -> float | None:
    return number(text)


SHAPES: tuple[Shape, ...] = (
    # KV cache
    shape(r"KV cache size: (?P<tokens>[\d,]+) tokens",
          Say("kv.tokens", "built", "tokens", whole)),
    shape(r"Maximum concurrency for (?P<length>[\d,]+) tokens per request: (?P<times>[\d.,]+)x",
          Say("limits.max_model_len", "resolved", "length", whole), Say("kv.full_requests", "built", "times", number)),
    shape(r"Using (?P<dtype>[\w.]+) data type to store kv cache", Say("kv.dtype", "resolved", "dtype", kv_dtype)),
    shape(r"Available KV cache memory: (?P<gib>-?[\d.]+) ?GiB", Say("memory.kv_budget_gib", "resolved", "gib", _gib)),
    shape(r"the rest of the memory reserved for KV Cache is (?P<gib>-?[\d.]+) ?GiB",
          Say("memory.kv_budget_gib", "resolved", "gib", _gib)),
    shape(r"Memory profiling results: .*kv_cache_size=(?P<gib>-?[\d.]+) ?GiB, "
          r"gpu_memory_utilization=(?P<share>\d\.\d+)",
          Say("memory.kv_budget_gib", "resolved", "gib", _gib),
          Say("limits.memory_share", "resolved", "share", number)),
    # lengths
    shape(r"Using max model len (?P<length>\d+)", Say("limits.max_model_len", "resolved", "length", whole)),
    shape(r"Auto-fit max_model_len: reduced from \d+ to (?P<length>\d+)",
          Say("limits.max_model_len", "resolved", "length", whole), supersedes=True),
    shape(r"Chunked prefill is enabled with max_num_batched_tokens=(?P<tokens>\d+)",
          Say("limits.chunk_tokens", "resolved", "tokens", whole)),
    shape(r"max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+) ?GiB KV cache is needed.*?"
          r"available KV cache memory \((?P<budget>-?[\d.]+) ?GiB\)(?:.*?maximum model length is (?P<fits>\d+))?",
          Say("limits.max_model_len", "resolved", "length", whole),
          Say("memory.kv_needed_gib", "resolved", "needed", _gib),
          Say("memory.kv_budget_gib", "resolved", "budget", _gib),
          Say("limits.fitting_tokens", "resolved", "fits", whole)),
    shape(r"max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache "
          r"\((?P<fits>\d+)\)",
          Say("limits.max_model_len", "resolved", "length", whole),
          Say("limits.fitting_tokens", "resolved", "fits", whole), Say("kv.tokens", "resolved", "fits", whole)),
    shape(r"maximum (?:context length is|model length of) (?P<length>\d+)",
          Say("limits.max_model_len", "resolved", "length", whole)),
    shape(r"User-specified max_model_len \((?P<length>\d+)\) is greater",
          Say("limits.max_model_len", "asked", "length", whole)),
    # memory
    shape(r"Free memory on device (?:\S+ )?\((?P<gib>[\d.]+)/[\d.]+ GiB\)",
          Say("memory.free_gib", "built", "gib", _gib)),
    shape(r"Model loading took (?P<gib>[\d.]+) ?Gi?B(?: memory)? and (?P<s>[\d.]+) s",
          Say("memory.weights_gib", "built", "gib", _gib), Say("startup.load_s", "built", "s", number)),
    shape(r"Loading model weights took (?P<gib>[\d.]+) ?Gi?B", Say("memory.weights_gib", "built", "gib", _gib)),
    shape(r"model weights take (?P<gib>[\d.]+) ?GiB", Say("memory.weights_gib", "built", "gib", _gib)),
    shape(r"total_gpu_memory \([\d.]+ ?GiB\) x gpu_memory_utilization \((?P<share>[\d.]+)\)",
          Say("limits.memory_share", "resolved", "share", number)),
    shape(r"desired [GCX]PU memory utilization(?: is)? \((?P<share>[\d.]+), ?[\d.]+ ?GiB\)",
          Say("limits.memory_share", "resolved", "share", number)),
    shape(r"Desired GPU memory utilization is \((?P<share>[\d.]+), ?[\d.]+ ?GiB\)",
          Say("limits.memory_share", "resolved", "share", number)),
    shape(r"current --gpu-memory-utilization=(?P<share>[\d.]+) is equivalent to"
          r"(?:.*increase --gpu-memory-utilization to (?P<more>\d[\d.]*\d))?",
          Say("limits.memory_share", "resolved", "share", number),
          Say("limits.memory_share_advised", "resolved", "more", number)),
    shape(r"increas(?:e|ing) --gpu-memory-utilization from (?P<share>[\d.]+) to (?P<more>\d[\d.]*\d)",
          Say("limits.memory_share", "resolved", "share", number),
          Say("limits.memory_share_advised", "resolved", "more", number)),
    shape(r"Estimated CUDA graph memory: (?P<gib>-?[\d.]+) GiB total",
          Say("graphs.memory_gib", "resolved", "gib", _gib)),
    shape(r"CUDA graph pool memory: (?P<gib>-?[\d.]+) GiB \(actual\)", Say("graphs.memory_gib", "built", "gib", _gib)),
    # start-up
    shape(r"torch\.compile (?:takes|took) (?P<s>[\d.]+) s in total", Say("startup.compile_s", "built", "s", number)),
    shape(r"init engine \([^)]*\) took (?P<s>[\d.]+) s", Say("startup.total_s", "built", "s", number)),
    shape(r"Graph capturing finished in (?P<s>[\d.]+) secs?(?:, took (?P<gib>-?[\d.]+) GiB)?",
          Say("startup.graphs_s", "built", "s", number), Say("graphs.memory_gib", "built", "gib", _gib)),
    shape(r"(?P<ready>Application startup complete)", Say("startup.ready", "built", "ready", constant(True))),
    # kernels
    shape(r"Using (?P<a2a>\w[\w -]*?) all2all manager", Say("moe.a2a_backend", "resolved", "a2a", a2a)),
    shape(r"Using (?P<linear>\w+)(?: backend)? for (?:NVFP4|MXFP8|MXFP4) GEMM",
          Say("quant.linear_kernel", "resolved", "linear", word)),
    shape(r"Selected (?P<linear>\w+) for \w*Linear\w*", Say("quant.linear_kernel", "resolved", "linear", word)),
    shape(r"quantization method (?P<name>\w+) is not supported for the current GPU",
          Say("quant.method", "asked", "name", word)),
    shape(r"VLLM_ATTENTION_BACKEND=(?P<name>\w+)", Say("attention.backend", "asked", "name", word)),
    # communication
    shape(r"[Cc]ustom all_?reduce is (?P<off>disabled)|Setup [Cc]ustom all_?reduce (?P<failed>failed)|"
          r"Custom collectives are (?P<none>disabled)", Say("allreduce.custom", "built", 0, constant(False))),
    shape(r"Registering (?P<n>\d+) cuda graph addresses",
          Say("allreduce.custom", "built", "n", lambda text: True if int(text) else None)),
    shape(r"SymmMemCommunicator: .*(?P<off>not supported|not available|failed|unknown)",
          Say("allreduce.symm_mem", "built", "off", constant(False))),
    # scheduler, cache, speculation
    shape(r"[Aa]sync(?:hronous)? scheduling (?:is|will be) (?P<off>disabled)|"
          r"[Aa]sync scheduling.*(?P<not>not (?:yet )?(?:supported|compatible))",
          Say("overlap.enabled", "resolved", 0, constant(False)), supersedes=True),
    shape(r"[Aa]sync(?:hronous)? scheduling is (?P<on>enabled)",
          Say("overlap.enabled", "resolved", "on", constant(True))),
    shape(r"(?P<off>[Dd]isabling prefix cach)|[Pp]refix caching is (?P<not>disabled|not supported)",
          Say("prefix_cache.enabled", "resolved", 0, constant(False)), supersedes=True),
    shape(r"Mean acceptance length: (?P<n>[\d.]+)", Say("spec.accept_length", "used", "n", number)),
    shape(r"(?P<on>Loading drafter model)", Say("spec.enabled", "resolved", "on", constant(True))),
    shape(r"(?P<on>SpecDecoding metrics|Speculative metrics): ", Say("spec.enabled", "used", "on", constant(True))),
    # live state
    shape(r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, Avg generation throughput: (?P<gen>[\d.]+) tokens/s, "
          r"Running: (?P<running>\d+) reqs", Say("live.prompt_tok_s", "used", "prompt", number),
          Say("live.gen_tok_s", "used", "gen", number), Say("live.running", "used", "running", whole)),
    shape(r"Running: \d+ reqs,.*?(?:Waiting|Pending): (?P<n>\d+) reqs", Say("live.queued", "used", "n", whole)),
    shape(r"Running: \d+ reqs,.*?(?:GPU|CPU|XPU|HPU|TPU) KV cache usage: (?P<share>[\d.]+)%",
          Say("live.kv_usage", "used", "share", per_cent)),
    shape(r"Prefix cache hit rate: (?:GPU: )?(?P<share>[\d.]+)%",
          Say("prefix_cache.hit_rate", "used", "share", per_cent),
          Say("prefix_cache.enabled", "used", "share", lambda text: True if float(text) > 0 else None)),
    # numbers inside an error
    shape(r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)",
          Say("layout.tp", "resolved", "tp", whole), Say("error.width", "resolved", "heads", whole),
          Say("error.multiple_of", "resolved", "tp", whole)),
    shape(r"(?:World|Tensor parallel) size \((?P<world>\d+)\) (?:is|cannot be) larger than the number of available",
          Say("layout.world_size", "resolved", "world", whole)),
    shape(r"(?:weight|size_per_partition|partition_size)\S* = (?P<width>\d+) is not divisible by "
          r"(?:weight quantization )?\w+ = (?P<block>\d+)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"per tensor-parallel partition \((?P<width>\d+)\) to be divisible by \w+ \((?P<block>\d+)\)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"AssertionError: (?P<width>\d+) is not divisible by (?P<block>\d+)",
          Say("error.width", "resolved", "width", whole), Say("error.multiple_of", "resolved", "block", whole)),
    shape(r"Tried to allocate (?P<size>[\d.]+ ?[KMGT]?i?B)", Say("error.needed_bytes", "resolved", "size", size_bytes)),
    shape(r"you tried to allocate (?P<n>\d+) bytes", Say("error.needed_bytes", "resolved", "n", number)),
    shape(r"\bGPU (?P<gpu>\d+) has a total capacity", Say("error.gpu", "resolved", "gpu", whole)),
    shape(r"memory on device cuda:(?P<gpu>\d+) .*less than", Say("error.gpu", "resolved", "gpu", whole)),
    shape(r"Required: (?P<n>\d+), Hardware limit: (?P<limit>\d+)",
          Say("error.needed_bytes", "resolved", "n", number), Say("error.limit_bytes", "resolved", "limit", whole)),
)

_EXPERT_SHAPES: tuple[Shape, ...] = (
    shape(r"Using '?(?P<moe>[A-Za-z]\w*(?: \w+)*?)'? (?P<format>NvFp4|Fp8|FP8|MxFp8|MXFP8|Mxfp4|MXFP4|Int8|W4A8|WNA16|"
          r"Unquantized)(?: \w+)? MoE backend", Say("moe.backend", "resolved", "moe", word)),
    shape(r"Using (?P<moe>\w+?)(?:Experts\w*)?(?: backend)? for (?:FP8|NVFP4|MXFP4|MXFP8) MoE",
          Say("moe.backend", "resolved", "moe", word)),
    shape(r"Using (?P<moe>\w+) kernels for \w*MoE\w*", Say("moe.backend", "resolved", "moe", word)),
    shape(r"Using (?P<moe>Cutlass|Marlin) for \w*MoE\w*", Say("moe.backend", "resolved", "moe", word)),
    shape(r"Using CompressedTensors\w*?(?P<moe>Marlin|Flydsl)\w*MoEMethod",
          Say("moe.backend", "resolved", "moe", word)),
    shape(r"Using (?P<none>default) \w*MoE config", Say("moe.kernel_table", "built", "none", constant("default"))),
    shape(r"Using configuration from (?P<file>\S+) for MoE layer",
          Say("moe.kernel_table", "built", "file", constant("exact"))),
)
_ATTENTION = re.compile(
    r"Using (?:AttentionBackendEnum\.)?(?P<name>[A-Za-z]\w*(?: \w+)*?)(?: attention)? backend"
    r"(?= on V1 engine|\.|\s*$| out of potential| \(selected| with HND| for \w+ on V1)")
_ATTENTION_NAMES = re.compile(
    r"attn|attention|flash|mla|xformers|sdpa|triton|pallas|blocksparse|ipex|hpc|flex|tree|aiter|rocm", re.I)
_OTHER_BACKENDS = re.compile(
    r"MoE|prefill|Mamba|SSM|SSU|KDA|GEMM|MXFP|FP8|all-reduce|all2all|vit\b|sampl|linear", re.I)
_FORMATS = "NvFp4|Fp8|FP8|MxFp8|MXFP8|Mxfp4|MXFP4|Int8|W4A8|WNA16"
_CHOSEN = re.compile(rf"Using '?[\w ]+?'? ({_FORMATS})(?: \w+)? MoE backend")
_OLDER = re.compile(r"Using \w.*? for (FP8|NVFP4|MXFP4|MXFP8) MoE|Using FlashInfer (FP8|MXFP4)")
_FLASHINFER = re.compile(
    r"Using FlashInfer (?:FP8 MoE |MXFP4 \w+ ?)?(?P<kind>CUTLASS|TRTLLM)?[\w ]*(?:backend|kernels) for")
_PLAIN_MOE = re.compile(r"Using (\w+?)(?:Experts)? MoE backend\s*$")
_LOADED = re.compile(r"Loading weights took (?P<s>[\d.]+) s")
_SCALED = re.compile(r"Using KV cache scaling factor [\d.]+ for (?P<dtype>fp8\w*)")
_WEIGHT_ONLY = re.compile(r"native support for (?P<format>FP8) computation but")
_GROUP = re.compile(r"Using \[(?P<names>[^\]]*)\] all-reduce backends.*?group '(?P<group>[^']*)'")


class Kernels:
    """Backends and loading: lines whose meaning hangs on the file they come from, or on what other lines say."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._drafting: set[str] = set()
        self._formats: list[tuple[Line, str]] = []
        self._experts: list[tuple[Line, str]] = []
        self._groups: list[tuple[bool, Line, str]] = []
        self._loads: list[tuple[Line, float | None]] = []
        self._scaled: list[tuple[Line, str | None]] = []

    def read(self, line: Line) -> None:
        """Read one line."""
        body = line.body
        if "Loading drafter model" in body:
            self._drafting.add(line.process)
        elif "Model loading took" in body:
            self._drafting.discard(line.process)
        found = _ATTENTION.search(body)
        if found and line.source == "mxfp4.py" and line.process not in self._drafting:
            self._experts.append((line, word(found["name"])))
            self._formats.append((line, "mxfp4"))
        elif found and _ATTENTION_NAMES.search(found["name"]) and not _OTHER_BACKENDS.search(found["name"]):
            fact = "attention.draft_backend" if line.process in self._drafting else "attention.backend"
            self._notes.add(fact, kernel(found["name"]), "resolved", line)
        if line.process not in self._drafting:
            self._read_experts(line)
        loaded = _LOADED.search(body)
        if loaded:
            self._loads.append((line, number(loaded["s"])))
        scaled, weight_only = _SCALED.search(body), _WEIGHT_ONLY.search(body)
        if scaled:
            self._scaled.append((line, kv_dtype(scaled["dtype"])))
        if weight_only and line.process not in self._drafting:
            self._formats.append((line, word(weight_only["format"])))
        all_reduce = _GROUP.search(body)
        if all_reduce:
            name = _first(all_reduce["names"])
            if name:
                self._groups.append((all_reduce["group"].startswith("tp"), line, name))

    def _read_experts(self, line: Line) -> None:
        self._notes.read(line, _EXPERT_SHAPES)
        chosen, older = _CHOSEN.search(line.body), _OLDER.search(line.body)
        if chosen:
            self._formats.append((line, word(chosen[1])))
        elif older:
            self._formats.append((line, word(older[1] or older[2])))
        flash = _FLASHINFER.search(line.body)
        if flash and ("MoE" in line.body or line.source == "mxfp4.py"):
            self._experts.append((line, "flashinfer" + (f"_{word(flash['kind'])}" if flash["kind"] else "")))
        plain = _PLAIN_MOE.search(line.body)
        if plain:
            self._experts.append((line, word(plain[1])))

    def close(self) -> None:
        """Note what only counts where no plainer line said it."""
        said: list[Fact] = self._notes.values("quant.method", "resolved")
        if not [method for method in said if method != "none"]:
            for line, name in self._formats:
                self._notes.add("quant.method", name, "resolved", line)
        if not self._notes.values("moe.backend", "resolved"):
            for line, name in self._experts:
                self._notes.add("moe.backend", name, "resolved", line)
        if not self._notes.values("startup.load_s", "built"):
            for line, seconds in self._loads:
                self._notes.add("startup.load_s", seconds, "built", line)
        if not self._notes.values("kv.dtype", "resolved"):
            for line, dtype in self._scaled:
                self._notes.add("kv.dtype", dtype, "resolved", line)
        preferred = [group for group in self._groups if group[0]] or self._groups
        if preferred:
            _, line, name = preferred[-1]
            self._notes.add("allreduce.backend", name, "resolved", line)
