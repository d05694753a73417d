"""What a safetensors index and its files' headers say about the weights."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from rooftop.domain.architecture import Architecture
from rooftop.errors import BadInput
from rooftop.models.fields import Fields

INDEX = "model.safetensors.index.json"
MOST_HEADER = 256 * 2**20
TOLERANCE = 0.01
"""Share by which the arithmetic may miss the files: scales that a format rounds up, padding."""
DTYPE_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
               "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "F4": 0.5}
NOT_TEXT = re.compile(r"(^|\.)(visual|vision_\w+|mm_projector|multi_modal_projector|audio_\w+)\.")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Files:
    """Weight files as their index or headers describe them.

    bytes: of all tensors, None where the index does not say.  names: of all tensors.  sizes: bytes a tensor, empty
    where only the index was read.
    """

    bytes: int | None
    names: tuple[str, ...]
    where: str
    sizes: Mapping[str, int]


def read_folder(folder: Path) -> Files | None:
    """The weights in a folder: from the headers where all files are there, else from the index; None without either.

    Raises BadInput for a header or an index that is damaged.
    """
    index = folder / INDEX
    if index.is_file():
        described = read_index(index.read_bytes(), str(index))
        files = sorted({folder / name for name in _files_of(index)})
        if files and all(file.is_file() for file in files):
            return _from_headers(files, str(folder))
        return described
    files = sorted(folder.glob("*.safetensors"))
    return _from_headers(files, str(folder)) if files else None


def read_index(content: bytes, where: str) -> Files:
    """An index's total size and tensor names.  Raises BadInput where it is not an index."""
    index = load_json(content, where)
    weights, metadata = index.table("weight_map"), index.table("metadata")
    if weights is None:
        raise BadInput("the weight index has no weight_map", where=where, remedy="download it anew")
    total = metadata.whole("total_size", default=0, least=0) if metadata is not None else 0
    return Files(total or None, tuple(weights.data), where, {})


def check(architecture: Architecture, files: Files) -> None:
    """Raises BadInput where the files hold other layers or another number of bytes than the configuration says.

    A vision encoder's tensors are left out; where their sizes are not known, the files may only not be too small.
    """
    numbers = {int(match[1]) for name in files.names if not NOT_TEXT.search(name) and (match := LAYER.search(name))}
    missing = sorted(set(range(architecture.layers)) - numbers)
    if numbers and missing:
        raise BadInput(f"the configuration says {architecture.layers} layers, the weights have none numbered "
                       f"{', '.join(map(str, missing[:5]))}", where=files.where,
                       remedy="take config.json and weights from the same model")
    if files.bytes is None:
        return
    copied = sum(matrix.rows * matrix.cols * 2 for matrix in architecture.matrices for name in files.names
                 if matrix.part == "embedding" and _copies_vocabulary(name, architecture.layers))
    expected = architecture.bytes + copied
    if any(_is_mtp(name, architecture.layers) for name in files.names):
        expected += architecture.mtp_bytes
    other = [name for name in files.names if NOT_TEXT.search(name)]
    found = files.bytes - sum(files.sizes.get(name, 0) for name in other)
    too_large = found > expected * (1 + TOLERANCE) and (files.sizes or not other)
    if found < expected * (1 - TOLERANCE) or too_large:
        raise BadInput(f"the weights have {found / 1e9:.2f} GB, the configuration makes {expected / 1e9:.2f} GB of it",
                       where=files.where, remedy="take config.json and weights from the same model")


def load_json(content: bytes, where: str) -> Fields:
    """A JSON table.  Raises BadInput for anything else."""
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not valid JSON: {error}", where=where, remedy="download the file anew") from error
    if not isinstance(data, dict):
        raise BadInput("a model's configuration is a table", where=where)
    return Fields(data, where)


def read_header(path: Path) -> dict[str, int]:
    """Bytes of each tensor of one safetensors file, from its header alone.  Raises BadInput where it is damaged."""
    where = str(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_HEADER:
            raise BadInput("not a safetensors file: its header would be larger than 256 MiB", where=where)
        header = load_json(file.read(length), where)
    sizes = {}
    for name, entry in header.data.items():
        if name == "__metadata__":
            continue
        tensor = header.table(name)
        shape = tensor.wholes("shape") if tensor is not None else None
        width = DTYPE_BYTES.get(tensor.word("dtype")) if tensor is not None else None
        if shape is None or width is None:
            raise BadInput(f"tensor {name!r} has no shape or a dtype that is not known: {str(entry)[:80]}", where=where)
        sizes[name] = round(prod(shape) * width)
    end = 8 + length + sum(sizes.values())
    if path.stat().st_size < end:
        raise BadInput(f"the file ends after {path.stat().st_size} of {end} bytes", where=where,
                       remedy="download it anew")
    return sizes


def _files_of(index: Path) -> set[str]:
    weights = load_json(index.read_bytes(), str(index)).table("weight_map")
    names = set(weights.data.values()) if weights is not None else set()
    return {name for name in names if isinstance(name, str) and "/" not in name and "\\" not in name}


def _from_headers(paths: Iterable[Path], where: str) -> Files:
    sizes: dict[str, int] = {}
    for path in paths:
        sizes |= read_header(path)
    return Files(sum(sizes.values()), tuple(sizes), where, sizes)


def _is_mtp(name: str, layers: int) -> bool:
    match = LAYER.search(name)
    return name.startswith("mtp.") or bool(match and int(match[1]) >= layers and not NOT_TEXT.search(name))


def _copies_vocabulary(name: str, layers: int) -> bool:
    """DeepSeek-style MTP layers bring copies of the embedding and of the LM head in their files."""
    return _is_mtp(name, layers) and name.endswith(("embed_tokens.weight", "shared_head.head.weight"))
