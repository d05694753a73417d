"""Text as it reads, with the place of each character in the source: words, quoting, edits."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rooftop.errors import BadInput

_SAFE = re.compile(r"[\w@%+=:,./-]+", re.A)


@dataclass(frozen=True, slots=True)
class View:
    """A text and where each of its characters begins and ends in the source.

    `wraps` are the quotings that surround it, the innermost first: what is written into it must be escaped for each.
    """

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    wraps: tuple[str, ...] = ()

    def part(self, start: int, end: int) -> "View":
        """The characters from `start` up to `end`."""
        return View(self.text[start:end], self.starts[start:end], self.ends[start:end], self.wraps)


def whole(source: str, start: int = 0, end: int | None = None, wraps: tuple[str, ...] = ()) -> View:
    """The source itself, or a stretch of it, as a view."""
    end = len(source) if end is None else end
    return View(source[start:end], tuple(range(start, end)), tuple(range(start + 1, end + 1)), wraps)


@dataclass(frozen=True, slots=True)
class Word:
    """One word: what it means, how the source spells it and where.

    `style` is the grammar that quotes it (`shell`, `systemd`, `item` for a YAML scalar of its own); `expands` tells
    that the text holds a variable.  `inside` places the characters of `value`.
    """

    value: str
    raw: str
    start: int
    end: int
    style: str
    inside: View
    wraps: tuple[str, ...] = ()
    expands: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in place of the source from `start` up to `end`."""

    start: int
    end: int
    text: str


def splice(source: str, edits: Iterable[Edit]) -> str:
    """The source with all edits; those at one place come in the order given."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        start = max(edit.start, at)
        parts += [source[at:start], edit.text]
        at = max(edit.end, at)
    return "".join(parts) + source[at:]


def spell(value: str, like: Word) -> str:
    """`value` as the source must spell it in the place and the quotes of the word `like`."""
    return escape(_quote(value, like), like.wraps)


def escape(text: str, wraps: Sequence[str]) -> str:
    """`text` for the inside of all these quotings.  Raises BadInput where one of them cannot hold it."""
    for wrap in wraps:
        text = _escape(text, wrap)
    return text


def _escape(text: str, wrap: str) -> str:
    if wrap == "double":
        return re.sub(r'([\\"$`])', r"\\\1", text)
    if wrap == "single":
        return text.replace("'", "'\\''")
    if wrap in ("yaml-double", "systemd-double"):
        return text.replace("\\", "\\\\").replace('"', '\\"')
    if wrap == "systemd-single":
        return text.replace("\\", "\\\\").replace("'", "\\'")
    if wrap == "yaml-single":
        return text.replace("'", "''")
    if wrap == "block" or (wrap == "plain" and not re.search(r":\s|\s#|:$", text)):
        return text
    raise BadInput(f"{text!r} cannot be written between the quotes that stand there",
                   remedy="quote the whole command in one way ('...' or a >- block), then try again")


def _quote(value: str, like: Word) -> str:
    """`value` in the quotes of `like`; where only what follows a sign of equality is quoted, in those."""
    raw, mark = like.raw, like.raw[:1]
    if mark and mark in "\"'" and _one_quote(raw, like.style):
        inside = {"shell": {'"': "double", "'": "single"}, "systemd": {'"': "systemd-double", "'": "systemd-single"},
                  "item": {'"': "yaml-double", "'": "yaml-single"}}[like.style][mark]
        if like.style == "systemd":
            value = value.replace("%", "%%").replace("$", "$$")
        return mark + _escape(value, inside) + mark
    head, sign, tail = raw.partition("=")
    if sign and tail[:1] in ("'", '"') and value.startswith(head + sign) and like.style != "item":
        rest = Word("", tail, 0, 0, like.style, like.inside)
        return head + sign + _quote(value[len(head) + 1:], rest)
    return _plain(value, like)


def _one_quote(raw: str, style: str) -> bool:
    """Whether a spelling is one pair of quotes with all of the word inside."""
    mark, inner = raw[0], raw[1:-1]
    return len(raw) > 1 and raw.endswith(mark) and (style == "item" or mark not in inner.replace("\\" + mark, ""))


def _plain(value: str, like: Word) -> str:
    if like.style == "item":
        return value if _plain_item(value, like) else '"' + _escape(value, "yaml-double") + '"'
    if like.style == "systemd":
        told = value.replace("%", "%%").replace("$", "$$")
        return told if re.fullmatch(r"[\w@%+=:,./$-]+", told, re.A) else '"' + _escape(told, "systemd-double") + '"'
    return value if _SAFE.fullmatch(value) else "'" + _escape(value, "single") + "'"


def _plain_item(value: str, like: Word) -> bool:
    """Whether a YAML scalar needs no quotes to stay a string (a number only where numbers stand without)."""
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        return bool(re.fullmatch(r"-?\d+(\.\d+)?", like.raw))
    words = ("true", "false", "yes", "no", "on", "off", "null", "y", "n", "~")
    shape = r"(--?)?[A-Za-z_/][\w./@%+=-]*(:[\w./@%+=-]+)*"
    return value.lower() not in words and bool(re.fullmatch(shape, value, re.A))


_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::?-([^{}]*))?\}|\$\((\w+)\)|\$(\w+)")


def resolve(word: Word, variables: dict[str, str]) -> str | None:
    """The value of a word with its variables put in: those that the text itself sets, else their `:-` default.

    None where one of them is set nowhere in the text.
    """
    if not word.expands:
        return word.value
    put = {found[0]: "$" if found[0] == "$$" else variables.get(found[1] or found[3] or found[4], found[2])
           for found in _VARIABLE.finditer(word.value)}
    if None in put.values():
        return None
    value = _VARIABLE.sub(lambda found: put[found[0]] or "", word.value)
    return None if "`" in value or "$" in value.replace("$$", "") else value
