"""The model families that rooftop knows: one function each, from a configuration to its parts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

from rooftop.domain.architecture import Attention, AttentionKind, Experts, Matrix
from rooftop.errors import BadInput
from rooftop.models import parts
from rooftop.models.fields import MOST_LAYERS, Fields
from rooftop.models.parts import Piece, Sketch

COMMON = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
ROUTED = ("num_experts|n_routed_experts|num_local_experts", "num_experts_per_tok|experts_per_token")
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


@dataclass(frozen=True, slots=True)
class Family:
    """How a model_type is read and the fields without which it cannot be."""

    sketch: Callable[[Fields], Sketch]
    needs: tuple[str, ...]


def size(config: Fields) -> tuple[int, tuple[int, ...]]:
    """The hidden size and all layer numbers."""
    return config.whole("hidden_size"), tuple(range(config.whole("num_hidden_layers", most=MOST_LAYERS)))


def ends(config: Fields) -> tuple[Piece, ...]:
    """Embedding, final norm, LM head."""
    tied = config.flag("tie_word_embeddings")
    return tuple(parts.ends(config.whole("hidden_size"), config.whole("vocab_size"), tied))


def grouped(config: Fields, layers: tuple[int, ...], kind: AttentionKind = "full", window: int | None = None
            ) -> Attention:
    """Multi-head or grouped-query attention.  Raises BadInput for heads that do not go into each other."""
    hidden, count = config.whole("hidden_size"), config.whole("num_attention_heads")
    kv_count = config.whole("num_key_value_heads", default=count)
    if count % kv_count:
        raise BadInput(f"num_attention_heads {count} is no multiple of num_key_value_heads {kv_count}",
                       where=config.where)
    if "head_dim" not in config and hidden % count:
        raise BadInput(f"hidden_size {hidden} is no multiple of num_attention_heads {count} and there is no head_dim",
                       where=config.where)
    wide = config.whole("head_dim", default=max(1, hidden // count))
    return Attention(kind, layers, count, kv_count, wide, wide, window=window)


def by_type(config: Fields, layers: tuple[int, ...], types: tuple[str, ...] | None) -> tuple[Attention, ...]:
    """Attention by `layer_types`; full everywhere where there is none.  Raises BadInput for a type not known here."""
    if types is None:
        return (grouped(config, layers),)
    known = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked"}
    found = []
    for name in dict.fromkeys(types[:len(layers)]):
        if name not in known:
            raise config.wrong("layer_types", f"of {', '.join(known)} for this model_type", name)
        window = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}.get(name)
        of_type = tuple(layer for layer in layers if types[layer] == name)
        kind: AttentionKind = known[name]  # type: ignore[assignment]
        found.append(grouped(config, of_type, kind, config.whole(window) if window else None))
    return tuple(found)


def mixture(config: Fields, layers: tuple[int, ...], width: int, shared: int = 0, shared_width: int = 0) -> Experts:
    """The mixture of experts.  Raises BadInput where more experts are active than there are."""
    count = config.whole("num_experts", "n_routed_experts", "num_local_experts")
    active = config.whole("num_experts_per_tok", "experts_per_token")
    if active > count:
        raise BadInput(f"num_experts_per_tok {active} is more than the {count} experts", where=config.where)
    if not layers:
        raise BadInput("there are experts but no layer that has them", where=config.where,
                       remedy="look at first_k_dense_replace, decoder_sparse_step and mlp_only_layers")
    return Experts(count, active, width, layers, shared, shared_width)


def llama(config: Fields) -> Sketch:
    """Llama 2 and 3, SmolLM2, Mistral."""
    hidden, layers = size(config)
    window = config.maybe("sliding_window") if config.word("model_type") == "mistral" else None
    attention = grouped(config, layers, "sliding" if window else "full", window)
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden, biased=biased),
        *parts.mlp(hidden, config.whole("intermediate_size"), layers, biased=config.flag("mlp_bias"))))


def qwen2(config: Fields) -> Sketch:
    """Qwen2, Qwen2.5, QwQ: queries, keys and values have a bias."""
    hidden, layers = size(config)
    full = layers
    if config.flag("use_sliding_window") and "sliding_window" in config:
        full = layers[:config.whole("max_window_layers", default=len(layers), least=0)]
    rest = layers[len(full):]
    attention = tuple(kind for kind in (
        grouped(config, full), grouped(config, rest, "sliding", config.maybe("sliding_window"))) if kind.layers)
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
    step, dense = config.whole("decoder_sparse_step", default=1), set(config.wholes("mlp_only_layers") or ())
    return tuple(layer for layer in layers if layer not in dense and (layer + 1) % step == 0)


def qwen3_moe(config: Fields) -> Sketch:
    """Qwen3-MoE, Qwen3-Coder, Qwen3-VL-MoE."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    experts = mixture(config, sparse_layers(config, layers), config.whole("moe_intermediate_size"))
    dense = tuple(layer for layer in layers if layer not in experts.layers)
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch((attention,), (
        *ends(config), *parts.norms(hidden, layers), *parts.heads(attention, hidden, biased=biased, normed="head"),
        *parts.routed(experts, hidden), *(_dense(config, hidden, dense))), experts)


def _dense(config: Fields, hidden: int, layers: tuple[int, ...]) -> tuple[Piece, ...]:
    return tuple(parts.mlp(hidden, config.whole("intermediate_size"), layers)) if layers else ()


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
        return list(_dense(config, hidden, layers))
    pieces = [*parts.routed(experts, hidden), *parts.shared(experts, hidden, "model.layers.{}.mlp.shared_expert")]
    if experts.shared:
        gate = Matrix("shared_experts", "shared_expert_gate", experts.layers, 1, hidden)
        pieces.append(Piece("model.layers.{}.mlp", gate, quantized=False))
    return [*pieces, *_dense(config, hidden, tuple(layer for layer in layers if layer not in experts.layers))]


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


