"""SGLang's settings in all their spellings (dumps, JSON, command lines, plans) -> facts."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rooftop.domain.launch import Fact, Level
from rooftop.engines._lines import Line, Notes, number, whole, word
from rooftop.engines._sglang_graphs import MODES
from rooftop.engines._sglang_lines import kv_dtype

# Old and short spellings of a field.
ALIASES = {
    "tensor_parallel_size": "tp_size", "tp": "tp_size", "pipeline_parallel_size": "pp_size", "pp": "pp_size",
    "data_parallel_size": "dp_size", "dp": "dp_size", "expert_parallel_size": "ep_size", "ep": "ep_size",
    "attention_data_parallel_size": "attn_dp_size", "decode_context_parallel_size": "dcp_size", "dcp": "dcp_size",
    "fp8_gemm_backend": "fp8_gemm_runner_backend", "fp4_gemm_backend": "fp4_gemm_runner_backend", "model": "model_path",
}
_INTEGERS = {
    "tp_size": "layout.tp", "pp_size": "layout.pp", "ep_size": "layout.ep", "dcp_size": "layout.dcp",
    "max_running_requests": "limits.max_running", "context_length": "limits.max_model_len",
    "chunked_prefill_size": "limits.chunk_tokens",
}
_NAMES = {
    "quantization": "quant.method", "moe_runner_backend": "moe.backend", "moe_a2a_backend": "moe.a2a_backend",
    "speculative_draft_attention_backend": "attention.draft_backend",
}
_FIELDS = ("tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "dcp_size", "enable_dp_attention",
           "max_running_requests", "context_length", "chunked_prefill_size", "mem_fraction_static", "kv_cache_dtype",
           "quantization", "attention_backend", "decode_attention_backend", "prefill_attention_backend",
           "moe_runner_backend", "moe_a2a_backend", "fp8_gemm_runner_backend", "fp4_gemm_runner_backend",
           "disable_cuda_graph", "disable_decode_cuda_graph", "disable_prefill_cuda_graph",
           "cuda_graph_backend_decode", "cuda_graph_backend_prefill", "cuda_graph_max_bs", "cuda_graph_max_bs_decode",
           "disable_radix_cache", "disable_overlap_schedule", "disable_custom_all_reduce", "enable_symm_mem",
           "enable_torch_symm_mem", "speculative_algorithm", "speculative_draft_attention_backend", "enable_ep_moe",
           "enable_deepep_moe", "max_total_tokens")
_FIELD = re.compile(
    r"(?<![\w'])'?(?P<key>" + "|".join(_FIELDS) + r")'?\s*[=:]\s*"
    r"(?P<value>'[^']*'|\"[^\"]*\"|-?\d+(?:\.\d+)?|None|True|False)(?=\s*[,)}\]]|$)")
_CONFIG = re.compile(r"'(?P<part>decode|prefill)': \{'backend': '(?P<backend>\w+)'(?:, 'max_bs': (?P<max>\d+))?")
_BATCHES = re.compile(r"(?<![\w'])'?cuda_graph_bs(?:_decode)?'?\s*[=:]\s*\[([\d, ]+)\]")
DUMP = re.compile(r"\bserver_args ?= ?(?:ServerArgs\(|\{)|\bServerArgs\(")
_CUT = re.compile(r"(?:\w+=[^,()]+, ){4}|(?:'\w+': [^,{}]+, ){4}")
_COMMAND = re.compile(r"(?:\bsglang\.(?:launch_server|bench_one_batch|bench_offline_throughput)|\bsglang serve|"
                      r"launch_command'?[:=])\s+(?P<rest>.*--?\w.*)")


def dump(body: str) -> dict[str, str] | None:
    """The fields of a settings dump in a line (`server_args=ServerArgs(...)`, `server_args={...}`), whole or cut.

    None for all other lines.  A value that the end of the line cuts is left out.
    """
    if not (DUMP.search(body) or (body.count(",") > 3 and len(_FIELD.findall(body)) >= 3 and _CUT.search(body))):
        return None
    settings = {found["key"]: found["value"].strip("'\"") for found in _FIELD.finditer(body)}
    for found in _CONFIG.finditer(body):
        settings[f"cuda_graph_config.{found['part']}"] = found["backend"]
        if found["part"] == "decode" and found["max"] and found["backend"] != "disabled":
            settings["cuda_graph_config.max"] = found["max"]
    if (sizes := _BATCHES.search(body)) is not None:
        settings["cuda_graph_bs"] = sizes[1]
    return settings


def command_line(text: str) -> dict[str, str] | None:
    """The options of a launch command in a line; None where the line holds none."""
    found = _COMMAND.search(text)
    if not found or text.lstrip().startswith("#") or re.search("error:|usage:|is still supported|Please", text):
        return None
    try:
        words = shlex.split(found["rest"])
    except ValueError:
        words = found["rest"].split()
    options: dict[str, str] = {}
    for place, item in enumerate(words):
        if re.match(r"--?[A-Za-z]", item):
            name, equals, value = item.lstrip("-").partition("=")
            if not equals:
                following = words[place + 1] if place + 1 < len(words) else ""
                value = "True" if not following or re.match(r"--?[A-Za-z]", following) else following
            options[field_name(name)] = value
    return options


def field_name(flag: str) -> str:
    """The field that a flag sets: `tp`, `tp-size` and `tensor-parallel-size` are `tp_size`."""
    name = flag.lstrip("-").replace("-", "_")
    return ALIASES.get(name, name)


def note_settings(notes: Notes, settings: Mapping[str, Any], level: Level, line: Line) -> None:
    """Note all facts that a table of settings says at one level (`asked` for what a user typed)."""
    for fact, value in facts(settings, level):
        notes.add(fact, value, level, line)


def facts(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    """The facts in a table of fields whose values are texts or plain JSON values."""
    for key, fact in _INTEGERS.items():
        value = whole(_text(settings, key))
        if value is not None and (value > 0 or key == "chunked_prefill_size"):
            yield fact, value
    for key, fact in _NAMES.items():
        name = word(_text(settings, key))
        if name not in ("", "none", "null", "auto"):
            yield fact, name
    share = number(_text(settings, "mem_fraction_static"))
    if share is not None:
        yield "limits.memory_share", share
    dtype = kv_dtype(_text(settings, "kv_cache_dtype"))
    if dtype is not None:
        yield "kv.dtype", dtype
    if level == "asked" and whole(_text(settings, "max_total_tokens")):
        yield "kv.tokens", whole(_text(settings, "max_total_tokens")) or 0
    yield from _replicas(settings, level)
    yield from _kernels(settings, level)
    yield from _switches(settings, level)
    yield from _graphs(settings, level)
    yield from _speculation(settings, level)


def _replicas(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    """`dp_size` counts replicas, or the attention groups where `enable_dp_attention` is on (until 0.5.21)."""
    replicas, groups = whole(_text(settings, "dp_size")), whole(_text(settings, "attn_dp_size"))
    inside = _text(settings, "enable_dp_attention")
    if groups is not None and (groups > 1 or inside != "True"):
        yield "layout.attention_dp", groups
        if replicas is not None:
            yield "layout.dp", 1 if replicas == groups and inside == "True" else replicas
    elif replicas is not None and inside == "True":
        yield "layout.attention_dp", replicas
        yield "layout.dp", 1
    elif replicas is not None and (replicas == 1 or inside == "False" or level == "asked"):
        yield "layout.dp", replicas
    for key in ("enable_ep_moe", "enable_deepep_moe"):
        ranks = whole(_text(settings, "tp_size"))
        if _text(settings, key) == "True" and ranks and "ep_size" not in settings:
            yield "layout.ep", ranks


def _kernels(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    decode, plain = _text(settings, "decode_attention_backend"), _text(settings, "attention_backend")
    name = decode if decode not in ("", "None") else plain
    if name not in ("", "None", "auto"):
        yield "attention.backend", word(name)
    if level == "resolved":
        for key in ("fp8_gemm_runner_backend", "fp4_gemm_runner_backend"):
            linear = word(_text(settings, key))
            if linear not in ("", "none", "auto"):
                yield "quant.linear_kernel", linear


def _switches(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    for key, fact in (("disable_radix_cache", "prefix_cache.enabled"), ("disable_overlap_schedule", "overlap.enabled")):
        if _text(settings, key) in ("True", "False") and (level == "resolved" or _text(settings, key) == "True"):
            yield fact, _text(settings, key) == "False"
    if _text(settings, "disable_custom_all_reduce") == "True":
        yield "allreduce.custom", False
    memory = [_text(settings, key) for key in ("enable_symm_mem", "enable_torch_symm_mem")]
    if "True" in memory:
        yield "allreduce.symm_mem", True
    elif "False" in memory and level == "resolved":
        yield "allreduce.symm_mem", False


def _graphs(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    everything = _text(settings, "disable_cuda_graph") == "True"
    for part in ("decode", "prefill"):
        backend = _text(settings, f"cuda_graph_config.{part}") or _text(settings, f"cuda_graph_backend_{part}")
        off = everything or _text(settings, f"disable_{part}_cuda_graph") == "True"
        mode = "off" if off else MODES.get(backend.lower())
        if mode:
            yield f"graphs.{part}.mode", mode
        if part == "decode" and mode != "off":
            largest = next((value for key in ("cuda_graph_config.max", "cuda_graph_max_bs_decode", "cuda_graph_max_bs")
                            if (value := whole(_text(settings, key)))), None)
            if largest:
                yield "graphs.decode.max_batch", largest
            if level == "resolved" and (sizes := re.findall(r"\d+", _text(settings, "cuda_graph_bs"))):
                yield "graphs.decode.sizes_count", len(sizes)


def _speculation(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    method = _text(settings, "speculative_algorithm")
    if method in ("", "None"):
        if method and level == "resolved":
            yield "spec.enabled", False
        return
    yield "spec.enabled", True
    yield "spec.method", word(method)


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, "")
    return value.strip("'\"") if isinstance(value, str) else str(value)
