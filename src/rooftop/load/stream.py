"""Bytes of one response to HTTP body to events with tokens: pure."""

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools

from rooftop.domain.reply import CountSource
from rooftop.load.chunk import Chunk, read_chunk

MAX_BODY = 1 << 28
SHORT = 64
_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_STRING = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_full_string = _STRING.fullmatch
_SPACES = b" \t\r\n"
UNREADABLE = (httptools.HttpParserError, httptools.HttpParserUpgrade)


@dataclass(slots=True)
class Response:
    """An HTTP response without its framing.  `ends[i]` is the length of `body` once read i had come.

    `headed`: its headers came whole.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ends: list[int] = field(default_factory=list)
    complete: bool = False
    fault: str = ""
    headed: bool = False


class Sink:
    """What the HTTP parser calls: keeps the first final response, lets 1xx pass."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0
        self.headers: dict[str, str] = {}
        self.complete = self.kept = self.headed = False
        self.status = 0
        self.parser: Any = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line."""
        if not self.complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The headers are whole, be it those of a 1xx."""
        self.headed = True

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self.complete:
            self.parts.append(data)
            self.length += len(data)

    def on_message_complete(self) -> None:
        """The end of a response; that of a 1xx is none."""
        if self.complete:
            return
        self.status = self.parser.get_status_code()
        if self.status >= 200:
            self.complete = True
            self.kept = self.parser.should_keep_alive()
        else:
            self.headers.clear()
            self.headed = False


def unreadable(error: Exception) -> str:
    """What is wrong with an answer, in words, from an error of UNREADABLE."""
    if isinstance(error, httptools.HttpParserUpgrade):
        return "the server switches to another protocol (HTTP 101)"
    return f"not HTTP/1.1: {error}"


def is_alive(data: memoryview) -> bool:
    """Whether a short read is a sign of life: it ends an event, so that a trickle is none; nor is a comment, which
    proxies and event libraries send for ever though the engine behind them hangs.
    """
    short = data.tobytes()
    if b"\n\n" not in short and b"\r\n\r\n" not in short:
        return False
    return b"data" in short or not (short.startswith(b":") or b"\n:" in short)


def unframe(raw: bytes, sizes: Sequence[int], *, closed: bool = True) -> Response:
    """The response in `raw`, which came in reads of `sizes` bytes; `closed`: the server then ended the connection.

    Undoes chunked framing and gzip or deflate.  What cannot be read is told in `fault`; nothing is raised.
    """
    sink = Sink()
    sink.parser = parser = httptools.HttpResponseParser(sink)
    response = Response()
    view = memoryview(raw)
    ends, position = response.ends, 0
    try:
        for size in sizes:
            parser.feed_data(view[position:position + size])
            position += size
            ends.append(sink.length)
            if sink.complete:
                break
    except UNREADABLE as error:
        if not sink.complete:
            response.fault = unreadable(error)
    ends.extend([sink.length] * (len(sizes) - len(ends)))
    response.status = sink.status if sink.complete else parser.get_status_code()
    response.headed = sink.headed
    sink.parser = None
    response.headers = sink.headers
    framed = "content-length" in sink.headers or "chunked" in sink.headers.get("transfer-encoding", "").lower()
    response.complete = sink.complete or (closed and response.headed and not framed)
    coding = sink.headers.get("content-encoding", "").strip().lower()
    if response.fault or coding in ("", "identity"):
        response.body = b"".join(sink.parts)
    else:
        _decompress(response, b"".join(sink.parts), coding)
    return response


def _decompress(response: Response, packed: bytes, coding: str) -> None:
    if coding not in ("gzip", "x-gzip", "deflate"):
        response.fault = f"content-encoding {coding!r} was not asked for"
        return
    unpacker = zlib.decompressobj(47 if "gzip" in coding else 15)
    parts, length, begin = [], 0, 0
    ends = []
    try:
        for end in response.ends:
            part = unpacker.decompress(packed[begin:end], MAX_BODY - length + 1)
            begin = end
            parts.append(part)
            length += len(part)
            if length > MAX_BODY:
                response.fault = "the unpacked body is larger than 256 MiB"
                break
            ends.append(length)
    except zlib.error as error:
        response.fault = f"broken {coding}: {error}"
    ends.extend([length] * (len(response.ends) - len(ends)))
    response.body, response.ends = b"".join(parts), ends


@dataclass(slots=True)
class Content:
    """What a stream of server-sent events carried.

    `ends`: for each chunk with tokens, the body offset at which it was whole.  `counts`: tokens of each of them where
    the server told, else None.  `output_tokens` and so on: the server's own counts.  `seen_*` and `billed` are the
    state of cumulative answers and counters.
    """

    ends: list[int] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    texts: list[str | bytes] = field(default_factory=list)
    source: CountSource = "unknown"
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str = ""
    done: bool = False
    events: int = 0
    error: str = ""
    malformed: str = ""
    seen_tokens: int = 0
    seen_text: int = 0
    billed: bool = False


