"""The raw record of one request to a Reply: stamps, counts, verdict; pure."""

import contextlib
import json
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rooftop.domain.reply import CountSource, Reply
from rooftop.load.chunk import read_chunk
from rooftop.load.stream import Content, Response, scan, text_of, unframe

MOST_WORDS = 600
MOST_FINISH = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """The raw record of one request: who asked, when, and what came back in which reads.

    Stamps are nanoseconds after the level's origin.  `broken` is "" for a response that ended by its framing, else
    how it ended (`eof`, `reset`, `timeout`, ...), with `detail` in words.
    """

    number: int
    due_ns: int
    sent_ns: int
    raw: bytes
    sizes: Sequence[int]
    stamps: Sequence[int]
    end_ns: int
    broken: str = ""
    detail: str = ""
    asked_input_tokens: int = 0
    asked_output_tokens: int = 0
    connection: int = 0
    server: int = 0


def read_reply(taken: Taken, *, fast: bool = True, keep_text: bool = False) -> Reply:
    """The Reply that a raw record amounts to."""
    response = unframe(taken.raw, taken.sizes, closed=taken.broken == "eof")
    streams = response.status == 200 and not response.fault
    content = scan(response.body, whole=response.complete, fast=fast, keep_text=keep_text) if streams else Content()
    error, detail = _verdict(taken, response, content)
    stamps, ends = taken.stamps, response.ends
    chunk_ns = array("q", [stamps[bisect_left(ends, end)] for end in content.ends])
    source, output, counts = _counts(content)
    came = bool(taken.sizes)
    return Reply(
        number=taken.number, due_ns=taken.due_ns, sent_ns=taken.sent_ns,
        headers_ns=stamps[0] if came else taken.end_ns,
        end_ns=stamps[-1] if came and not taken.broken else taken.end_ns,
        chunk_ns=chunk_ns.tobytes(), chunk_tokens=counts.tobytes(),
        prompt_tokens=content.prompt_tokens, output_tokens=output, cached_tokens=content.cached_tokens,
        count_source=source, asked_input_tokens=taken.asked_input_tokens,
        asked_output_tokens=taken.asked_output_tokens, finish=content.finish[:MOST_FINISH], error=error,
        detail=detail[:MOST_WORDS],
        connection=taken.connection, server=taken.server, text=text_of(content) if keep_text else "")


def _counts(content: Content) -> "tuple[CountSource, int | None, array[int]]":
    """Source and number of output tokens, and tokens of each chunk where these are certain."""
    told = [count for count in content.counts if count is not None]
    output, chunks = content.output_tokens, len(content.ends)
    if output is None and content.source == "token ids" and len(told) == chunks:
        output = sum(told)
    if output is None:
        return "unknown", None, array("I")
    if chunks and len(told) == chunks and sum(told) == output:
        return ("token ids" if content.source == "token ids" else "usage per chunk"), output, array("I", told)
    counts = array("I", [1] * chunks) if chunks == output else array("I")
    return "usage", output, counts


def _verdict(taken: Taken, response: Response, content: Content) -> tuple[str | None, str]:
    """Kind and words of the failure; (None, "") for a reply that came whole."""
    if taken.broken and taken.broken != "eof":
        return taken.broken, taken.detail
    if response.fault:
        return "malformed", response.fault
    if not taken.sizes:
        return "cut", "the server closed the connection without an answer"
    if not response.headed:
        return "cut", "the server closed the connection within the headers of its answer"
    if response.status >= 400:
        return f"http {response.status}", _message(response)
    if response.status < 300 and response.status != 200:
        return f"http {response.status}", "the server answered without a stream"
    if response.status != 200:
        place = response.headers.get("location", "")
        return f"http {response.status}", f"redirects are not followed; it points to {place or 'nowhere'}"
    if content.error:
        return "server error", content.error
    if not content.events:
        kind = response.headers.get("content-type", "no content type")
        begin = response.body[:120].decode("utf-8", "replace").strip()
        if response.complete or not kind.startswith("text/event-stream"):
            return "not a stream", f"the server answered with {kind}: {begin}"
    if content.malformed:
        return "malformed", content.malformed
    if not response.complete or not (content.done or content.finish):
        return "cut", f"the stream ended after {len(content.ends)} chunks without its end"
    if not content.ends and content.output_tokens is None:
        return "empty", "the stream ended without a token"
    return None, ""


def _message(response: Response) -> str:
    """The server's words of an HTTP error, with its Retry-After."""
    words = response.body[:2000].decode("utf-8", "replace").strip()
    with contextlib.suppress(ValueError, RecursionError):
        words = read_chunk(json.loads(response.body)).error or words
    after = response.headers.get("retry-after")
    return f"{words[:500]} (Retry-After: {after})" if after else words[:500]
