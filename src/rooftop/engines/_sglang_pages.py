"""What SGLang's endpoints say: `/metrics`, `/server_info`, `/get_server_info`, `/v1/models`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooftop.domain.engine import Reading
from rooftop.domain.launch import Evidence
from rooftop.engines._lines import Line, Notes, number
from rooftop.engines._pasted import take_objects, take_samples
from rooftop.engines._sglang_args import command_line, note_settings

_SAMPLE = re.compile(r"^sglang[:_](?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>[-+\w.]+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

# Prometheus name without `_total` -> (rooftop's series, only grows, how the ranks of one server come together).
_SERIES = {
    "num_running_reqs": ("running", False, "sum"), "num_queue_reqs": ("waiting", False, "sum"),
    "token_usage": ("kv_usage", False, "max"), "gen_throughput": ("gen_tokens_per_s", False, "sum"),
    "cache_hit_rate": ("prefix_hit_rate", False, "max"), "num_retracted_reqs": ("retracted", False, "sum"),
    "num_retracted_requests": ("preemptions", True, "sum"), "num_paused_reqs": ("paused", False, "sum"),
    "generation_tokens": ("output_tokens", True, "sum"), "prompt_tokens": ("prompt_tokens", True, "sum"),
    "cached_tokens": ("cached_tokens", True, "sum"), "num_requests": ("requests_done", True, "sum"),
    "num_aborted_requests": ("requests_aborted", True, "sum"), "new_token_ratio": ("new_token_ratio", False, "max"),
    "spec_accept_length": ("accept_length", False, "max"), "kv_used_tokens": ("kv_used_tokens", False, "max"),
    "utilization": ("utilization", False, "max"), "fwd_occupancy": ("forward_occupancy", False, "max"),
    "scheduler_idle_seconds": ("scheduler_idle_s", True, "max"),
    "scheduler_process_cpu_seconds": ("scheduler_cpu_s", True, "max"),
}
_PASSES = {"decode_cuda_graph": "decode_graph_steps", "decode_none": "decode_eager_steps",
           "prefill_cuda_graph": "prefill_graph_steps", "prefill_none": "prefill_eager_steps"}
_RANKS = frozenset(("tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "pid"))
_STARTUP = {"load_weight": "startup.load_s", "scheduler_e2e": "startup.total_s"}


def read_pasted(lines: Sequence[Line], notes: Notes) -> None:
    """What a log holds of pages: samples of `/metrics`, the object of `/server_info` on a line of its own."""
    take_samples(lines, notes, "sglang", _SAMPLE, _read_counters)
    take_objects(lines, notes, "tp_size", _read_server)


def read_metrics(text: str) -> tuple[Reading, ...]:
    """The live series of one server.

    Ranks of one tensor or pipeline group repeat their scheduler's figures, so that only one of them counts; counts are
    summed over schedulers, shares are the fullest one's.
    """
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    kinds: dict[str, tuple[bool, str]] = {}
    for _, name, labels, value in _samples(text):
        plain = name.removesuffix("_total")
        if plain == "cuda_graph_passes" and labels.get("mode") in _PASSES:
            series, kind = _PASSES[labels["mode"]], (True, "sum")
        elif plain in _SERIES:
            series, kind = _SERIES[plain][0], _SERIES[plain][1:]
        else:
            continue
        scheduler = tuple(sorted(item for item in labels.items() if item[0] not in _RANKS))
        found[series][scheduler] = max(value, found[series].get(scheduler, value))
        kinds[series] = kind
    return tuple(Reading(series, sum(values.values()) if kinds[series][1] == "sum" else max(values.values()),
                         kinds[series][0])
                 for series, values in found.items())


def _samples(text: str) -> Iterator[tuple[int, str, dict[str, str], float]]:
    """(line number, name without its prefix, labels, value) of each sample of ours; NaN is no sample."""
    for count, line in enumerate(text.splitlines(), 1):
        match = _SAMPLE.match(line)
        value = number(match["value"]) if match else None
        if match and value is not None:
            yield count, match["name"], dict(_LABEL.findall(match["labels"] or "")), value


def read_info(path: str, text: str) -> tuple[Evidence, ...]:
    """All facts that the page at `path` proves; none for a page that is not what it should be."""
    page = path.partition("?")[0].rstrip("/")
    notes = Notes(page)
    if page.endswith("/metrics"):
        _read_counters(text, notes)
    elif page.endswith(("/server_info", "/get_server_info", "/v1/models")):
        try:
            tree = json.loads(text)
        except ValueError:
            return ()
        if isinstance(tree, dict) and page.endswith("/v1/models"):
            _read_models(tree, notes)
        elif isinstance(tree, dict):
            _read_server(tree, notes)
    return notes.evidence()


def _line(key: str, value: Any) -> Line:
    return Line(0, f'"{key}": {json.dumps(value)}', "")


def _read_models(tree: Mapping[str, Any], notes: Notes) -> None:
    models = tree.get("data")
    for model in models if isinstance(models, list) else ():
        length = model.get("max_model_len") if isinstance(model, dict) else None
        if isinstance(length, int):
            notes.add("limits.max_model_len", length, "resolved", _line("max_model_len", length))


def _read_server(tree: Mapping[str, Any], notes: Notes) -> None:
    """The settings that are in effect, what was typed, and the state of each scheduler (flat in early versions)."""
    command = tree.get("launch_command")
    if isinstance(command, str):
        note_settings(notes, command_line(f"sglang serve {command}") or {}, "asked", _line("launch_command", command))
    for key, settings in _apart(tree):
        note_settings(notes, settings, "resolved", _line(key, tree[key]))
    states = tree.get("internal_states")
    for state in states if isinstance(states, list) else [tree]:
        if isinstance(state, dict):
            _read_state(state, notes)
    _read_startup(tree.get("startup_time"), notes)
    tokens = tree.get("max_total_num_tokens")
    if isinstance(tokens, int):
        notes.add("kv.tokens", tokens, "built" if tokens > 0 else "resolved", _line("max_total_num_tokens", tokens))


def _apart(tree: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings one by one, those apart that mean something only together."""
    together = ("dp_size", "attn_dp_size", "enable_dp_attention")
    for key, value in tree.items():
        if key == "cuda_graph_config" and isinstance(value, dict):
            yield key, {f"{key}.{part}": str(inner.get("backend", "")) for part, inner in value.items()
                        if isinstance(inner, dict)}
        elif key == "dp_size":
            yield key, {name: tree[name] for name in together if name in tree}
        elif key in ("enable_symm_mem", "enable_torch_symm_mem"):
            yield key, {name: tree.get(name) for name in ("enable_symm_mem", "enable_torch_symm_mem")}
        elif key == "cuda_graph_backend_decode" and "cuda_graph_config" in tree:
            continue
        elif key not in together and not isinstance(value, dict | list):
            yield key, {key: value}


