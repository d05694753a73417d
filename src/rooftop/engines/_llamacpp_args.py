"""What a llama-server command inside a log asks for."""

import re
import shlex
from collections.abc import Iterator

from rooftop.domain.launch import Fact

KV_DTYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_COMMAND = re.compile(r"\bllama-server(?:\.exe)?['\"]?\s+(?P<rest>-.*)")
_NAMES = {
    "sm": "split-mode", "np": "parallel", "b": "batch-size", "fa": "flash-attn", "ctk": "cache-type-k",
    "ctv": "cache-type-v", "md": "model-draft",
}
_ON_OFF = {"on": "flash", "1": "flash", "true": "flash", "": "flash", "off": "plain", "0": "plain", "false": "plain"}


def asked(body: str) -> Iterator[tuple[str, Fact]]:
    """The facts that a command line in a message asks for; nothing for other messages, comments and help texts."""
    found = _COMMAND.search(body)
    if not found or body.lstrip().startswith("#") or re.search("usage:|error:", body):
        return
    options = _options(found["rest"])
    if (mode := options.get("split-mode", "")) in ("none", "layer", "row", "tensor"):
        yield "layout.split_mode", mode
    for name, fact in (("parallel", "limits.max_running"), ("batch-size", "limits.chunk_tokens")):
        if re.fullmatch(r"[1-9]\d*", options.get(name, "")):
            yield fact, int(options[name])
    key = options.get("cache-type-k", "")
    if key and key == options.get("cache-type-v"):
        yield "kv.dtype", KV_DTYPES.get(key, key)
    if (attention := _ON_OFF.get(options.get("flash-attn", "auto"))) is not None:
        yield "attention.backend", attention
    if "model-draft" in options:
        yield "spec.enabled", True


def _options(rest: str) -> dict[str, str]:
    """The options by their long names; a switch has the value ""."""
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        words = rest.split()
    options = {}
    for place, item in enumerate(words):
        if re.match(r"--?[A-Za-z]", item):
            name, _, value = item.lstrip("-").partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            options[_NAMES.get(name, name)] = value or ("" if re.match(r"--?[A-Za-z]", following) else following)
    return options
