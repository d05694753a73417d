"""What llama-server says of itself: log lines, pages, metrics, causes of death."""

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooftop.domain.engine import Reading
from rooftop.domain.launch import Evidence, Fact, Fault, Level

PHASES = (
    ("load_model: loading model", "open model"),
    ("fitting params to device memory", "fit memory"),
    ("llama_model_loader: loaded meta data", "read metadata"),
    ("loading model tensors", "load weights"),
    ("constructing llama_context", "build context"),
    ("warming up the model", "warm up"),
    ("load_model: initializing", "open slots"),
)
KV_DTYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_MIB_PER_GIB = 1024.0
_HOSTS = ("CPU", "Meta", "AMX")

_SERIES = {
    "llamacpp:requests_processing": ("running", False),
    "llamacpp:requests_deferred": ("waiting", False),
    "llamacpp:n_busy_slots_per_decode": ("busy_slots", False),
    "llamacpp:prompt_tokens_total": ("prompt_tokens", True),
    "llamacpp:prompt_tokens_cached_total": ("cached_tokens", True),
    "llamacpp:tokens_predicted_total": ("output_tokens", True),
    "llamacpp:prompt_seconds_total": ("prompt_s", True),
    "llamacpp:tokens_predicted_seconds_total": ("decode_s", True),
    "llamacpp:n_decode_total": ("decode_steps", True),
    "llamacpp:spec_decode_num_drafts_total": ("drafts", True),
    "llamacpp:spec_decode_num_draft_tokens_total": ("draft_tokens", True),
    "llamacpp:spec_decode_num_accepted_tokens_total": ("accepted_tokens", True),
}
_METRIC = re.compile(r"^([a-z_:]+)(?:\{[^}]*\})? ([-+0-9.eE]+)")

# One row: a pattern, the level it proves, and the facts it shows (name, kind of the pattern's group of that number).
_FACTS: tuple[tuple[re.Pattern[str], Level, tuple[tuple[str, str], ...]], ...] = (
    (re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+)"), "resolved",
     (("limits.max_running", "int"), ("limits.max_model_len", "int"))),
    (re.compile(r"\bn_ctx_seq\s+= (\d+)"), "resolved", (("limits.max_model_len", "int"),)),
    (re.compile(r"\bn_batch\s+= (\d+)"), "resolved", (("limits.chunk_tokens", "int"),)),
    (re.compile(r"\bflash_attn\s+= (0|1|enabled|disabled)"), "resolved", (("attention.backend", "flash"),)),
    (re.compile(r"Flash Attention (?:was auto, set to )?(enabled|disabled)"), "built",
     (("attention.backend", "flash"),)),
    (re.compile(r"print_info: file type\s+= (\S+)"), "resolved", (("quant.method", "word"),)),
    (re.compile(r"offloaded (\d+)/(\d+) layers to GPU"), "built", (("layout.layers_off_gpu", "rest"),)),
    (re.compile(r"(Meta)\(\) model buffer"), "built", (("layout.split_mode", "tensor"),)),
    (re.compile(r"(pipeline parallelism enabled)"), "built",
     (("layout.split_mode", "layer"), ("overlap.pipeline", "true"))),
    (re.compile(r"(retrying without pipeline parallelism)"), "built", (("overlap.pipeline", "false"),)),
    (re.compile(r"(?:listening on|server is) (listening|https?://\S+|\S+\.sock)"), "built",
     (("startup.ready", "true"),)),
    (re.compile(r"prompt eval time =.*?([\d.]+) tokens per second"), "used", (("live.prompt_tok_s", "float"),)),
    (re.compile(r"(?<!prompt )\beval time =.*?([\d.]+) tokens per second"), "used",
     (("live.gen_tok_s", "float"),)),
    (re.compile(r"on device (\d+): \w+ failed"), "resolved", (("error.gpu", "int"),)),
    (re.compile(r"buffer of size (\d+)"), "resolved", (("error.needed_bytes", "float"),)),
)
_KV_SIZE = re.compile(r"(?:llama_kv_cache\w*: size =.*?\(\s*(\d+) cells|KV self size\s+=).*?"
                      r"K \((\w+)\):.*?V \((\w+)\):")
