"""What llama-server says of itself: log lines, pages, metrics, causes of death."""

import json
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rooftop.domain.engine import Reading
from rooftop.domain.launch import Evidence, Fault
from rooftop.domain.vocabulary import state
from rooftop.engines._lines import Line, Notes, Say, constant, number, shape, whole, word
from rooftop.engines._llamacpp_args import KV_DTYPES, asked
from rooftop.engines._llamacpp_causes import CAUSES, DEGRADED, LATE_CAUSES, RETRIED, Cause, kv_on_host
from rooftop.engines._nccl import Nccl, devices
from rooftop.engines._wrapping import unwrap

PHASES = (
    ("load_model: loading model", "open model"),
    ("fitting params to device memory", "fit memory"),
    ("llama_model_loader: loaded meta data", "read metadata"),
    ("loading model tensors", "load weights"),
    ("constructing llama_context", "build context"),
    ("warming up the model", "warm up"),
    ("load_model: initializing", "open slots"),
)
_MIB_PER_GIB = 1024.0

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

def _flash(text: str) -> str:
    return "flash" if text in ("1", "enabled") else "plain"


def _kv_dtype(text: str) -> str:
    return KV_DTYPES.get(text, text)


_TRUE, _FALSE = constant(True), constant(False)
_SHAPES = (
    shape(r"\bn_slots ?= ?(\d+)", Say("limits.max_running", "resolved", 1, whole), supersedes=True),
    shape(r"\bkv_size = (\d+), offload = \d(?:, type_k = '(\w+)', type_v = '\2')?",
          Say("kv.tokens", "resolved", 1, whole), Say("kv.dtype", "resolved", 2, _kv_dtype)),
    shape(r"\bn_ctx_slot ?= ?(\d+)", Say("limits.max_model_len", "resolved", 1, whole), supersedes=True),
    shape(r"\bn_ctx_(?:per_)?seq(?:\s+= | \()(\d+)", Say("limits.max_model_len", "resolved", 1, whole)),
    shape(r"exceeds the available context size \((\d+) tokens\)", Say("limits.max_model_len", "resolved", 1, whole)),
    shape(r"\bn_batch\s+= (\d+)", Say("limits.chunk_tokens", "resolved", 1, whole)),
    shape(r"\bflash_attn\s+= (0|1|enabled|disabled)", Say("attention.backend", "resolved", 1, _flash)),
    shape(r"Flash Attention (?:was auto, set to )?(enabled|disabled)", Say("attention.backend", "built", 1, _flash)),
    shape(r"(?:print_info: file type|llm_load_print_meta: model ftype)\s+= (\S.*?)\s*$",
          Say("quant.method", "resolved", 1, word)),
    shape(r"(?:llama_kv_cache\w*: size|KV self size)\s+=.*K \((\w+)\):.*V \(\1\):",
          Say("kv.dtype", "built", 1, _kv_dtype)),
    shape(r"KV self size\s+=.*c\^KV \((\w+)\):", Say("kv.dtype", "built", 1, _kv_dtype)),
    shape(r"Meta\(\) model buffer", Say("layout.split_mode", "built", 0, constant("tensor"))),
    shape(r"pipeline parallelism enabled", Say("layout.split_mode", "built", 0, constant("layer")),
          Say("overlap.pipeline", "resolved", 0, _TRUE)),
    shape(r"retrying without pipeline parallelism", Say("overlap.pipeline", "built", 0, _FALSE), supersedes=True),
    shape(r"listening (?:on|at) \S+|server (?:is )?listening", Say("startup.ready", "built", 0, _TRUE)),
    shape(r"cached n_tokens = [1-9]", Say("prefix_cache.enabled", "used", 0, _TRUE)),
    shape(r"prompt eval time =.*?([\d.]+) tokens per second", Say("live.prompt_tok_s", "used", 1, number)),
    shape(r"(?<!prompt )\beval time =.*?([\d.]+) tokens per second", Say("live.gen_tok_s", "used", 1, number)),
    shape(r"draft acceptance(?: rate)? = [\d.]+ \(\s*\d+ accepted /\s*[1-9]\d* generated\)(?:, mean len =\s*([\d.]+))?",
          Say("spec.enabled", "used", 0, _TRUE), Say("spec.accept_length", "used", 1, number)),
    shape(r"on device (\d+): \w+ failed|current device: (\d+), in function", Say("error.gpu", "resolved", 1, whole),
          Say("error.gpu", "resolved", 2, whole)),
    shape(r"buffer of size (\d+)", Say("error.needed_bytes", "resolved", 1, number)),
    shape(r"allocating ([\d.]+) MiB on device", Say("error.needed_bytes", "resolved", 1,
                                                   lambda text: float(text) * 2**20)),
)
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_CELLS = re.compile(r"\(\s*(\d+) cells,")
_N_CTX = re.compile(r"\bn_ctx\s+= (\d+)")
_BUFFER = re.compile(r"([A-Z]\w*?)(\d+) (model |KV )?buffer size\s*=\s*([\d.]+) MiB")
# A device counts where something is allocated on it or the driver lists it, not where layers are only assigned to it.
_DEVICE = re.compile(r"\b(?:[Dd]evice |CUDA|Vulkan|ROCm|SYCL|MTL)(\d+)\b")
_ALLOCATES = re.compile(r"buffer size|\bbuffer of size|unable to allocate|on device \d+|^\s*Device \d+: |"
                        r"using device |current device: ")
