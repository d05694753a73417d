import contextlib
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.errors import BadInput
from rooftop.models.gguf import TYPES, read_header
from rooftop.models.read import read_model

F32, F16, Q4_K, Q6_K, Q8_0, MXFP4 = 0, 1, 12, 14, 8, 39
Tensor = tuple[str, tuple[int, ...], int]
DENSE_KEYS = {"general.architecture": "llama", "general.name": "tiny", "llama.block_count": 2,
              "llama.embedding_length": 256, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2,
              "llama.context_length": 4096}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: Any) -> bytes:
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    kind, code = (7, "?") if isinstance(item[0], bool) else (5, "i")
    return struct.pack(f"<IIQ{len(item)}{code}", 9, kind, len(item), *item)


def gguf(keys: dict[str, Any], tensors: Iterable[Tensor], data: bool = True) -> bytes:
    """A GGUF file as its specification writes it, with zeros for weights."""
    tensors = list(tensors)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    header += b"".join(text(key) + value(item) for key, item in keys.items())
    end = 0
    for name, shape, kind in tensors:
        header += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, end)
        size = TYPES[kind][2]
        for side in shape:
            size *= side
        end = (end + size // TYPES[kind][1] + 31) // 32 * 32
    return header + bytes(-len(header) % 32 + (end if data else 0))


def dense(layers: int = 2, down: int = Q6_K) -> list[Tensor]:
    found: list[Tensor] = [("token_embd.weight", (256, 1000), Q8_0), ("output_norm.weight", (256,), F32),
                           ("output.weight", (256, 1000), Q6_K), ("rope_freqs.weight", (16,), F32)]
    for layer in range(layers):
        name = f"blk.{layer}"
        found += [(f"{name}.attn_q.weight", (256, 256), Q4_K), (f"{name}.attn_k.weight", (256, 64), Q4_K),
                  (f"{name}.attn_v.weight", (256, 64), Q6_K), (f"{name}.attn_output.weight", (256, 256), Q4_K),
                  (f"{name}.ffn_gate.weight", (256, 512), Q4_K), (f"{name}.ffn_up.weight", (256, 512), Q4_K),
                  (f"{name}.ffn_down.weight", (512, 256), down if layer else Q4_K),
                  (f"{name}.attn_norm.weight", (256,), F32), (f"{name}.ffn_norm.weight", (256,), F32)]
    return found


def sparse(keys: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Tensor]]:
    """Two layers as DeepSeek-V2-Lite has them: the first dense, the second with experts; latent attention."""
    found: list[Tensor] = [("token_embd.weight", (256, 1000), F16), ("output_norm.weight", (256,), F32),
                           ("output.weight", (256, 1000), F16)]
    for layer in range(2):
        name = f"blk.{layer}"
        found += [(f"{name}.attn_q.weight", (256, 4 * 48), F16), (f"{name}.attn_kv_a_mqa.weight", (256, 80), F16),
                  (f"{name}.attn_kv_a_norm.weight", (64,), F32), (f"{name}.attn_k_b.weight", (32, 64, 4), F16),
                  (f"{name}.attn_v_b.weight", (64, 32, 4), F16), (f"{name}.attn_output.weight", (128, 256), F16)]
    found += [("blk.0.ffn_gate.weight", (256, 512), F16), ("blk.0.ffn_up.weight", (256, 512), F16),
              ("blk.0.ffn_down.weight", (512, 256), F16), ("blk.1.ffn_gate_inp.weight", (256, 8), F32),
              ("blk.1.exp_probs_b.bias", (8,), F32), ("blk.1.ffn_gate_exps.weight", (256, 64, 8), MXFP4),
              ("blk.1.ffn_up_exps.weight", (256, 64, 8), MXFP4), ("blk.1.ffn_down_exps.weight", (64, 256, 8), MXFP4),
              ("blk.1.ffn_up_shexp.weight", (256, 128), F16), ("blk.1.ffn_gate_shexp.weight", (256, 128), F16),
              ("blk.1.ffn_down_shexp.weight", (128, 256), F16)]
    own = {"general.architecture": "deepseek2", "deepseek2.block_count": 2, "deepseek2.embedding_length": 256,
           "deepseek2.attention.head_count": 4, "deepseek2.attention.kv_lora_rank": 64,
           "deepseek2.rope.dimension_count": 16, "deepseek2.attention.key_length_mla": 48,
           "deepseek2.attention.value_length_mla": 32, "deepseek2.expert_count": 8, "deepseek2.expert_used_count": 2,
           "deepseek2.expert_shared_count": 2, "tokenizer.ggml.tokens": ["a"] * 1000, "tokenizer.ggml.merges": ["b c"]}
    return own | (keys or {}), found


