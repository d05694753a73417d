"""GGUF files read by their headers: metadata and tensor list, never weights."""

import mmap
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from rooftop.domain.architecture import Architecture, NumberFormat
from rooftop.errors import BadInput
from rooftop.models.gguf_parts import architecture_of

MAGIC = b"GGUF"
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
MOST_TENSORS, MOST_VALUES, MOST_KEPT = 1_000_000, 100_000_000, 10_000
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9

TYPES = {0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
         7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110),
         12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
         16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50),
         20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136),
         24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8),
         29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66),
         39: ("mxfp4", 32, 17)}
"""Tensor type -> name, numbers a block, bytes a block (ggml's block structures)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a GGUF file; `shape` with the inputs first, as GGUF writes it."""

    name: str
    shape: tuple[int, ...]
    format: NumberFormat


@dataclass(frozen=True, slots=True)
class Header:
    """A GGUF file's metadata (long lists as their length only, under `key#`), tensors and the end of its data."""

    values: dict[str, Any]
    tensors: tuple[Tensor, ...]
    end: int


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def is_first(path: Path) -> bool:
    """Whether the file is a whole model or the first of its shards."""
    match = SHARD.search(path.name)
    return match is None or int(match[1]) == 1


def read_file(path: Path) -> Architecture:
    """The architecture in a GGUF file and the shards that belong to it.  Raises BadInput."""
    match = SHARD.search(path.name)
    paths = [path]
    if match is not None and int(match[2]) > 1:
        count, stem = int(match[2]), path.name[:match.start()]
        paths = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
        missing = [shard.name for shard in paths if not shard.is_file()]
        if missing:
            raise BadInput(f"{len(missing)} of {count} shards are not here, the first is {missing[0]}",
                           where=str(path.parent), remedy="download all shards into one folder")
    headers = [read_header(shard) for shard in paths]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    size = sum(shard.stat().st_size for shard in paths)
    return architecture_of(headers[0].values, tensors, str(path), size)


def read_header(path: Path) -> Header:
    """Metadata and tensor list.  Raises BadInput for a file that is damaged or cut off."""
    where = str(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            header = _parse(_Reader(data))
        except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise BadInput(f"the GGUF header is damaged: {error}", where=where, remedy="download it anew") from error
        if header.end > len(data):
            raise BadInput(f"the file ends after {len(data)} of {header.end} bytes", where=where,
                           remedy="download it anew")
    return header


class _Reader:
    """A position in the file's bytes; whatever reaches past their end raises struct.error or ValueError."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def count(self, most: int, what: str) -> int:
        value: int = self.number("Q")
        if value > most:
            raise ValueError(f"{value} {what}")
        return value

    def text(self) -> str:
        length = self.count(len(self.data) - self.at, "bytes of text")
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8", "replace")

    def skip_text(self) -> None:
        length = self.count(len(self.data) - self.at, "bytes of text")
        self.at += length

    def value(self, kind: int) -> Any:
        """One value; a list longer than what any layer table needs is only measured."""
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            if kind not in SCALARS:
                raise ValueError(f"value type {kind}")
            return self.number(SCALARS[kind])
        inner, length = self.number("I"), self.count(MOST_VALUES, "values in a list")
        if inner == STRING:
            for _ in range(length):
                self.skip_text()
            return length
        if inner not in SCALARS:
            raise ValueError(f"list of value type {inner}")
        width = struct.calcsize("<" + SCALARS[inner])
        if self.at + width * length > len(self.data):
            raise ValueError("a list reaches past the end of the file")
        start, self.at = self.at, self.at + width * length
        if length > MOST_KEPT:
            return length
        return struct.unpack_from(f"<{length}{SCALARS[inner]}", self.data, start)


def _parse(reader: _Reader) -> Header:
    if reader.data[:4] != MAGIC:
        raise ValueError("it does not begin with GGUF")
    reader.at = 4
    version = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version}")
    tensor_count, value_count = reader.count(MOST_TENSORS, "tensors"), reader.count(MOST_TENSORS, "values")
    values: dict[str, Any] = {}
    for _ in range(value_count):
        key, kind = reader.text(), reader.number("I")
        found = reader.value(kind)
        values[f"{key}#" if kind == ARRAY and isinstance(found, int) else key] = found
    tensors, end = [], 0
    for _ in range(tensor_count):
        name, dimensions = reader.text(), reader.number("I")
        if not 1 <= dimensions <= 4:
            raise ValueError(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reader.count(2**40, "values a dimension") for _ in range(dimensions))
        kind, offset = reader.number("I"), reader.number("Q")
        if kind not in TYPES:
            raise ValueError(f"tensor {name} has type {kind}, which is not known")
        label, block, width = TYPES[kind]
        if min(shape) < 1 or shape[0] % block:
            raise ValueError(f"tensor {name} of shape {list(shape)} cannot be {label}")
        end = max(end, offset + prod(shape) // block * width)
        tensors.append(Tensor(name, shape, format_of(label, block, width)))
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise ValueError(f"alignment {alignment!r}")
    start = (reader.at + alignment - 1) // alignment * alignment
    return Header(values, tuple(tensors), start + end)


def format_of(label: str, block: int, width: int) -> NumberFormat:
    """A ggml type: blocks along the inputs; what a block has beyond its numbers' whole bits are scales."""
    if block == 1:
        return NumberFormat(label, width * 8)
    bits = width * 8 // block
    return NumberFormat(label, bits, 1, block, width - bits * block / 8)