def scan(body: bytes, *, whole: bool = True, fast: bool = True, keep_text: bool = False) -> Content:
    """The content of an SSE body.  `whole`: the body ended as it should, so a last event may lack its blank line.

    With `fast`, runs of events that differ only in the text of one token are recognised by their bytes: an event that
    was parsed as JSON gives what stands before and after its text, and an event with the same bytes around a valid,
    non-empty JSON string must mean the same.  The result is the same without.
    """
    content = Content()
    position = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    plain = b"\r" not in body
    length = len(body)
    while position < length:
        if plain:
            cut = body.find(b"\n\n", position)
            end = cut + 2
        else:
            blank = _BLANK.search(body, position)
            cut, end = blank.span() if blank else (-1, 0)
        if cut < 0:
            if not whole:
                break
            cut = end = length
        block = body[position:cut]
        chunk = _event(content, block, end, keep_text)
        position = end
        if fast and plain and chunk is not None and chunk.plain:
            frame = _frame(block, chunk)
            if frame is not None:
                position = _run(content, body, position, frame, keep_text)
    return content


def _data(block: bytes) -> bytes | None:
    """The data of one event block; None where it has none (comments, ids, empty)."""
    if block.startswith(b"data:") and b"\n" not in block and b"\r" not in block:
        return block[6:] if block[5:6] == b" " else block[5:]
    found = []
    for line in _LINE.split(block):
        name, colon, value = line.partition(b":")
        if name in (b"data", b"error") and (colon or line == b"data"):
            value = value.removeprefix(b" ")
            found.append(b'{"error":' + value + b"}" if name == b"error" else value)
    return b"\n".join(found) if found else None


def _event(content: Content, block: bytes, end: int, keep_text: bool) -> Chunk | None:
    data = _data(block)
    if data is None:
        return None
    data = data.strip(_SPACES)
    if not data:
        return None
    content.events += 1
    if data == b"[DONE]":
        content.done = True
        return None
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        content.malformed = content.malformed or f"{error}: {data[:80].decode('utf-8', 'replace')}"
        return None
    chunk = read_chunk(value)
    _take(content, chunk, end, keep_text)
    return chunk


def _take(content: Content, chunk: Chunk, end: int, keep_text: bool) -> None:
    """Add one parsed chunk."""
    content.error = content.error or chunk.error
    content.finish = chunk.finish or content.finish
    if chunk.prompt_tokens is not None:
        content.prompt_tokens = chunk.prompt_tokens
    if chunk.cached_tokens is not None:
        content.cached_tokens = chunk.cached_tokens
    text = chunk.text
    if chunk.cumulative:
        carries = len(text) > content.seen_text
        text, content.seen_text = text[content.seen_text:], max(len(text), content.seen_text)
    else:
        carries = bool(text)
    count: int | None = None
    if chunk.token_ids:
        count, carries = chunk.token_ids, True
        content.source = "token ids" if content.source == "unknown" else content.source
    if chunk.total_tokens is not None:
        content.output_tokens = chunk.total_tokens
        if chunk.has_choice:
            grown = chunk.total_tokens - content.seen_tokens
            content.seen_tokens = max(chunk.total_tokens, content.seen_tokens)
            carries = carries or (grown > 0 and content.billed)
            count = grown if grown > 0 else count
            content.billed = True
    if carries:
        content.ends.append(end)
        content.counts.append(count)
        if keep_text:
            content.texts.append(text)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The bytes before and after the text of a token event, its blank line included."""

    before: bytes
    after: bytes


def _frame(block: bytes, chunk: Chunk) -> _Frame | None:
    """What surrounds the token text in an event that was parsed; None where that is not certain."""
    if not block.startswith(b"data:") or b"\n" in block:
        return None
    for marker in (b'"%s":"' % chunk.key, b'"%s": "' % chunk.key):
        begin = block.find(marker) + len(marker)
        if begin < len(marker) or block.find(marker, begin) >= 0:
            continue
        match = _STRING.match(block, begin)
        end = match.end() if match else begin
        before, after = block[:begin], block[end:]
        if not after.startswith(b'"'):
            continue
        try:
            probe = read_chunk(json.loads((before[5:] + b"\x7e\x7e" + after).decode("utf-8", "replace")))
        except ValueError:
            continue
        if probe.plain and probe.text == "~~" and probe.key == chunk.key:
            return _Frame(before, after + b"\n\n")
    return None


def _run(content: Content, body: bytes, position: int, frame: _Frame, keep_text: bool) -> int:
    """Take all following events that fit the frame; the offset after the last of them."""
    before, after = frame.before, frame.after
    margin, tail = len(before), len(after)
    ends, texts = content.ends, content.texts
    first = len(ends)
    find, starts, valid, add = body.find, body.startswith, _full_string, ends.append
    while starts(before, position):
        begin = position + margin
        stop = find(after, begin, begin + 65536)
        if stop <= begin or not valid(body, begin, stop):
            break
        position = stop + tail
        add(position)
        if keep_text:
            texts.append(body[begin:stop])
    added = len(ends) - first
    content.counts.extend([None] * added)
    content.events += added
    return position


def text_of(content: Content) -> str:
    """The text of a scanned reply (`keep_text`)."""
    return "".join(part if isinstance(part, str) else json.loads(f'"{part.decode("utf-8", "replace")}"')
                   for part in content.texts)