_COMPUTE = re.compile(r"[A-Z]\w*\d+ compute buffer size")
_NO_KV = "failed to allocate buffer for kv cache"
_GPUS = re.compile(r"found (\d+) (?:CUDA|ROCm|Vulkan|SYCL) devices|^# GPUs: (\d+)")
_DECODED = re.compile(r"\beval time =.*?([\d.]+) tokens per second")
_CRASHED = "another layout or attention setting may avoid the crash; report it with this log"
_STAMP = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ")

class LlamaCppWitness:
    """Reads llama-server's words; no state."""

    __slots__ = ()

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        """All facts that the log proves, each with its line."""
        notes = Notes("log")
        read, nccl = _parse(lines), Nccl(notes)
        for line in read:
            notes.read(line, _SHAPES)
            nccl.read(line)
            for fact, value in asked(line.body) if "llama-server" in line.body else ():
                notes.add(fact, value, "asked", line)
        _note_memory(notes, read)
        nccl.close()
        _read_pasted(read, notes)
        return notes.evidence()

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
        read = _parse(lines)
        last_phase = next((name for line in reversed(read) for words, name in PHASES if words in line.body), "")
        if exit_code == 0:
            return None
        survived = exit_code is None and any(RETRIED in line.body for line in read)
        found = None if survived else _cause(read, CAUSES) or _cause(read, LATE_CAUSES)
        if found is None and exit_code is None:
            found = _cause(read, DEGRADED) or _host_kv(read) or _slower_with_more(read)
        ready = any("listening on" in line.body for line in read)
        if found is not None and found.kind == "segfault":
            found = replace(found, kind="segfault_first_token" if ready else "worker_died", remedy=_CRASHED)
        if found is not None:
            return replace(found, last_phase=last_phase)
        if exit_code is None:
            return None
        return _by_exit(exit_code, ready, last_phase, len(lines))


def _parse(lines: Sequence[str]) -> list[Line]:
    """The lines without what others put around them."""
    return [Line(at, text, _STAMP.sub("", inner)) for at, text, inner in unwrap(lines)]


def _host_kv(lines: list[Line]) -> Fault | None:
    """KV memory on the host although a GPU holds the weights."""
    line = kv_on_host(lines)
    return None if line is None else Fault(
        "partial_offload", line.body.strip(), "attention runs over host memory: drop no-kv-offload, or a shorter "
        "context, a smaller cache-type-k/-v or more GPU memory", line=line.number)


def _slower_with_more(lines: Sequence[Line]) -> Fault | None:
    """A log of several runs in which more GPUs decode more slowly than fewer."""
    rates: dict[int, tuple[float, int]] = {}
    gpus = 0
    for line in lines:
        if (found := _GPUS.search(line.body)) is not None:
            gpus = int(found[1] or found[2])
        elif gpus and "prompt" not in line.body and (found := _DECODED.search(line.body)) is not None:
            rates[gpus] = float(found[1]), line.number
    if len(rates) < 2:
        return None
    most = max(rates)
    best = max(rates, key=lambda count: rates[count][0])
    if best == most or rates[most][0] > 0.9 * rates[best][0]:
        return None
    figures = ", ".join(f"{count} GPU{'s' if count > 1 else ''} {rate:g} tokens/s"
                        for count, (rate, _) in sorted(rates.items()))
    return Fault("layout_poor", f"more GPUs decode more slowly: {figures}",
                 f"give a server {best} GPU{'s' if best > 1 else ''} (--split-mode none for one) and run replicas on "
                 "the others", line=rates[most][1])


def _cause(lines: Sequence[Line], causes: Sequence[Cause]) -> Fault | None:
    """The first cause, in the order of the table, that a line shows."""
    for pattern, kind, remedy in causes:
        for line in lines:
            if (match := pattern.search(line.body)) is not None:
                return Fault(kind, match[0].strip(), remedy, line=line.number)
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
                     _CRASHED,
                     last_phase, line)
    remedy = {"SIGKILL": "most often the kernel's out-of-memory killer: see dmesg; a smaller model, context or batch",
              "SIGILL": "this build uses instructions that this processor lacks: another build"}.get(name, "")
    return Fault("unknown", f"it was killed by {name}", remedy or "read the log's last lines", last_phase, line)


