"""Pieces of reading that the families share: sizes, heads, experts, and which layers have which."""

from rooftop.domain.architecture import Attention, AttentionKind, Experts
from rooftop.errors import BadInput
from rooftop.models import parts
from rooftop.models.fields import MOST_LAYERS, Fields
from rooftop.models.parts import Piece


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
    count = config.whole("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    active = config.whole("num_experts_per_tok", "experts_per_token", "moe_top_k")
    if active > count:
        raise BadInput(f"num_experts_per_tok {active} is more than the {count} experts", where=config.where)
    if not layers:
        raise BadInput("there are experts but no layer that has them", where=config.where,
                       remedy="look at first_k_dense_replace, decoder_sparse_step and mlp_only_layers")
    return Experts(count, active, width, layers, shared, shared_width)


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


def next_layers(config: Fields) -> tuple[int, ...]:
    """DeepSeek's MTP layers, numbered on from the model's own."""
    first = config.whole("num_hidden_layers")
    return tuple(range(first, first + config.whole("num_nextn_predict_layers", default=0, least=0, most=100)))


def dense(config: Fields, layers: tuple[int, ...]) -> tuple[Piece, ...]:
    """The MLP of layers without experts; nothing where there are none."""
    return tuple(parts.mlp(config.whole("hidden_size"), config.whole("intermediate_size"), layers)) if layers else ()