_KV_SEQUENCES = re.compile(r"(\d+)/(\d+) seqs")
_BUFFER = re.compile(r"([A-Z][A-Za-z_]*)(\d*)(?:\(\))?( model| KV)? buffer size\s*=\s*([\d.]+) MiB")
_DEVICE = re.compile(r"\b(?:Device |device |CUDA|Vulkan|ROCm|SYCL)(\d+)\b")
_N_CTX = re.compile(r"\bn_ctx\s+= (\d+)")

Cause = tuple[re.Pattern[str], str, str]


def _table(*rows: tuple[str, str, str]) -> tuple[Cause, ...]:
    return tuple((re.compile(words), kind, remedy) for words, kind, remedy in rows)


# One row: words of the log, the kind of the closed list, what to do.  The first row that matches decides.
_CAUSES = _table(
    (r"couldn't bind .*", "port_in_use", "another process holds the port: end it, or let rooftop choose a port"),
    (r"error: invalid argument: .*", "unknown_flag",
     "this llama-server does not know the flag: see `llama-server --help` for its name in this version"),
    (r"error while handling argument .*", "unknown", "the flag's value is not one that llama-server takes"),
    (r"the argument has been removed.*", "unknown_flag", "use the new name that the message gives"),
    (r"failed to open GGUF file .*\(No such file or directory\)", "model_not_found",
     "the path is wrong or the weights are not fetched: check `model`, or run `rooftop fetch`"),
    (r"failed to open GGUF file .*", "model_not_found", "the model file cannot be read: check its permissions"),
    (r"cannot start \S+: .*", "unknown", "the engine's program cannot be run: check `binary`"),
    (r"unknown model architecture: .*", "model_config_invalid", "this llama.cpp is older than the model: update it"),
    (r"(?:invalid magic|bad GGUF magic|gguf_init_from_\w+: failed to read|tensor '.*' data is not within|"
     r"missing tensor|key not found in model).*", "model_config_invalid",
     "the file is no whole GGUF model: compare its size and checksum with the source's"),
    (r"failed to allocate buffer for kv cache.*", "oom_kv",
     "shorter ctx-size, fewer parallel slots, a smaller cache-type-k/-v, or move layers by tensor-split"),
    (r"(?:unable to allocate \S+ buffer|alloc_tensor_range: failed to allocate \S+ buffer).*", "oom_weights",
     "the weights do not fit: a smaller format, more GPUs, or a lower n-gpu-layers"),
    (r"V cache quantization requires flash_attn.*", "unknown", "flash-attn = true, or cache-type-v = \"f16\""),
    (r".*SPLIT_MODE_TENSOR.*(?:not implemented|not supported).*", "layout_not_supported",
     "this model has no tensor split in llama.cpp: use pp (a layer split) or dp"),
    (r"no kernel image is available.*", "kernel_missing_for_gpu", "a build of llama.cpp for this GPU"),
    (r"CUDA driver version is insufficient.*", "cuda_driver_mismatch", "a newer driver, or a build for this one"),
)
_LATE_CAUSES = _table(
    (r"failed to allocate (?:compute|\S+) buffer.*", "oom_compute", "a lower batch-size and ubatch-size"),
    (r"(?:\w+ failed: out of memory|insufficient memory).*", "oom_compute", "less context, slots or batch"),
    (r"GGML_ASSERT\(.*", "unknown", "a check inside llama.cpp failed: report it there, with this log"),
    (r"failed to load model.*", "unknown", "see the lines before it in the log"),
)
_DEGRADED = (re.compile(r"retrying without pipeline parallelism.*"), "degraded_start",
             "it runs without pipeline parallelism: a lower ubatch-size makes its buffers fit")


