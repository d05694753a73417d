"""vLLM's configuration in all its spellings (arguments, dumps, JSON, command lines) -> facts."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rooftop.domain.launch import Fact, Level
from rooftop.engines._lines import Line, Notes, number, whole, word
from rooftop.engines._vllm_lines import kernel, kv_dtype

_INTEGERS = {
    "tensor_parallel_size": "layout.tp", "pipeline_parallel_size": "layout.pp", "data_parallel_size": "layout.dp",
    "decode_context_parallel_size": "layout.dcp", "max_num_seqs": "limits.max_running",
    "max_model_len": "limits.max_model_len", "max_seq_len": "limits.max_model_len",
    "max_num_batched_tokens": "limits.chunk_tokens",
}
_SWITCHES = {"enable_prefix_caching": "prefix_cache.enabled", "async_scheduling": "overlap.enabled"}
_NAMES = {"quantization": "quant.method", "all2all_backend": "moe.a2a_backend", "moe_backend": "moe.backend"}

SHORT = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size", "ep": "enable_expert_parallel", "q": "quantization",
    "sc": "speculative_config", "cc": "compilation_config", "O": "optimization_level",
    "pcp": "prefill_context_parallel_size",
}

# (decode, prefill) of each graph mode: docs/design/cuda_graphs of vLLM.
MODES: dict[str, tuple[str, str]] = {
    "full_and_piecewise": ("full", "piecewise"), "full_decode_only": ("full", "off"),
    "piecewise": ("piecewise", "piecewise"), "full": ("full", "full"), "none": ("off", "off"),
}
_NUMBERED = {(0,): "none", (1,): "piecewise", (2,): "full", (2, 0): "full_decode_only", (2, 1): "full_and_piecewise"}


def split(text: str) -> dict[str, str]:
    """`a=1, b=X(c=2)` or `{'a': 1, 'b': [2, 3]}` as raw texts by their outermost keys; a cut end is left out."""
    depth, start, quote, parts = 0, 0, "", []
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth < 0:
                parts.append(text[start:place])
                break
        elif sign == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    else:
        parts.append(text[start:])
    pairs = (re.match(r"\s*['\"]?([A-Za-z_]\w*)['\"]?\s*[=:]\s*(.*)\Z", part, re.S) for part in parts)
    return {pair[1]: pair[2].strip() for pair in pairs if pair}


def graph_mode(value: Any) -> str | None:
    """The name of a graph mode from any spelling: `FULL`, `<CUDAGraphMode.FULL: 2>`, 2, [2, 1]; None for none given."""
    text = str(value).strip().strip("'\"").lower()
    named = re.search(r"cudagraphmode\.(\w+)", text)
    if named:
        return named[1] if named[1] in MODES else None
    if text in MODES and text != "none":
        return text
    digits = re.fullmatch(r"[\[(]?(\d)(?:, ?(\d))?[\])]?", text)
    if digits:
        return _NUMBERED.get(tuple(int(digit) for digit in digits.groups() if digit is not None))
    return "none" if isinstance(value, str) and value.strip("'\"") in ("NONE", "none") else None


def command_line(text: str) -> dict[str, str] | None:
    """The options of a `vllm serve` command in a line; None where the line holds none."""
    found = re.search(r"(?:\bvllm\s+serve|vllm\.entrypoints\.openai\.api_server|\bvllm-openai\S*)\s+(.*--?\w.*)", text)
    if not found or text.lstrip().startswith("#") or "error:" in text or "usage:" in text:
        return None
    try:
        words = shlex.split(found[1])
    except ValueError:
        words = found[1].split()
    options: dict[str, str] = {}
    for place, item in enumerate(words):
        if not re.match(r"--?[A-Za-z]", item):
            continue
        name, equals, value = item.lstrip("-").partition("=")
        if not equals:
            following = words[place + 1] if place + 1 < len(words) else ""
            value = "True" if not following or re.match(r"--?[A-Za-z]", following) else following
        name = name.replace("-", "_")
        head, dot, rest = name.partition(".")
        name = SHORT.get(head, head) + dot + rest
        if name.startswith("no_") and value == "True":
            name, value = name[3:], "False"
        options[name] = value
    return options


def flatten(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested JSON under their own keys, and under `parent.key`."""
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        if isinstance(value, Mapping):
            yield from flatten(value, key)
            yield key, value
        else:
            yield key, value
            if prefix:
                yield f"{prefix}.{key}", value


