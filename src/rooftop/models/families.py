"""The model families that rooftop knows: one function each, from a configuration to its parts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

from rooftop.domain.architecture import Attention, AttentionKind, Experts, Matrix
from rooftop.errors import BadInput
from rooftop.models import parts
from rooftop.models.fields import Fields
from rooftop.models.latent import deepseek, deepseek_v4
from rooftop.models.parts import Piece, Sketch
from rooftop.models.shape import by_type, dense, ends, first_dense, grouped, mixture, next_layers, size

COMMON = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
ROUTED = ("num_experts|n_routed_experts|num_local_experts", "num_experts_per_tok|experts_per_token")
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
COMPRESSED = ("compress_ratios", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "hc_mult", "sliding_window",
              "index_n_heads", "index_head_dim", "index_topk", "moe_intermediate_size")
FULL: AttentionKind = "full"
SLIDING: AttentionKind = "sliding"


@dataclass(frozen=True, slots=True)
class Family:
    """How a model_type is read and the fields without which it cannot be."""

    sketch: Callable[[Fields], Sketch]
    needs: tuple[str, ...]


def llama(config: Fields) -> Sketch:
    """Llama 2 and 3, SmolLM2, Mistral."""
    hidden, layers = size(config)
    window = config.maybe("sliding_window") if config.word("model_type") == "mistral" else None
    attention = grouped(config, layers, "sliding" if window else "full", window)
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden, biased=biased),
        *parts.mlp(hidden, config.whole("intermediate_size"), layers, biased=config.flag("mlp_bias"))))


def glm4(config: Fields) -> Sketch:
    """GLM-4-0414, dense: norms before and after attention and MLP."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    names = ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
    biased = "qkv" if config.flag("attention_bias") else ""
    return Sketch((attention,), (*ends(config), *parts.norms(hidden, layers, names),
                                 *parts.heads(attention, hidden, biased=biased), *dense(config, layers)))


def qwen2(config: Fields) -> Sketch:
    """Qwen2, Qwen2.5, QwQ: queries, keys and values have a bias."""
    hidden, layers = size(config)
    count = len(layers)
    if config.flag("use_sliding_window") and "sliding_window" in config:
        count = config.whole("max_window_layers", default=count, least=0)
    attention = tuple(grouped(config, part, kind, config.whole("sliding_window") if kind == "sliding" else None)
                      for part, kind in ((layers[:count], FULL), (layers[count:], SLIDING)) if part)
    projections = chain.from_iterable(parts.heads(kind, hidden, biased="qkv") for kind in attention)
    return Sketch(attention, (*ends(config), *parts.norms(hidden, layers), *projections,
                              *parts.mlp(hidden, config.whole("intermediate_size"), layers)))


def qwen3(config: Fields) -> Sketch:
    """Qwen3 and Qwen3-VL: queries and keys are normed a head."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden, biased=biased, normed="head"),
        *parts.mlp(hidden, config.whole("intermediate_size"), layers)))


def sparse_layers(config: Fields, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Qwen's layers with experts: each decoder_sparse_step-th, mlp_only_layers aside."""
    step, plain = config.whole("decoder_sparse_step", default=1), set(config.wholes("mlp_only_layers") or ())
    return tuple(layer for layer in layers if layer not in plain and (layer + 1) % step == 0)


