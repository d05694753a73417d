"""YAML nodes with their places: scalars as words, entries of mappings, lists."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from rooftop.errors import BadInput, MissingPart
from rooftop.forms._text import View, Word
from rooftop.forms._words import commands

Node = Any
_WIDE = {"x": 4, "u": 6, "U": 10}


def documents(text: str) -> list[Node]:
    """The root nodes of a YAML text.

    Raises MissingPart where PyYAML is not installed, BadInput where the text is no YAML (a template, for instance).
    """
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise MissingPart("reading YAML needs PyYAML", remedy="pip install 'rooftop[yaml]'") from error
    try:
        return [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.YAMLError as error:
        remedy = ("render the template first (helm template, kustomize build)" if "{{" in text
                  else "correct the file; `docker compose config` or `kubectl apply --dry-run` shows the place")
        told = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else ""
        raise BadInput(f"not valid YAML: {told}", where=where, remedy=remedy) from error


def entries(node: Node) -> Iterator[tuple[str, Node, Node]]:
    """(key, key node, value node) of a mapping, its own before those that `<<` takes in; none for other nodes."""
    if node is None or node.id != "mapping":
        return
    seen = set()
    for key, value in node.value:
        if key.id == "scalar" and key.value != "<<":
            seen.add(key.value)
            yield key.value, key, value
    for key, value in node.value:
        if key.value == "<<":
            for source in value.value if value.id == "sequence" else [value]:
                for name, inner, found in entries(source):
                    if name not in seen:
                        seen.add(name)
                        yield name, inner, found


def get(node: Node, *path: str) -> Node | None:
    """The node at a path of keys; None where there is none."""
    for name in path:
        node = next((value for key, _, value in entries(node) if key == name), None)
        if node is None:
            return None
    return node


def items(node: Node | None) -> list[Node]:
    """The nodes of a list; none for other nodes."""
    return list(node.value) if node is not None and node.id == "sequence" else []


def scalar(node: Node | None) -> str:
    """The text of a scalar, "" for other nodes."""
    return str(node.value) if node is not None and node.id == "scalar" else ""


def view(node: Node, text: str) -> View:
    """The characters of a scalar, each at its place, and the quoting that stands around them."""
    start, end = node.start_mark.index, node.end_mark.index
    while (mark := re.match(r"[&!]\S*\s+", text[start:end])) is not None:
        start += mark.end()
    style = {None: "plain", "'": "yaml-single", '"': "yaml-double", "|": "block", ">": "block"}[node.style]
    at = start + (style in ("yaml-single", "yaml-double"))
    if style == "block":
        at = text.find("\n", start) + 1 or end
    starts, ends = list[int](), list[int]()
    for char in node.value:
        at, width = _place(text, at, end, char, style)
        starts.append(at)
        ends.append(at + width)
        at += width
    return View(node.value, tuple(starts), tuple(ends), (style,))


def _place(text: str, at: int, end: int, char: str, style: str) -> tuple[int, int]:
    """Where the next character of the value stands in the source, and how many characters spell it."""
    while at < end:
        sign = text[at]
        if style == "yaml-double" and sign == "\\":
            if text[at + 1] != "\n":
                return at, _WIDE.get(text[at + 1], 2)
            at += 1
        elif style == "yaml-single" and text[at:at + 2] == "''":
            return at, 2
        elif sign == char or (char.isspace() and sign.isspace()):
            return at, 1
        elif char.isspace():
            return at, 0
        else:
            at += 1
    return end, 0


def words(node: Node | None, text: str) -> list[Word]:
    """A command as a list (each scalar one word) or as a string that is split like a shell's."""
    if node is None:
        return []
    if node.id == "scalar":
        inside = view(node, text)
        return [word for command in commands(inside, "compose") for word in command]
    return [word(one, text) for one in items(node) if one.id == "scalar"]


def word(node: Node, text: str) -> Word:
    """A scalar as one word."""
    inside = view(node, text)
    start, end = node.start_mark.index, node.end_mark.index
    while (mark := re.match(r"[&!]\S*\s+", text[start:end])) is not None:
        start += mark.end()
    return Word(node.value, text[start:end], start, end, "item", inside, (), "$" in node.value)


def lines(start: int, end: int, text: str) -> tuple[int, int]:
    """A stretch of the source widened to whole lines, the last line break included."""
    return text.rfind("\n", 0, start) + 1, text.find("\n", max(end - 1, start)) + 1 or len(text)


def column(node: Node) -> str:
    """The indentation of a node as blanks."""
    return " " * int(node.start_mark.column)
