"""A folder, a config.json, a GGUF file or a hub name, read into an Architecture."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from rooftop.domain.architecture import Architecture, Matrix, NumberFormat
from rooftop.errors import BadInput
from rooftop.models import gguf, weights
from rooftop.models.families import COMMON, FAMILIES
from rooftop.models.fields import MOST_LAYERS, Fields
from rooftop.models.parts import Piece
from rooftop.models.quantization import FormatOf, base_format, format_reader

Fetch = Callable[[str, str], bytes | None]
"""(hub name, file name) -> the file's content, None where the model has no such file."""

CONFIG, SIDECAR = "config.json", "hf_quant_config.json"
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
INHERITED = ("dtype", "torch_dtype", "quantization_config", "tie_word_embeddings")


def read_model(path: str, fetch: Fetch | None = None) -> Architecture:
    """The architecture of what `path` names; weights are read by their headers only.

    Raises BadInput for a path that names no model, for a family that is not known and for a configuration that
    contradicts itself or its weights.
    """
    place = Path(path).expanduser()
    try:
        if place.is_dir():
            return _read_folder(place)
        if place.is_file():
            return _read_file(place)
    except (OSError, ValueError) as error:
        raise BadInput(f"the model cannot be read: {error}", where=path) from error
    if path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith((".json", ".gguf")):
        return _read_hub(path, fetch)
    raise BadInput("there is no such file or folder", where=path,
                   remedy="name a model's folder, its config.json or a GGUF file")


def read_config(config: Fields, sidecar: Fields | None = None, *, name: str = "") -> Architecture:
    """The architecture that a config.json describes.  Raises BadInput."""
    text, wrapped = _text_part(config)
    family = text.word("model_type")
    if family not in FAMILIES:
        raise _unknown(text, config)
    text.need(*FAMILIES[family].needs)
    sketch = FAMILIES[family].sketch(text)
    format_of, kv_format = format_reader(text, sidecar)
    notes = (*sketch.notes, *(("only the text part is counted, not its vision or audio encoder",) if wrapped else ()))
    return Architecture(
        name=name or config.word("_name_or_path", default=family), family=family,
        layers=text.whole("num_hidden_layers", most=MOST_LAYERS), hidden=text.whole("hidden_size"),
        vocab=text.whole("vocab_size"), tied=text.flag("tie_word_embeddings"), attention=sketch.attention,
        matrices=with_formats(sketch.pieces, format_of, base := base_format(text)), experts=sketch.experts,
        mtp=with_formats(sketch.mtp, format_of, base), format=base, context=text.maybe("max_position_embeddings"),
        kv_format=kv_format, notes=notes, multimodal=wrapped, encoder=_encoder(config))


def with_formats(pieces: Iterable[Piece], format_of: FormatOf, base: NumberFormat) -> tuple[Matrix, ...]:
    """Each piece's matrix, once for every number format that its layers have."""
    made = []
    for piece in pieces:
        matrix = piece.matrix
        if not piece.quantized:
            made.append(replace(matrix, format=base))
            continue
        name = f"{piece.module}.{matrix.name}".lstrip(".")
        if not matrix.layers:
            made.append(replace(matrix, format=format_of(name)))
            continue
        by_format: dict[NumberFormat, list[int]] = {}
        for layer in matrix.layers:
            by_format.setdefault(format_of(name.replace("{}", str(layer))), []).append(layer)
        made += [replace(matrix, format=found, layers=tuple(layers)) for found, layers in by_format.items()]
    return tuple(made)


def _read_folder(folder: Path) -> Architecture:
    if not (folder / CONFIG).is_file():
        return gguf.read_file(_only_gguf(folder))
    architecture = _read_file(folder / CONFIG)
    files = weights.read_folder(folder)
    if files is None:
        return architecture
    weights.check(architecture, files)
    return replace(architecture, file_bytes=files.bytes)


def _only_gguf(folder: Path) -> Path:
    found = [file for file in sorted(folder.glob("*.gguf")) if gguf.is_first(file)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"the folder has {len(found)} GGUF models and no config.json", where=str(folder),
                       remedy=f"name one of them, such as {found[0].name}")
    raise BadInput("the folder has no config.json and no GGUF file", where=str(folder),
                   remedy="name a model's folder, its config.json or a GGUF file")


def _read_file(path: Path) -> Architecture:
    if gguf.is_gguf(path):
        return gguf.read_file(path)
    if path.suffix == ".safetensors":
        raise BadInput("weights alone do not say what the model is", where=str(path),
                       remedy="name the folder that has its config.json")
    if path.stat().st_size > weights.MOST_HEADER:
        raise BadInput("neither a config.json nor a GGUF file", where=str(path))
    beside = path.with_name(SIDECAR)
    sidecar = weights.load_json(beside.read_bytes(), str(beside)) if path.name == CONFIG and beside.is_file() else None
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return read_config(weights.load_json(path.read_bytes(), str(path)), sidecar, name=name)


def _read_hub(name: str, fetch: Fetch | None) -> Architecture:
    content = fetch(name, CONFIG) if fetch is not None else None
    if content is None:
        raise BadInput(f"{name} is no file or folder here, and rooftop does not look on the network" if fetch is None
                       else f"the hub has no config.json for {name}", where=name,
                       remedy="download its config.json and name that file")
    beside = fetch(name, SIDECAR) if fetch is not None else None
    sidecar = weights.load_json(beside, f"{name}/{SIDECAR}") if beside is not None else None
    architecture = read_config(weights.load_json(content, f"{name}/{CONFIG}"), sidecar, name=name)
    index = fetch(name, weights.INDEX) if fetch is not None else None
    if index is None:
        return architecture
    files = weights.read_index(index, f"{name}/{weights.INDEX}")
    weights.check(architecture, files)
    return replace(architecture, file_bytes=files.bytes)


def _text_part(config: Fields) -> tuple[Fields, bool]:
    """The language model's own configuration and whether it stood inside a wrapper's."""
    for part in TEXT_PARTS:
        inner = config.table(part)
        if inner is not None:
            deeper = inner.table("text_config")
            inner = deeper if deeper is not None else inner
            kept = {key: config.data[key] for key in INHERITED if key in config and key not in inner}
            return Fields({**inner.data, **kept}, config.where), True
    return config, "vision_config" in config


def _encoder(config: Fields) -> tuple[int, int]:
    """Layers and width of the vision encoder, 0 where there is none or it does not say."""
    vision = config.table("vision_config")
    if vision is None:
        return 0, 0
    return (vision.maybe("num_hidden_layers", "vt_num_hidden_layers") or 0,
            vision.maybe("hidden_size", "vt_hidden_size") or 0)


def _unknown(text: Fields, config: Fields) -> BadInput:
    family = text.word("model_type")
    if not family:
        missing = [name for name in ("model_type", *COMMON) if name not in text]
        return BadInput(f"not a model's configuration: it lacks {', '.join(missing)}", where=config.where,
                        remedy="name the config.json of a language model")
    near = get_close_matches(family, FAMILIES, n=1)
    hint = f"the nearest known family is {near[0]}; " if near else ""
    return BadInput(f"model_type {family!r} is not known: rooftop has no description of its weights",
                    where=config.where, remedy=f"{hint}known are {', '.join(sorted(FAMILIES))}")