def test_a_dense_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(DENSE_KEYS, dense()))
    model = read_model(str(path))
    layer = 2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512 + 2 * 256
    assert model.parameters == 2 * 256_000 + 256 + 2 * layer
    assert (model.name, model.family, model.layers, model.hidden, model.vocab, model.tied, model.context) == (
        "tiny", "llama", 2, 256, 1000, False, 4096)
    assert [(kind.name, kind.key_dim, kind.layers) for kind in model.attention] == [("GQA", 32, (0, 1))]
    downs = [matrix for matrix in model.matrices if matrix.name == "ffn_down"]
    assert {(matrix.format.name, matrix.layers) for matrix in downs} == {("q4_k", (0,)), ("q6_k", (1,))}
    assert next(m for m in downs if m.layers == (0,)).bytes == 512 * 256 / 256 * 144
    assert model.file_bytes == path.stat().st_size
    assert read_model(str(tmp_path)) == model  # its folder


def test_tensors_make_up_the_file_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(DENSE_KEYS, dense()))
    assert read_header(path).end == path.stat().st_size


def test_tied_embeddings(tmp_path: Path) -> None:
    path = tmp_path / "tied.gguf"
    path.write_bytes(gguf(DENSE_KEYS, [tensor for tensor in dense() if tensor[0] != "output.weight"]))
    model = read_model(str(path))
    head = next(matrix for matrix in model.matrices if matrix.part == "lm_head")
    assert model.tied
    assert (head.parameters, head.active) == (0, 256_000)