def note_settings(notes: Notes, settings: Mapping[str, Any], level: Level, line: Line) -> None:
    """Note all facts that a table of settings says at one level (`asked` for what a user typed)."""
    for fact, value in facts(settings, level):
        notes.add(fact, value, level, line)


def facts(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    """The facts in a table of settings whose values are texts or plain JSON values."""
    for key, fact in _INTEGERS.items():
        value = whole(_text(settings, key))
        if value is not None and value > 0:
            yield fact, value
    for key, fact in _SWITCHES.items():
        if _text(settings, key) in ("True", "False"):
            yield fact, _text(settings, key) == "True"
    for key, fact in _NAMES.items():
        name = word(_text(settings, key))
        if key in settings and name not in ("", "none", "null", "auto"):
            yield fact, name
    if level == "resolved" and "quantization" in settings and _text(settings, "quantization") == "None":
        yield "quant.method", "none"
    share = number(_text(settings, "gpu_memory_utilization"))
    if share is not None:
        yield "limits.memory_share", share
    dtype = kv_dtype(_text(settings, "kv_cache_dtype") or _text(settings, "cache_dtype"))
    if dtype is not None:
        yield "kv.dtype", dtype
    if _text(settings, "disable_custom_all_reduce") == "True":
        yield "allreduce.custom", False
    backend = (_text(settings, "attention_backend") or _text(settings, "attention_config.backend")
               or _inner(settings, "attention_config", "backend"))
    if backend not in ("", "None", "auto"):
        yield "attention.backend", kernel(backend.rsplit(".", 1)[-1])
    experts = word(_inner(settings, "kernel_config", "moe_backend"))
    if experts not in ("", "none", "auto"):
        yield "moe.backend", experts
    yield from _experts(settings, level)
    yield from _speculation(settings, level)
    yield from _graphs(settings)


def _experts(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    """vLLM spreads experts over all ranks of tp x prefill-context x dp, or not at all."""
    if _text(settings, "enable_expert_parallel") == "True":
        ranks = 1
        for key in ("tensor_parallel_size", "data_parallel_size", "prefill_context_parallel_size"):
            ranks *= whole(_text(settings, key)) or 1
        if ranks > 1 or level == "resolved":
            yield "layout.ep", ranks


def _speculation(settings: Mapping[str, Any], level: Level) -> Iterator[tuple[str, Fact]]:
    if "speculative_config" not in settings:
        return
    raw = _text(settings, "speculative_config")
    if raw in ("", "None", "null"):
        if level == "resolved":
            yield "spec.enabled", False
        return
    yield "spec.enabled", True
    method = re.search(r"['\"]?method['\"]?\s*[=:]\s*['\"](\w+)['\"]", raw)
    if method:
        yield "spec.method", word(method[1])


def _graphs(settings: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    compilation = settings.get("compilation_config")
    raw = _text(settings, "compilation_config")
    inner: Mapping[str, Any] = compilation if isinstance(compilation, Mapping) else split(raw[1:]) if raw else {}
    mode = graph_mode(inner.get("cudagraph_mode", settings.get("compilation_config.cudagraph_mode", "")))
    if _text(settings, "enforce_eager") == "True":
        mode = "none"
    elif mode is None and "cudagraph_mode" not in inner and _text(inner, "use_cudagraph") == "true":
        mode = "full" if _text(inner, "full_cuda_graph") == "true" else "piecewise"
    if mode is not None:
        yield "graphs.decode.mode", MODES[mode][0]
        yield "graphs.prefill.mode", MODES[mode][1]
    largest = whole(_text(inner, "max_cudagraph_capture_size") or _text(inner, "max_capture_size"))
    if mode != "none" and largest and _text(inner, "use_cudagraph") != "false":
        yield "graphs.decode.max_batch", largest


def _inner(settings: Mapping[str, Any], key: str, name: str) -> str:
    """A word inside a nested setting that came as text: `AttentionConfig(backend=<...FLASHINFER: ...>)`."""
    value = settings.get(key)
    found = re.search(rf"\b{name}['\"]?\s*[=:]\s*<?['\"]?([\w.]+)", value) if isinstance(value, str) else None
    return found[1] if found else ""


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, "")
    return value.strip("'\"") if isinstance(value, str) else str(value)
