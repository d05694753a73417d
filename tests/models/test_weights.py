import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.errors import BadInput
from rooftop.models.read import read_model
from rooftop.models.weights import read_header
from tests.models.published import CASES

SMALL = {"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
         "num_experts": 4, "num_experts_per_tok": 2, "dtype": "bfloat16"}
WIDTHS = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
Tensors = dict[str, tuple[str, tuple[int, ...]]]


def tensors(config: dict[str, Any]) -> Tensors:
    """The tensors of a Qwen3-MoE checkpoint in bf16, written out by hand rather than by the code under test."""
    wide, heads, kv, dim = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                    "head_dim"))
    expert, vocab = config["moe_intermediate_size"], config["vocab_size"]
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, wide), "model.norm.weight": (wide,),
                                         "lm_head.weight": (vocab, wide)}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        found |= {f"{name}.self_attn.q_proj.weight": (heads * dim, wide), f"{name}.self_attn.q_norm.weight": (dim,),
                  f"{name}.self_attn.k_proj.weight": (kv * dim, wide), f"{name}.self_attn.k_norm.weight": (dim,),
                  f"{name}.self_attn.v_proj.weight": (kv * dim, wide),
                  f"{name}.self_attn.o_proj.weight": (wide, heads * dim),
                  f"{name}.input_layernorm.weight": (wide,), f"{name}.post_attention_layernorm.weight": (wide,),
                  f"{name}.mlp.gate.weight": (config["num_experts"], wide)}
        for number in range(config["num_experts"]):
            found |= {f"{name}.mlp.experts.{number}.{part}.weight": shape for part, shape in (
                ("gate_proj", (expert, wide)), ("up_proj", (expert, wide)), ("down_proj", (wide, expert)))}
    return {name: ("BF16", shape) for name, shape in found.items()}


def write(path: Path, content: Tensors, cut: int = 0) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in content.items():
        size = WIDTHS[dtype]
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    plain = json.dumps(header).encode()
    path.write_bytes((len(plain).to_bytes(8, "little") + plain + bytes(end))[:None if not cut else -cut])


def folder(where: Path, content: Tensors, config: dict[str, Any] | None = None, shards: int = 1) -> str:
    (where / "config.json").write_text(json.dumps(config or SMALL))
    if shards == 1:
        write(where / "model.safetensors", content)
        return str(where)
    names = list(content)
    weight_map = {name: f"model-{number % shards}.safetensors" for number, name in enumerate(names)}
    for shard in set(weight_map.values()):
        write(where / shard, {name: content[name] for name in names if weight_map[name] == shard})
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (where / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(where)


@pytest.mark.parametrize("shards", [1, 3])
def test_files_agree_with_the_configuration_to_the_byte(tmp_path: Path, shards: int) -> None:
    model = read_model(folder(tmp_path, tensors(SMALL), shards=shards))
    assert model.file_bytes == model.bytes == 2 * model.parameters


def test_an_index_alone_is_enough(tmp_path: Path) -> None:
    shutil.copytree(CASES / "cogito-v1-qwen-14B", tmp_path / "model")
    assert read_model(str(tmp_path / "model")).file_bytes == 29531895808


def test_an_index_without_a_total_is_no_contradiction(tmp_path: Path) -> None:
    """Published INT4 checkpoints have been seen with total_size 0."""
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    index = {"metadata": {"total_size": 0}, "weight_map": dict.fromkeys(tensors(SMALL), "gone.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model(str(tmp_path)).file_bytes is None


@pytest.mark.parametrize(("change", "said"), [
    ({"num_hidden_layers": 3}, "says 3 layers, the weights have none numbered 2"),
    ({"num_experts": 8}, "GB, the configuration makes"),
    ({"moe_intermediate_size": 64}, "GB, the configuration makes"),
    ({"dtype": "float32"}, "GB, the configuration makes"),
    ({"quantization_config": {"quant_method": "fp8"}}, "GB, the configuration makes"),
    ({"tie_word_embeddings": True}, "GB, the configuration makes"),
])
def test_files_of_another_model_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_model(folder(tmp_path, tensors(SMALL), SMALL | change))
    assert said in caught.value.what


def test_a_vision_encoder_is_left_out(tmp_path: Path) -> None:
    encoder: Tensors = {f"model.visual.layers.{layer}.weight": ("F32", (64, 64)) for layer in range(40)}
    model = read_model(folder(tmp_path, tensors(SMALL) | encoder, {"model_type": "x", "text_config": SMALL}))
    assert model.file_bytes is not None
    assert model.file_bytes - model.bytes == 40 * 64 * 64 * 4


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", tensors(SMALL), cut=10)
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    with pytest.raises(BadInput, match="the file ends after"):
        read_model(str(tmp_path))


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=120) | st.builds(
    lambda text: len(text).to_bytes(8, "little") + text,
    st.sampled_from([b"{}", b"[]", b"null", b'{"a": 1}', b'{"a": {}}', b'{"a": {"dtype": "BF16", "shape": [-1]}}',
                     b'{"a": {"dtype": 5, "shape": [1]}}', b'{"a": {"dtype": "BF16", "shape": [1e9]}}',
                     b'{"a": {"dtype": "BF16", "shape": [1000000]}}'])))
def test_damaged_headers_are_refused_or_empty(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(BadInput):
        assert read_header(path) == {}
