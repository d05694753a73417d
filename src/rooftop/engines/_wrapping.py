"""What containers, schedulers, recorders and terminals put around an engine's log lines, taken off again."""

import json
import re
from collections.abc import Iterator, Sequence

# Escape signs as bytes, and as the text that a browser or an editor made of them.
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|\bESC|\^\[)\[[0-9;]*m")
_LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)"
_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_PREFIXES = re.compile("|".join((
    r"(?:\d{1,2};)*\d{1,2}m(?=[(\[])|[│┃] ?",                                         # a torn colour, a terminal's box
    r"(?:> ?)+",                                                                # a quotation
    r"\[?[A-Za-z][\w.-]*\]?\s+\| ",                                             # compose: `sglang-1  | `
    r"\[(?:pod|container)/[^\]\s]+\] ",                                         # kubectl --prefix
    rf"(?:[A-Z][a-z][a-z]\s+\d{{1,2}} {_CLOCK}|{_DAY}T\S+) \S+ [\w.@/-]+\[\d+\]: ",  # journald, syslog
    rf"\[?{_DAY}T[\d:.,]+(?:Z|[+-]\d\d:?\d\d)\]? (?:std(?:err|out) [FP] )?",    # container runtimes, kubectl, CI
    rf"{_DAY} {_CLOCK} \| {_LEVEL}\s* \| \w+ \| ",                              # loguru, FastChat
    rf"{_DAY}[ T]{_CLOCK} \[{_LEVEL}\s*\] [\w.]+: ",                            # logging with the logger's name
    r"\d+: (?=\S)",                                                             # srun --label
    r"\[\d+,\d+\]<std(?:out|err)>: ?",                                          # mpirun --tag-output
    r"\[(?:rank|default)\d+\]:(?!\[) ?",                                        # torch, torchrun
    r"\[\d{3,}\] ",                                                            # llama-server's router: a child's port
)))
_BOX = re.compile(r"\s*[│┃]\s*$")
_MESSAGE = ("log", "message", "msg", "MESSAGE", "textPayload", "line")
# The middle of a sentence: no time, no level, no frame of a traceback, no `function: `.
_GOES_ON = re.compile(rf"(?!{_DAY}|  |{_LEVEL}\b|\w+(?: \w+)?\s*:) ?[a-z0-9_=,.)\]}}':\"-]")
_LONG = 400
_NARROWEST = 60


def unwrap(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """(number from 1, the line without colours, what the engine wrote) of each line; a wrapped message is joined.

    So is a command whose lines end with a backslash.  A message counts as wrapped where a dump of settings is cut with
    its brackets open, or where lines end at the same greatest width, as a terminal cuts them, and the next begins in
    the middle of a sentence.
    """
    width = _width(lines)
    place = 0
    while place < len(lines):
        number, text = place + 1, _COLOUR.sub("", lines[place]).rstrip("\r\n")
        inner = unwrap_line(text)
        while place + 1 < len(lines) and (inner.endswith(" \\") or (
                _cut(lines[place], inner, width) and _GOES_ON.match(lines[place + 1]))):
            place += 1
            inner = (inner[:-1] + unwrap_line(lines[place]).strip() if inner.endswith(" \\")
                     else inner + lines[place].rstrip("\r\n"))
        place += 1
        yield number, text, inner


def unwrap_line(text: str) -> str:
    """One line without colours, wrapping and the objects that log shippers make of a line."""
    inner = _COLOUR.sub("", text).rstrip("\r\n")
    if inner.startswith("{") and inner.endswith("}"):
        inner = _from_object(inner)
    found = _PREFIXES.match(inner)
    while found and found.end():
        inner = inner[found.end():]
        found = _PREFIXES.match(inner)
    return _BOX.sub("", inner)


def _from_object(text: str) -> str:
    """The message inside a JSON object that is a log line; the text itself where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    message = next((found[key] for key in _MESSAGE if isinstance(found.get(key), str)), None)
    if message is None:
        return text
    if "function" in found:  # a record of llama-server itself (early 2024): the message and the figures beside it
        figures = (f"{key}={value}" for key, value in found.items() if key not in ("line", "timestamp")
                   and isinstance(value, int) and not isinstance(value, bool))
        message = " ".join((message, *figures))
    return _COLOUR.sub("", message).rstrip("\r\n")


def _width(lines: Sequence[str]) -> int:
    """The width at which a terminal cut lines: the greatest, if several have it; 0 for none."""
    lengths = [len(line) for line in lines]
    widest = max(lengths, default=0)
    return widest if widest >= _NARROWEST and lengths.count(widest) > 1 else 0


def _cut(line: str, message: str, width: int) -> bool:
    if width and len(line) == width:
        return True
    return len(message) > _LONG and _open(message)


def _open(message: str) -> bool:
    return any(message.count(begin) > message.count(end) for begin, end in ("()", "{}", "[]"))


def parts(lines: Sequence[str], seam: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """(number, text, inner) of each message: one line may hold several, parted by `seam`.

    States of a redrawn bar and messages written into each other become lines of the same number.
    """
    for count, text, inner in unwrap(lines):
        for part in seam.split(inner):
            if part or not text.strip():
                yield count, part if part in text else text, part


def stamp_s(stamp: re.Match[str]) -> float:
    """Seconds of a stamp's groups month, day (where it has them), h, m, s; only differences mean anything."""
    days = int(stamp["month"]) * 31 + int(stamp["day"]) if stamp["month"] else 0
    return ((days * 24 + int(stamp["h"])) * 60 + int(stamp["m"])) * 60.0 + int(stamp["s"])


_ACCESS = re.compile(r'^INFO: +\S+ - "[A-Z]+ /\S* HTTP')


def tells(body: str) -> bool:
    """Whether a message can say a fact: access logs and the frames of tracebacks, the bulk of a long log, cannot."""
    return bool(body) and not (body.startswith(("  File ", "    ")) or _ACCESS.match(body))