def _read_state(state: Mapping[str, Any], notes: Notes) -> None:
    world, running = state.get("world_size"), state.get("effective_max_running_requests_per_dp")
    if isinstance(world, int):
        notes.add("layout.world_size", world, "resolved", _line("world_size", world))
    if isinstance(running, int):
        notes.add("limits.max_running", running, "resolved", _line("effective_max_running_requests_per_dp", running),
                  supersedes=True)
    memory = state.get("memory_usage")
    if isinstance(memory, dict):
        line = _line("memory_usage", memory)
        for key, fact in (("weight", "memory.weights_gib"), ("kvcache", "kv.gib_per_gpu")):
            if isinstance(memory.get(key), int | float):
                notes.add(fact, float(memory[key]), "built", line)
        if isinstance(memory.get("token_capacity"), int):
            notes.add("kv.tokens", memory["token_capacity"], "built", line)
    sizes = state.get("decode_cuda_graph_bs")
    if isinstance(sizes, list) and sizes:
        line = _line("decode_cuda_graph_bs", sizes)
        notes.add("graphs.decode.max_batch", max(sizes), "built", line)
        notes.add("graphs.decode.sizes_count", len(sizes), "built", line)
        gib = state.get("decode_cuda_graph_memory_gb")
        if isinstance(gib, int | float):
            notes.add("graphs.memory_gib", float(gib), "built", _line("decode_cuda_graph_memory_gb", gib))
    accepted = state.get("avg_spec_accept_length")
    if isinstance(accepted, int | float) and accepted > 0:
        line = _line("avg_spec_accept_length", accepted)
        notes.add("spec.accept_length", float(accepted), "used", line)
        notes.add("spec.enabled", True, "used", line)


