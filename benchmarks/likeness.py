"""Configurations of model types that rooftop does not know, read as the nearest one that it does: for speed only.

Sizes of projections, experts and cache are the configuration's own; norms, biases and windows may be the other
family's, a few thousandths of the bytes.  rooftop refuses such a model, for its weights are not known to the last one.
"""

import json
from pathlib import Path
from typing import Any

from rooftop.domain.architecture import Architecture
from rooftop.errors import BadInput
from rooftop.models.fields import Fields
from rooftop.models.read import TEXT_PARTS, read_config

COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k")
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
FIRST = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
OTHERS = ("mamba_num_heads", "ssm_state_size", "state_size", "hybrid_override_pattern", "linear_attn_config")
"""Fields of layers that no known family has."""


def like(file: Path) -> Architecture:
    """The configuration as that of the nearest known family.  Raises BadInput where there is none that is near."""
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    text = next((config[part] for part in TEXT_PARTS if isinstance(config.get(part), dict)), config)
    fields = {**{key: value for key, value in config.items() if key == "quantization_config"}, **text}
    if any(fields.get(name) for name in OTHERS):
        raise BadInput(f"model_type {fields.get('model_type')!r} has layers of a kind that no known family has",
                       where=str(file))
    fields["intermediate_size"] = _first(fields, ("intermediate_size", "ffn_hidden_size", "dense_intermediate_size"))
    fields["tie_word_embeddings"] = fields.get("tie_word_embeddings", "gemma" in str(fields.get("model_type")))
    fields["model_type"] = _family(fields)
    return read_config(Fields({key: value for key, value in fields.items() if value is not None}, file.stem),
                       name=file.stem)


def _family(fields: dict[str, Any]) -> str:
    """The nearest model_type; what it calls otherwise gets its name."""
    count = _first(fields, COUNTS)
    if "linear_num_key_heads" in fields:
        return "qwen3_5_moe" if count else "qwen3_5"
    if not count:
        return "deepseek_v3" if fields.get("kv_lora_rank") else "llama"
    fields["n_routed_experts"] = fields["num_experts"] = count
    fields["num_experts_per_tok"] = _first(fields, ACTIVE)
    fields["moe_intermediate_size"] = _first(fields, ("moe_intermediate_size", "expert_intermediate_size",
                                                      "intermediate_size"))
    for name in COUNTS[2:]:
        fields.pop(name, None)
    fields["n_shared_experts"] = _first(fields, SHARED) or 0
    fields["first_k_dense_replace"] = _first(fields, FIRST) or 0
    fields.pop("moe_layer_freq", None)
    return "deepseek_v3" if fields.get("kv_lora_rank") else "glm4_moe"


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that has a value; of a list a value a layer, the one in its middle."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, list) and value:
            value = value[len(value) // 2]
        if value:
            return value
    return None