def first_dense(config: Fields, layers: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """DeepSeek's layers without and with experts."""
    types = config.words("mlp_layer_types", len(layers))
    if types is not None:
        sparse = tuple(layer for layer in layers if types[layer] == "sparse")
    else:
        first = config.whole("first_k_dense_replace", default=0, least=0)
        step = config.whole("moe_layer_freq", default=1)
        sparse = tuple(layer for layer in layers if layer >= first and layer % step == 0)
    return tuple(layer for layer in layers if layer not in set(sparse)), sparse


def glm4_moe(config: Fields) -> Sketch:
    """GLM-4.5, 4.5-Air, 4.6 and 4.7."""
    hidden, layers = size(config)
    attention = grouped(config, layers)
    dense, sparse = first_dense(config, layers)
    width, shared = config.whole("moe_intermediate_size"), config.whole("n_shared_experts", default=0, least=0)
    experts = mixture(config, sparse, width, shared, shared * width)
    biased, normed = "qkv" if config.flag("attention_bias") else "", "head" if config.flag("use_qk_norm") else ""

    def layer(kind: Attention, experts: Experts) -> tuple[Piece, ...]:
        return (*parts.norms(hidden, kind.layers), *parts.heads(kind, hidden, biased=biased, normed=normed),
                *parts.routed(experts, hidden, correction="gate.e_score_correction_bias"),
                *parts.shared(experts, hidden))

    mtp = _next_layers(config)
    return Sketch((attention,), (*ends(config), *layer(attention, experts), *_dense(config, hidden, dense)), experts,
                  (*parts.prediction(hidden, mtp), *layer(replace(attention, layers=mtp),
                                                          replace(experts, layers=mtp))) if mtp else ())


def _next_layers(config: Fields) -> tuple[int, ...]:
    first = config.whole("num_hidden_layers")
    return tuple(range(first, first + config.whole("num_nextn_predict_layers", default=0, least=0, most=100)))


def deepseek(config: Fields) -> Sketch:
    """DeepSeek-V2, V3, R1 and V3.2, Kimi K2, GLM-4.7-Flash, GLM-5: latent attention, V3.2 and GLM-5 with an indexer."""
    hidden, layers = size(config)
    dense, sparse = first_dense(config, layers)
    width, shared = config.whole("moe_intermediate_size"), config.whole("n_shared_experts", default=0, least=0)
    experts = mixture(config, sparse, width, shared, shared * width)
    corrected = config.word("topk_method", default="noaux_tc") == "noaux_tc"
    correction = "gate.e_score_correction_bias" if corrected and config.word("model_type") != "deepseek_v2" else ""
    biased = config.flag("attention_bias")

    def layer(kinds: tuple[Attention, ...], experts: Experts) -> tuple[Piece, ...]:
        return (*parts.norms(hidden, tuple(sorted(chain.from_iterable(kind.layers for kind in kinds)))),
                *chain.from_iterable(parts.latent(kind, hidden, biased=biased) for kind in kinds),
                *parts.routed(experts, hidden, correction=correction), *parts.shared(experts, hidden))

    attention, mtp = _latent(config, layers), _next_layers(config)
    return Sketch(attention, (*ends(config), *layer(attention, experts), *_dense(config, hidden, dense)), experts,
                  (*parts.prediction(hidden, mtp), *layer((replace(attention[0], layers=mtp),),
                                                          replace(experts, layers=mtp))) if mtp else ())


def _latent(config: Fields, layers: tuple[int, ...]) -> tuple[Attention, ...]:
    """Latent attention; layers that take the choice of an earlier indexer have none of their own (GLM-5.2)."""
    nope, rope = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    count = config.whole("num_attention_heads")
    own = Attention("mla", layers, count, 1, nope + rope, config.whole("v_head_dim"),
                    q_rank=config.maybe("q_lora_rank"), kv_rank=config.whole("kv_lora_rank"), rope_dim=rope,
                    nope_dim=nope)
    if "index_topk" not in config:
        return (own,)
    config.need("index_n_heads", "index_head_dim")
    own = replace(own, index_top=config.whole("index_topk"), index_heads=config.whole("index_n_heads"),
                  index_dim=config.whole("index_head_dim"))
    types = config.words("indexer_types", len(layers)) or ("full",) * len(layers)
    following = replace(own, layers=tuple(n for n in layers if types[n] != "full"), index_heads=0, index_dim=0)
    kinds = (replace(own, layers=tuple(n for n in layers if types[n] == "full")), following)
    return tuple(kind for kind in kinds if kind.layers)


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
    dense = tuple(layer for layer in layers if layer not in set(experts.layers))
    module = "model.layers.{}.feed_forward"
    biased = "qkvo" if config.flag("attention_bias") else ""
    return Sketch(attention, (
        *ends(config), *parts.norms(hidden, layers),
        *chain.from_iterable(parts.heads(kind, hidden, biased=biased) for kind in attention),
        *parts.routed(experts, hidden, module, router="router"),
        *parts.shared(experts, hidden, f"{module}.shared_expert"),
        *(parts.mlp(hidden, config.whole("intermediate_size_mlp"), dense, module) if dense else ())), experts)


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
    "glm4_moe": Family(glm4_moe, GROUPED_MOE), "gpt_oss": Family(gpt_oss, (*DENSE, *ROUTED)),
    "llama4_text": Family(llama4, (*DENSE, *ROUTED)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"),
                    DEEPSEEK),
}
