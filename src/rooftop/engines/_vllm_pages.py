"""What vLLM's endpoints say: `/metrics`, `/server_info`, `/v1/models`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rooftop.domain.engine import Reading
from rooftop.domain.launch import Evidence
from rooftop.engines._lines import Line, Notes, number, whole
from rooftop.engines._pasted import take_objects, take_samples
from rooftop.engines._vllm_config import flatten, note_settings, split
from rooftop.engines._vllm_lines import kv_dtype

_SAMPLE = re.compile(r"^(?P<name>vllm:\w+)(?:\{(?P<labels>.*)\})? (?P<value>[-+\w.]+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

# Prometheus name without `_total` -> (rooftop's series, only grows).  0.8 to 0.10 had `gpu_` names.
_SERIES = {
    "num_requests_running": ("running", False), "num_requests_waiting": ("waiting", False),
    "kv_cache_usage_perc": ("kv_usage", False), "gpu_cache_usage_perc": ("kv_usage", False),
    "num_requests_swapped": ("swapped", False),
    "prefix_cache_hits": ("prefix_hits", True), "gpu_prefix_cache_hits": ("prefix_hits", True),
    "prefix_cache_queries": ("prefix_queries", True), "gpu_prefix_cache_queries": ("prefix_queries", True),
    "num_preemptions": ("preemptions", True), "generation_tokens": ("output_tokens", True),
    "prompt_tokens": ("prompt_tokens", True), "prompt_tokens_cached": ("cached_tokens", True),
    "request_success": ("requests_done", True), "iteration_tokens_total_count": ("steps", True),
    "iteration_tokens_total_sum": ("step_tokens", True), "spec_decode_num_drafts": ("drafts", True),
    "spec_decode_num_draft_tokens": ("draft_tokens", True),
    "spec_decode_num_accepted_tokens": ("accepted_tokens", True),
}
_AVERAGED = frozenset(("kv_usage",))


def read_pasted(lines: Sequence[Line], notes: Notes) -> None:
    """What a log holds of pages: samples of `/metrics`, the object of `/server_info` on a line of its own."""
    take_samples(lines, notes, "vllm:", _SAMPLE, _read_counters)
    take_objects(lines, notes, "vllm_config", lambda tree, page: _read_config(tree.get("vllm_config"), page))


def read_metrics(text: str) -> tuple[Reading, ...]:
    """The live series, summed over the engines of one server; of KV usage the fullest engine's."""
    found: dict[str, list[float]] = defaultdict(list)
    grows: dict[str, bool] = {}
    for _, name, _, value in _samples(text):
        plain = name if name.startswith("iteration_tokens_total_") else name.removesuffix("_total")
        if plain in _SERIES:
            series, counter = _SERIES[plain]
            found[series].append(value)
            grows[series] = counter
    return tuple(Reading(series, max(values) if series in _AVERAGED else sum(values), grows[series])
                 for series, values in found.items())


def _samples(text: str) -> Iterator[tuple[int, str, dict[str, str], float]]:
    """(line number, name without `vllm:`, labels, value) of each sample of ours."""
    for count, line in enumerate(text.splitlines(), 1):
        match = _SAMPLE.match(line)
        value = number(match["value"]) if match else None
        if match and value is not None:
            labels = dict(_LABEL.findall(match["labels"] or ""))
            yield count, match["name"].removeprefix("vllm:"), labels, value


def read_info(path: str, text: str) -> tuple[Evidence, ...]:
    """All facts that the page at `path` proves; none for a page that is not what it should be."""
    page = path.partition("?")[0].rstrip("/")
    notes = Notes(page)
    if page.endswith("/metrics"):
        _read_counters(text, notes)
    elif page.endswith(("/server_info", "/v1/models")):
        try:
            tree = json.loads(text)
        except ValueError:
            return ()
        line = Line(0, text, text)
        if isinstance(tree, dict) and page.endswith("/server_info"):
            _read_config(tree.get("vllm_config"), notes)
        elif isinstance(tree, dict):
            models = tree.get("data") if isinstance(tree.get("data"), list) else ()
            lengths = [model.get("max_model_len") for model in models or () if isinstance(model, dict)]
            for length in lengths:
                if isinstance(length, int):
                    line = Line(0, f'"max_model_len": {length}', "")
                    notes.add("limits.max_model_len", length, "resolved", line)
    return notes.evidence()


