import dataclasses
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain import codec
from rooftop.domain.architecture import (
    BF16,
    Architecture,
    Attention,
    AttentionKind,
    Experts,
    Matrix,
    NumberFormat,
    Part,
)

SIZES = st.integers(1, 4096)
FORMATS = st.builds(NumberFormat, st.just("x"), st.sampled_from([4, 4.5, 8, 16, 32]), st.integers(0, 256),
                    st.integers(0, 256), st.sampled_from([0.0, 1.0, 2.5, 4.0]), st.integers(0, 8))
MATRICES = st.builds(Matrix, st.sampled_from(get_args(Part)), st.just("m"),
                     st.lists(st.integers(0, 60), unique=True, max_size=8).map(tuple), SIZES, SIZES, FORMATS)
WINDOWED = ("sliding", "chunked", "compressed")


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    kind: AttentionKind = draw(st.sampled_from(get_args(AttentionKind)))
    sized = st.integers(1, 256)
    return Attention(
        kind, (0, 1, 2), draw(st.sampled_from([8, 16])), draw(st.sampled_from([1, 2, 8])), draw(sized), draw(sized),
        window=draw(st.integers(1, 500)) if kind in WINDOWED else None, kv_rank=draw(sized),
        rope_dim=draw(st.integers(0, 64)), index_heads=draw(st.integers(0, 4)), index_dim=draw(st.integers(0, 200)),
        index_top=draw(st.integers(0, 100)), conv=draw(st.integers(0, 4)),
        ratio=draw(st.integers(0, 128)) if kind == "compressed" else 0)


ATTENTION = attentions()
CONTEXTS = st.integers(0, 10_000)


def model(*matrices: Matrix, kinds: tuple[Attention, ...] = (), mtp: tuple[Matrix, ...] = ()) -> Architecture:
    return Architecture("m", "llama", 3, 64, 100, False, kinds, matrices, mtp=mtp)


@given(matrix=MATRICES)
def test_a_matrix_counts_its_layers(matrix: Matrix) -> None:
    copies = max(1, len(matrix.layers))
    assert matrix.parameters == matrix.rows * matrix.cols * copies
    assert matrix.bytes == matrix.format.bytes(matrix.rows, matrix.cols) * copies
    assert matrix.bytes >= matrix.parameters * matrix.format.bits / 8
    assert matrix.flops in (0, 2 * matrix.active)


@given(form=FORMATS, rows=SIZES, cols=SIZES)
def test_bytes_grow_with_the_matrix_and_parts_never_need_less(form: NumberFormat, rows: int, cols: int) -> None:
    whole = form.bytes(rows, cols)
    assert form.bytes(rows + 1, cols) > whole
    assert form.bytes(rows, cols + 1) > whole
    first = max(1, rows // 2)
    if rows > first:
        assert form.bytes(first, cols) + form.bytes(rows - first, cols) >= whole - 1e-6


@pytest.mark.parametrize(("form", "rows", "cols", "size"), [
    (BF16, 3, 5, 30),
    (NumberFormat("fp8 128x128", 8, 128, 128, 4), 129, 128, 129 * 128 + 2 * 4),
    (NumberFormat("int4 g32", 4, 1, 32, 2), 10, 64, 10 * 64 / 2 + 10 * 2 * 2),
    (NumberFormat("fp8 channel", 8, 1, 0, 4), 10, 64, 640 + 40),
    (NumberFormat("fp8", 8, matrix_bytes=8), 10, 64, 648),
])
def test_bytes_by_hand(form: NumberFormat, rows: int, cols: int, size: float) -> None:
    assert form.bytes(rows, cols) == size


@given(kind=ATTENTION, short=CONTEXTS, more=CONTEXTS)
def test_a_longer_sequence_never_holds_less(kind: Attention, short: int, more: int) -> None:
    long = short + more
    assert kind.kv_bytes(short) <= kind.kv_bytes(long)
    assert kind.cached_tokens(long) <= long + (min(long, kind.window) if kind.window else 0)
    assert kind.attended_tokens(long) <= kind.cached_tokens(long)
    assert kind.flops(short) <= kind.flops(long)


@given(kind=ATTENTION, context=CONTEXTS)
def test_fewer_bytes_a_value_make_a_smaller_cache(kind: Attention, context: int) -> None:
    one, two = kind.kv_bytes(context, 1, 1), kind.kv_bytes(context, 2, 2)
    fixed = len(kind.layers) * kind.entries(context) * kind.index_bytes
    assert two - fixed == pytest.approx(2 * (one - fixed))


@given(kind=ATTENTION)
def test_growth_is_the_slope_of_a_long_sequence(kind: Attention) -> None:
    start, steps = 1000, 1280 * max(1, kind.ratio)
    slope = (kind.kv_bytes(start + steps) - kind.kv_bytes(start)) / steps
    assert slope == pytest.approx(kind.growth(), rel=0.01, abs=1e-9)


@given(matrices=st.lists(MATRICES, min_size=1, max_size=6), extra=MATRICES)
def test_parts_sum_to_the_whole_and_mtp_stands_apart(matrices: list[Matrix], extra: Matrix) -> None:
    whole = model(*matrices, mtp=(extra,))
    assert sum(row[2] for row in whole.by_part) == whole.parameters
    assert sum(row[3] for row in whole.by_part) == pytest.approx(whole.bytes)
    assert whole.parameters == model(*matrices).parameters
    assert (whole.mtp_parameters, whole.mtp_bytes) == (extra.parameters, extra.bytes)
    assert whole.flops_per_token() == sum(matrix.flops for matrix in matrices)


@pytest.mark.parametrize("change", [{"rows": 0}, {"cols": -1}, {"count": 0}, {"used": 2}, {"used": -1},
                                    {"cut": "heads"}, {"axis": "rows"}])
def test_a_matrix_that_cannot_be(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        dataclasses.replace(Matrix("mlp", "up_proj", (0,), 4, 4), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [(4, 5, 8, (0,)), (4, 0, 8, (0,)), (4, 2, 0, (0,)), (4, 2, 8, ())])
def test_a_mixture_that_cannot_be(arguments: tuple[int, int, int, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="no mixture of experts"):
        Experts(*arguments)


@pytest.mark.parametrize("change", [{"window": 5}, {"kind": "sliding"}, {"ratio": 4}, {"heads": 0}, {"kv_heads": 0},
                                    {"kind": "compressed"}, {"value_dim": 0}])
def test_attention_that_cannot_be(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        dataclasses.replace(Attention("full", (0,), 8, 2, 64, 64), **change)  # type: ignore[arg-type]


def test_formats_that_cannot_be() -> None:
    for change in ({"bits": 0}, {"block_rows": -1}, {"block_bytes": -1.0}):
        with pytest.raises(ValueError, match="number format"):
            dataclasses.replace(BF16, **change)


def test_layers_know_their_attention() -> None:
    kinds = (Attention("full", (0, 2), 8, 2, 64, 64), Attention("linear", (1,), 8, 4, 64, 64))
    whole = model(kinds=kinds)
    assert [whole.attention_of(layer).kind for layer in range(3)] == ["full", "linear", "full"]
    with pytest.raises(ValueError, match="has no layer 3"):
        whole.attention_of(3)


@given(matrices=st.lists(MATRICES, max_size=3), kind=ATTENTION)
def test_an_architecture_survives_json(matrices: list[Matrix], kind: Attention) -> None:
    whole = model(*matrices, kinds=(kind,))
    assert codec.from_json(Architecture, codec.to_json(whole)) == whole
