"""Why an SGLang start or run failed or does less than asked, from its whole log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rooftop.domain.launch import Evidence, Fault
from rooftop.domain.vocabulary import stops
from rooftop.engines._findings import Cause, Found, by_exit, ended_badly, of_fact
from rooftop.engines._lines import Line
from rooftop.engines._options import advise
from rooftop.engines._sglang_causes import CAUSES, HARMLESS, OOM_STAGES, TRACES
from rooftop.engines._sglang_steps import read_batch

_PHASES = tuple((name, re.compile(pattern)) for name, pattern in (
    ("arguments", r"\bserver_args ?="),
    ("distributed", r"Init (?:torch distributed|nccl|parallel) begin|sglang is using nccl"),
    ("weights", r"Load weight begin|checkpoint shards:|Multi-thread loading shards"),
    ("KV cache", r"KV Cache (?:is allocated|VA upper)|Memory pool end|Load weight end"),
    ("compile", r"Entering DeepGEMM JIT|Running FlashInfer autotune|DeepGEMM JIT Compiling|Compiling the model|"
                r"DeepGEMM warmup"),
    ("graphs", r"Capture .*[Gg]raph .*begin|Capture cuda graph bs|Capturing (?:batches|num tokens)"),
    ("server", r"max_total_num_tokens=\d|Started server process|Application startup complete"),
    ("ready", r"The server is fired up and ready to roll"),
))
_TRAFFIC = re.compile(r'"POST /(?:v1/\S*|generate\S*) HTTP')
_TALK = re.compile(r"Init (?:torch distributed|nccl|parallel) (?P<edge>begin|ends)|sglang is using nccl|"
                   r"NCCL INFO .*Init COM")
_COMPILING = re.compile(r"Entering DeepGEMM JIT|Running FlashInfer autotune|DeepGEMM JIT Compiling|Compiling the model|"
                        r"DeepGEMM warmup|torch\.?compile")
_COMPILED = re.compile(r"autotune completed|[Gg]raph (?:\([^)]*\) )?end\b|max_total_num_tokens=\d")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Timeout|Resources)\b(?::.*)?$|"
                        r"^Exception: ")
_ECHO = re.compile(r"hit an exception|sigquit|SIGQUIT|scheduler is dead|terminated with")
_ERROR = re.compile(r"[Ee]rror\b")
_WRAPPER = re.compile(r"CancelledError|GeneratorExit|KeyboardInterrupt|SystemExit|BrokenProcessPool|EOFError|"
                      r"ConnectionRefusedError|Rank \d+ scheduler died|Initialization failed")
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )(?P<s>\d[\d.]*?)\.? ?s\b|took (?P<t>\d[\d.]*) s(?:econds)?\b")
_BAR_TIME = re.compile(r"(?:DeepGEMM warmup|Compil\w+).*100%\|.*\[(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d\d)<")
# What says neither a cause nor a phase, the bulk of a long log: access logs, frames, batches.
_DULL = re.compile(r'INFO: +\S+ - "|  File "|    |(?:Decode|Prefill) batch(?: ?\[\d+\])?[.,] ')
_OFFLOADED = re.compile(r"cpu_offload_gb[=':]+ ?(?P<gib>[1-9]\d*)")

SLOW_S = 60.0
_LATE = {"worker_died": 3, "unknown": 2, "nccl_error": 1, "request_too_long": 1}
_MILD = ("compile_in_progress_not_hang", "request_too_long", "graphs_downgraded", "p2p_unavailable",
         "allreduce_fallback", "kernel_fallback", "partial_offload", "layout_poor", "kv_capacity_bound",
         "prefill_starves_decode", "graphs_not_used", "graph_ceiling_below_batch", "flag_not_effective", "slow_start",
         "warm_prefix_cache")
# A CPU has neither graphs nor peers: what says that they are missing there is no finding.
_ON_CPU = re.compile(r"available_cpu_mem=|'device': 'cpu'|\bdevice='cpu'")
_OF_GPUS = frozenset(("graphs_downgraded", "graphs_not_used", "graph_ceiling_below_batch", "allreduce_fallback",
                      "p2p_unavailable"))


def phase(body: str) -> str | None:
    """The start-up phase that a message begins."""
    return next((name for name, pattern in _PHASES if pattern.search(body)), None)


@dataclass(slots=True)
class _Trace:
    """A Python traceback: its frames and source lines, and the exception that ends it."""

    frames: list[str] = field(default_factory=list)


def diagnose(lines: Sequence[Line], facts: Mapping[str, Evidence], exit_code: int | None) -> Fault | None:
    """The gravest cause that the log shows: what stopped it, else what holds it back; None for nothing wrong.

    Of a process that ended (`exit_code` known) only what stopped it is told.  What is fatal by its kind but was
    survived (a later line says ready or serves) is none.
    """
    ready = max((line.number for line in lines if _serves(line)), default=0)
    found = _causes(lines, ready) + _tracebacks(lines)
    bad = ended_badly(lines, exit_code, _EXCEPTION, _ECHO)
    fatal = [item for item in found if (stops(item.kind) or (bad and _EXCEPTION.match(item.reason)))
             and (exit_code or item.line >= ready)]
    fatal = [item for item in fatal if item.kind != "unknown" or bad]
    hang = None if exit_code is not None or fatal else _silent(lines, ready)
    if hang and stops(hang.kind):
        fatal.append(hang)
    if fatal:
        return _fault(min(fatal, key=lambda item: (_LATE.get(item.kind, 0), item.line)), lines)
    if exit_code is not None:
        return _fault(by_exit(lines, exit_code, ready, _ERROR, HARMLESS), lines) if exit_code else None
    order = {kind: place for place, kind in enumerate(_MILD)}
    mild = [item for item in (*found, *_from_facts(facts, lines), *_slow(lines), hang) if item and item.kind in order]
    if any(_ON_CPU.search(line.body) for line in lines):
        mild = [item for item in mild if item.kind not in _OF_GPUS]
    return _fault(min(mild, key=lambda item: (order[item.kind], item.line)), lines) if mild else None


def _serves(line: Line) -> bool:
    return ("fired up and ready to roll" in line.body or bool(_TRAFFIC.search(line.body))
            or (" batch" in line.body and read_batch(line) is not None))


def _fault(found: Found, lines: Sequence[Line]) -> Fault:
    """The finding with the last phase that was begun before its line (at the log's end where it has none)."""
    last = ""
    for line in lines:
        if found.line and line.number > found.line:
            break
        if not _DULL.match(line.body):
            last = phase(line.body) or last
    return Fault(found.kind, found.reason.strip()[:300], found.remedy, last, found.line)



_ANY = re.compile("|".join(cause.plain for cause in CAUSES))


def _causes(lines: Sequence[Line], ready: int) -> list[Found]:
    found: list[Found] = []
    seen: set[tuple[Cause, bool]] = set()
    for line in lines:
        if not line.body or _DULL.match(line.body) or HARMLESS.search(line.body) or not _ANY.search(line.body):
            continue
        hits = ((cause, cause.pattern.search(line.body)) for cause in CAUSES)
        cause, match = next((cause, match) for cause, match in hits if match)
        key = (cause, line.number > ready)
        if key not in seen:
            seen.add(key)
            found.append(_place(cause, match, line, lines))
    return found


def _place(cause: Cause, match: re.Match[str], line: Line, lines: Sequence[Line]) -> Found:
    """The cause with what hangs on where it stands: the stage of an OOM, the moment of a crash."""
    kind, remedy = cause.kind, _fill(cause.remedy, match)
    if kind == "oom":
        kind, remedy = _oom_stage(line, lines)
    elif kind == "segfault":
        if any(_serves(other) for other in lines if other.number < line.number):
            kind, remedy = "segfault_first_token", "the start proves nothing: use another layout or backend"
        else:
            kind, remedy = "worker_died", "it crashed while it started: another build, backend or layout"
    elif kind == "unknown_flag":
        remedy = advise("sglang", match.groupdict().get("flag") or "") or remedy
    elif kind == "worker_died" and "-9" in (match.groupdict().get("code"), match.groupdict().get("signal"),
                                            match.groupdict().get("rank")):
        remedy = "killed by signal 9: most often the host ran out of memory"
    return Found(kind, line.body, remedy, line.number)


def _fill(remedy: str, match: re.Match[str]) -> str:
    values = {name: value for name, value in match.groupdict().items() if value}
    if "width" in values and "by" in values:
        values.update(heads=values["width"], tp=values["by"])
    values.setdefault("flag", values.get("bad", values.get("name", "the option")))
    return remedy.format_map({**dict.fromkeys(re.findall(r"{(\w+)}", remedy), "?"), **values})


def _oom_stage(line: Line, lines: Sequence[Line]) -> tuple[str, str]:
    """By its own words and the frames of its traceback; where the text has none, by the phase that was under way."""
    before = [other for other in lines if other.number <= line.number][-160:]
    starts = [place for place, other in enumerate(before) if "Traceback (most recent call last)" in other.body]
    frames = [other.body for other in before[starts[-1]:]] if starts else [
        other.body for other in before if other.body.startswith("  ")]
    text = "\n".join((*frames, line.body))
    for pattern, kind, remedy in OOM_STAGES:
        if pattern.search(text):
            return kind, remedy
    under_way = [name for other in lines if other.number <= line.number and (name := phase(other.body))]
    served = any(_serves(other) for other in lines if other.number < line.number)
    kind = "oom_compute" if served else {"weights": "oom_weights", "KV cache": "oom_kv", "graphs": "oom_graph_capture"
                                         }.get(under_way[-1] if under_way else "", "oom_compute")
    return kind, next((remedy for _, known, remedy in OOM_STAGES if known == kind), "")


def _tracebacks(lines: Sequence[Line]) -> list[Found]:
    """What tracebacks mean beyond their words; one that says nothing known is `unknown`, wrappers are none."""
    found: list[Found] = []
    trace: _Trace | None = None
    for line in lines:
        body = line.body.rstrip()
        if "Traceback (most recent call last)" in body:
            trace = _Trace()
        elif trace is None and body.startswith('  File "'):
            trace = _Trace([body])
        elif trace is not None and (body.startswith((" ", "|", "+")) or not body):
            trace.frames.append(body)
        elif trace is not None and _EXCEPTION.match(body):
            if not _WRAPPER.search(body):
                found.extend(_read_trace(trace, body, line))
            trace = None
    return found


def _read_trace(trace: _Trace, exception: str, line: Line) -> list[Found]:
    frames = "\n".join(trace.frames)
    sources = [frame.strip() for frame in trace.frames
               if re.search(r"\w", frame) and 'File "' not in frame and not re.fullmatch(r"[\s^~]*", frame)]
    told = exception if ":" in exception or not sources else f"{exception} at `{sources[-1]}`"
    for pattern, frame, kind, remedy in TRACES:
        if pattern.search(exception) and frame.search(frames) and not _ANY.search(exception):
            return [Found(kind, told, remedy, line.number)]
    return [] if _ANY.search(exception) else [Found("unknown", told, "", line.number)]




def _silent(lines: Sequence[Line], ready: int) -> Found | None:
    """A start whose last words are those of compiling, or of GPUs that begin to talk.

    Prefill alone is no traffic: the warm-up request comes before the server says ready, and kernels compile under it.
    """
    told = [line for line in lines if line.body.strip() and not _DULL.match(line.body)]
    if not told or (ready and any(_serves(line) and "Prefill batch" not in line.body for line in lines)):
        return None
    compiling = [line for line in told if _COMPILING.search(line.body) and "100%|" not in line.body]
    last = compiling[-1] if compiling else told[-1]
    if compiling and last.number > ready and not any(
            _COMPILED.search(line.body) for line in told if line.number > last.number):
        return Found("compile_in_progress_not_hang", last.body,
                      "not a hang: wait (10 to 20 minutes are usual), and keep the kernel caches for the next start "
                      "(python -m sglang.compile_deep_gemm makes them before)", last.number)
    if ready:
        return None
    last = told[-1]
    talk = [match for line in told[-3:] if (match := _TALK.search(line.body))]
    ranks = {line.process for line in told if line.process}
    if talk and len(talk) == len(told[-3:]) and all(match["edge"] != "ends" for match in talk) and len(ranks) > 1:
        return Found("p2p_hang", last.body, "test peer-to-peer between the GPUs, IOMMU and ACS; try "
                      "NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce", last.number)
    return None


def _slow(lines: Sequence[Line]) -> list[Found]:
    found = []
    for line in lines:
        bar, match = _BAR_TIME.search(line.body) if "100%|" in line.body else None, None
        if "Load weight end" in line.body or "raph" in line.body or "autotune" in line.body or "Compil" in line.body:
            match = _ELAPSED.search(line.body)
        seconds = float(match["s"] or match["t"]) if match else 0.0
        if bar:
            seconds = int(bar["h"] or 0) * 3600 + int(bar["m"]) * 60 + int(bar["s"])
        if seconds >= SLOW_S:
            found.append((seconds, line))
    if not found:
        return []
    _, line = max(found, key=lambda item: item[0])
    return [Found("slow_start", line.body, "keep kernel and compile caches on disk, load from a fast disk, or capture "
                   "fewer graphs", line.number)]


def _from_facts(facts: Mapping[str, Evidence], lines: Sequence[Line]) -> list[Found]:
    """What follows from figures: a full KV pool, graphs below the batch, prompts that crowd out tokens."""
    def figure(fact: str) -> float | None:
        said = facts.get(fact)
        return float(said.value) if said and isinstance(said.value, int | float) else None

    found = []
    running, queued, usage = figure("live.running"), figure("live.queued"), figure("live.kv_usage")
    if usage is not None and usage >= 0.9 and (running or queued):
        found.append(of_fact("kv_capacity_bound", facts["live.kv_usage"],
                         "cap concurrency or lengths, --kv-cache-dtype fp8_e4m3, or more KV memory"))
    prompt, generated = figure("live.prompt_tok_s"), figure("live.gen_tok_s")
    if queued and prompt and generated is not None and prompt >= 20 * generated:
        found.append(of_fact("prefill_starves_decode", facts["live.prompt_tok_s"],
                         "a smaller --chunked-prefill-size or --prefill-decode-interval for latency, or separate "
                         "prefill"))
    found.extend(_graphs_in_use(facts, lines, figure("graphs.decode.max_batch"),
                                max(figure("limits.max_running") or 0, running or 0)))
    transport = facts.get("nccl.transport")
    if transport and transport.value == "shm":
        found.append(of_fact("p2p_unavailable", transport,
                         "GPU traffic goes through host memory: check ACS and IOMMU, test with NCCL_P2P_DISABLE=1"))
    for line in lines:
        if "server_args" in line.body and (offloaded := _OFFLOADED.search(line.body)):
            found.append(Found("partial_offload", offloaded[0], f"{offloaded['gib']} GiB of weights sit on the CPU: "
            f"no GPU "
                                "setting explains the speed until they fit", line.number))
    hits = figure("prefix_cache.hit_rate")
    if hits is not None and hits >= 0.9:
        found.append(of_fact("warm_prefix_cache", facts["prefix_cache.hit_rate"],
                         "flush it (POST /flush_cache) or use prompts that were not seen before"))
    return found


def _graphs_in_use(facts: Mapping[str, Evidence], lines: Sequence[Line], ceiling: float | None,
                   limit: float) -> list[Found]:
    share = facts.get("graphs.decode.used_share")
    batches = [batch for line in lines if " batch" in line.body and (batch := read_batch(line)) and batch.decode]
    graphed = [batch.running for batch in batches if batch.graph is True and batch.running is not None]
    eager = [batch for batch in batches if batch.graph is False and batch.running is not None]
    found = []
    if graphed and eager and min(batch.running or 0 for batch in eager) > max(graphed):
        found.append(Found("graph_ceiling_below_batch", eager[-1].line.body,
                            f"batches of up to {max(graphed)} replay a graph and larger ones do not: set "
                            "--cuda-graph-max-bs-decode (before 0.5.14 --cuda-graph-max-bs) to "
                            f"{max(batch.running or 0 for batch in eager)} or more", eager[-1].line.number))
    if ceiling and limit > ceiling and not (share and share.value == 1.0):
        found.append(of_fact("graph_ceiling_below_batch", facts["graphs.decode.max_batch"],
                         "set --cuda-graph-max-bs-decode (before 0.5.14 --cuda-graph-max-bs) to the concurrency that "
                         f"you plan for, or lower --max-running-requests from {limit:.0f} to {ceiling:.0f}"))
    if share and share.value == 0.0 and any(batch.on_gpu for batch in batches):
        found.append(of_fact("graphs_not_used", share,
                             "raise the captured sizes or drop the flag that disables graphs"))
    return found