def qwen3_moe(config: Fields) -> Sketch:
    """Qwen3-MoE, Qwen3-Coder, Qwen3-VL-MoE."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    experts = mixture(config, sparse_layers(config, layers), config.whole("moe_intermediate_size"))
    plain = tuple(layer for layer in layers if layer not in set(experts.layers))
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden, biased=biased, normed="head"),
        *parts.routed(experts, hidden), *dense(config, plain)), experts)


def qwen3_5(config: Fields) -> Sketch:
    """Qwen3-Next, Qwen3.5 and 3.6: three gated delta-rule layers to one of full attention; dense or with experts."""
    hidden, layers = size(config)
    interval = config.whole("full_attention_interval", default=4)
    types = config.words("layer_types", len(layers)) or tuple(
        "linear_attention" if (layer + 1) % interval else "full_attention" for layer in layers)
    unknown = set(types) - {"linear_attention", "full_attention"}
    if unknown:
        raise config.wrong("layer_types", "of linear_attention and full_attention", sorted(unknown)[0])
    keys, values = config.whole("linear_num_key_heads"), config.whole("linear_num_value_heads")
    if values % keys:
        raise BadInput(f"linear_num_value_heads {values} is no multiple of linear_num_key_heads {keys}",
                       where=config.where)
    linear = Attention("linear", tuple(layer for layer in layers if types[layer] == "linear_attention"), values, keys,
                       config.whole("linear_key_head_dim"), config.whole("linear_value_head_dim"),
                       conv=config.whole("linear_conv_kernel_dim"))
    full = grouped(config, tuple(layer for layer in layers if types[layer] == "full_attention"))
    attention = tuple(kind for kind in (linear, full) if kind.layers)
    pieces = [*ends(config), *parts.norms(hidden, layers)]
    for kind in attention:
        pieces += parts.delta(kind, hidden) if kind.kind == "linear" else _gated_heads(config, kind, hidden)
    experts = None
    if "num_experts" in config:
        wide = config.whole("shared_expert_intermediate_size", default=0, least=0)
        experts = mixture(config, sparse_layers(config, layers), config.whole("moe_intermediate_size"),
                          int(wide > 0), wide)
    pieces += _feed_forward(config, layers, experts)
    return Sketch(attention, tuple(pieces), experts, _qwen3_5_mtp(config, experts))


def _gated_heads(config: Fields, kind: Attention, hidden: int) -> list[Piece]:
    biased = "qkvo" if config.flag("attention_bias") else ""
    return list(parts.heads(kind, hidden, biased=biased, normed="head",
                            gated=config.flag("attn_output_gate", True)))


def _feed_forward(config: Fields, layers: tuple[int, ...], experts: Experts | None) -> list[Piece]:
    """Experts, shared expert and its gate where there are experts, else an MLP."""
    hidden = config.whole("hidden_size")
    if experts is None:
        config.need("intermediate_size")
        return list(dense(config, layers))
    pieces = [*parts.routed(experts, hidden), *parts.shared(experts, hidden, "model.layers.{}.mlp.shared_expert")]
    if experts.shared:
        gate = Matrix("shared_experts", "shared_expert_gate", experts.layers, 1, hidden)
        pieces.append(Piece("model.layers.{}.mlp", gate, quantized=False))
    return [*pieces, *dense(config, tuple(layer for layer in layers if layer not in set(experts.layers)))]


def _qwen3_5_mtp(config: Fields, experts: Experts | None) -> tuple[Piece, ...]:
    count, hidden = config.whole("mtp_num_hidden_layers", default=0, least=0, most=100), config.whole("hidden_size")
    first = config.whole("num_hidden_layers")
    pieces = []
    for number in range(count):
        layers = (first + number,)
        layer = [*parts.norms(hidden, layers), *_gated_heads(config, grouped(config, layers), hidden),
                 *_feed_forward(config, layers, replace(experts, layers=layers) if experts else None)]
        pieces += [replace(piece, module=piece.module.replace("model.layers.{}", f"mtp.layers.{number}"))
                   for piece in layer]
    if count:
        pieces.append(Piece("mtp", Matrix("mlp", "fc", (first,), hidden, 2 * hidden)))
        pieces += [parts.vector("mtp", "norm", name, (first,), hidden)
                   for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")]
    return tuple(pieces)


def mixtral(config: Fields) -> Sketch:
    """Mixtral 8x7B and 8x22B."""
    hidden, layers = size(config)
    window = config.maybe("sliding_window")
    attention = grouped(config, layers, "sliding" if window else "full", window)
    experts = mixture(config, layers, config.whole("intermediate_size"))
    routed = parts.routed(experts, hidden, "model.layers.{}.block_sparse_moe", names=("w1", "w3", "w2"))
    return Sketch((attention,), (*ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden), *routed),
                  experts)


def minimax_m2(config: Fields) -> Sketch:
    """MiniMax-M2, M2.5 and M2.7: queries and keys are normed over all heads together."""
    hidden, layers = size(config)
    if 0 in (config.wholes("attn_type_list", len(layers)) or ())[:len(layers)]:
        raise BadInput("attn_type_list has linear attention, which no MiniMax-M2 has", where=config.where)
    attention = grouped(config, layers)
    wide = config.whole("shared_intermediate_size", default=0, least=0)
    experts = mixture(config, layers, config.whole("intermediate_size"), int(wide > 0), wide)
    module = "model.layers.{}.block_sparse_moe"
    correction = "e_score_correction_bias" if config.flag("use_routing_bias", True) else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers),
        *parts.heads(attention, hidden, normed="row" if config.flag("use_qk_norm") else ""),
        *parts.routed(experts, hidden, module, names=("w1", "w3", "w2"), correction=correction),
        *parts.shared(experts, hidden, f"{module}.shared_experts")), experts,
        notes=("MTP layers are named in the configuration but not counted: the published weights have none",)
        if config.flag("use_mtp") else ())


def glm4_moe(config: Fields) -> Sketch:
    """GLM-4.5, 4.5-Air, 4.6 and 4.7."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    plain, sparse = first_dense(config, layers)
    width, shared = config.whole("moe_intermediate_size"), config.whole("n_shared_experts", default=0, least=0)
    experts = mixture(config, sparse, width, shared, shared * width)
    biased, normed = "qkv" if config.flag("attention_bias") else "", "head" if config.flag("use_qk_norm") else ""

    def layer(kind: Attention, experts: Experts) -> tuple[Piece, ...]:
        return (*parts.norms(hidden, kind.layers), *parts.heads(kind, hidden, biased=biased, normed=normed),
                *parts.routed(experts, hidden, correction="gate.e_score_correction_bias"),
                *parts.shared(experts, hidden))

    mtp = next_layers(config)
    return Sketch((attention,), (*ends(config), *layer(attention, experts), *dense(config, plain)), experts,
                  (*parts.prediction(hidden, mtp), *layer(replace(attention, layers=mtp),
                                                          replace(experts, layers=mtp))) if mtp else ())


