"""GGUF tensor names as weight matrices, GGUF metadata as attention."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rooftop.domain.architecture import (
    FP16,
    Architecture,
    Attention,
    AttentionKind,
    Axis,
    Cut,
    Experts,
    Matrix,
    NumberFormat,
    Part,
)
from rooftop.errors import BadInput
from rooftop.models.fields import MOST_LAYERS, Fields

BLOCK = re.compile(r"blk\.(\d+)\.(.+)$")
ARRAYED = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


class Tensor(Protocol):
    """What is needed of a tensor: its name, its shape (inputs first) and its format."""

    @property
    def name(self) -> str:
        """Such as `blk.0.attn_q.weight`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Inputs first."""

    @property
    def format(self) -> NumberFormat:
        """Its ggml type."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of a given name belongs."""

    part: Part
    cut: Cut = "whole"
    axis: Axis = ""


HEADS, KV_HEADS, OUT = Place("attention", "heads", "rows"), Place("attention", "kv_heads", "rows"), Place("norm")
LINEAR = Place("linear", "heads", "rows")
PLACES = {
    "token_embd": Place("embedding", "vocab", "rows"), "output": Place("lm_head", "vocab", "rows"),
    "attn_q": HEADS, "attn_k": KV_HEADS, "attn_v": KV_HEADS, "attn_qkv": HEADS, "attn_gate": HEADS,
    "attn_output": Place("attention", "heads", "cols"), "attn_sinks": HEADS,
    "attn_q_a": Place("attention"), "attn_q_b": HEADS, "attn_kv_a_mqa": Place("attention"), "attn_kv_b": HEADS,
    "attn_k_b": HEADS, "attn_v_b": HEADS,
    "ffn_gate": Place("mlp", "width", "rows"), "ffn_up": Place("mlp", "width", "rows"),
    "ffn_down": Place("mlp", "width", "cols"),
    "ffn_gate_inp": Place("router"), "exp_probs_b": Place("router"), "ffn_gate_inp_shexp": Place("shared_experts"),
    "ffn_gate_exps": Place("experts", "experts", "rows"), "ffn_up_exps": Place("experts", "experts", "rows"),
    "ffn_gate_up_exps": Place("experts", "experts", "rows"), "ffn_down_exps": Place("experts", "experts", "cols"),
    "ffn_gate_shexp": Place("shared_experts", "width", "rows"),
    "ffn_up_shexp": Place("shared_experts", "width", "rows"),
    "ffn_down_shexp": Place("shared_experts", "width", "cols"),
    "ssm_in": LINEAR, "ssm_conv1d": LINEAR, "ssm_ba": LINEAR, "ssm_alpha": LINEAR, "ssm_beta": LINEAR, "ssm_dt": LINEAR,
    "ssm_a": LINEAR, "ssm_out": Place("linear", "heads", "cols"), "nextn.eh_proj": Place("mlp"),
    "indexer.attn_q_b": Place("indexer"), "indexer.attn_k": Place("indexer"), "indexer.proj": Place("indexer"),
}


def architecture_of(values: Mapping[str, Any], tensors: Iterable[Tensor], where: str, size: int) -> Architecture:
    """The architecture that a GGUF header describes.  Raises BadInput naming keys or tensors that are missing."""
    config = _config(values, where)
    family = config.word("architecture")
    config.need("block_count", "embedding_length", "attention.head_count")
    found = [tensor for tensor in tensors if not tensor.name.startswith("rope_") and "rope_freqs" not in tensor.name]
    tables = [tensor for tensor in found if tensor.name == "token_embd.weight"]
    if not tables or len(tables[0].shape) != 2:
        raise BadInput("the GGUF file has no embedding table (token_embd.weight)", where=where,
                       remedy="name the model itself, not an adapter or a projector")
    hidden, total = config.whole("embedding_length"), config.whole("block_count", most=MOST_LAYERS)
    _check(tables[0], found, hidden, total, where)
    layers = total - config.whole("nextn_predict_layers", default=0, least=0, most=total - 1)
    attention = _attention(config, found, layers)
    experts = _experts(config, found, layers)
    matrices = _matrices(found, attention, experts, where)
    tied = not any(tensor.name == "output.weight" for tensor in found)
    embedding = next(matrix for matrix in matrices if matrix.part == "embedding")
    if tied:
        head = Matrix("lm_head", "output", (), embedding.rows, embedding.cols, embedding.format, "vocab", "rows",
                      tied=True)
        matrices = (*matrices, head)
    served = tuple(matrix for matrix in matrices if not matrix.layers or matrix.layers[0] < layers)
    return Architecture(
        name=str(values.get("general.name") or family), family=family, layers=layers,
        hidden=hidden, vocab=embedding.rows, tied=tied, attention=attention, matrices=served,
        experts=experts, mtp=tuple(matrix for matrix in matrices if matrix not in served), format=FP16,
        context=config.maybe("context_length"), file_bytes=size)


