"""Families with DeepSeek's attention: one latent vector a token, sparse or compressed."""

from dataclasses import replace
from itertools import chain

from rooftop.domain.architecture import Attention, Experts, Matrix, Part
from rooftop.errors import BadInput
from rooftop.models import parts
from rooftop.models.fields import Fields
from rooftop.models.parts import Piece, Sketch
from rooftop.models.shape import dense, ends, first_dense, mixture, next_layers, size

CHOSEN = 4
"""DeepSeek-V4's layers of this compression ratio have an indexer; coarser ones attend to all their entries."""


def deepseek(config: Fields) -> Sketch:
    """DeepSeek-V2, V3, R1 and V3.2, Kimi K2, GLM-4.7-Flash, GLM-5: latent attention, V3.2 and GLM-5 with an indexer."""
    hidden, layers = size(config)
    plain, sparse = first_dense(config, layers)
    width, shared = config.whole("moe_intermediate_size"), config.whole("n_shared_experts", default=0, least=0)
    experts = mixture(config, sparse, width, shared, shared * width)
    corrected = config.word("topk_method", default="noaux_tc") == "noaux_tc"
    correction = "gate.e_score_correction_bias" if corrected and config.word("model_type") != "deepseek_v2" else ""
    biased = config.flag("attention_bias")

    def layer(kinds: tuple[Attention, ...], experts: Experts) -> tuple[Piece, ...]:
        return (*parts.norms(hidden, tuple(sorted(chain.from_iterable(kind.layers for kind in kinds)))),
                *chain.from_iterable(parts.latent(kind, hidden, biased=biased) for kind in kinds),
                *parts.routed(experts, hidden, correction=correction), *parts.shared(experts, hidden))

    attention, mtp = _latent(config, layers), next_layers(config)
    return Sketch(attention, (*ends(config), *layer(attention, experts), *dense(config, plain)), experts,
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


def deepseek_v4(config: Fields) -> Sketch:
    """DeepSeek-V4: windows and compressed entries as the cache, grouped output projection, hyper-connections."""
    hidden, layers = size(config)
    following = next_layers(config)
    ratios = config.wholes("compress_ratios", len(layers)) or ()
    ratios = (*ratios, *(0,) * len(following))[:len(layers) + len(following)]
    width, shared = config.whole("moe_intermediate_size"), config.whole("n_shared_experts", default=0, least=0)
    experts = mixture(config, layers, width, shared, shared * width)
    hashed = config.whole("num_hash_layers", default=0, least=0)
    attention = _compressed(config, layers, ratios)
    streams = config.whole("hc_mult", most=64)
    pieces = [*ends(config), *_streams(hidden, streams, layers), *_v4_layers(config, attention, experts, hashed),
              *_head_streams("", hidden, streams, ())]
    mtp = []
    if following:
        mtp += [*_streams(hidden, streams, following), *_head_streams("layers.{}.", hidden, streams, following),
                *_v4_layers(config, _compressed(config, following, ratios), replace(experts, layers=following), 0)]
        mtp += [parts.vector("layers.{}", "norm", name, following, hidden) for name in ("enorm", "hnorm", "norm")]
        mtp += [Piece("layers.{}", Matrix("mlp", name, following, hidden, hidden)) for name in ("e_proj", "h_proj")]
    return Sketch(attention, tuple(pieces), experts, tuple(mtp))


def _compressed(config: Fields, layers: tuple[int, ...], ratios: tuple[int, ...]) -> tuple[Attention, ...]:
    """One kind for each ratio; layers of the finest one choose entries by an indexer (compressed sparse attention)."""
    wide, rope, kinds = config.whole("head_dim"), config.whole("qk_rope_head_dim", default=0, least=0), []
    for ratio in dict.fromkeys(ratios[layer] for layer in layers):
        kind = Attention("compressed", tuple(layer for layer in layers if ratios[layer] == ratio),
                         config.whole("num_attention_heads"), 1, wide, wide, window=config.whole("sliding_window"),
                         q_rank=config.whole("q_lora_rank"), rope_dim=rope, ratio=ratio)
        if ratio == CHOSEN:
            kind = replace(kind, index_heads=config.whole("index_n_heads"), index_dim=config.whole("index_head_dim"),
                           index_top=config.whole("index_topk"))
        kinds.append(kind)
    return tuple(kinds)


def _v4_layers(config: Fields, kinds: tuple[Attention, ...], experts: Experts, hashed: int) -> list[Piece]:
    """Attention, norms and experts of layers; the first `hashed` ones choose experts by a table, without a bias."""
    hidden, module = config.whole("hidden_size"), "layers.{}.ffn"
    pieces: list[Piece] = []
    for kind in kinds:
        pieces += _v4_attention(config, kind)
        pieces += [parts.vector("layers.{}", "norm", name, kind.layers, hidden) for name in ("attn_norm", "ffn_norm")]
    pieces += parts.routed(experts, hidden, module, names=("w1", "w3", "w2"))
    biased = tuple(layer for layer in experts.layers if layer >= hashed)
    if biased:
        pieces.append(parts.vector(module, "router", "gate.bias", biased, experts.count))
    return [*pieces, *parts.shared(experts, hidden, f"{module}.shared_experts")]


def _v4_attention(config: Fields, kind: Attention) -> list[Piece]:
    hidden, module, layers = config.whole("hidden_size"), "layers.{}.attn", kind.layers
    groups, rank, wide = config.whole("o_groups"), config.whole("o_lora_rank"), kind.heads * kind.key_dim
    if kind.heads % groups:
        raise BadInput(f"num_attention_heads {kind.heads} is no multiple of o_groups {groups}", where=config.where)
    q_rank = kind.q_rank or hidden
    pieces = [
        Piece(module, Matrix("attention", "wq_a", layers, q_rank, hidden)),
        Piece(module, Matrix("attention", "wq_b", layers, wide, q_rank, cut="heads", axis="rows", pieces=kind.heads)),
        Piece(module, Matrix("attention", "wkv", layers, kind.key_dim, hidden)),
        Piece(module, Matrix("attention", "wo_a", layers, groups * rank, wide // groups, cut="heads", axis="rows",
                             pieces=groups)),
        Piece(module, Matrix("attention", "wo_b", layers, hidden, groups * rank, cut="heads", axis="cols",
                             pieces=groups)),
        Piece(module, Matrix("attention", "attn_sink", layers, kind.heads, 1, cut="heads", axis="rows",
                             pieces=kind.heads), quantized=False),
        parts.vector(module, "norm", "q_norm", layers, q_rank),
        parts.vector(module, "norm", "kv_norm", layers, kind.key_dim)]
    if kind.ratio:
        doubled = 2 if kind.index_dim else 1
        pieces += _compressor("compressor", kind, hidden, doubled * kind.key_dim, kind.key_dim)
    if kind.index_dim:
        indexer = f"{module}.indexer"
        pieces += [Piece(indexer, Matrix("indexer", "wq_b", layers, kind.index_heads * kind.index_dim, q_rank)),
                   Piece(indexer, Matrix("indexer", "weights_proj", layers, kind.index_heads, hidden), quantized=False)]
        pieces += _compressor("indexer.compressor", kind, hidden, 2 * kind.index_dim, kind.index_dim)
    return pieces


def _compressor(name: str, kind: Attention, hidden: int, rows: int, wide: int) -> list[Piece]:
    """What makes one entry of `ratio` tokens: two projections, a bias a position, a norm; whole on every rank."""
    part: Part = "indexer" if name.startswith("indexer") else "attention"
    made = [Matrix(part, f"{name}.{half}", kind.layers, rows, hidden) for half in ("wkv", "wgate")]
    made += [Matrix(part, f"{name}.ape", kind.layers, kind.ratio * rows, 1),
             Matrix("norm", f"{name}.norm", kind.layers, wide, 1)]
    return [Piece("layers.{}.attn", matrix, quantized=False) for matrix in made]


def _streams(hidden: int, streams: int, layers: tuple[int, ...]) -> list[Piece]:
    """Hyper-connections (mHC): before attention and experts, `streams` residual streams are mixed."""
    mixed = (2 + streams) * streams
    return [Piece("layers.{}", Matrix("residual", f"hc_{place}_{name}", layers, rows, cols), quantized=False)
            for place in ("attn", "ffn")
            for name, rows, cols in (("fn", mixed, streams * hidden), ("base", mixed, 1), ("scale", 3, 1))]


def _head_streams(module: str, hidden: int, streams: int, layers: tuple[int, ...]) -> list[Piece]:
    return [Piece(module.rstrip("."), Matrix("residual", f"hc_head_{name}", layers, rows, cols), quantized=False)
            for name, rows, cols in (("fn", streams, streams * hidden), ("base", streams, 1), ("scale", 1, 1))]
