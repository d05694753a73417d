"""One answered request: when it was due and sent, when its tokens came, what was counted."""

from array import array
from dataclasses import dataclass
from typing import Literal

CountSource = Literal["usage", "usage per chunk", "token ids", "tokenizer", "unknown"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answered (or failed) request.  All times are nanoseconds after the level's origin.

    due_ns: when it should have gone out; latencies count from here.  sent_ns: when its last byte was handed to the
    kernel.  headers_ns: first byte of the response.  end_ns: last byte of it, or the failure.
    chunk_ns: packed int64, the stamp of each chunk that carried tokens.  chunk_tokens: packed uint32, tokens in each
    of these chunks; empty where the server does not tell (then chunks are not tokens and must not be counted so).
    output_tokens, prompt_tokens, cached_tokens: as counted by `count_source`; None = not known.
    error: None, or the kind of failure (`http 401`, `reset`, `cut`, `timeout`, ...), `detail` its words.
    connection: number of the connection it used; server: index of the server it went to.
    """

    number: int
    due_ns: int
    sent_ns: int
    headers_ns: int
    end_ns: int
    chunk_ns: bytes = b""
    chunk_tokens: bytes = b""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    count_source: CountSource = "unknown"
    asked_input_tokens: int = 0
    asked_output_tokens: int = 0
    finish: str = ""
    error: str | None = None
    detail: str = ""
    connection: int = 0
    server: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        """The reply came whole."""
        return self.error is None

    def times_ns(self) -> "array[int]":
        """The stamps of the chunks that carried tokens, int64."""
        return _unpack("q", self.chunk_ns)

    def tokens_per_chunk(self) -> "array[int]":
        """Tokens in each chunk, uint32; empty where the server does not tell."""
        return _unpack("I", self.chunk_tokens)


def _unpack(code: Literal["q", "I"], data: bytes) -> "array[int]":
    numbers = array(code)
    numbers.frombytes(data)
    return numbers