class LlamaCppWitness:
    """Reads llama-server's words; no state."""

    __slots__ = ()

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        """All facts that the log proves, each with its line."""
        return tuple(evidence for number, line in enumerate(lines, 1) for evidence in _line_facts(number, line)) \
            + _sums(lines)

    def read_info(self, path: str, text: str) -> tuple[Evidence, ...]:
        """The facts of `/props`, `/slots`, `/v1/models` and `/metrics`; none for a page that is not as expected."""
        if path == "/metrics":
            return tuple(_metric_facts(self.read_metrics(text)))
        try:
            data = json.loads(text)
        except ValueError:
            return ()
        return tuple(_page_facts(path, data))

    def read_metrics(self, text: str) -> tuple[Reading, ...]:
        """The live series under rooftop's names."""
        found = (_METRIC.match(line) for line in text.splitlines())
        return tuple(Reading(_SERIES[one[1]][0], float(one[2]), _SERIES[one[1]][1])
                     for one in found if one and one[1] in _SERIES)

    def fault(self, lines: Sequence[str], exit_code: int | None) -> Fault | None:
        """Why it failed, in the log's own words; None where nothing is wrong."""
        last_phase = next((name for line in reversed(lines) for words, name in PHASES if words in line), "")
        ready = any("listening on" in line for line in lines) and not any("couldn't bind" in line for line in lines)
        for causes in (_CAUSES, _LATE_CAUSES) if exit_code != 0 else ():
            if (found := _cause(lines, causes)) is not None:
                number, words, kind, remedy = found
                survived = exit_code is None and any(_DEGRADED[0].search(line) for line in lines)
                if not survived:
                    return Fault(kind, words, remedy, last_phase, number)
        if exit_code is None:
            found = _cause(lines, (_DEGRADED,))
            return Fault(found[2], found[1], found[3], last_phase, found[0]) if found else None
        if exit_code == 0:
            return None
        return _by_exit(exit_code, ready, last_phase, len(lines))


def _cause(lines: Sequence[str], causes: Sequence[Cause]) -> tuple[int, str, str, str] | None:
    """The first cause, in the order of the table, that a line shows: line number, its words, kind, remedy."""
    for pattern, kind, remedy in causes:
        for number, line in enumerate(lines, 1):
            if (match := pattern.search(line)) is not None:
                return number, match[0].strip(), kind, remedy
    return None


def _by_exit(exit_code: int, ready: bool, last_phase: str, line: int) -> Fault:
    if exit_code > 0:
        return Fault("unknown", f"it ended with exit code {exit_code} and gives no reason", "read the log's last lines",
                     last_phase, line)
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if ready and name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE"):
        return Fault("segfault_first_token", f"it was ready and then crashed with {name}",
                     "another layout or attention setting may avoid the crash; report it with this log",
                     last_phase, line)
    remedy = {"SIGKILL": "most often the kernel's out-of-memory killer: see dmesg; a smaller model, context or batch",
              "SIGILL": "this build uses instructions that this processor lacks: another build"}.get(name, "")
    return Fault("unknown", f"it was killed by {name}", remedy or "read the log's last lines", last_phase, line)


def _value(kind: str, match: re.Match[str], group: int) -> Fact:
    word = match[group]
    if kind == "int":
        return int(word)
    if kind == "float":
        return float(word)
    if kind == "rest":
        return int(match[2]) - int(match[1])
    if kind == "flash":
        return "flash" if word in ("1", "enabled") else "plain"
    if kind in ("true", "false"):
        return kind == "true"
    return word.lower() if kind == "word" else kind


def _line_facts(number: int, line: str) -> Iterator[Evidence]:
    for pattern, level, facts in _FACTS:
        if (match := pattern.search(line)) is not None:
            for group, (fact, kind) in enumerate(facts, 1):
                value = _value(kind, match, min(group, pattern.groups))
                yield Evidence(fact, value, level, "log", number, line.strip())
    if (match := _KV_SIZE.search(line)) is not None and match[2] == match[3]:
        yield Evidence("kv.dtype", KV_DTYPES.get(match[2], match[2]), "built", "log", number, line.strip())
    if match is not None and match[1] is not None:
        sequences = _KV_SEQUENCES.search(line)
        streams = int(sequences[2]) if sequences else 1
        yield Evidence("kv.tokens", int(match[1]) * streams, "built", "log", number, line.strip())


