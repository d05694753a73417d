import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.architecture import Architecture
from rooftop.errors import BadInput
from rooftop.models.fields import Fields
from rooftop.models.read import read_config, read_model
from tests.models.published import CASES, NAMES, REFUSED, config, read

DENSE, MOE, LATENT, HYBRID, V4 = "Qwen3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "Qwen3.5-27B", "DeepSeek-V4-Flash"
STEP = "Step-3.5-Flash"


def text(name: str) -> dict[str, Any]:
    data = config(name)
    inner: dict[str, Any] = data.get("text_config", data)
    return inner


def attempt(data: dict[str, Any]) -> Architecture | BadInput:
    try:
        return read(data)
    except BadInput as error:
        return error


def without(name: str, *fields: str) -> dict[str, Any]:
    return {key: value for key, value in text(name).items() if key not in fields}


@pytest.mark.parametrize(("data", "said"), [
    ({}, "lacks model_type, hidden_size, num_hidden_layers, vocab_size, num_attention_heads"),
    ({"model_type": "mamba"}, "model_type 'mamba' is not known"),
    (without(DENSE, "hidden_size", "vocab_size"), "of model_type 'qwen3' lacks hidden_size, vocab_size"),
    (without(MOE, "num_experts_per_tok"), "lacks num_experts_per_tok or experts_per_token"),
    (without(MOE, "num_experts"), "lacks num_experts or n_routed_experts or num_local_experts"),
    (without(MOE, "moe_intermediate_size"), "lacks moe_intermediate_size"),
    (without(LATENT, "kv_lora_rank"), "lacks kv_lora_rank"),
    (without(HYBRID, "linear_num_key_heads"), "lacks linear_num_key_heads"),
    (without(V4, "compress_ratios"), "lacks compress_ratios"),
    (without("DeepSeek-V3.2", "index_head_dim"), "lacks index_head_dim"),
    (without("Llama-4-Maverick-17B-128E-Instruct", "intermediate_size_mlp"), "lacks intermediate_size_mlp"),
    (without(DENSE, "head_dim") | {"hidden_size": 4095}, "num_attention_heads 32 and there is no head_dim"),
    (text(DENSE) | {"num_key_value_heads": 5}, "num_attention_heads 32 is no multiple of num_key_value_heads 5"),
    (text(MOE) | {"num_experts_per_tok": 129}, "num_experts_per_tok 129 is more than the 128 experts"),
    (text(MOE) | {"decoder_sparse_step": 99}, "no layer that has them"),
    (text(LATENT) | {"first_k_dense_replace": 61}, "no layer that has them"),
    (text(HYBRID) | {"linear_num_value_heads": 47}, "no multiple of linear_num_key_heads 16"),
    (text(HYBRID) | {"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries for 64 layers"),
    (text(HYBRID) | {"layer_types": ["magic"] * 64}, "layer_types must be"),
    (text(V4) | {"compress_ratios": [4]}, "compress_ratios has 1 entries for 43 layers"),
    (text(V4) | {"o_groups": 7}, "no multiple of o_groups 7"),
    (text("MiniMax-M2.7") | {"attn_type_list": [0] * 62}, "attn_type_list has linear attention"),
    (without(STEP, "attention_other_setting"), "lacks attention_other_setting"),
    (text(STEP) | {"layer_types": ["full_attention"] * 44 + ["magic"]}, "layer_types must be of full_attention"),
    (text(STEP) | {"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 7}},
     "96 is no multiple of num_attention_groups 7"),
    (text(STEP) | {"moe_layers_enum": "3,x"}, "moe_layers_enum must be layer numbers"),
    (text(STEP) | {"moe_layers_enum": ""}, "moe_layers_enum must be layer numbers"),
    (text("gpt-oss-20b") | {"layer_types": ["linear_attention"] * 24}, "layer_types must be of full_attention"),
    (text(DENSE) | {"dtype": "int3"}, "dtype must be one of"),
])
def test_one_clear_message(data: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(data)
    assert said in caught.value.what
    assert caught.value.where == "config.json"


@pytest.mark.parametrize("value", [0, -1, "4096", 4096.5, True, [], {}, math.nan, math.inf, 10**30, 1e300])
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                   "moe_intermediate_size", "num_experts", "num_experts_per_tok", "head_dim"])
def test_values_that_no_size_can_have(field: str, value: object) -> None:
    with pytest.raises(BadInput) as caught:
        read(text(MOE) | {field: value})
    assert field in caught.value.what
    assert "must be" in caught.value.what


def test_a_model_too_deep_to_be_one() -> None:
    with pytest.raises(BadInput, match="num_hidden_layers must be at most 10000"):
        read(text(DENSE) | {"num_hidden_layers": 10**9})


def test_an_abridged_configuration_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        read_model(str(CASES / "Step-3.7-Flash"))
    assert caught.value.what == "the configuration of model_type 'step3p7' lacks moe_layers_enum"
    assert caught.value.remedy == "take the whole config.json of the model"


@pytest.mark.parametrize(("content", "said"), [
    (b"", "not valid JSON"), (b"[1]", "is a table"), (b"{", "not valid JSON"), (b"\xff\xfe", "not valid JSON"),
    (b'{"a": ' * 100_000, "not valid JSON"), (b"null", "is a table"),
])
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(BadInput, match=said):
        read_model(str(tmp_path))


def test_paths_that_name_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or folder"):
        read_model(str(tmp_path / "absent"))
    with pytest.raises(BadInput, match=r"no config\.json and no GGUF file"):
        read_model(str(tmp_path))
    with pytest.raises(BadInput, match="does not look on the network"):
        read_model("org/model")
    with pytest.raises(BadInput, match="is no file or folder here"):
        read_model("a\0b/c")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 16)
    with pytest.raises(BadInput, match="weights alone"):
        read_model(str(tmp_path / "model.safetensors"))


