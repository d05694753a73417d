"""The building blocks of transformers, each as its weight matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rooftop.domain.architecture import Attention, Experts, Matrix, Part

GATED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Piece:
    """A matrix before its number format is known.

    module: the module's name in the checkpoint with `{}` for the layer, without the matrix's own name; quantized:
    whether quantization may touch it (not norms, biases, routers, embeddings).
    """

    module: str
    matrix: Matrix
    quantized: bool = True


@dataclass(frozen=True, slots=True)
class Sketch:
    """A model as its family describes it, before number formats are known."""

    attention: tuple[Attention, ...]
    pieces: tuple[Piece, ...]
    experts: Experts | None = None
    mtp: tuple[Piece, ...] = ()
    notes: tuple[str, ...] = ()


def vector(module: str, part: Part, name: str, layers: tuple[int, ...], size: int) -> Piece:
    """A vector that every rank holds whole."""
    return Piece(module, Matrix(part, name, layers, size, 1), quantized=False)


def bias(of: Piece) -> Piece:
    """The bias of a linear layer: cut like its outputs, whole where its inputs are cut."""
    matrix = of.matrix
    if matrix.axis != "rows":
        matrix = replace(matrix, cut="experts" if matrix.cut == "experts" else "whole",
                         axis="rows" if matrix.cut == "experts" else "", pieces=0)
    return Piece(of.module, replace(matrix, name=f"{matrix.name}.bias", cols=1), quantized=False)


def ends(hidden: int, vocab: int, tied: bool) -> Iterator[Piece]:
    """Embedding, final norm and LM head."""
    table = Matrix("embedding", "embed_tokens", (), vocab, hidden, cut="vocab", axis="rows", used=0)
    yield Piece("model", table, quantized=False)
    yield vector("model", "norm", "norm", (), hidden)
    head = Matrix("lm_head", "lm_head", (), vocab, hidden, cut="vocab", axis="rows", tied=tied)
    yield Piece("", head, quantized=not tied)


def norms(hidden: int, layers: tuple[int, ...], names: Sequence[str] = ("input_layernorm", "post_attention_layernorm")
          ) -> Iterator[Piece]:
    """The layers' norms of the whole width."""
    for name in names:
        yield vector("model.layers.{}", "norm", name, layers, hidden)


def heads(attention: Attention, hidden: int, module: str = "model.layers.{}.self_attn", *, biased: str = "",
          normed: str = "", gated: bool = False) -> Iterator[Piece]:
    """Projections of attention with whole heads.

    biased: which of `q`, `k`, `v`, `o` have a bias.  normed: "head" = queries and keys are normed a head, "row" = all
    heads together.  gated: the query projection makes an output gate too.
    """
    layers, count, kv_count = attention.layers, attention.heads, attention.kv_heads
    key, value = attention.key_dim, attention.value_dim
    made = [
        Matrix("attention", "q_proj", layers, count * key * (2 if gated else 1), hidden, cut="heads", axis="rows",
               pieces=count),
        Matrix("attention", "k_proj", layers, kv_count * key, hidden, cut="kv_heads", axis="rows", pieces=kv_count),
        Matrix("attention", "v_proj", layers, kv_count * value, hidden, cut="kv_heads", axis="rows", pieces=kv_count),
        Matrix("attention", "o_proj", layers, hidden, count * value, cut="heads", axis="cols", pieces=count)]
    for matrix in made:
        piece = Piece(module, matrix)
        yield piece
        if matrix.name[0] in biased:
            yield bias(piece)
    if normed == "head":
        yield vector(module, "norm", "q_norm", layers, key)
        yield vector(module, "norm", "k_norm", layers, key)
    if normed == "row":
        for name, cut, number in (("q_norm", "heads", count), ("k_norm", "kv_heads", kv_count)):
            whole = Matrix("norm", name, layers, number * key, 1)
            cut_up = replace(whole, cut=cut, axis="rows", pieces=number)  # type: ignore[arg-type]
            yield Piece(module, cut_up, quantized=False)


def latent(attention: Attention, hidden: int, *, biased: bool = False) -> Iterator[Piece]:
    """Projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the low-rank halves are whole."""
    module, layers, count = "model.layers.{}.self_attn", attention.layers, attention.heads
    down = []
    rows = count * attention.key_dim
    if attention.q_rank is None:
        yield Piece(module, Matrix("attention", "q_proj", layers, rows, hidden, cut="heads", axis="rows",
                                   pieces=count))
    else:
        down.append(Matrix("attention", "q_a_proj", layers, attention.q_rank, hidden))
        yield vector(module, "norm", "q_a_layernorm", layers, attention.q_rank)
        yield Piece(module, Matrix("attention", "q_b_proj", layers, rows, attention.q_rank, cut="heads", axis="rows",
                                   pieces=count))
    latent_rows = attention.kv_rank + attention.rope_dim
    down.append(Matrix("attention", "kv_a_proj_with_mqa", layers, latent_rows, hidden))
    yield vector(module, "norm", "kv_a_layernorm", layers, attention.kv_rank)
    yield Piece(module, Matrix("attention", "kv_b_proj", layers, count * (attention.nope_dim + attention.value_dim),
                               attention.kv_rank, cut="heads", axis="rows", pieces=count))
    down.append(Matrix("attention", "o_proj", layers, hidden, count * attention.value_dim, cut="heads", axis="cols",
                       pieces=count))
    for matrix in down:
        piece = Piece(module, matrix)
        yield piece
        if biased:
            yield bias(piece)
    if attention.index_dim:
        yield from _indexer(attention, hidden)


