from typing import Any

import pytest

from rooftop.domain.architecture import BF16, Architecture, NumberFormat
from rooftop.errors import BadInput
from rooftop.models.fields import Fields
from rooftop.models.quantization import canonical, format_reader, matcher
from tests.models.published import architecture, config, read

LAYER = "model.layers.3"


def formats(model: Architecture, part: str) -> set[str]:
    return {matrix.format.name for matrix in model.matrices if matrix.part == part and matrix.cols > 1}


def of(quantization: dict[str, Any] | None, module: str) -> NumberFormat:
    data = {"torch_dtype": "bfloat16"} | ({"quantization_config": quantization} if quantization else {})
    return format_reader(Fields(data, "config.json"))[0](module)


@pytest.mark.parametrize(("name", "part", "expected"), [
    ("Meta-Llama-3.1-8B", "attention", {"bf16"}),
    ("DeepSeek-V3", "attention", {"fp8 128x128"}), ("DeepSeek-V3", "experts", {"fp8 128x128"}),
    ("DeepSeek-V3", "router", {"bf16"}), ("DeepSeek-V3", "lm_head", {"bf16"}), ("DeepSeek-V3", "embedding", {"bf16"}),
    ("Kimi-K2.6", "experts", {"int4 g32"}), ("Kimi-K2.6", "attention", {"bf16"}),
    ("Kimi-K2.6", "shared_experts", {"bf16"}), ("Kimi-K2.6", "mlp", {"bf16"}), ("Kimi-K2.6", "lm_head", {"bf16"}),
    ("nvidia-Kimi-K2.6-NVFP4", "experts", {"nvfp4"}), ("nvidia-Kimi-K2.6-NVFP4", "attention", {"bf16"}),
    ("nvidia-Kimi-K2.6-NVFP4", "shared_experts", {"bf16"}),
    ("nvidia-Llama-3.1-70B-Instruct-FP8", "mlp", {"fp8"}), ("nvidia-Llama-3.1-70B-Instruct-FP8", "lm_head", {"bf16"}),
    ("Qwen3-32B-FP8-Static-PerTensor", "attention", {"fp8"}),
    ("nvidia-Qwen3-235B-A22B-NVFP4", "experts", {"nvfp4"}), ("nvidia-DeepSeek-V3.1-NVFP4", "experts", {"nvfp4"}),
    ("nvidia-Qwen3.6-27B-NVFP4", "mlp", {"nvfp4"}), ("nvidia-Qwen3.6-27B-NVFP4", "lm_head", {"nvfp4"}),
    ("nvidia-Qwen3.6-27B-NVFP4", "attention", {"fp8"}), ("nvidia-Qwen3.6-27B-NVFP4", "linear", {"fp8", "bf16"}),
    ("gpt-oss-120b", "experts", {"mxfp4"}), ("gpt-oss-120b", "attention", {"bf16"}),
    ("DeepSeek-V4-Pro", "experts", {"mxfp4"}), ("DeepSeek-V4-Pro", "shared_experts", {"fp8 128x128"}),
    ("nvidia-DeepSeek-V4-Flash-NVFP4", "experts", {"nvfp4"}),
    ("nvidia-DeepSeek-V4-Flash-NVFP4", "attention", {"fp8 128x128", "bf16"}),
    ("MiniMax-M2.7", "experts", {"fp8 128x128"}), ("MiniMax-M2.7", "router", {"bf16"}),
    ("GLM-5-FP8", "attention", {"fp8 128x128"}), ("GLM-5-FP8", "lm_head", {"bf16"}),
])
def test_formats_by_part(name: str, part: str, expected: set[str]) -> None:
    assert formats(architecture(name), part) == expected


def test_ignored_layers_split_a_matrix() -> None:
    """The first layers of this checkpoint stay in bf16, so its MLP is there in two formats with disjoint layers."""
    model = architecture("nvidia-GLM-5.2-NVFP4")
    halves = [matrix for matrix in model.matrices if matrix.part == "experts" and matrix.name == "gate_proj"]
    assert sum(len(matrix.layers) for matrix in halves) == 75
    assert len({layer for matrix in halves for layer in matrix.layers}) == 75


@pytest.mark.parametrize(("name", "asked"), [
    ("nvidia-Kimi-K2.6-NVFP4", "fp8"), ("nvidia-Qwen3-235B-A22B-NVFP4", "fp8"), ("DeepSeek-V3", ""),
    ("Qwen3-32B-FP8-Static-PerTensor", "fp8"), ("Kimi-K2.6", ""),
])
def test_kv_format_as_the_checkpoint_asks(name: str, asked: str) -> None:
    assert architecture(name).kv_format == asked