def test_a_hub_name_through_a_fetch_function() -> None:
    files = {"config.json": (CASES / "nvidia-Qwen3-235B-A22B-NVFP4" / "config.json").read_bytes(),
             "hf_quant_config.json": (CASES / "nvidia-Qwen3-235B-A22B-NVFP4" / "hf_quant_config.json").read_bytes()}
    asked: list[tuple[str, str]] = []

    def fetch(name: str, file: str) -> bytes | None:
        asked.append((name, file))
        return files.get(file)

    model = read_model("nvidia/Qwen3-235B-A22B-NVFP4", fetch)
    assert model.name == "nvidia/Qwen3-235B-A22B-NVFP4"
    assert model.kv_format == "fp8"
    assert asked == [("nvidia/Qwen3-235B-A22B-NVFP4", file)
                     for file in ("config.json", "hf_quant_config.json", "model.safetensors.index.json")]
    files.clear()
    with pytest.raises(BadInput, match=r"the hub has no config\.json"):
        read_model("nvidia/absent", fetch)


def test_a_hub_index_is_held_against_the_configuration() -> None:
    case = CASES / "cogito-v1-qwen-14B"
    files = {file: (case / file).read_bytes() for file in ("config.json", "model.safetensors.index.json")}
    model = read_model("deepcogito/cogito", lambda _, file: files.get(file))
    assert model.file_bytes == 29531895808 == model.bytes


VALUES = st.none() | st.booleans() | st.integers(-2, 70) | st.floats() | st.text(max_size=8) | st.sampled_from(
    [4096, 10**25, "linear_attention", "full_attention", "fp8", [], {}, [0], ["full_attention"] * 64, {"a": 1}])
FIELDS = sorted({field for name in NAMES for field in text(name)} | {"quantization_config", "text_config"})


@settings(max_examples=250, deadline=None)
@given(name=st.sampled_from([DENSE, MOE, LATENT, HYBRID, V4, "GLM-4.5", "gpt-oss-20b", "MiniMax-M2.7",
                             "Llama-4-Scout-17B-16E-Instruct", "cogito-v1-qwen-14B", "GLM-5.2",
                             "Qwen3.5-35B-A3B", STEP]),
       changes=st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4),
       dropped=st.sets(st.sampled_from(FIELDS), max_size=2))
def test_changed_configurations_are_read_or_refused(name: str, changes: dict[str, Any], dropped: set[str]) -> None:
    """Whatever stands in a configuration, it makes a model with positive sizes or one BadInput that names its file."""
    data = {key: value for key, value in text(name).items() if key not in dropped} | changes
    model = attempt(data)
    if isinstance(model, BadInput):
        assert model.where == "config.json"
        return
    assert 0 < model.active <= model.active_with_embedding
    assert model.parameters > 0
    assert model.bytes > 0
    assert model.kv_bytes(100) <= model.kv_bytes(200)


QUANTIZATION = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["quant_method", "weight_block_size", "config_groups", "group_0", "weights", "num_bits", "type", "group_size",
         "targets", "ignore", "quant_algo", "bits", "quantized_layers", "format", "symmetric", "kv_cache_scheme"]),
        inner, max_size=5), max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(quantization=QUANTIZATION)
def test_any_quantization_is_read_or_refused(quantization: Any) -> None:
    model = attempt(text(MOE) | {"quantization_config": quantization})
    assert isinstance(model, BadInput) or model.bytes > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_reading_is_a_function_of_the_content(name: str) -> None:
    again = json.loads(json.dumps(text(name), sort_keys=True))
    assert read_config(Fields(again, "config.json")) == read(text(name))