def _check(table: Tensor, tensors: list[Tensor], hidden: int, total: int, where: str) -> None:
    """Raises BadInput where the tensors are of another size than the keys say."""
    if table.shape[0] != hidden:
        raise BadInput(f"embedding_length is {hidden}, the embedding table is {table.shape[0]} wide", where=where)
    numbers = {int(match[1]) for tensor in tensors if (match := BLOCK.match(tensor.name))}
    if numbers != set(range(total)):
        raise BadInput(f"block_count is {total}, the tensors have {len(numbers)} blocks", where=where,
                       remedy="download all shards into one folder")


def _config(values: Mapping[str, Any], where: str) -> Fields:
    """The keys of the file's architecture without its name before them."""
    family = values.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise BadInput("the GGUF file does not say its general.architecture", where=where)
    prefix = family + "."
    found = {key[len(prefix):]: value for key, value in values.items() if key.startswith(prefix)}
    return Fields({**found, "architecture": family, "model_type": family}, where)


def _per_layer(config: Fields, name: str, layers: int, default: int | None = None) -> tuple[int, ...]:
    """A key that is one number for all layers or a list of one each; 0 stands for a layer without."""
    value = config.data.get(name)
    if not isinstance(value, tuple):
        return (config.whole(name, default=default, least=0),) * layers
    listed = Fields({name: list(value)}, config.where).wholes(name, layers)
    return (listed or ())[:layers]


def _attention(config: Fields, tensors: list[Tensor], layers: int) -> tuple[Attention, ...]:
    linear = {int(match[1]) for tensor in tensors if (match := BLOCK.match(tensor.name))
              and match[2].startswith("ssm_conv1d")}
    heads = _per_layer(config, "attention.head_count", layers)
    kv_heads = _per_layer(config, "attention.head_count_kv", layers, max(heads, default=1))
    found = _mla(config, heads[0], layers) if "attention.kv_lora_rank" in config else None
    if found is not None:
        return (found,)
    kinds: dict[Attention, list[int]] = {}
    sliding = _sliding(config, layers)
    for layer in range(layers):
        kind = (_linear(config) if layer in linear
                else _grouped(config, heads[layer], kv_heads[layer], sliding[layer]))
        kinds.setdefault(kind, []).append(layer)
    return tuple(replace(kind, layers=tuple(numbers)) for kind, numbers in kinds.items())