def _note_memory(notes: Notes, lines: Sequence[Line]) -> None:
    """Facts that a line alone does not say: devices, buffers of the fullest GPU, KV tokens, a pipeline with buffers."""
    kv_failed = any(_NO_KV in line.body for line in lines)
    counted = any(" cells," in line.body for line in lines)
    highest, n_ctx = 0, 0
    for line in lines:
        if (match := _N_CTX.search(line.body)) is not None:
            n_ctx = int(match[1])
        named = [*devices(line.body), *(map(int, _DEVICE.findall(line.body)) if _ALLOCATES.search(line.body) else ())]
        if max(named, default=0) > highest:
            highest = max(named)
            notes.add("layout.ranks_seen", f"gpu{highest}", "built", line, supersedes=True)
        if (match := _OFFLOADED.search(line.body)) is not None:
            notes.add("layout.layers_off_gpu", int(match[2]) - int(match[1]), "built", line)
        if (match := _CELLS.search(line.body)) is not None:
            streams = re.search(r"\d+/(\d+) seqs", line.body)
            notes.add("kv.tokens", int(match[1]) * (int(streams[1]) if streams else 1), "built", line)
        if "KV buffer size" in line.body and n_ctx and not counted and not kv_failed:
            notes.add("kv.tokens", n_ctx, "built", line)
        if (_COMPUTE.search(line.body) and notes.values("overlap.pipeline", "resolved")
                and not notes.values("overlap.pipeline", "built")):
            notes.add("overlap.pipeline", True, "built", line)
        if (match := _BUFFER.search(line.body)) is not None and "compute" not in line.body:
            gib = round(float(match[4]) / _MIB_PER_GIB, 3)
            if match[3] != "KV ":
                notes.add("memory.weights_gib", gib, "built", line)
            elif not kv_failed:
                notes.add("kv.gib_per_gpu", gib, "built", line)


def _read_pasted(lines: Sequence[Line], notes: Notes) -> None:
    """What a log holds of pages: samples of `/metrics`, the objects of `/props` and `/slots` on lines of their own."""
    samples = [line for line in lines if line.body.startswith("llamacpp:")]
    said = list(_metric_facts(LlamaCppWitness().read_metrics("\n".join(line.body for line in samples))))
    for one in said:
        notes.add(one.fact, one.value, one.level, samples[0])
    for line in lines:
        path = ("/props" if line.body.startswith("{") and '"default_generation_settings"' in line.body else
                "/slots" if line.body.startswith("[{") and '"is_processing"' in line.body else "")
        for one in LlamaCppWitness().read_info(path, line.body) if path else ():
            notes.add(one.fact, one.value, one.level, line)


def _page_facts(path: str, data: Any) -> Iterator[Evidence]:
    if path == "/props" and isinstance(data, dict):
        defaults = data.get("default_generation_settings")
        context = defaults.get("n_ctx") if isinstance(defaults, dict) else None
        for fact, value in (("limits.max_running", data.get("total_slots")), ("limits.max_model_len", context)):
            if isinstance(value, int):
                yield state(fact, value, "resolved", path, 0, f"{value}")
        if data.get("model_ftype"):
            yield state("quant.method", str(data["model_ftype"]).lower(), "resolved", path, 0,
                           f"model_ftype: {data['model_ftype']}")
    if path == "/slots" and isinstance(data, list) and data and all(isinstance(slot, dict) for slot in data):
        busy = sum(bool(slot.get("is_processing")) for slot in data)
        yield state("limits.max_running", len(data), "resolved", path, 0, f"{len(data)} slots")
        yield state("live.running", busy, "used", path, 0, f"{busy} of {len(data)} slots busy")
        if all("speculative" in slot for slot in data):
            speculative = any(slot["speculative"] for slot in data)
            yield state("spec.enabled", speculative, "resolved", path, 0, f"speculative: {speculative}")


def _metric_facts(readings: Sequence[Reading]) -> Iterator[Evidence]:
    seen = {reading.series: reading.value for reading in readings}
    if "running" in seen:
        yield state("live.running", int(seen["running"]), "used", "/metrics", 0,
                       f"requests_processing {seen['running']:g}")
    if "waiting" in seen:
        yield state("live.queued", int(seen["waiting"]), "used", "/metrics", 0,
                       f"requests_deferred {seen['waiting']:g}")
    if seen.get("drafts"):
        proof = f"{seen.get('accepted_tokens', 0):g} accepted tokens in {seen['drafts']:g} drafts"
        yield state("spec.enabled", True, "used", "/metrics", 0, proof)
        yield state("spec.accept_length", seen.get("accepted_tokens", 0.0) / seen["drafts"], "used", "/metrics", 0,
                       proof)
    if cached := seen.get("cached_tokens"):
        proof = f"{cached:g} cached, {seen.get('prompt_tokens', 0):g} computed prompt tokens"
        yield state("prefix_cache.enabled", True, "used", "/metrics", 0, proof)
        yield state("prefix_cache.hit_rate", cached / (cached + seen.get("prompt_tokens", 0.0)), "used", "/metrics",
                       0, proof)
