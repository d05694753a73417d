"""The replies of a level as columns of numbers, in order of their due times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooftop.domain.trial import Reply

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

STOPPED = "stopped"
"""The error of a reply that the client itself ended, because the level was over: neither ok nor failed."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One entry a reply (first group) or a chunk that carried tokens (second group); seconds after the origin.

    tokens, prompt_tokens, asked: output, prompt and asked output tokens; nan where they are not known.
    counted: tokens in every chunk of this reply are known, not only their sum.
    errors: the kind of failure, "" for a reply that came whole.

    chunk_s: stamps, reply after reply.  chunk_tokens: tokens in each chunk, nan where nothing is known; where only the
    reply's sum is known they are its even share, which places the sum in time but says nothing of single chunks.
    chunk_reply: the reply of each chunk.  first, chunks: where a reply's chunks begin, and how many they are.
    """

    due_s: Floats
    end_s: Floats
    tokens: Floats
    prompt_tokens: Floats
    asked: Floats
    counted: Flags
    errors: tuple[str, ...]
    ok: Flags
    server: Ints
    chunk_s: Floats
    chunk_tokens: Floats
    chunk_reply: Ints
    first: Ints
    chunks: Ints


def columns(replies: Sequence[Reply]) -> Columns:
    """The columns of `replies`, whatever their order.

    Tokens of single chunks are known where the server tells them, or where they follow from the sum: a chunk that
    carried tokens carried at least one, so n tokens in n chunks are one each; so are n - 1 chunks of a reply that the
    model itself ended, whose last token is the mark of the end and has no text.
    """
    replies = sorted(replies, key=lambda reply: (reply.due_ns, reply.number))
    chunks = np.array([len(reply.chunk_ns) // 8 for reply in replies], dtype=np.int64)
    told = np.array([len(reply.chunk_tokens) // 4 for reply in replies], dtype=np.int64)
    ok = np.array([reply.ok for reply in replies], dtype=bool)
    told_tokens = np.frombuffer(b"".join(reply.chunk_tokens for reply in replies), dtype=np.uint32).astype(np.float64)
    tokens = _optional([reply.output_tokens for reply in replies])
    sums = np.bincount(np.repeat(np.arange(len(replies)), told), weights=told_tokens, minlength=len(replies))
    is_told = (told == chunks) & (chunks > 0)
    tokens = np.where(np.isnan(tokens) & is_told, sums, tokens)
    ended = np.array([reply.finish == "stop" for reply in replies], dtype=bool)
    ones = ~is_told & (chunks > 0) & ((tokens == chunks) | (ended & (tokens == chunks + 1)))
    if np.all((is_told | ones)[ok & (chunks > 0)]) and not np.any(is_told):
        ones |= ~ok & (chunks > 0)
    even = np.where(ones, 1.0, tokens / np.maximum(chunks, 1))
    chunk_tokens = np.repeat(even, chunks)
    chunk_tokens[np.repeat(is_told, chunks)] = told_tokens[np.repeat(is_told, told)]
    return Columns(
        due_s=_seconds([reply.due_ns for reply in replies]), end_s=_seconds([reply.end_ns for reply in replies]),
        tokens=tokens, prompt_tokens=_optional([reply.prompt_tokens for reply in replies]),
        asked=np.array([reply.asked_output_tokens for reply in replies], dtype=np.float64),
        counted=is_told | ones, errors=tuple(reply.error or "" for reply in replies), ok=ok,
        server=np.array([reply.server for reply in replies], dtype=np.int64),
        chunk_s=np.frombuffer(b"".join(reply.chunk_ns for reply in replies), dtype=np.int64) / 1e9,
        chunk_tokens=chunk_tokens, chunk_reply=np.repeat(np.arange(len(replies)), chunks),
        first=np.cumsum(chunks) - chunks, chunks=chunks)


def credited(begin_s: Floats, end_s: Floats, weight: Floats, at_s: Floats) -> Floats:
    """How much of the weights lies before each moment `at_s`, each weight spread evenly from its begin to its end."""
    length = np.maximum(end_s - begin_s, 1e-9)
    return np.array([float(np.sum(weight * np.clip((moment - begin_s) / length, 0.0, 1.0))) for moment in at_s])


def _seconds(stamps: list[int]) -> Floats:
    return np.array(stamps, dtype=np.int64) / 1e9


def _optional(numbers: list[int | None]) -> Floats:
    return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)
