from dataclasses import replace
from math import isclose
from typing import Any

import pytest

from rooftop.domain.architecture import Architecture, Matrix
from tests.models.published import NAMES, REFUSED, architecture, config, read

READABLE = [name for name in NAMES if name not in REFUSED]
KIB = 1024


def named(model: Architecture, name: str) -> Matrix:
    return next(matrix for matrix in model.matrices if matrix.name == name)


@pytest.mark.parametrize(("name", "kinds"), [
    ("SmolLM2-135M", {"GQA": 30}),
    ("Meta-Llama-3.1-70B", {"GQA": 80}),
    ("DeepSeek-V3", {"MLA": 61}),
    ("DeepSeek-V3.2", {"MLA + DSA": 61}),
    ("Kimi-K2.6", {"MLA": 61}),
    ("GLM-5", {"MLA + DSA": 78}),
    ("Qwen3.5-397B-A17B", {"linear": 45, "GQA": 15}),
    ("gpt-oss-120b", {"sliding GQA": 18, "GQA": 18}),
    ("Llama-4-Scout-17B-16E-Instruct", {"chunked GQA": 36, "GQA": 12}),
    ("Step-3.5-Flash", {"GQA": 12, "sliding GQA": 33}),
    ("DeepSeek-V4-Flash", {"sliding MQA": 2, "compressed 4:1": 21, "compressed 128:1": 20}),
])
def test_attention_kinds(name: str, kinds: dict[str, int]) -> None:
    assert {kind.name: len(kind.layers) for kind in architecture(name).attention} == kinds


@pytest.mark.parametrize(("name", "kib"), [
    ("Meta-Llama-3.1-8B", 128), ("Meta-Llama-3.1-70B", 320), ("Meta-Llama-3.1-405B", 504), ("Qwen3-32B", 256),
    ("Qwen3-235B-A22B", 188), ("MiniMax-M2.7", 248), ("GLM-4.5", 368), ("DeepSeek-V3", 68.625), ("Kimi-K2.6", 68.625),
    ("Qwen3.5-397B-A17B", 30), ("gpt-oss-120b", 36),
])
def test_kv_bytes_of_a_token(name: str, kib: float) -> None:
    """Layers x 2 x KV heads x head width x 2 bytes; latent attention: layers x (512 + 64) x 2 bytes."""
    assert architecture(name).kv_bytes_per_token() == kib * KIB


def test_shared_indexers_keep_no_keys() -> None:
    """GLM-5.2 computes its choice in 21 of 78 layers; each of those keeps 128 fp8 values and one scale a token."""
    latent = 78 * 576 * 2
    assert architecture("GLM-5").kv_bytes_per_token() == latent + 78 * 132
    assert architecture("GLM-5.2").kv_bytes_per_token() == latent + 21 * 132
    assert {kind.index_top for kind in architecture("GLM-5.2").attention} == {2048}


def test_windows_stop_the_cache() -> None:
    model = architecture("gpt-oss-120b")
    per_layer = 2 * 8 * 64 * 2
    assert model.kv_bytes(100) == 36 * per_layer * 100
    assert model.kv_bytes(10_000) == 18 * per_layer * 128 + 18 * per_layer * 10_000


def test_linear_layers_hold_a_state() -> None:
    """64 value heads x 128 x 128 numbers in fp32 and three columns of 12288 in bf16, in 45 layers."""
    model = architecture("Qwen3.5-397B-A17B")
    assert model.state_bytes() == 45 * (64 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 64 * 128) * 2)
    assert model.kv_bytes(1000) - model.state_bytes() == 1000 * model.kv_bytes_per_token()


def test_compressed_cache_of_a_million_tokens_is_as_published() -> None:
    """DeepSeek-V4-Pro: 9.62 GiB a sequence of 1 Mi tokens, with entries and index keys in bf16 (AINews, 2026-04-25)."""
    model = architecture("DeepSeek-V4-Pro")
    wide = replace(model, attention=tuple(replace(kind, window=1) for kind in model.attention))
    entries = sum(kind.kv_bytes(2**20) - kind.entries(2**20) * kind.index_bytes * len(kind.layers)
                  for kind in wide.attention)
    keys = sum(kind.entries(2**20) * kind.index_dim * 2 * len(kind.layers) for kind in wide.attention)
    assert isclose((entries + keys) / 2**30, 9.62, abs_tol=0.01)


def test_cuts_of_grouped_attention() -> None:
    model = architecture("Qwen3-30B-A3B")
    assert (named(model, "q_proj").cut, named(model, "q_proj").pieces) == ("heads", 32)
    assert (named(model, "k_proj").cut, named(model, "k_proj").pieces) == ("kv_heads", 4)
    assert (named(model, "o_proj").axis, named(model, "o_proj").pieces) == ("cols", 32)
    experts = [matrix for matrix in model.matrices if matrix.part == "experts"]
    assert {(matrix.name, matrix.rows, matrix.cols, matrix.count, matrix.used, matrix.axis) for matrix in experts} == {
        ("gate_proj", 768, 2048, 128, 8, "rows"), ("up_proj", 768, 2048, 128, 8, "rows"),
        ("down_proj", 2048, 768, 128, 8, "cols")}
    assert named(model, "gate").cut == "whole"
    assert {named(model, name).cut for name in ("embed_tokens", "lm_head")} == {"vocab"}


