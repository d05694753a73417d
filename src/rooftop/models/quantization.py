"""Which number format each module's weights have, as quantization_config says."""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import cache

from rooftop.domain.architecture import BF16, FP16, FP32, NumberFormat
from rooftop.errors import BadInput
from rooftop.models.fields import Fields

FormatOf = Callable[[str], NumberFormat]

DTYPES = {"bfloat16": BF16, "float16": FP16, "half": FP16, "float32": FP32, "float": FP32, "bf16": BF16, "fp16": FP16}
NVFP4 = NumberFormat("nvfp4", 4, 1, 16, 1, 8)
MXFP4 = NumberFormat("mxfp4", 4, 1, 32, 1)
FP8 = NumberFormat("fp8", 8, matrix_bytes=8)
"""One fp32 scale for the weights and one for their inputs."""
METHODS = ("fp8", "modelopt", "modelopt_fp4", "compressed-tensors", "awq", "gptq", "gptq_marlin", "awq_marlin",
           "auto-round", "mxfp4", "fbgemm_fp8", "ptpc_fp8")


def base_format(config: Fields) -> NumberFormat:
    """The format of activations and of weights that are not quantized; bf16 where the configuration does not say."""
    name = config.word("dtype", "torch_dtype", default="bfloat16").removeprefix("torch.")
    if name not in DTYPES:
        raise config.wrong("dtype", f"one of {', '.join(DTYPES)}", name)
    return DTYPES[name]


def fp8_blocks(rows: int, cols: int) -> NumberFormat:
    """fp8 with one fp32 scale a block."""
    return NumberFormat(f"fp8 {rows}x{cols}", 8, rows, cols, 4)


def int_groups(bits: int, group: int, *, scale_bytes: float = 2.0, zeros: bool = False) -> NumberFormat:
    """Whole numbers in groups along the inputs, each with a scale and, where `zeros`, a zero point of `bits`.

    group: numbers a group, 0 = one group a row.
    """
    name = f"int{bits} g{group}" if group else f"int{bits}"
    return NumberFormat(name, bits, 1, group, scale_bytes + (bits / 8 if zeros else 0.0))


def canonical(name: str) -> str:
    """A module's or a pattern's name without a vision wrapper's `language_model`: `model.layers.0...`, `lm_head`."""
    if name.startswith("re:"):
        return name
    bare = re.sub(r"^(model\.)?(language_model|llm|text_model)\.", "", name)
    if bare != name and bare.startswith(("layers", "embed_tokens", "norm")):
        bare = "model." + bare
    return bare


def matcher(patterns: Iterable[str], *, exact: bool = False) -> Callable[[str], bool]:
    """Whether a module is meant by any of `patterns`.

    A pattern is a regular expression after `re:` (matched from the start), a glob where it has `*`, else a module's
    name or, unless `exact`, a run of whole parts of it (`mlp.gate` means `model.layers.3.mlp.gate`).
    Raises ValueError for a regular expression that is none.
    """
    plain, globs = set(), []
    for pattern in map(canonical, patterns):
        if pattern.startswith("re:"):
            globs.append(re.compile(pattern[3:]).pattern)
        elif "*" in pattern:
            globs += [translate(pattern), translate(f"{pattern}.*")]
        else:
            plain.add(pattern)
    combined = re.compile("|".join(f"(?:{glob})" for glob in globs)) if globs else None

    def matches(name: str) -> bool:
        if combined is not None and (combined.match(name) or combined.match(f"model.language_{name}")):
            return True
        if exact:
            return name in plain
        parts = name.split(".")
        return any(".".join(parts[start:end]) in plain
                   for start in range(len(parts)) for end in range(start + 1, len(parts) + 1))

    return matches


def format_reader(config: Fields, sidecar: Fields | None = None) -> tuple[FormatOf, str]:
    """(the format of a linear module by its canonical name, what the KV cache is asked to be or "").

    `sidecar` is an hf_quant_config.json beside a config.json that has no quantization_config.
    Raises BadInput for a method that is not known and for a block or a pattern that means nothing.
    """
    base = base_format(config)
    quantization = config.table("quantization_config") or config.table("compression_config") or sidecar
    if quantization is None:
        return lambda _: base, ""
    inner = quantization.table("quantization") or quantization
    try:
        read = cache(_reader(inner, base, config.word("expert_dtype")))
    except (ValueError, re.error, OverflowError) as error:
        raise BadInput(f"quantization_config cannot be read: {error}", where=config.where) from error
    return read, _kv_format(inner)


def _kv_format(config: Fields) -> str:
    scheme = config.data.get("kv_cache_scheme")
    if scheme is None:
        scheme = config.data.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        bits = scheme.get("num_bits")
        return f"fp{bits}" if scheme.get("type") == "float" else f"int{bits}"
    return str(scheme).lower() if isinstance(scheme, str) else ""


