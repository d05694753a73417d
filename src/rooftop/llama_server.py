"""llama-server's command line over the server inside the xllamacpp wheel."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

Kind = Literal["text", "whole", "number", "switch"]
_KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_NO_DEVICE_LAYERS = {"auto": -1, "all": -2}
_TENSOR_SPLITS = 128


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of llama-server: its spellings, the field of the wheel's parameters that it sets, the kind of its value.

    A switch takes no value and has a `--no-` form.
    """

    words: tuple[str, ...]
    field: str
    kind: Kind = "whole"


FLAGS = (
    Flag(("-m", "--model"), "model.path", "text"),
    Flag(("--port",), "port"),
    Flag(("-np", "--parallel"), "n_parallel"),
    Flag(("-c", "--ctx-size"), "n_ctx"),
    Flag(("-t", "--threads"), "cpuparams.n_threads"),
    Flag(("-tb", "--threads-batch"), "cpuparams_batch.n_threads"),
    Flag(("--threads-http",), "n_threads_http"),
    Flag(("-b", "--batch-size"), "n_batch"),
    Flag(("-ub", "--ubatch-size"), "n_ubatch"),
    Flag(("-n", "--predict", "--n-predict"), "n_predict"),
    Flag(("-mg", "--main-gpu"), "main_gpu"),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib"),
    Flag(("--cache-reuse",), "n_cache_reuse"),
    Flag(("--ctx-checkpoints",), "n_ctx_checkpoints"),
    Flag(("-to", "--timeout"), "timeout_read"),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "verbosity"),
    Flag(("--poll",), "cpuparams.poll"),
    Flag(("-sps", "--slot-prompt-similarity"), "slot_prompt_similarity", "number"),
    Flag(("--rope-freq-base",), "rope_freq_base", "number"),
    Flag(("--rope-freq-scale",), "rope_freq_scale", "number"),
    Flag(("--chat-template",), "chat_template", "text"),
    Flag(("--metrics",), "endpoint_metrics", "switch"),
    Flag(("--props",), "endpoint_props", "switch"),
    Flag(("--slots",), "endpoint_slots", "switch"),
    Flag(("--warmup",), "warmup", "switch"),
    Flag(("-cb", "--cont-batching"), "cont_batching", "switch"),
    Flag(("--cache-prompt",), "cache_prompt", "switch"),
    Flag(("--cache-idle-slots",), "cache_idle_slots", "switch"),
    Flag(("--context-shift",), "ctx_shift", "switch"),
    Flag(("-kvu", "--kv-unified"), "kv_unified", "switch"),
    Flag(("--swa-full",), "swa_full", "switch"),
    Flag(("--jinja",), "use_jinja", "switch"),
    Flag(("--ui", "--webui"), "ui", "switch"),
    Flag(("--check-tensors",), "check_tensors", "switch"),
    Flag(("--reuse-port",), "reuse_port", "switch"),
)
_INVERTED = {"--kv-offload": "no_kv_offload", "--op-offload": "no_op_offload", "--repack": "no_extra_bufts",
             "--perf": "no_perf"}
_VALUES: dict[Kind, Callable[[str], object]] = {"text": str, "whole": int, "number": float}