def test_latent_attention_and_experts(tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    path.write_bytes(gguf(*sparse()))
    model = read_model(str(path))
    kind = model.attention[0]
    assert (kind.name, kind.kv_rank, kind.rope_dim, kind.nope_dim, kind.value_dim) == ("MLA", 64, 16, 32, 32)
    assert model.kv_bytes_per_token() == 2 * (64 + 16) * 2
    assert model.experts is not None
    assert (model.experts.count, model.experts.active, model.experts.width, model.experts.layers) == (8, 2, 64, (1,))
    assert (model.experts.shared, model.experts.shared_width) == (2, 128)
    experts = [matrix for matrix in model.matrices if matrix.part == "experts"]
    assert {(m.name, m.rows, m.cols, m.count, m.used, m.cut, m.axis) for m in experts} == {
        ("ffn_gate_exps", 64, 256, 8, 2, "experts", "rows"), ("ffn_up_exps", 64, 256, 8, 2, "experts", "rows"),
        ("ffn_down_exps", 256, 64, 8, 2, "experts", "cols")}
    assert sum(matrix.bytes for matrix in experts) == 3 * 8 * 256 * 64 / 32 * 17


def test_sliding_windows(tmp_path: Path) -> None:
    keys = {key.replace("llama", "gpt-oss"): "gpt-oss" if item == "llama" else item for key, item in DENSE_KEYS.items()}
    path = tmp_path / "window.gguf"
    path.write_bytes(gguf(keys | {"gpt-oss.attention.sliding_window": 128}, dense()))
    assert {kind.name: kind.layers for kind in read_model(str(path)).attention} == {
        "sliding GQA": (0,), "GQA": (1,)}
    path.write_bytes(gguf(DENSE_KEYS | {"llama.attention.sliding_window": 128}, dense()))
    with pytest.raises(BadInput, match="does not say in which layers"):
        read_model(str(path))
    path.write_bytes(gguf(DENSE_KEYS | {"llama.attention.sliding_window": 128,
                                        "llama.attention.sliding_window_pattern": [False, True]}, dense()))
    assert {kind.name: kind.layers for kind in read_model(str(path)).attention} == {
        "GQA": (0,), "sliding GQA": (1,)}


def test_heads_of_each_layer_apart(tmp_path: Path) -> None:
    path = tmp_path / "heads.gguf"
    path.write_bytes(gguf(DENSE_KEYS | {"llama.attention.head_count_kv": [2, 4], "llama.attention.key_length": 32},
                          dense()))
    assert [(kind.kv_heads, kind.layers) for kind in read_model(str(path)).attention] == [(2, (0,)), (4, (1,))]


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole = dense()
    first, second = tmp_path / "big-00001-of-00002.gguf", tmp_path / "big-00002-of-00002.gguf"
    first.write_bytes(gguf(DENSE_KEYS, whole[:9]))
    second.write_bytes(gguf({"split.no": 1}, whole[9:]))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tiny.gguf").write_bytes(gguf(DENSE_KEYS, whole))
    assert read_model(str(tmp_path)).parameters == read_model(str(tmp_path / "one")).parameters
    second.unlink()
    with pytest.raises(BadInput, match="1 of 2 shards are not here"):
        read_model(str(first))


@pytest.mark.parametrize(("keys", "tensors", "said"), [
    ({}, dense(), "does not say its general.architecture"),
    ({"general.architecture": "llama"}, dense(), "lacks block_count, embedding_length, attention.head_count"),
    (DENSE_KEYS, dense()[1:], "no embedding table"),
    (DENSE_KEYS | {"llama.attention.head_count_kv": 3}, dense(), "8 attention heads do not share 3 KV heads"),
    (DENSE_KEYS | {"llama.block_count": 3}, dense(), "block_count is 3, the tensors have 2 blocks"),
    (DENSE_KEYS | {"llama.embedding_length": 512}, dense(), "embedding_length is 512, the embedding table is 256 wide"),
    (DENSE_KEYS | {"llama.block_count": 0}, dense(), "block_count must be a whole number of at least 1"),
    (DENSE_KEYS, [*dense(), ("blk.0.mystery.weight", (256, 256), F16)], "blk.0.mystery.weight of shape"),
    (sparse({"deepseek2.expert_used_count": 9})[0], sparse()[1], "9 of 8 experts are used"),
    (sparse({"deepseek2.expert_count": 16})[0], sparse()[1], "2 of 16 experts are used"),
    (sparse({"deepseek2.rope.dimension_count": 48})[0], sparse()[1], "leaves nothing of key_length 48"),
])
def test_headers_that_contradict_themselves(tmp_path: Path, keys: dict[str, Any], tensors: list[Tensor], said: str
                                            ) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf(keys, tensors))
    with pytest.raises(BadInput) as caught:
        read_model(str(path))
    assert said in caught.value.what


WHOLE = gguf(DENSE_KEYS, dense())


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "changed.gguf"


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    for end in (*range(4, 1400, 7), len(WHOLE) - 1):
        path.write_bytes(WHOLE[:end])
        with pytest.raises(BadInput):
            read_model(str(path))


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.integers(4, 1900), st.integers(0, 255), min_size=1, max_size=6))
def test_changed_bytes_are_read_or_refused(changed: Path, changes: dict[int, int]) -> None:
    content = bytearray(WHOLE)
    for place, byte in changes.items():
        content[place] = byte
    changed.write_bytes(content)
    with contextlib.suppress(BadInput):
        assert read_model(str(changed)).parameters > 0