def test_cuts_of_latent_attention() -> None:
    """The low-rank halves are copied to every rank, the halves with heads are cut."""
    model = architecture("Kimi-K2.6")
    whole = {"q_a_proj", "kv_a_proj_with_mqa", "q_a_layernorm", "kv_a_layernorm"}
    cut = {"q_b_proj": ("rows", 64 * 192, 1536), "kv_b_proj": ("rows", 64 * 256, 512), "o_proj": ("cols", 7168, 8192)}
    assert {matrix.name for matrix in model.matrices if matrix.part == "attention"} == (whole | set(cut)) - {
        "q_a_layernorm", "kv_a_layernorm"}
    assert all(named(model, name).cut == "whole" for name in whole)
    for name, (axis, rows, cols) in cut.items():
        matrix = named(model, name)
        assert (matrix.cut, matrix.axis, matrix.rows, matrix.cols, matrix.pieces) == ("heads", axis, rows, cols, 64)
    assert {matrix.layers for matrix in model.matrices if matrix.part == "mlp"} == {(0,)}
    assert model.experts is not None
    assert (model.experts.count, model.experts.active, model.experts.shared_width) == (384, 8, 2048)


@pytest.mark.parametrize("name", READABLE)
def test_matrices_stand_in_layers_that_there_are(name: str) -> None:
    model = architecture(name)
    kinds = [layer for kind in model.attention for layer in kind.layers]
    assert sorted(kinds) == list(range(model.layers))
    for matrix in model.matrices:
        assert set(matrix.layers) <= set(range(model.layers)), matrix.name
    for matrix in model.mtp:
        assert min(matrix.layers) >= model.layers, matrix.name
    for layer in (0, model.layers - 1):
        assert model.attention_of(layer).heads >= 1


@pytest.mark.parametrize("name", READABLE)
def test_no_matrix_is_there_twice(name: str) -> None:
    model = architecture(name)
    seen = [(matrix.part, matrix.name, layer) for matrix in (*model.matrices, *model.mtp)
            for layer in matrix.layers or (-1,)]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", READABLE)
def test_operations_are_about_twice_the_active_weights(name: str) -> None:
    model = architecture(name)
    assert isclose(model.flops_per_token(), 2 * model.active, rel_tol=0.03)
    assert model.flops_per_token(4096) > model.flops_per_token(1)


def test_absorbed_and_prefill_attention_differ() -> None:
    """Per token attended and head: 2 x (576 + 512) on the latent vector, 2 x (192 + 128) on the head's own."""
    kind = architecture("DeepSeek-V3").attention[0]
    assert kind.flops(1000) == 61 * 2 * 128 * (576 + 512) * 1000
    assert kind.flops(1000, absorbed=False) == 61 * 2 * 128 * (192 + 128) * 1000


def test_tied_embeddings_are_counted_once_and_used_as_head() -> None:
    model = architecture("Qwen3-0.6B")
    head = named(model, "lm_head")
    assert model.tied
    assert (head.parameters, head.bytes, head.active) == (0, 0.0, 151936 * 1024)
    assert model.active_with_embedding == model.active


def test_biases_and_sinks_of_gpt_oss() -> None:
    model = architecture("gpt-oss-20b")
    names = {matrix.name for matrix in model.matrices}
    assert {"q_proj.bias", "o_proj.bias", "router.bias", "down_proj.bias", "sinks"} <= names
    down = named(model, "down_proj.bias")
    assert (down.rows, down.count, down.cut, down.axis) == (2880, 32, "experts", "rows")


@pytest.mark.parametrize(("name", "rows"), [("q_norm", 48 * 128), ("k_norm", 8 * 128)])
def test_minimax_norms_all_heads_together(name: str, rows: int) -> None:
    assert named(architecture("MiniMax-M2.7"), name).rows == rows


def test_wrappers_are_read_by_their_text_part() -> None:
    wrapped = config("Kimi-K2.5")
    for part in ("llm_config", "language_config"):
        moved = {key: value for key, value in wrapped.items() if key != "text_config"} | {part: wrapped["text_config"]}
        assert replace(read(moved), name="") == replace(read(wrapped), name="")
    assert "only the text part" in read(wrapped).notes[0]


def test_dense_layers_among_sparse_ones() -> None:
    data = config("Qwen3-30B-A3B") | {"mlp_only_layers": [0, 5]}
    model = read(data)
    assert model.experts is not None
    assert set(range(48)) - set(model.experts.layers) == {0, 5}
    assert named(model, "up_proj").part in ("mlp", "experts")
    assert {matrix.rows for matrix in model.matrices if matrix.part == "mlp" and matrix.name == "up_proj"} == {6144}
    every_second = read(config("Qwen3-30B-A3B") | {"decoder_sparse_step": 2})
    assert every_second.experts is not None
    assert every_second.experts.layers == tuple(range(1, 48, 2))


@pytest.mark.parametrize(("data", "weights"), [
    # made with the model classes of transformers 5.19.0 on the meta device, as the exact counts of published.toml
    ({"model_type": "glm4", "hidden_size": 6144, "intermediate_size": 23040, "num_hidden_layers": 61,
      "vocab_size": 151552, "num_attention_heads": 48, "num_key_value_heads": 2, "head_dim": 128,
      "attention_bias": True}, 32566487552),
    ({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096}, 7241732096),
    ({"model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
      "vocab_size": 154880, "num_attention_heads": 20, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
      "qk_rope_head_dim": 64, "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
      "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "first_k_dense_replace": 1}, 29943393920),
    ({"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "num_experts": 512,
      "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4}, 79674391296),
], ids=lambda item: item["model_type"] if isinstance(item, dict) else "")
def test_families_without_a_recorded_configuration(data: dict[str, Any], weights: int) -> None:
    assert read(data).parameters == weights
