"""Layers to stages, matrices to ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.architecture import BF16, Matrix, NumberFormat
from rooftop.domain.layout import Layout
from rooftop.perfmodel.cuts import cut_size, held, ranks, share_bytes, stages, width_of
from rooftop.perfmodel.memory import weights
from tests.perfmodel.bench import model

ENGINES = ("sglang", "vllm", "llamacpp")


@pytest.mark.parametrize(("engine", "layers", "pp", "sizes"), [
    ("sglang", 61, 2, (30, 31)), ("sglang", 61, 4, (15, 15, 15, 16)), ("sglang", 61, 8, (7, 7, 7, 8, 8, 8, 8, 8)),
    ("vllm", 61, 2, (31, 30)), ("vllm", 61, 4, (15, 15, 16, 15)), ("vllm", 61, 8, (7, 7, 8, 8, 8, 8, 8, 7)),
    ("vllm", 36, 4, (9, 9, 9, 9)), ("sglang", 36, 5, (7, 7, 7, 7, 8)), ("vllm", 36, 5, (7, 7, 7, 8, 7)),
    ("llamacpp", 31, 4, (8, 8, 8, 7)), ("llamacpp", 30, 2, (16, 14))])
def test_left_over_layers_go_where_the_engine_puts_them(engine: str, layers: int, pp: int, sizes: tuple[int, ...]
                                                        ) -> None:
    assert tuple(len(stage) for stage in stages(engine, layers, pp)) == sizes


def test_a_partition_of_the_users_own() -> None:
    assert stages("vllm", 6, 2, "4,2") == ((0, 1, 2, 3), (4, 5))


@given(st.sampled_from(ENGINES), st.integers(1, 100), st.integers(1, 16))
def test_every_layer_has_one_stage(engine: str, layers: int, pp: int) -> None:
    found = stages(engine, layers, pp)
    assert len(found) == pp
    assert [layer for stage in found for layer in stage] == list(range(layers))


@pytest.mark.parametrize(("engine", "layout", "flags", "widths"), [
    # attention, embedding, head, mlp, shared, experts, expert_width
    ("sglang", Layout(8), {}, (8, 8, 8, 8, 8, 1, 8)),
    ("sglang", Layout(8, ep=4), {}, (8, 8, 8, 8, 8, 4, 2)),
    ("sglang", Layout(8, ep=8, attention_dp=8), {}, (1, 1, 8, 8, 8, 8, 1)),
    ("sglang", Layout(8, attention_dp=2), {"enable-dp-lm-head": True}, (4, 4, 4, 8, 8, 1, 8)),
    ("sglang", Layout(8, ep=8), {"moe-a2a-backend": "deepep", "moe-dense-tp-size": 1}, (8, 8, 8, 1, 1, 8, 1)),
    ("vllm", Layout(4, dp=2), {}, (4, 4, 4, 4, 4, 1, 8)),
    ("vllm", Layout(4, dp=2, ep=8), {}, (4, 4, 4, 4, 1, 8, 1)),
    ("vllm", Layout(8, ep=8), {}, (8, 8, 8, 8, 8, 8, 1))])
def test_widths(engine: str, layout: Layout, flags: dict[str, int], widths: tuple[int, ...]) -> None:
    found = ranks(engine, layout, flags)
    assert (found.attention, found.embedding, found.head, found.mlp, found.shared, found.experts,
            found.expert_width) == widths


def test_kv_heads_fewer_than_ranks_are_copied() -> None:
    kv = Matrix("attention", "k_proj", (0,), 4 * 128, 2048, cut="kv_heads", axis="rows", pieces=4)
    assert cut_size(kv, ranks("vllm", Layout(8), {})) == (128, 2048)
    assert cut_size(kv, ranks("vllm", Layout(2), {})) == (256, 2048)


def test_the_vocabulary_is_padded_before_it_is_cut() -> None:
    table = Matrix("embedding", "embed_tokens", (), 50257, 64, cut="vocab", axis="rows", used=0)
    assert cut_size(table, ranks("vllm", Layout(2), {})) == (50304 // 2, 64)


def test_mxfp4_shares_are_padded_to_whole_blocks() -> None:
    mxfp4 = NumberFormat("mxfp4", 4, 1, 32, 1)
    down = Matrix("experts", "down_proj", (0,), 2880, 2880, mxfp4, cut="experts", axis="cols", count=4, used=1)
    assert cut_size(down, ranks("vllm", Layout(4), {})) == (2880, 736)


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 64), st.sampled_from((1, 2, 4, 8)))
def test_shares_together_are_at_least_the_whole(rows: int, cols: int, count: int, tp: int) -> None:
    matrix = Matrix("experts", "up_proj", (0,), rows, cols, BF16, cut="experts", axis="rows", count=count, used=1)
    for layout in (Layout(tp), Layout(tp, ep=tp)):
        width = ranks("sglang", layout, {})
        assert share_bytes(matrix, width) * width.experts * width_of(matrix, width) >= matrix.bytes


@pytest.mark.parametrize("name", ["Kimi-K2.6", "Qwen3-30B-A3B", "Qwen3.5-35B-A3B", "gpt-oss-120b", "SmolLM2-135M"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_stages_hold_the_whole_model_once_between_them(engine: str, name: str) -> None:
    architecture = model(name)
    layout = Layout(1, 3)
    width = ranks(engine, layout, {})
    total = sum(use.bytes for number, layers in enumerate(stages(engine, architecture.layers, 3))
                for use in weights(architecture, layout, width, number, layers) if use.part != "absorbed kv_b")
    table = next(matrix for matrix in architecture.matrices if matrix.part == "embedding")
    twice = table.bytes if architecture.tied else 0.0
    padding = 2 * 64 * architecture.hidden * 2
    assert architecture.bytes + twice <= total <= architecture.bytes + twice + padding


def test_tied_embeddings_stand_at_both_ends() -> None:
    head = Matrix("lm_head", "lm_head", (), 64, 8, cut="vocab", axis="rows", tied=True)
    assert held(head, 0, 1, frozenset()) == 0
    assert [held(head, stage, 3, frozenset()) for stage in range(3)] == [0, 0, 1]