def _read_startup(times: object, notes: Notes) -> None:
    if not isinstance(times, dict):
        return
    line = _line("startup_time", times)
    for key, fact in _STARTUP.items():
        if isinstance(times.get(key), int | float):
            notes.add(fact, float(times[key]), "built", line)
    graphs = times.get("cuda_graph")
    if isinstance(graphs, dict):
        decode = max((float(graphs.get(key) or 0) for key in ("decode", "target_verify")), default=0.0)
        if decode > 0:
            notes.add("startup.graphs_s", decode, "built", line)
        draft = max((float(graphs.get(key) or 0) for key in ("draft_decode", "draft_extend")), default=0.0)
        if draft > 0:
            notes.add("startup.draft_graphs_s", draft, "built", line)


def _read_counters(text: str, notes: Notes) -> None:
    lines = text.splitlines()
    where: dict[str, int] = {}
    gauges: dict[str, float] = {}
    overlapped = 0.0
    for count, name, labels, value in _samples(text):
        where.setdefault(name.removesuffix("_total"), count)
        if name in ("max_total_num_tokens", "context_len", "weight_memory_usage_gb", "kv_cache_memory_usage_gb"):
            gauges[name] = max(value, gauges.get(name, value))
        elif name == "startup_time_seconds" and labels.get("phase") in _STARTUP:
            notes.add(_STARTUP[labels["phase"]], value, "built", Line(count, lines[count - 1], ""))
        elif name == "scheduler_stage_seconds_total" and labels.get("forward_overlap") in ("full", "partial"):
            overlapped += value
    readings = {reading.series: reading.value for reading in read_metrics(text)}

    def proof(*names: str) -> Line:
        place = next((where[name] for name in names if name in where), 0)
        return Line(place, lines[place - 1] if place else "", "")

    for name, fact in (("weight_memory_usage_gb", "memory.weights_gib"),
                       ("kv_cache_memory_usage_gb", "kv.gib_per_gpu")):
        if gauges.get(name):
            notes.add(fact, gauges[name], "built", proof(name))
    for name, fact in (("max_total_num_tokens", "kv.tokens"), ("context_len", "limits.max_model_len")):
        if gauges.get(name):
            notes.add(fact, int(gauges[name]), "built" if fact == "kv.tokens" else "resolved", proof(name))
    _note_live(readings, notes, proof("num_running_reqs"), proof("num_queue_reqs"), proof("token_usage"))
    eager, graph = readings.get("decode_eager_steps", 0.0), readings.get("decode_graph_steps", 0.0)
    if eager + graph:
        notes.add("graphs.decode.used_share", round(graph / (eager + graph), 4), "used", proof("cuda_graph_passes"))
    cached, prompt = readings.get("cached_tokens", 0.0), readings.get("prompt_tokens", 0.0)
    if prompt:
        notes.add("prefix_cache.hit_rate", round(cached / prompt, 6), "used", proof("cached_tokens", "prompt_tokens"))
    if cached:
        notes.add("prefix_cache.enabled", True, "used", proof("cached_tokens"))
    if readings.get("output_tokens"):
        notes.add("startup.ready", True, "used", proof("generation_tokens"))
    if overlapped:
        notes.add("overlap.enabled", True, "used", proof("scheduler_stage_seconds"))
    if readings.get("accept_length"):
        notes.add("spec.enabled", True, "used", proof("spec_accept_length"))
        notes.add("spec.accept_length", readings["accept_length"], "used", proof("spec_accept_length"))


def _note_live(readings: Mapping[str, float], notes: Notes, running: Line, waiting: Line, usage: Line) -> None:
    if "running" in readings:
        notes.add("live.running", int(readings["running"]), "used", running)
    if "waiting" in readings:
        notes.add("live.queued", int(readings["waiting"]), "used", waiting)
    if "kv_usage" in readings:
        notes.add("live.kv_usage", readings["kv_usage"], "used", usage)
    if readings.get("gen_tokens_per_s"):
        notes.add("live.gen_tok_s", readings["gen_tokens_per_s"], "used", running)