def parser() -> argparse.ArgumentParser:
    """The command line; an abbreviation is not taken for a flag."""
    words = argparse.ArgumentParser(prog="llama_server", allow_abbrev=False, exit_on_error=False, description=__doc__)
    words.add_argument("--version", action="version", version=f"xllamacpp {metadata.version('xllamacpp')}")
    for flag in FLAGS:
        if flag.kind == "switch":
            words.add_argument(*flag.words, dest=flag.field, action=argparse.BooleanOptionalAction)
        else:
            words.add_argument(*flag.words, dest=flag.field, type=_VALUES[flag.kind])
    for word in _INVERTED:
        words.add_argument(word, action=argparse.BooleanOptionalAction)
    words.add_argument("--host", default="127.0.0.1")
    words.add_argument("-a", "--alias", default="")
    words.add_argument("-ctk", "--cache-type-k", choices=_KV_TYPES)
    words.add_argument("-ctv", "--cache-type-v", choices=_KV_TYPES)
    words.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"))
    words.add_argument("-fit", "--fit", choices=("on", "off"))
    words.add_argument("-ngl", "--gpu-layers", "--n-gpu-layers")
    words.add_argument("-sm", "--split-mode", choices=("none", "layer", "row", "tensor"))
    words.add_argument("-ts", "--tensor-split")
    words.add_argument("-lm", "--load-mode", choices=("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"))
    words.add_argument("--numa", choices=("distribute", "isolate", "numactl"))
    return words


def parameters(given: argparse.Namespace) -> Any:
    """The wheel's parameters for a parsed command line.  Raises ValueError for a value that has no meaning."""
    import xllamacpp as wheel

    made = wheel.CommonParams()
    made.n_parallel = -1
    made.hostnames = [given.host]
    if given.alias:
        made.model_alias = {given.alias}
    for flag in FLAGS:
        if (value := getattr(given, flag.field)) is not None:
            place, _, name = flag.field.rpartition(".")
            setattr(getattr(made, place) if place else made, name, value)
    for word, field in _INVERTED.items():
        if (value := getattr(given, word[2:].replace("-", "_"))) is not None:
            setattr(made, field, not value)
    _set_names(made, given, wheel)
    if given.gpu_layers is not None:
        made.n_gpu_layers = _NO_DEVICE_LAYERS.get(given.gpu_layers) or int(given.gpu_layers)
    if given.tensor_split is not None:
        shares = [float(share) for share in given.tensor_split.split(",")]
        made.tensor_split = shares + [0.0] * (_TENSOR_SPLITS - len(shares))
    if given.fit is not None:
        made.fit_params = given.fit == "on"
    return made


def _set_names(made: Any, given: argparse.Namespace, wheel: Any) -> None:
    """The values that are names in the wheel."""
    for part in ("k", "v"):
        if (kind := getattr(given, f"cache_type_{part}")) is not None:
            setattr(made, f"cache_type_{part}", getattr(wheel.ggml_type, f"GGML_TYPE_{kind.upper()}"))
    flash = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO", None: ""}[given.flash_attn]
    if flash:
        made.flash_attn_type = getattr(wheel.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    if given.split_mode is not None:
        made.split_mode = getattr(wheel.llama_split_mode, f"LLAMA_SPLIT_MODE_{given.split_mode.upper()}")
    if given.load_mode is not None:
        name = {"mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO"}.get(given.load_mode, given.load_mode.upper())
        made.load_mode = getattr(wheel.llama_load_mode, f"LLAMA_LOAD_MODE_{name}")
    if given.numa is not None:
        made.numa = getattr(wheel.ggml_numa_strategy, f"GGML_NUMA_STRATEGY_{given.numa.upper()}")


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT (exit code 0); 1 where the server does not start, 2 for a wrong command line.

    The process ends without the wheel's own shutdown, which can wait forever; a server has nothing to save.
    """
    try:
        given, unknown = parser().parse_known_args(argv)
        if unknown:
            return _say(f"error: invalid argument: {unknown[0]}", 2)
        if not getattr(given, "model.path"):
            return _say("error: no model: give its path with --model", 2)
        made = parameters(given)
    except (argparse.ArgumentError, ValueError) as error:
        return _say(f"error while handling argument: {error}", 2)
    import xllamacpp as wheel

    try:
        server = wheel.Server(made)
    except RuntimeError as error:
        os._exit(_say(f"error: {error}", 1))
    stop = {signal.SIGTERM, signal.SIGINT}
    for number in stop:
        signal.signal(number, lambda *_: os._exit(0))
    while server:
        signal.pause()
    return 0


def _say(words: str, code: int) -> int:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