def _sliding(config: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have a sliding window: by the pattern's list, its period, or every second one (gpt-oss)."""
    if not config.maybe("attention.sliding_window"):
        return (False,) * layers
    pattern = config.data.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= layers:
        return tuple(bool(flag) for flag in pattern[:layers])
    period = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 1 else 2
    if pattern is None and config.word("architecture") != "gpt-oss":
        raise BadInput("the GGUF file has a sliding window but does not say in which layers", where=config.where)
    return tuple((layer + 1) % period != 0 for layer in range(layers))


def _grouped(config: Fields, heads: int, kv_heads: int, sliding: bool) -> Attention:
    hidden = config.whole("embedding_length")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise BadInput(f"{heads} attention heads do not share {kv_heads} KV heads", where=config.where)
    key = config.whole("attention.key_length", default=max(1, hidden // heads))
    kind: AttentionKind = "sliding" if sliding else "full"
    return Attention(kind, (), heads, kv_heads, key, config.whole("attention.value_length", default=key),
                     window=config.whole("attention.sliding_window") if sliding else None)


def _linear(config: Fields) -> Attention:
    config.need("ssm.time_step_rank", "ssm.group_count", "ssm.state_size", "ssm.inner_size", "ssm.conv_kernel")
    values, inner = config.whole("ssm.time_step_rank"), config.whole("ssm.inner_size")
    if inner % values:
        raise BadInput(f"ssm.inner_size {inner} is no multiple of ssm.time_step_rank {values}", where=config.where)
    return Attention("linear", (), values, config.whole("ssm.group_count"), config.whole("ssm.state_size"),
                     inner // values, conv=config.whole("ssm.conv_kernel"))


def _mla(config: Fields, heads: int, layers: int) -> Attention:
    config.need("rope.dimension_count", "attention.key_length_mla|attention.key_length",
                "attention.value_length_mla|attention.value_length")
    key, rope = config.whole("attention.key_length_mla", "attention.key_length"), config.whole("rope.dimension_count")
    if rope >= key or heads < 1:
        raise BadInput(f"rope.dimension_count {rope} leaves nothing of key_length {key}", where=config.where)
    return Attention("mla", tuple(range(layers)), heads, 1, key,
                     config.whole("attention.value_length_mla", "attention.value_length"),
                     q_rank=config.maybe("attention.q_lora_rank"), kv_rank=config.whole("attention.kv_lora_rank"),
                     rope_dim=rope, nope_dim=key - rope,
                     index_heads=config.whole("attention.indexer.head_count", default=0, least=0),
                     index_dim=config.whole("attention.indexer.key_length", default=0, least=0),
                     index_top=config.whole("attention.indexer.top_k", default=0, least=0))


def _experts(config: Fields, tensors: list[Tensor], layers: int) -> Experts | None:
    found = {int(match[1]): tensor for tensor in tensors if (match := BLOCK.match(tensor.name))
             and match[2] == "ffn_down_exps.weight" and int(match[1]) < layers}
    if not found:
        return None
    config.need("expert_count", "expert_used_count")
    count, active = config.whole("expert_count"), config.whole("expert_used_count")
    tensor = next(iter(found.values()))
    if active > count or len(tensor.shape) != 3 or tensor.shape[2] != count:
        raise BadInput(f"{active} of {count} experts are used, and {tensor.name} has shape {list(tensor.shape)}",
                       where=config.where)
    wide = [shared.shape[0] for shared in tensors if shared.name.endswith("ffn_down_shexp.weight")]
    shared = config.whole("expert_shared_count", default=int(bool(wide)), least=0) if wide else 0
    return Experts(count, active, tensor.shape[0], tuple(sorted(found)), shared, wide[0] if shared else 0)


def _matrices(tensors: list[Tensor], attention: tuple[Attention, ...], experts: Experts | None, where: str
              ) -> tuple[Matrix, ...]:
    """Tensors as matrices; those alike but for their layer become one."""
    alike: dict[Matrix, list[int]] = {}
    for tensor in tensors:
        match = BLOCK.match(tensor.name)
        layer = (int(match[1]),) if match else ()
        name = match[2] if match else tensor.name
        matrix = _matrix(tensor, name, attention, experts, layer, where)
        alike.setdefault(matrix, []).extend(layer)
    return tuple(replace(matrix, layers=tuple(sorted(layers))) for matrix, layers in alike.items())


def _matrix(tensor: Tensor, name: str, attention: tuple[Attention, ...], experts: Experts | None,
            layer: tuple[int, ...], where: str) -> Matrix:
    """One tensor, with no layer yet, so that equal ones of other layers are equal."""
    stem = re.sub(r"\.(weight|bias)$", "", name)
    vector = len(tensor.shape) == 1 or name.endswith(".bias")
    place = PLACES.get(stem)
    if place is None:
        if not vector and "norm" not in stem:
            raise BadInput(f"tensor {tensor.name} of shape {list(tensor.shape)} is not known", where=where,
                           remedy="report this model family")
        place = OUT
    cols, rows, count, used = tensor.shape[0], 1, 1, 1
    if place.part == "experts" and experts is not None:
        rows, count, used = (tensor.shape[1] if len(tensor.shape) > 2 else cols), experts.count, experts.active
        cols = 1 if len(tensor.shape) < 3 else cols
    elif vector:
        rows, cols = tensor.shape[0], 1
    else:
        rows = 1
        for size in tensor.shape[1:]:
            rows *= size
    cut, axis = place.cut, place.axis
    if axis == "cols" and cols == 1:
        cut, axis = ("experts", "rows") if cut == "experts" else ("whole", "")
    pieces = _pieces(cut, place, attention, layer)
    return Matrix(place.part, stem if name.endswith("weight") else name, (), rows, cols, tensor.format, cut, axis,
                  pieces, count, 0 if place.part == "embedding" else used)


def _pieces(cut: Cut, place: Place, attention: tuple[Attention, ...], layer: tuple[int, ...]) -> int:
    if cut not in ("heads", "kv_heads"):
        return 0
    kind = next((kind for kind in attention if layer and layer[0] in kind.layers), attention[0])
    return kind.kv_heads if cut == "kv_heads" or place.part == "linear" else kind.heads
