"""Shell, systemd and compose command lines as words that know their place in the source."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rooftop.forms._text import View, Word

_CLOSE = {"{": "}", "(": ")"}
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.A)


@dataclass(slots=True)
class _Building:
    """A word on its way: the characters of its value and the quotes that were seen."""

    begin: int
    text: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    quotes: list[str] = field(default_factory=list)
    bare: bool = False
    expands: bool = False

    def put(self, char: str, start: int, end: int) -> None:
        self.text.append(char)
        self.starts.append(start)
        self.ends.append(end)


@dataclass(frozen=True, slots=True)
class Lexer:
    """Splits a view into words.

    `style` "shell" has operators, comments and redirections; "systemd" has C escapes and no operators but a lone `;`;
    "compose" is the shell's quoting without anything else.
    """

    view: View
    style: str

    def commands(self) -> list[tuple[Word, ...]]:
        """The simple commands, each its words; redirections are left out, arrays are put where they are used."""
        found: list[list[Word]] = [[]]
        arrays: dict[str, list[Word]] = {}
        array: list[Word] | None = None
        skip = False
        for token in self._tokens():
            if isinstance(token, Word):
                if skip:
                    skip = False
                elif array is not None:
                    array.append(token)
                elif (name := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", token.value)) and name[1] in arrays:
                    found[-1] += arrays[name[1]]
                else:
                    found[-1].append(token)
            elif token in ("<", ">"):
                skip = True
            elif token == "(" and found[-1] and re.fullmatch(r"[A-Za-z_]\w*=", found[-1][-1].value):
                array = arrays.setdefault(found[-1].pop().value[:-1], [])
            elif token == ")" and array is not None:
                array = None
            elif array is None:
                found.append([])
        return [tuple(words) for words in found if words]

    def _tokens(self) -> Iterator[Word | str]:
        text, at = self.view.text, 0
        pending: list[str] = []
        while at < len(text):
            char = text[at]
            if char == "\\" and text[at + 1:at + 2] == "\n":
                at += 2
            elif char == "\n" and self.style == "shell":
                yield "\n"
                at = self._after_heredocs(at + 1, pending)
            elif char.isspace():
                at += 1
            elif self.style == "shell" and char == "#":
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif self.style == "shell" and (here := re.match(r"<<-?\s*(['\"]?)(\w+)\1", text[at:])):
                pending.append(here[2])
                at += here.end()
            elif self.style == "shell" and (sign := re.match(r"\d*(?:&>>?|>>|>\||>&?-?|<<<|<&?)", text[at:])) and (
                    not sign[0].isdigit()):
                at += sign.end()
                if sign[0].endswith("&") and (number := re.match(r"\d+|-", text[at:])):
                    at += number.end()
                else:
                    yield ">"
            elif char in {"shell": ";&|()", "systemd": ";"}.get(self.style, "") and (
                    self.style == "shell" or re.match(r";(\s|$)", text[at:at + 2])):
                yield char
                at += 1
            else:
                word, at = self._word(at)
                yield word

    def _after_heredocs(self, at: int, pending: list[str]) -> int:
        while pending:
            end = re.compile(rf"^\t*{pending.pop(0)}$", re.M).search(self.view.text, at)
            at = end.end() if end else len(self.view.text)
        return at

    def _word(self, at: int) -> tuple[Word, int]:
        view, text = self.view, self.view.text
        made = _Building(at)
        while at < len(text):
            char = text[at]
            if char.isspace() or (self.style == "shell" and char in ";&|()<>") or re.match(r"\\\n\s", text[at:at + 3]):
                break
            if char in "\"'":
                at = self._quoted(at, made)
            elif char == "\\":
                at = self._escaped(at, made)
            elif char == "$" and text[at + 1:at + 2] in ("{", "("):
                made.bare = True
                at = self._expansion(at, made)
            else:
                made.bare = True
                made.expands |= char in "$`"
                made.put(char, view.starts[at], view.ends[at])
                at += 1
        quote = made.quotes[0] if len(made.quotes) == 1 and not made.bare else "mixed" if made.quotes else "bare"
        wrap = {"bare": (), "mixed": ("mixed",)}.get(quote, (self._wrap(quote),))
        inside = View("".join(made.text), tuple(made.starts), tuple(made.ends), (*wrap, *view.wraps))
        style = "shell" if self.style == "compose" else self.style
        return Word(inside.text, text[made.begin:at], view.starts[made.begin], view.ends[at - 1], style, inside,
                    view.wraps, made.expands), at

    def _wrap(self, quote: str) -> str:
        name = "double" if quote == '"' else "single"
        return f"systemd-{name}" if self.style == "systemd" else name

    def _quoted(self, at: int, made: _Building) -> int:
        """Take in a quoted stretch; where its end is missing, the rest of the text."""
        view, text, quote = self.view, self.view.text, self.view.text[at]
        made.quotes.append(quote)
        at += 1
        while at < len(text) and text[at] != quote:
            if text[at] == "\\" and (quote == '"' or self.style == "systemd"):
                if quote == '"' and self.style != "systemd" and text[at + 1:at + 2] not in ("\\", '"', "$", "`", "\n"):
                    made.put("\\", view.starts[at], view.ends[at])
                    at += 1
                else:
                    at = self._escaped(at, made)
            elif text[at] == "$" and quote == '"' and text[at + 1:at + 2] in ("{", "("):
                at = self._expansion(at, made)
            else:
                made.expands |= text[at] in "$`" and (quote == '"' or self.style == "systemd")
                made.put(text[at], view.starts[at], view.ends[at])
                at += 1
        return at + 1 if at < len(text) else at

    def _escaped(self, at: int, made: _Building) -> int:
        view, text = self.view, self.view.text
        if at + 1 >= len(text):
            made.put("\\", view.starts[at], view.ends[at])
            return at + 1
        char = text[at + 1]
        if char != "\n":
            if self.style == "systemd":
                char = _ESCAPES.get(char, char)
            made.put(char, view.starts[at], view.ends[at + 1])
            made.bare = made.bare or not made.quotes
        return at + 2

    def _expansion(self, at: int, made: _Building) -> int:
        """Take in `${...}` or `$(...)` as it stands, up to its own end."""
        view, text = self.view, self.view.text
        made.expands = True
        depth, opened = 0, text[at + 1]
        while at < len(text):
            depth += (text[at] == opened) - (text[at] == _CLOSE[opened])
            made.put(text[at], view.starts[at], view.ends[at])
            at += 1
            if depth == 0 and made.text[-1] == _CLOSE[opened]:
                break
        return at


def commands(view: View, style: str) -> list[tuple[Word, ...]]:
    """The simple commands of a view in one of the lexer's styles."""
    return Lexer(view, style).commands()


def assignment(word: Word) -> tuple[str, Word] | None:
    """The name in `NAME=value` and the value as a word of its own; None for all other words."""
    found = _ASSIGNMENT.match(word.value)
    if not found or not word.raw.startswith((found[0], '"' + found[0], "'" + found[0])):
        return None
    return found[0][:-1], replace(word, value=word.value[found.end():])
