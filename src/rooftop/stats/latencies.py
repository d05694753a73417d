"""TTFT, TPOT, E2E of each reply and the gaps between its chunks and tokens."""

import numpy as np

from rooftop.stats.columns import Columns, Flags, Floats, Ints


def ttft_s(table: Columns) -> Floats:
    """Seconds from when each request was due to its first chunk with tokens; nan where none came."""
    ttft = np.full(len(table.due_s), np.nan)
    some = table.chunks > 0
    ttft[some] = table.chunk_s[table.first[some]] - table.due_s[some]
    return ttft


def e2e_s(table: Columns) -> Floats:
    """Seconds from when each request was due to its last byte."""
    return table.end_s - table.due_s


def tpot_s(table: Columns) -> Floats:
    """Seconds per output token after the first chunk of each reply, (last - first) / (n - tokens of the first chunk).

    nan where the counts are not known or no chunk follows the first.  A mark of the end that came without a chunk of
    its own has no stamp and counts neither in n.
    """
    tpot = np.full(len(table.due_s), np.nan)
    some = table.chunks > 1
    first, last = table.first[some], table.first[some] + table.chunks[some] - 1
    total = np.bincount(table.chunk_reply, table.chunk_tokens, len(table.due_s))[some]
    after = total - table.chunk_tokens[first]
    known = after > 0
    tpot[some] = np.where(known, (table.chunk_s[last] - table.chunk_s[first]) / np.where(known, after, 1.0), np.nan)
    return tpot


def chunk_gaps(table: Columns, inside: Flags) -> Floats:
    """The gaps before the chunks marked in `inside` that are not the first of their reply, in the order of time."""
    later = _later(table, inside)
    return _in_order(table, later, table.chunk_s[later] - table.chunk_s[later - 1])


def token_gaps(table: Columns, inside: Flags) -> Floats:
    """ITL: the gap before a chunk of k tokens as k gaps of gap/k each, for the chunks marked in `inside`.

    Only of replies whose chunks are counted; in the order of time.
    """
    later = _later(table, inside & table.counted[table.chunk_reply])
    tokens = table.chunk_tokens[later].astype(np.int64)
    gaps = (table.chunk_s[later] - table.chunk_s[later - 1]) / np.maximum(tokens, 1)
    if np.all(tokens == 1):
        return _in_order(table, later, gaps)
    return _in_order(table, np.repeat(later, tokens), np.repeat(gaps, tokens))


def _later(table: Columns, inside: Flags) -> Ints:
    begins = np.zeros(len(table.chunk_s), dtype=bool)
    begins[table.first[table.chunks > 0]] = True
    return np.flatnonzero(inside & ~begins)


def _in_order(table: Columns, later: Ints, gaps: Floats) -> Floats:
    return gaps[np.argsort(table.chunk_s[later], kind="stable")]