def _indexer(attention: Attention, hidden: int) -> Iterator[Piece]:
    """The lightning indexer of DeepSeek sparse attention: every rank holds it whole."""
    module, layers, wide = "model.layers.{}.self_attn.indexer", attention.layers, attention.index_dim
    rank = attention.q_rank or hidden
    yield Piece(module, Matrix("indexer", "wq_b", layers, attention.index_heads * wide, rank))
    yield Piece(module, Matrix("indexer", "wk", layers, wide, hidden))
    yield Piece(module, Matrix("indexer", "weights_proj", layers, attention.index_heads, hidden), quantized=False)
    yield vector(module, "indexer", "k_norm", layers, wide)
    yield vector(module, "indexer", "k_norm.bias", layers, wide)


def delta(attention: Attention, hidden: int) -> Iterator[Piece]:
    """Gated delta-rule linear attention (Qwen3-Next, Qwen3.5): cut by key heads, each with its value heads."""
    module, layers = "model.layers.{}.linear_attn", attention.layers
    keys, values = attention.kv_heads * attention.key_dim, attention.heads * attention.value_dim
    for name, rows in (("in_proj_qkv", 2 * keys + values), ("in_proj_z", values)):
        yield Piece(module, Matrix("linear", name, layers, rows, hidden, cut="heads", axis="rows",
                                   pieces=attention.kv_heads))
    for name in ("in_proj_b", "in_proj_a"):
        yield Piece(module, Matrix("linear", name, layers, attention.heads, hidden, cut="heads", axis="rows",
                                   pieces=attention.kv_heads))
    yield Piece(module, Matrix("linear", "conv1d", layers, 2 * keys + values, attention.conv, cut="heads", axis="rows",
                               pieces=attention.kv_heads), quantized=False)
    for name in ("dt_bias", "A_log"):
        yield Piece(module, Matrix("linear", name, layers, attention.heads, 1, cut="heads", axis="rows",
                                   pieces=attention.kv_heads), quantized=False)
    yield vector(module, "linear", "norm", layers, attention.value_dim)
    yield Piece(module, Matrix("linear", "out_proj", layers, hidden, values, cut="heads", axis="cols",
                               pieces=attention.kv_heads))


def mlp(hidden: int, width: int, layers: tuple[int, ...], module: str = "model.layers.{}.mlp", *,
        part: Part = "mlp", biased: bool = False) -> Iterator[Piece]:
    """A gated MLP: gate and up cut by their outputs, down by its inputs; nothing where there are no layers."""
    if not layers:
        return
    for name in GATED:
        if name == "down_proj":
            piece = Piece(module, Matrix(part, name, layers, hidden, width, cut="width", axis="cols"))
        else:
            piece = Piece(module, Matrix(part, name, layers, width, hidden, cut="width", axis="rows"))
        yield piece
        if biased:
            yield bias(piece)


def routed(experts: Experts, hidden: int, module: str = "model.layers.{}.mlp", *, names: Sequence[str] = GATED,
           router: str = "gate", correction: str = "") -> Iterator[Piece]:
    """Router and routed experts; `correction` names the router's bias vector where it has one."""
    layers, count, active, width = experts.layers, experts.count, experts.active, experts.width
    yield Piece(module, Matrix("router", router, layers, count, hidden), quantized=False)
    if correction:
        yield vector(module, "router", correction, layers, count)
    gate, up, down = names
    for name in (gate, up):
        yield Piece(f"{module}.experts.0", Matrix("experts", name, layers, width, hidden, cut="experts", axis="rows",
                                                  count=count, used=active))
    yield Piece(f"{module}.experts.0", Matrix("experts", down, layers, hidden, width, cut="experts", axis="cols",
                                              count=count, used=active))


def shared(experts: Experts, hidden: int, module: str = "model.layers.{}.mlp.shared_experts") -> Iterator[Piece]:
    """The experts that serve every token, as one MLP; nothing where there are none."""
    if experts.shared:
        yield from mlp(hidden, experts.shared_width, experts.layers, module, part="shared_experts")


def prediction(hidden: int, layers: tuple[int, ...]) -> Iterator[Piece]:
    """What a DeepSeek-style MTP layer has beyond a layer of the model: two norms, a projection, the head's norm."""
    module = "model.layers.{}"
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield vector(module, "norm", name, layers, hidden)
    yield Piece(module, Matrix("mlp", "eh_proj", layers, hidden, 2 * hidden), quantized=False)