def _sums(lines: Sequence[str]) -> tuple[Evidence, ...]:
    """Facts that need more than one line: the fullest GPU, the highest device seen."""
    found: dict[str, Evidence] = {}
    kv_failed = any("failed to allocate buffer for kv cache" in line for line in lines)
    n_ctx = 0
    for number, line in enumerate(lines, 1):
        if (match := _N_CTX.search(line)) is not None:
            n_ctx = int(match[1])
        if any(int(device) > _highest(found) for device in _DEVICE.findall(line)):
            device = max(map(int, _DEVICE.findall(line)))
            found["layout.ranks_seen"] = Evidence("layout.ranks_seen", f"gpu{device}", "built", "log", number,
                                                  line.strip())
        if (match := _BUFFER.search(line)) is None or match[1].startswith(_HOSTS) or "compute" in line \
                or "output" in line or "Host" in match[1]:
            continue
        fact = "kv.gib_per_gpu" if match[3] == " KV" else "memory.weights_gib"
        gib = round(float(match[4]) / _MIB_PER_GIB, 3)
        if fact == "kv.gib_per_gpu" and kv_failed:
            continue
        if fact not in found or gib > float(found[fact].value):
            found[fact] = Evidence(fact, gib, "built", "log", number, line.strip())
        if fact == "kv.gib_per_gpu" and n_ctx and not any("cells" in other for other in lines):
            found["kv.tokens"] = Evidence("kv.tokens", n_ctx, "built", "log", number, line.strip())
    return tuple(found.values())


def _highest(found: Mapping[str, Evidence]) -> int:
    seen = found.get("layout.ranks_seen")
    return int(str(seen.value).removeprefix("gpu")) if seen else 0


def _page_facts(path: str, data: Any) -> Iterator[Evidence]:
    if path == "/props" and isinstance(data, dict):
        context = data.get("default_generation_settings", {}).get("n_ctx")
        for fact, value in (("limits.max_running", data.get("total_slots")), ("limits.max_model_len", context)):
            if isinstance(value, int):
                yield Evidence(fact, value, "resolved", path, 0, f"{value}")
        if data.get("model_ftype"):
            yield Evidence("quant.method", str(data["model_ftype"]).lower(), "resolved", path, 0,
                           f"model_ftype: {data['model_ftype']}")
    if path == "/slots" and isinstance(data, list) and data:
        busy = sum(bool(slot.get("is_processing")) for slot in data)
        yield Evidence("limits.max_running", len(data), "resolved", path, 0, f"{len(data)} slots")
        yield Evidence("live.running", busy, "used", path, 0, f"{busy} of {len(data)} slots busy")
        if all("speculative" in slot for slot in data):
            speculative = any(slot["speculative"] for slot in data)
            yield Evidence("spec.enabled", speculative, "resolved", path, 0, f"speculative: {speculative}")


def _metric_facts(readings: Sequence[Reading]) -> Iterator[Evidence]:
    seen = {reading.series: reading.value for reading in readings}
    if "running" in seen:
        yield Evidence("live.running", int(seen["running"]), "used", "/metrics", 0,
                       f"requests_processing {seen['running']:g}")
    if "waiting" in seen:
        yield Evidence("live.queued", int(seen["waiting"]), "used", "/metrics", 0,
                       f"requests_deferred {seen['waiting']:g}")
    if seen.get("drafts"):
        proof = f"{seen.get('accepted_tokens', 0):g} accepted tokens in {seen['drafts']:g} drafts"
        yield Evidence("spec.enabled", True, "used", "/metrics", 0, proof)
        yield Evidence("spec.accept_length", seen.get("accepted_tokens", 0.0) / seen["drafts"], "used", "/metrics", 0,
                       proof)
    if cached := seen.get("cached_tokens"):
        proof = f"{cached:g} cached, {seen.get('prompt_tokens', 0):g} computed prompt tokens"
        yield Evidence("prefix_cache.enabled", True, "used", "/metrics", 0, proof)
        yield Evidence("prefix_cache.hit_rate", cached / (cached + seen.get("prompt_tokens", 0.0)), "used", "/metrics",
                       0, proof)