def gpt_oss(config: Fields) -> Sketch:
    """gpt-oss: biases everywhere, attention sinks, every second layer with a sliding window."""
    hidden, layers = size(config)
    types = config.words("layer_types", len(layers)) or tuple(
        "full_attention" if layer % 2 else "sliding_attention" for layer in layers)
    attention = by_type(config, layers, types)
    experts = mixture(config, layers, config.whole("intermediate_size"))
    module = "model.layers.{}.mlp"
    pieces = [*ends(config), *parts.norms(hidden, layers)]
    for kind in attention:
        biased = "qkvo" if config.flag("attention_bias", True) else ""
        pieces += parts.heads(kind, hidden, biased=biased)
        sinks = Matrix("attention", "sinks", kind.layers, kind.heads, 1, cut="heads", axis="rows", pieces=kind.heads)
        pieces.append(Piece("model.layers.{}.self_attn", sinks, quantized=False))
    for piece in parts.routed(experts, hidden, module, router="router"):
        pieces += [piece, parts.bias(piece)]
    return Sketch(attention, tuple(pieces), experts)


def llama4(config: Fields) -> Sketch:
    """Llama 4 Scout and Maverick: a shared expert, chunked attention in three layers of four."""
    hidden, layers = size(config)
    interval = config.whole("no_rope_layer_interval", default=4)
    roped = config.wholes("no_rope_layers", None) or ()
    if len(roped) < len(layers):
        roped = tuple(int((layer + 1) % interval != 0) for layer in layers)
    types = config.words("layer_types", len(layers)) or tuple(
        "chunked_attention" if roped[n] and "attention_chunk_size" in config else "full_attention" for n in layers)
    attention = by_type(config, layers, types)
    step, width = config.whole("interleave_moe_layer_step", default=1), config.whole("intermediate_size")
    sparse = config.wholes("moe_layers") or tuple(range(step - 1, len(layers), step))
    experts = mixture(config, tuple(n for n in layers if n in set(sparse)), width, 1, width)
    plain = tuple(layer for layer in layers if layer not in set(experts.layers))
    module = "model.layers.{}.feed_forward"
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch(attention, (
        *ends(config), *parts.norms(hidden, layers),
        *chain.from_iterable(parts.heads(kind, hidden, biased=biased) for kind in attention),
        *parts.routed(experts, hidden, module, router="router"),
        *parts.shared(experts, hidden, f"{module}.shared_expert"),
        *(parts.mlp(hidden, config.whole("intermediate_size_mlp"), plain, module) if plain else ())), experts)