def _read_config(config: object, notes: Notes) -> None:
    """The resolved configuration: a tree (`config_format=json`) or the text of the log's configuration line."""
    if isinstance(config, str):
        for key, value in split(config).items():
            if key != "quantization_config":
                note_settings(notes, {key: value}, "resolved", Line(0, f"{key}={value}", ""))
        return
    settings = dict(flatten(config)) if isinstance(config, dict) else {}
    if "max_model_len" not in settings:
        return
    for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
                "max_num_seqs", "max_model_len", "max_num_batched_tokens", "gpu_memory_utilization", "cache_dtype",
                "quantization", "enable_prefix_caching", "disable_custom_all_reduce", "async_scheduling", "moe_backend",
                "all2all_backend", "speculative_config", "attention_config.backend", "compilation_config",
                "enforce_eager"):
        if key in settings:
            note_settings(notes, {key: settings[key]}, "resolved", Line(0, f"{key}: {settings[key]!s}", ""))
    parallel = config.get("parallel_config") if isinstance(config, dict) else None
    if isinstance(parallel, dict) and parallel.get("enable_expert_parallel") is True:
        wanted = {key: parallel.get(key) for key in (
            "enable_expert_parallel", "tensor_parallel_size", "data_parallel_size", "prefill_context_parallel_size")}
        said = ", ".join(f"{key}: {value}" for key, value in wanted.items())
        ranks = 1
        for size in (wanted[key] for key in wanted if key != "enable_expert_parallel"):
            ranks *= size if isinstance(size, int) else 1
        notes.add("layout.ep", ranks, "resolved", Line(0, said, ""))


def _read_counters(text: str, notes: Notes) -> None:
    lines = text.splitlines()
    totals: dict[str, float] = defaultdict(float)
    where: dict[str, int] = {}
    for count, name, labels, value in _samples(text):
        plain = name.removesuffix("_total")
        totals[plain] += value
        where.setdefault(plain, count)
        if name == "cache_config_info":
            _read_cache(labels, Line(count, lines[count - 1], ""), notes)
    readings = {reading.series: reading.value for reading in read_metrics(text)}

    def proof(*names: str) -> Line:
        number_ = next((where[name] for name in names if name in where), 0)
        return Line(number_, lines[number_ - 1] if number_ else "", "")

    if "running" in readings:
        notes.add("live.running", int(readings["running"]), "used", proof("num_requests_running"))
    if "waiting" in readings:
        notes.add("live.queued", int(readings["waiting"]), "used", proof("num_requests_waiting"))
    if "kv_usage" in readings:
        notes.add("live.kv_usage", readings["kv_usage"], "used", proof("kv_cache_usage_perc", "gpu_cache_usage_perc"))
    queries, hits = readings.get("prefix_queries", 0.0), readings.get("prefix_hits", 0.0)
    hit_line = proof("prefix_cache_hits", "gpu_prefix_cache_hits")
    if queries:
        notes.add("prefix_cache.hit_rate", round(hits / queries, 6), "used", hit_line)
    if hits:
        notes.add("prefix_cache.enabled", True, "used", hit_line)
    if readings.get("output_tokens"):
        notes.add("startup.ready", True, "used", proof("generation_tokens"))
    drafts = readings.get("drafts", 0.0)
    if drafts:
        line = proof("spec_decode_num_drafts")
        notes.add("spec.enabled", True, "used", line)
        notes.add("spec.accept_length", round(1 + readings.get("accepted_tokens", 0.0) / drafts, 4), "used", line)


def _read_cache(labels: dict[str, str], line: Line, notes: Notes) -> None:
    """`cache_config_info` carries the whole cache configuration as labels."""
    notes.add("kv.dtype", kv_dtype(labels.get("cache_dtype", "")), "resolved", line)
    if labels.get("enable_prefix_caching") in ("True", "False"):
        notes.add("prefix_cache.enabled", labels["enable_prefix_caching"] == "True", "resolved", line)
    notes.add("limits.memory_share", number(labels.get("gpu_memory_utilization", "")), "resolved", line)
    tokens = whole(labels.get("kv_cache_size_tokens", ""))
    if tokens is None:
        blocks, size = whole(labels.get("num_gpu_blocks", "")), whole(labels.get("block_size", ""))
        tokens = blocks * size if blocks and size else None
    notes.add("kv.tokens", tokens, "built", line)
    notes.add("kv.full_requests", number(labels.get("kv_cache_max_concurrency", "")), "built", line)
