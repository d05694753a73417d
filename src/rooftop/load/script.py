"""What the true-timing server answers, and when: pure."""

import json
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Then = Literal["", "close", "reset", "stall"]
WORDS = (" the", " cat", " sat", " über", " naïve", " 東京", " 🙂", " red", ' "so"', " a\\b", "\n", " end")


@dataclass(frozen=True, slots=True)
class Script:
    """How the server behaves; times in seconds.  The defaults are a well-behaved server without delay.

    tokens: length of the answer (None: the request's max_tokens).  tokens_per_chunk: tokens in one event; `first`
    tokens in the first one (0: as the others).  pieces: writes that each event is split into, at equal distances of
    bytes, so inside characters too, `piece_gap_s` apart.  burst: events in one write.  usage: in a last event, with
    each event, or never.  role: an empty role event at once, with the first token, or none.  field: the delta's key.
    status, retry_after, kind: an HTTP error, or another kind of body.  cut_after, reset_after, stall_after,
    error_after: after so many token events (None: never).  trickle_s: a byte at a time, so far apart.
    huge_bytes: the length of the first event's text.  framing: how the body is framed.  close: end the connection
    after each answer; announce: say so in the headers.
    """

    ttft_s: float = 0.0
    itl_s: float = 0.0
    tokens: int | None = None
    tokens_per_chunk: int = 1
    first: int = 0
    pieces: int = 1
    piece_gap_s: float = 0.0
    burst: int = 1
    usage: Literal["last", "each", "none"] = "last"
    role: Literal["early", "first", "none"] = "first"
    field: str = "content"
    token_ids: bool = False
    done: bool = True
    finish: bool = True
    crlf: bool = False
    space: bool = True
    comments: bool = False
    packed: Literal["", "gzip", "deflate"] = ""
    framing: Literal["chunked", "close"] = "chunked"
    close: bool = False
    announce: bool = True
    status: int = 200
    retry_after: str = ""
    kind: Literal["stream", "html", "json"] = "stream"
    cut_after: int | None = None
    reset_after: int | None = None
    stall_after: int | None = None
    error_after: int | None = None
    trickle_s: float = 0.0
    huge_bytes: int = 0
    model: str = "truth"
    key: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One write: when (seconds after the request came), its bytes, whether it completes an event with tokens.

    `then`: what happens to the connection after it.
    """

    at_s: float
    data: bytes
    tokens: int = 0
    then: Then = ""


def answer(script: Script, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[Step]:
    """The writes that answer a POST."""
    own = body.get("truth")
    script = replace(script, **own) if isinstance(own, dict) else script
    if script.key and headers.get("authorization") != f"Bearer {script.key}":
        script = replace(script, status=401)
    if path.endswith("completions") and body.get("model") not in (script.model, "mock"):
        script = replace(script, status=404)
    if script.status != 200:
        yield _plain(script, script.status, "application/json",
                     json.dumps({"error": {"message": f"the script says {script.status}"}}).encode())
        return
    if script.kind != "stream":
        page = b"<html><body>hello</body></html>" if script.kind == "html" else b'{"hello": "there"}'
        yield _plain(script, 200, "text/html" if script.kind == "html" else "application/json", page)
        return
    yield from _stream(script, path, body)


def _plain(script: Script, status: int, kind: str, body: bytes) -> Step:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    if script.retry_after:
        head += f"Retry-After: {script.retry_after}\r\n"
    return Step(0.0, (head + "\r\n").encode() + body, then="close" if script.close else "")


def _stream(script: Script, path: str, body: dict[str, Any]) -> Iterator[Step]:
    wire = _Wire(script)
    yield Step(0.0, wire.head())
    at, sent, number = script.ttft_s, 0, 0
    sampling = body.get("sampling_params")
    own = sampling.get("max_new_tokens") if isinstance(sampling, dict) else None
    asked = body.get("max_tokens") or body.get("max_completion_tokens") or own or 16
    total = int(asked) if script.tokens is None else script.tokens
    if path.endswith("/chat/completions") and script.role != "none":
        role = wire.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        yield Step(0.0 if script.role == "early" else at, wire.frame(role))
    pending: list[bytes] = []
    while sent < total:
        count = min(script.first if script.first and not sent else script.tokens_per_chunk, total - sent)
        text = "".join(WORDS[(sent + i) % len(WORDS)] for i in range(count))
        text += "x" * script.huge_bytes if not number else ""
        sent += count
        number += 1
        event = wire.event(_chunk(script, path, text, sent, count))
        then = _accident(script, number)
        if len(pending) + 1 < script.burst and sent < total and not then:
            pending.append(event)
        elif pending or (script.pieces == 1 and not script.trickle_s):
            yield Step(at, b"".join(wire.frame(part) for part in (*pending, event)), len(pending) + 1, then)
            pending = []
        else:
            at = yield from _split(script, wire, event, at, then)
        if then:
            return
        at += script.itl_s * count
    yield Step(at - script.itl_s * count if total else at, wire.tail(path, total), then="close" if wire.closes else "")


def _accident(script: Script, number: int) -> Then:
    accidents: tuple[tuple[int | None, Literal["close", "reset", "stall"]], ...] = (
        (script.cut_after, "close"), (script.reset_after, "reset"), (script.stall_after, "stall"))
    return next((name for after, name in accidents if after == number), "")


def _split(script: Script, wire: "_Wire", event: bytes, at: float,
           then: Then) -> Generator[Step, None, float]:
    """One event in several writes, each its own HTTP chunk; returns when the last one goes."""
    pieces = len(event) if script.trickle_s else min(script.pieces, len(event))
    gap = script.trickle_s or script.piece_gap_s
    for piece in range(pieces):
        begin, end = len(event) * piece // pieces, len(event) * (piece + 1) // pieces
        last = piece + 1 == pieces
        at += gap if piece else 0.0
        yield Step(at, wire.frame(event[begin:end]), int(last), then if last else "")
    return at


def _chunk(script: Script, path: str, text: str, sent: int, count: int) -> dict[str, Any]:
    if script.error_after is not None and sent > script.error_after:
        return {"error": {"message": "the script says so", "code": 500}}
    if path.endswith("/generate"):
        whole = "".join(WORDS[i % len(WORDS)] for i in range(sent))
        return {"text": whole, "meta_info": {"completion_tokens": sent, "prompt_tokens": 7, "cached_tokens": 0,
                                             "finish_reason": None}}
    choice: dict[str, Any] = {"index": 0, "finish_reason": None, "logprobs": None}
    if not path.endswith("/chat/completions"):
        choice["text"] = text
    elif script.field == "tool_calls":
        choice["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
    else:
        choice["delta"] = {script.field: text}
    if script.token_ids:
        choice["token_ids"] = [11] * count
    chunk: dict[str, Any] = {"id": "t-1", "object": "chat.completion.chunk", "choices": [choice], "usage": None}
    if script.usage == "each":
        chunk["usage"] = {"prompt_tokens": 7, "completion_tokens": sent, "total_tokens": 7 + sent}
    return chunk


class _Wire:
    """Events to bytes: line ends, comments, compression, HTTP framing."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.line = b"\r\n" if script.crlf else b"\n"
        self.packer = zlib.compressobj(wbits=31 if script.packed == "gzip" else 15) if script.packed else None
        self.closes = script.close or script.framing == "close"

    def head(self) -> bytes:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8"]
        if self.script.packed:
            lines.append(f"Content-Encoding: {self.script.packed}")
        if self.script.framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        if self.closes and self.script.announce:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def event(self, value: Any) -> bytes:
        data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False,
                                                                 separators=(",", ":")).encode()
        comment = b": still here" + self.line * 2 if self.script.comments else b""
        return comment + (b"data: " if self.script.space else b"data:") + data + self.line * 2

    def frame(self, data: bytes, *, last: bool = False) -> bytes:
        if self.packer is not None:
            data = self.packer.compress(data) + self.packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        if self.script.framing == "close":
            return data
        framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return framed + b"0\r\n\r\n" if last else framed

    def tail(self, path: str, total: int) -> bytes:
        script, parts = self.script, []
        usage = {"prompt_tokens": 7, "completion_tokens": total, "total_tokens": 7 + total}
        if path.endswith("/generate"):
            parts.append(self.event({"text": "".join(WORDS[i % len(WORDS)] for i in range(total)), "meta_info": {
                "completion_tokens": total, "prompt_tokens": 7, "finish_reason": {"type": "length"}}}))
        elif script.finish:
            end: dict[str, Any] = {"delta": {}} if path.endswith("/chat/completions") else {"text": ""}
            parts.append(self.event({"choices": [{"index": 0, "finish_reason": "length", **end}]}))
        if script.usage != "none" and not path.endswith("/generate"):
            parts.append(self.event({"choices": [], "usage": usage}))
        if script.done:
            parts.append(self.event(b"[DONE]"))
        return self.frame(b"".join(parts), last=True)