def step(config: Fields) -> Sketch:
    """Step-3.5-Flash and Step-3.7: layers with a sliding window have heads of their own; a gate a head."""
    hidden, layers = size(config)
    types = config.words("layer_types", len(layers)) or ()
    full = tuple(layer for layer in layers if types[layer] == "full_attention")
    sliding = tuple(layer for layer in layers if types[layer] == "sliding_attention")
    if len(full) + len(sliding) != len(layers):
        raise config.wrong("layer_types", "of full_attention and sliding_attention", sorted(set(types[:len(layers)])))
    attention = [_step_heads(config, config, full)] if full else []
    if sliding:
        config.need("attention_other_setting")
        attention.append(_step_heads(config, config.table("attention_other_setting") or config, sliding,
                                     config.whole("sliding_window")))
    sparse, share = set(_listed(config, "moe_layers_enum")), config.whole("share_expert_dim")
    experts = mixture(config, tuple(layer for layer in layers if layer in sparse),
                      config.whole("moe_intermediate_size"), 1, share)
    pieces = [*ends(config), *parts.norms(hidden, layers),
              *parts.shared(experts, hidden, "model.layers.{}.share_expert"),
              *parts.routed(experts, hidden, "model.layers.{}.moe", correction="router_bias"),
              *dense(config, tuple(layer for layer in layers if layer not in sparse))]
    for kind in attention:
        gate = Matrix("attention", "g_proj", kind.layers, kind.heads, hidden, cut="heads", axis="rows",
                      pieces=kind.heads)
        pieces += [*parts.heads(kind, hidden, normed="head"), Piece("model.layers.{}.self_attn", gate)]
    return Sketch(tuple(attention), tuple(pieces), experts,
                  notes=("MTP layers are not counted",) if "num_nextn_predict_layers" in config else ())


def _step_heads(config: Fields, own: Fields, layers: tuple[int, ...], window: int | None = None) -> Attention:
    """Attention of one kind of layer; `own` has the heads of that kind."""
    heads, groups = own.whole("num_attention_heads"), own.whole("num_attention_groups", "num_key_value_heads")
    if heads % groups:
        raise BadInput(f"num_attention_heads {heads} is no multiple of num_attention_groups {groups}",
                       where=config.where)
    wide = own.whole("head_dim", default=config.whole("head_dim"))
    return Attention(SLIDING if window else FULL, layers, heads, groups, wide, wide, window)


def _listed(config: Fields, name: str) -> tuple[int, ...]:
    """A list of layer numbers, also where it is written as one string with commas."""
    value = config.data.get(name)
    if not isinstance(value, str):
        return config.wholes(name) or ()
    numbers = value.replace(" ", "").split(",")
    if not all(number.isascii() and number.isdigit() and len(number) < 6 for number in numbers):
        raise config.wrong(name, "layer numbers with commas between them", value)
    return tuple(int(number) for number in numbers)


GROUPED_MOE = (*COMMON, *ROUTED, "moe_intermediate_size")
DEEPSEEK = Family(deepseek, (*COMMON, *ROUTED, *LATENT, "moe_intermediate_size"))
HYBRID = Family(qwen3_5, (*COMMON, "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"))
HYBRID_MOE = Family(qwen3_5, (*HYBRID.needs, *ROUTED, "moe_intermediate_size"))
DENSE = (*COMMON, "intermediate_size")

FAMILIES = {
    "llama": Family(llama, DENSE), "mistral": Family(llama, DENSE),
    "qwen2": Family(qwen2, DENSE), "qwen3": Family(qwen3, DENSE), "qwen3_vl_text": Family(qwen3, DENSE),
    "qwen3_moe": Family(qwen3_moe, GROUPED_MOE), "qwen3_vl_moe_text": Family(qwen3_moe, GROUPED_MOE),
    "qwen3_5": HYBRID, "qwen3_5_text": HYBRID, "qwen3_5_moe": HYBRID_MOE, "qwen3_5_moe_text": HYBRID_MOE,
    "qwen3_next": HYBRID_MOE,
    "mixtral": Family(mixtral, (*DENSE, *ROUTED)), "minimax_m2": Family(minimax_m2, (*DENSE, *ROUTED)),
    "glm4": Family(glm4, DENSE), "glm4_moe": Family(glm4_moe, GROUPED_MOE),
    "gpt_oss": Family(gpt_oss, (*DENSE, *ROUTED)), "llama4_text": Family(llama4, (*DENSE, *ROUTED)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"),
                    DEEPSEEK),
    **dict.fromkeys(("step3p5", "step3p7"), Family(step, (
        *DENSE, "moe_num_experts|num_experts", "moe_top_k|num_experts_per_tok", "moe_intermediate_size", "head_dim",
        "share_expert_dim", "layer_types", "moe_layers_enum", "num_attention_groups|num_key_value_heads"))),
    "deepseek_v4": Family(deepseek_v4, (*COMMON, *ROUTED, *COMPRESSED)),
}
