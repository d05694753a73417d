"""Nouns to and from JSON and TOML; an unknown key names its path and its nearest."""

import base64
import json
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rooftop.domain.setting import Setting
from rooftop.errors import BadInput

SCHEMA = 1
Noun = TypeVar("Noun")


def to_plain(noun: Any) -> Any:
    """A noun as dicts, lists, strings and numbers.

    Bytes become base64, settings one table (a list of tables where a flag is given twice).
    """
    if is_dataclass(noun) and not isinstance(noun, type):
        return {field.name: to_plain(getattr(noun, field.name)) for field in fields(noun)}
    if isinstance(noun, tuple | list):
        if noun and all(isinstance(item, Setting) for item in noun) and len({item.name for item in noun}) == len(noun):
            return {item.name: item.value for item in noun}
        return [to_plain(item) for item in noun]
    if isinstance(noun, bytes):
        return base64.b64encode(noun).decode()
    if isinstance(noun, Mapping):
        return {str(key): to_plain(value) for key, value in noun.items()}
    return noun


def to_json(noun: Any, *, indent: int | None = None) -> str:
    """A noun as JSON with its schema number."""
    plain = to_plain(noun)
    if isinstance(plain, dict):
        plain = {"schema": SCHEMA, **plain}
    text = json.dumps(plain, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no UTF-8 file can hold
        return json.dumps(plain, indent=indent)
    return text


def from_json(kind: type[Noun], text: str, *, where: str = "JSON") -> Noun:
    """The noun that `to_json` wrote.  Raises BadInput, with the path inside, for anything else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not valid JSON: {error}", where=where) from error
    noun: Noun = from_plain(kind, _without_schema(data, where), where=where)
    return noun


def from_toml(kind: type[Noun], text: str, *, where: str) -> Noun:
    """A user's TOML file as a noun.  Raises BadInput that names the line or the path inside the file."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not valid TOML: {error}", where=where) from error
    noun: Noun = from_plain(kind, _without_schema(data, where), where=where)
    return noun


def _without_schema(data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        return data
    schema = data.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise BadInput(f"this file has schema {schema!r}; this rooftop reads schema {SCHEMA}", where=where,
                       remedy="use the rooftop version that wrote it, or a newer one")
    return {key: value for key, value in data.items() if key != "schema"}


def from_plain(kind: Any, data: Any, *, where: str, path: str = "") -> Any:
    """A noun of type `kind` from plain data; `path` is the place inside the file so far."""
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _read_noun(kind, data, where, path)
    if origin is tuple:
        return _read_tuple(kind, data, where, path)
    if origin is Literal:
        if data in get_args(kind):
            return data
        raise _wrong(path, where, f"one of {', '.join(map(repr, get_args(kind)))}", data)
    if origin in (Union, types.UnionType):
        return _read_union(kind, data, where, path)
    if kind is Any:
        return data
    return _read_scalar(kind, data, where, path)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read_noun(kind: Any, data: Any, where: str, path: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(path, where, "a table", data)
    hints = _hints(kind)
    known = [field.name for field in fields(kind) if field.init]
    for key in data:
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
            raise BadInput(f"unknown key {_join(path, key)!r}", where=where, remedy=remedy)
    values = {}
    for field in fields(kind):
        if field.name in data:
            inner = _join(path, field.name)
            values[field.name] = from_plain(hints[field.name], data[field.name], where=where, path=inner)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadInput(f"missing key {_join(path, field.name)!r}", where=where)
    try:
        return kind(**values)
    except ValueError as error:
        raise BadInput(f"{path or 'this file'}: {error}" if path else str(error), where=where) from error


def _read_tuple(kind: Any, data: Any, where: str, path: str) -> Any:
    inner = get_args(kind)
    if inner and inner[0] is Setting and isinstance(data, dict):
        return tuple(Setting(name, _setting_value(value, where, _join(path, name))) for name, value in data.items())
    if not isinstance(data, list | tuple):
        raise _wrong(path, where, "a table" if inner and inner[0] is Setting else "a list", data)
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(from_plain(inner[0], item, where=where, path=f"{path}[{i}]") for i, item in enumerate(data))
    if len(inner) != len(data):
        raise _wrong(path, where, f"a list of {len(inner)}", data)
    return tuple(from_plain(part, item, where=where, path=f"{path}[{i}]")
                 for i, (part, item) in enumerate(zip(inner, data, strict=True)))


def _setting_value(value: Any, where: str, path: str) -> str | int | float | bool:
    if isinstance(value, str | int | float | bool):
        return value
    raise _wrong(path, where, "a word, a number or true/false", value)


def _read_union(kind: Any, data: Any, where: str, path: str) -> Any:
    options = get_args(kind)
    if data is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return from_plain(options[0], data, where=where, path=path)
    for option in sorted(options, key=lambda option: option is not type(data)):
        try:
            return from_plain(option, data, where=where, path=path)
        except BadInput:
            continue
    raise _wrong(path, where, " or ".join(getattr(option, "__name__", str(option)) for option in options), data)


_SCALARS = {str: "a word in quotes", int: "a whole number", float: "a number", bool: "true or false",
            bytes: "bytes in base64"}


def _read_scalar(kind: Any, data: Any, where: str, path: str) -> Any:
    try:
        if kind is bytes and isinstance(data, str):
            return base64.b64decode(data, validate=True)
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            return float(data)
    except (ValueError, OverflowError) as error:
        raise _wrong(path, where, _SCALARS[kind], data) from error
    if isinstance(data, kind) and not (isinstance(data, bool) and kind is not bool):
        return data
    raise _wrong(path, where, _SCALARS.get(kind, str(kind)), data)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _wrong(path: str, where: str, wanted: str, data: Any) -> BadInput:
    try:
        shown = json.dumps(data, default=str)
    except ValueError:  # a whole number of more digits than Python writes
        shown = "this number"
    return BadInput(f"{path or 'the file'} must be {wanted}, not {shown[:60]}", where=where)