def _reader(config: Fields, base: NumberFormat, expert_dtype: str) -> FormatOf:
    ignored = matcher([name for key in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
                       for name in config.words(key) or ()], exact=config.word("quant_method") == "compressed-tensors")
    layers = config.table("quantized_layers")
    groups = config.table("config_groups")
    if layers is not None and layers.data:
        by_module: FormatOf = _by_layer(layers, config, base)
    elif groups is not None and groups.data:
        by_module = _by_group(groups, config, base)
    else:
        one = _flat(config)
        only_experts = config.word("quant_method") == "mxfp4"
        by_module = (lambda name: one if ".experts" in name else base) if only_experts else (lambda _: one)
    if expert_dtype == "fp4":
        rest = by_module
        by_module = lambda name: MXFP4 if ".experts" in name and rest(name).bits > 4 else rest(name)  # noqa: E731
    head = config.flag("lm_head") or layers is not None or groups is not None

    def of(name: str) -> NumberFormat:
        if (layers is None and ignored(name)) or (name == "lm_head" and not head):
            return base
        return by_module(name)

    return of


def _by_layer(layers: Fields, config: Fields, base: NumberFormat) -> FormatOf:
    """modelopt's table: module -> algorithm; whatever it does not name is not quantized."""
    formats: dict[str, NumberFormat] = {}
    for name in layers.data:
        entry = layers.table(name)
        if entry is not None:
            formats[canonical(name)] = _algorithm(entry, entry.word("quant_algo"))
    blocks = config.wholes("weight_block_size")
    rest = fp8_blocks(*_pair(blocks)) if blocks and config.word("quant_method") == "fp8" else base

    def of(name: str) -> NumberFormat:
        parts = name.split(".")
        tops = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((formats[top] for top in tops if top in formats), rest)

    return of


def _by_group(groups: Fields, config: Fields, base: NumberFormat) -> FormatOf:
    """Groups of targets, each with its weights' format; the first group that names a module counts."""
    readers: list[tuple[Callable[[str], bool], bool, NumberFormat]] = []
    for name in groups.data:
        group = groups.table(name)
        weights = group.table("weights") if group is not None else None
        if group is None or weights is None:
            continue
        targets = group.words("targets") or ("Linear",)
        word = group.word("format") or config.word("format")
        readers.append((matcher(targets, exact=True), "Linear" in targets, _weights(weights, word)))

    def of(name: str) -> NumberFormat:
        for matches, every, found in readers:
            if matches(name):
                return found
            if every and not any(other(name) for other, _, _ in readers):
                return found
        return base

    return of


def _weights(weights: Fields, packing: str) -> NumberFormat:
    """One compressed-tensors or modelopt description of weights."""
    bits, kind = weights.whole("num_bits", most=64), weights.word("type", default="int")
    strategy = weights.word("strategy")
    group = weights.whole("group_size", default=0, least=-1)
    if kind == "float" and bits == 4:
        return MXFP4 if group == 32 or "mxfp4" in packing else NVFP4
    if kind == "float" and bits == 8:
        blocks = weights.wholes("block_structure")
        if strategy == "block" or blocks:
            return fp8_blocks(*_pair(blocks or (128, 128)))
        if group == 32:
            return NumberFormat("mxfp8", 8, 1, 32, 1)
        return NumberFormat("fp8 channel", 8, 1, 0, 4) if strategy == "channel" else FP8
    if kind == "int" and bits <= 8:
        return int_groups(bits, max(group, 0), zeros=not weights.flag("symmetric", True))
    raise ValueError(f"weights of {bits} bits of type {kind!r} are not known")


def _flat(config: Fields) -> NumberFormat:
    """One format for all modules."""
    weights = config.table("weights")
    if weights is not None:
        return _weights(weights, config.word("format"))
    algorithm, method = config.word("quant_algo"), config.word("quant_method")
    if algorithm:
        return _algorithm(config, algorithm)
    if method in ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round"):
        bits, group = config.whole("bits", "w_bit", most=8), config.whole("group_size", "q_group_size", least=-1)
        return int_groups(bits, max(group, 0), zeros=True)
    if method == "fp8":
        blocks = config.wholes("weight_block_size")
        return fp8_blocks(*_pair(blocks)) if blocks else FP8
    if method in ("fbgemm_fp8", "ptpc_fp8"):
        return NumberFormat("fp8 channel", 8, 1, 0, 4)
    if method == "mxfp4":
        return MXFP4
    raise ValueError(f"quant_method {method!r} is not known; known are {', '.join(METHODS)}")


def _algorithm(config: Fields, name: str) -> NumberFormat:
    group = config.whole("group_size", default=16, least=1)
    if name in ("NVFP4", "W4A16_NVFP4", "NVFP4_AWQ"):
        return NumberFormat("nvfp4", 4, 1, group, 1, 8)
    if name == "FP8":
        return FP8
    if name == "FP8_PB_WO":
        return fp8_blocks(128, 128)
    if name == "MXFP8":
        return NumberFormat("mxfp8", 8, 1, 32, 1)
    if name == "W4A16_AWQ":
        return int_groups(4, config.whole("group_size", default=128))
    raise ValueError(f"quant_algo {name!r} is not known")


def _pair(blocks: tuple[int, ...]) -> tuple[int, int]:
    if len(blocks) != 2 or min(blocks) < 1:
        raise ValueError(f"a block has two sides of at least 1, not {list(blocks)}")
    return blocks[0], blocks[1]
