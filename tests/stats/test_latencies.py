"""TTFT, TPOT and gaps of single replies, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.trial import Reply
from rooftop.stats.columns import columns
from rooftop.stats.latencies import chunk_gaps, e2e_s, token_gaps, tpot_s, ttft_s

from .levels import reply


def gaps_ms(replies: list[Reply], each: str) -> list[float]:
    table = columns(replies)
    make = {"chunk": chunk_gaps, "token": token_gaps}[each]
    return [float(gap) for gap in make(table, table.ok[table.chunk_reply]) * 1e3]


def tpot_ms(one: Reply) -> float:
    return float(tpot_s(columns([one]))[0]) * 1e3


def test_latency_counts_from_the_due_time() -> None:
    table = columns([reply(0, 100, [350, 400], end_ms=420)])
    assert ttft_s(table)[0] == pytest.approx(0.250)
    assert e2e_s(table)[0] == pytest.approx(0.320)


@pytest.mark.parametrize(("one", "tpot"), [
    (reply(0, 0, [200, 220, 240], output=3), 20.0),
    (reply(0, 0, [200, 280, 360], tokens=[4, 4, 4]), 20.0),
    (reply(0, 0, [200, 300], tokens=[1, 5]), 20.0),
    (reply(0, 0, [200, 280, 300], tokens=[9, 4, 1]), 20.0),
    (reply(0, 0, [200, 280, 360], output=12), 20.0),
    (reply(0, 0, [200, 220, 240], output=4, finish="stop"), 20.0),
], ids=["a token a chunk", "four a chunk", "unequal", "many in the first", "only the sum", "mark of the end"])
def test_tpot_leaves_out_the_tokens_of_the_first_chunk(one: Reply, tpot: float) -> None:
    assert tpot_ms(one) == pytest.approx(tpot)


@pytest.mark.parametrize("one", [reply(0, 0, [200, 220]), reply(0, 0, [200], output=5), reply(0, 0, [])],
                         ids=["no counts", "one chunk", "no chunk"])
def test_tpot_is_unknown_without_counts(one: Reply) -> None:
    assert np.isnan(tpot_ms(one))


def test_a_chunk_of_k_tokens_is_one_chunk_gap_and_k_token_gaps() -> None:
    one = reply(0, 0, [200, 280, 300], tokens=[2, 4, 1])
    assert gaps_ms([one], "chunk") == pytest.approx([80, 20])
    assert gaps_ms([one], "token") == pytest.approx([20, 20, 20, 20, 20])


def test_chunks_are_not_taken_for_tokens() -> None:
    assert gaps_ms([reply(0, 0, [200, 280, 360], output=12)], "token") == []
    assert gaps_ms([reply(0, 0, [200, 280, 360], output=12)], "chunk") == pytest.approx([80, 80])
    assert gaps_ms([reply(0, 0, [200, 280])], "token") == []


def test_gaps_never_span_two_replies_and_come_in_the_order_of_time() -> None:
    replies = [reply(0, 0, [10, 40, 100], output=3), reply(1, 0, [20, 45], output=2), reply(2, 0, []),
               reply(3, 0, [50, 51], output=2)]
    assert gaps_ms(replies, "chunk") == pytest.approx([30, 25, 1, 60])


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 6)), min_size=2, max_size=40))
def test_tpot_is_exact_whatever_the_chunks(steps: list[tuple[int, int]]) -> None:
    """Tokens 20 ms apart, sent in chunks of any size when their last token is there."""
    tokens = [count for _, count in steps]
    stamps = [200.0 + 20.0 * n for n in np.cumsum(tokens)]
    assert tpot_ms(reply(0, 0, stamps, tokens=tokens)) == pytest.approx(20.0)
    assert gaps_ms([reply(0, 0, stamps, tokens=tokens)], "token") == pytest.approx([20.0] * sum(tokens[1:]))