@pytest.mark.parametrize(("quantization", "rows", "cols", "size"), [
    (None, 128, 256, 128 * 256 * 2),
    ({"quant_method": "fp8"}, 128, 256, 128 * 256 + 8),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 192, 256, 192 * 256 + 4 * 4),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, 128, 256, 128 * 256 / 2 + 128 * 2 * 2.5),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 128, 256, 128 * 256 / 2 + 128 * 4 * 2.5),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 128, 256, 128 * 256 / 2 + 128 * 2.5),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 128, 256, 128 * 256 + 128 * 8 * 3),
    ({"quant_method": "fbgemm_fp8"}, 128, 256, 128 * 256 + 128 * 4),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 128, 256, 128 * 256 / 2 + 128 * 16 + 8),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": {
        "num_bits": 8, "type": "float", "strategy": "channel"}}}}, 128, 256, 128 * 256 + 128 * 4),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {
        "num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}}}}, 128, 256, 128 * 256 / 2 + 256 * 2.5),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {
        "num_bits": 4, "type": "float", "group_size": 32}}}}, 128, 256, 128 * 256 / 2 + 128 * 8),
])
def test_bytes_of_a_matrix(quantization: dict[str, Any] | None, rows: int, cols: int, size: float) -> None:
    assert of(quantization, f"{LAYER}.mlp.up_proj").bytes(rows, cols) == size


def test_groups_by_target_and_by_name() -> None:
    """As a real Qwen3.6-27B INT4 checkpoint writes it: a group for all linear layers, one for the MTP layer's."""
    int4 = {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}
    quantization = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": int4},
        "group_mtp": {"targets": ["re:.*mtp\\..*proj$"], "weights": int4 | {"group_size": 32}}},
        "ignore": ["lm_head", "model.language_model.layers.0.linear_attn",
                   "model.language_model.layers.0.linear_attn.in_proj_a"]}
    assert of(quantization, "model.layers.0.linear_attn.in_proj_qkv").name == "int4 g128"  # only the module itself
    assert of(quantization, "model.layers.0.linear_attn.in_proj_a") == BF16
    assert of(quantization, "mtp.layers.0.mlp.up_proj").name == "int4 g32"
    assert of(quantization, "lm_head") == BF16


@pytest.mark.parametrize(("patterns", "name", "found"), [
    (["lm_head"], "lm_head", True),
    (["mlp.gate"], f"{LAYER}.mlp.gate", True),
    (["mlp.gate"], f"{LAYER}.mlp.gate_proj", False),
    (["gate"], f"{LAYER}.block_sparse_moe.gate", True),
    (["model.layers.3*"], f"{LAYER}.mlp.up_proj", True),
    (["model.layers.3*"], "model.layers.4.mlp.up_proj", False),
    (["model.layers.*.self_attn"], f"{LAYER}.self_attn.q_proj", True),
    (["language_model.model.layers.3.self_attn*"], f"{LAYER}.self_attn.q_proj", True),
    (["model.language_model.layers.3.linear_attn*"], f"{LAYER}.linear_attn.out_proj", True),
    (["re:.*self_attn.*"], f"{LAYER}.self_attn.q_proj", True),
    (["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], f"{LAYER}.mlp.experts.0.gate_proj", False),
    ([], "lm_head", False),
])
def test_patterns(patterns: list[str], name: str, found: bool) -> None:
    assert matcher(patterns)(name) is found


@pytest.mark.parametrize(("name", "bare"), [
    ("language_model.lm_head", "lm_head"), ("language_model.model.layers.0.mlp", "model.layers.0.mlp"),
    ("model.language_model.layers.0.mlp", "model.layers.0.mlp"), ("model.layers.0.mlp", "model.layers.0.mlp"),
    ("mtp.layers.0*", "mtp.layers.0*"), ("re:language_model.*", "re:language_model.*"),
])
def test_canonical_names(name: str, bare: str) -> None:
    assert canonical(name) == bare


@pytest.mark.parametrize(("quantization", "said"), [
    ({"quant_method": "magic"}, "quant_method 'magic' is not known"),
    ({"quant_method": "fp8", "weight_block_size": [128]}, "a block has two sides"),
    ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "a block has two sides"),
    ({"quant_method": "awq", "bits": 4}, "lacks group_size"),
    ({"quant_method": "awq", "bits": "4", "group_size": 128}, "bits must be a whole number"),
    ({"quant_method": "modelopt", "quant_algo": "W3"}, "quant_algo 'W3' is not known"),
    ({"quant_method": "fp8", "ignored_layers": ["re:("]}, "cannot be read"),
    ({"quant_method": "fp8", "ignored_layers": "lm_head"}, "must be a list of words"),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 7, "type": "float"}}}},
     "weights of 7 bits"),
    ("fp8", "must be a table"),
])
def test_quantization_that_means_nothing(quantization: Any, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(config("Qwen3-8B") | {"quantization_config": quantization})
    assert said in caught.value.what
