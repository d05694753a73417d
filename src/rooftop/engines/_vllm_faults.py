"""Why a vLLM start or run failed or does less than asked, from its whole log."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rooftop.domain.launch import Evidence, Fault
from rooftop.domain.vocabulary import stops
from rooftop.engines._findings import Cause, Found, by_exit, ended_badly, of_fact
from rooftop.engines._lines import Line
from rooftop.engines._options import advise
from rooftop.engines._vllm_causes import CAUSES, OOM_STAGES, TRACES

_PHASES = tuple((name, re.compile(pattern)) for name, pattern in (
    ("arguments", r"non-default args:|args: Namespace\("),
    ("engine", r"Initializing an? (?:V[01] )?LLM engine"),
    ("distributed", r"is assigned as DP rank|distributed_init_method=|DP group leader|vLLM is using nccl"),
    ("weights", r"Starting to load model|Loading model from scratch|Loading model weights|checkpoint shards:"),
    ("compile", r"Dynamo bytecode transform|Starting torch\.compile|Compiling a graph for|for vLLM's torch\.compile|"
                r"Start compiling function|Warming up model for the compilation|Compiling model again"),
    ("KV cache", r"Memory profiling takes|Available KV cache memory|KV cache size:|GiB for KV cache|"
                 r"# (?:GPU|cuda|CUDA) blocks"),
    ("graphs", r"Capturing (?:CUDA graph|cudagraph|the model for CUDA graph)"),
    ("warm-up", r"Initial profiling/warmup run|Graph capturing finished"),
    ("server", r"init engine \(|Starting vLLM (?:API )?server|Started server process"),
    ("ready", r"Application startup complete"),
))
_READY = re.compile(r"Application startup complete|Avg prompt throughput|\"POST /\S+ HTTP|Processed prompts:\s+[1-9]")
_OVER = re.compile(r"Graph capturing finished|init engine \(|Capturing CUDA graphs?.*\b(\d+)/\1 ")
_NOTICE = re.compile(r"No available shared memory broadcast block found|Waiting for \d+ local, \d+ remote core engine")
_SERVED = re.compile(r"Avg generation throughput: (?!0\.0 )[\d.]+ tokens/s")
_SLOW = re.compile(
    r"torch\.compile (?:takes|took) (?P<a>[\d.]+) s|init engine \([^)]*\) took (?P<b>[\d.]+) s|"
    r"Model loading took .* and (?P<c>[\d.]+) s|Loading weights took (?P<d>[\d.]+) s|"
    r"Graph capturing finished in (?P<e>[\d.]+) s|Compiling a graph for .* takes (?P<f>[\d.]+) s|"
    r"profiling(?:/warmup run took| takes) (?P<g>[\d.]+) s")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)\b(?::.*)?$")
_ECHO = re.compile(r"EngineCore (?:failed|encountered)|WorkerProc (?:failed|hit)|Engine core initialization failed|"
                   r"died unexpectedly|EngineDeadError")
_ERROR = re.compile(r"\bERROR\b|[Ee]rror:")
_WRAPPER = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError|See stack trace|"
    r"See root cause|CancelledError|GeneratorExit|KeyboardInterrupt|SystemExit|Engine (?:process|loop)|"
    r"BrokenProcessPool")
_STARTING = re.compile(r"in (?:capture_model|load_model|determine_available_memory|profile_run|initialize_kv_cache)\b")
_DULL = re.compile(r'INFO: +\S+ - "|Engine \d+: Avg|  File "')
_SHUTDOWN = re.compile(r"Received signal|shutdown triggered|Shutting down|KeyboardInterrupt")

SLOW_S = 60.0
_LATE = {"worker_died": 3, "unknown": 2, "nccl_error": 1}
_MILD = ("compile_in_progress_not_hang", "request_too_long", "graphs_downgraded", "p2p_unavailable",
         "allreduce_fallback", "kernel_fallback", "partial_offload", "layout_poor", "kv_capacity_bound",
         "prefill_starves_decode", "graphs_not_used", "graph_ceiling_below_batch", "flag_not_effective", "slow_start",
         "warm_prefix_cache")


def phase(body: str) -> str | None:
    """The start-up phase that a message begins."""
    return next((name for name, pattern in _PHASES if pattern.search(body)), None)


@dataclass(slots=True)
class Trace:
    """A Python traceback: its frames and source lines, and the exception that ends it."""

    frames: list[str] = field(default_factory=list)
    exception: str = ""
    line: Line | None = None


def traces(lines: Iterable[Line]) -> list[Trace]:
    """All tracebacks with an end, in the order of their exceptions; those of different processes may interleave."""
    begun: dict[str, Trace] = {}
    done = []
    for line in lines:
        body = line.body.rstrip()
        if body.startswith("Traceback (most recent call last)"):
            begun[line.process] = Trace()
        elif line.process in begun:
            if body.startswith((" ", "|", "+")) or not body:
                begun[line.process].frames.append(body)
            elif _EXCEPTION.match(body):
                trace = begun.pop(line.process)
                trace.exception, trace.line = body, line
                done.append(trace)
    return done


def diagnose(lines: Sequence[Line], facts: Mapping[str, Evidence], exit_code: int | None) -> Fault | None:
    """The gravest cause that the log shows: what stopped it, else what holds it back; None for nothing wrong.

    Of a process that ended (`exit_code` known) only what stopped it is told.
    """
    ready = next((line.number for line in lines if _READY.search(line.body)), 0)
    found = _causes(lines, ready) + _tracebacks(lines)
    fatal = [item for item in found if stops(item.kind) and (exit_code or item.line >= ready or not ready)]
    hang = _stall(lines)
    if hang and stops(hang.kind):
        fatal.append(hang)
    fatal = [item for item in fatal if item.kind != "unknown" or ended_badly(lines, exit_code, _EXCEPTION, _ECHO)]
    if fatal:
        return _fault(min(fatal, key=lambda item: (_lateness(item), item.line)), lines)
    if exit_code is not None:
        return _fault(by_exit(lines, exit_code, ready, _ERROR), lines) if exit_code else None
    order = {kind: place for place, kind in enumerate(_MILD)}
    mild = [item for item in (*found, *_from_facts(facts), *_slow(lines), hang) if item and item.kind in order]
    return _fault(min(mild, key=lambda item: (order[item.kind], item.line)), lines) if mild else None


def _lateness(found: Found) -> int:
    """Causes before echoes: a process that is seen to die may be either, so its place in the log decides."""
    return _LATE["unknown"] if "died unexpectedly" in found.reason else _LATE.get(found.kind, 0)


def _fault(found: Found, lines: Sequence[Line]) -> Fault:
    """The finding with the last phase that was begun before its line (at the log's end where it has none)."""
    last = ""
    for line in lines:
        if found.line and line.number > found.line:
            break
        last = phase(line.body) or last
    return Fault(found.kind, found.reason.strip()[:300], found.remedy, last, found.line)


def _causes(lines: Sequence[Line], ready: int) -> list[Found]:
    found: list[Found] = []
    seen: set[tuple[Cause, bool, bool]] = set()
    for line in lines:
        if line.body and not _DULL.match(line.body) and _ANY.search(line.body):
            hits = ((cause, cause.pattern.search(line.body)) for cause in CAUSES)
            cause, match = next((cause, match) for cause, match in hits if match)
            key = (cause, line.number > ready, line.body.startswith("    "))
            if key not in seen:
                seen.add(key)
                found.append(_place(cause, match, line, lines, ready))
    said = {item.kind for item in found if not item.reason.startswith("    ")}
    return [item for item in found if item.kind not in said or not item.reason.startswith("    ")]



_ANY = re.compile("|".join(cause.plain for cause in CAUSES))


def _place(cause: Cause, match: re.Match[str], line: Line, lines: Sequence[Line], ready: int) -> Found:
    """The cause with what hangs on where it stands: the stage of an OOM, the moment of a crash."""
    kind, remedy = cause.kind, _fill(cause.remedy, match)
    if kind == "oom":
        kind, remedy = _oom_stage(line, lines, ready)
    elif kind == "segfault":
        starting = any(phase(other.body) for other in lines if other.number < line.number) or any(
            _STARTING.search(other.body) for other in lines if line.number < other.number < line.number + 80)
        if 0 < ready < line.number or not starting:
            kind, remedy = "segfault_first_token", ("the start proves nothing: use another layout or backend "
                                                    "(on CPU, experts cannot be spread: no ep)")
        else:
            kind, remedy = "worker_died", "it crashed while it started: another build, backend or layout"
    elif kind == "unknown_flag":
        remedy = advise("vllm", match.groupdict().get("flag") or "") or remedy
    elif kind == "worker_died" and match.groupdict().get("code") == "-9":
        remedy = "killed by signal 9: most often the host ran out of memory"
    return Found(kind, line.body, remedy, line.number)


def _fill(remedy: str, match: re.Match[str]) -> str:
    values = {name: value for name, value in match.groupdict().items() if value}
    if "free" in values and "total" in values:
        values["share"] = f"{int(float(values['free']) / float(values['total']) * 100) / 100:.2f}"
    if "heads" in values:
        heads = int(values["heads"])
        legal = [size for size in range(1, min(heads, 1024) + 1) if heads % size == 0]
        values["legal"] = ", ".join(str(size) for size in legal)
    values.setdefault("flag", values.get("bad", values.get("name", "the option")))
    values.setdefault("fits", "what fits")
    return remedy.format_map({**dict.fromkeys(re.findall(r"{(\w+)}", remedy), "?"), **values})


def _oom_stage(line: Line, lines: Sequence[Line], ready: int) -> tuple[str, str]:
    """By the frames of its own traceback; where the text has none, by the phase that was under way."""
    before = [other.body for other in lines if other.number < line.number and other.process == line.process][-120:]
    starts = [place for place, body in enumerate(before) if body.startswith("Traceback")]
    frames = "\n".join(before[starts[-1]:] if starts else [body for body in before if body.startswith("  ")])
    text = frames + "\n" + line.body
    for pattern, kind, remedy in OOM_STAGES:
        if pattern.search(text):
            return kind, remedy
    under_way = ""
    for other in lines:
        if other.number > line.number:
            break
        under_way = phase(other.body) or under_way
    kind = {"weights": "oom_weights", "KV cache": "oom_kv", "graphs": "oom_graph_capture"}.get(under_way, "oom_compute")
    if ready and ready < line.number:
        kind = "oom_compute"
    return kind, next((remedy for _, known, remedy in OOM_STAGES if known == kind), "")


def _tracebacks(lines: Sequence[Line]) -> list[Found]:
    """What tracebacks mean beyond their words; one that says nothing known is `unknown`, wrappers are none."""
    found = []
    for trace in traces(lines):
        if trace.line is None or _WRAPPER.search(trace.exception):
            continue
        frames = "\n".join(trace.frames)
        for exception, frame, kind, remedy in TRACES:
            if exception.search(trace.exception) and frame.search(frames):
                reason = _told(trace)
                found.append(Found(kind, reason, remedy, trace.line.number))
                break
        else:
            if not _ANY.search(trace.exception):
                found.append(Found("unknown", _told(trace), "", trace.line.number))
    return found


def _told(trace: Trace) -> str:
    """The exception; where it has no words, the source line that raised it too."""
    sources = [frame.strip() for frame in trace.frames if re.search(r"\w", frame) and "File \"" not in frame]
    return trace.exception if ":" in trace.exception or not sources else f"{trace.exception} at `{sources[-1]}`"




def _stall(lines: Sequence[Line]) -> Found | None:
    """Notices of silence: before the start is over they belong to compilation, after it to a hang."""
    notices = [line for line in lines if _NOTICE.search(line.body)]
    if not notices:
        return None
    last = notices[-1]
    over = [line.number for line in lines if _READY.search(line.body) or _OVER.search(line.body + " ")]
    served = [line.number for line in lines if _SERVED.search(line.body)]
    if not over or min(over) > last.number:
        if over:
            return None
        reached = [name for line in lines if line.number < last.number and (name := phase(line.body))]
        if reached and reached[-1] == "distributed":
            return Found("p2p_hang", last.body, "test peer-to-peer between the GPUs, IOMMU and ACS; try "
                          "NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce", last.number)
        return Found("compile_in_progress_not_hang", last.body,
                      "not a hang: wait, and keep the compile cache for the next start", last.number)
    if "shared memory" not in last.body or any(number > last.number for number in served):
        return None
    if any(_SHUTDOWN.search(line.body) for line in lines if line.number < last.number):
        return None
    return Found("hang_after_ready", last.body,
                  "take stack dumps of the workers; look for the rank that left the step", last.number)


def _slow(lines: Sequence[Line]) -> list[Found]:
    found = []
    for line in lines:
        match = _SLOW.search(line.body)
        seconds = float(next(value for value in match.groups() if value is not None)) if match else 0.0
        if seconds >= SLOW_S:
            found.append((seconds, line))
    if not found:
        return []
    seconds, line = max(found, key=lambda item: item[0])
    return [Found("slow_start", line.body, "keep the compile cache on disk, load from a fast disk, or capture fewer "
                   "graphs", line.number)]


def _from_facts(facts: Mapping[str, Evidence]) -> list[Found]:
    """What follows from figures: a full KV pool, graphs below the batch, prompts that crowd out tokens."""
    def figure(fact: str) -> float | None:
        said = facts.get(fact)
        return float(said.value) if said and isinstance(said.value, int | float) else None

    found = []
    running, queued, usage = figure("live.running"), figure("live.queued"), figure("live.kv_usage")
    if usage is not None and usage >= 0.9 and (running or queued):
        found.append(of_fact("kv_capacity_bound", facts["live.kv_usage"],
                         "lower concurrency or lengths, a smaller KV format, or more KV memory"))
    prompt, generated = figure("live.prompt_tok_s"), figure("live.gen_tok_s")
    if queued and prompt and generated is not None and prompt >= 20 * generated:
        found.append(of_fact("prefill_starves_decode", facts["live.prompt_tok_s"],
                         "a smaller --max-num-batched-tokens for latency, or separate prefill"))
    ceiling, limit = figure("graphs.decode.max_batch"), max(figure("limits.max_running") or 0, running or 0)
    if ceiling and limit > ceiling:
        found.append(of_fact("graph_ceiling_below_batch", facts["graphs.decode.max_batch"],
                         f"raise --max-cudagraph-capture-size to {limit:.0f}, or lower --max-num-seqs"))
    if figure("graphs.decode.used_share") == 0:
        found.append(of_fact("graphs_not_used", facts["graphs.decode.used_share"],
                         "raise the captured sizes or drop the flag that disables graphs"))
    transport = facts.get("nccl.transport")
    if transport and transport.value == "shm":
        found.append(of_fact("p2p_unavailable", transport,
                         "GPU traffic goes through host memory: check ACS and IOMMU, test with NCCL_P2P_DISABLE=1"))
    hits = figure("prefix_cache.hit_rate")
    if hits is not None and hits >= 0.9:
        found.append(of_fact("warm_prefix_cache", facts["prefix_cache.hit_rate"],
                         "change the prompts or flush the cache before comparing"))
    return found
