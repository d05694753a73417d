"""What a model is made of: every weight matrix, its attention, its experts.

Everything that follows from a model's shape (parameters, bytes, KV cache, operations) is arithmetic on these nouns;
`rooftop.models` makes them from a configuration, a GGUF header or a weight index.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal

Part = Literal["embedding", "attention", "indexer", "linear", "mlp", "router", "experts", "shared_experts", "norm",
               "lm_head", "residual"]
Cut = Literal["heads", "kv_heads", "width", "experts", "vocab", "whole"]
Axis = Literal["rows", "cols", ""]
AttentionKind = Literal["full", "sliding", "chunked", "mla", "compressed", "linear"]

INDEX_KEY_BLOCK = 128
"""Index keys of sparse attention are cached in fp8 with one fp32 scale for each 128 values (SGLang and vLLM)."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the numbers of a weight matrix are stored.

    `bits` a number, without scales.  Each block of `block_rows` x `block_cols` numbers carries `block_bytes` of scales
    and zero points more (0 rows or cols = as many as the matrix has; no scales where `block_bytes` is 0); each matrix
    carries `matrix_bytes` once (a scale for the whole).
    """

    name: str
    bits: float
    block_rows: int = 0
    block_cols: int = 0
    block_bytes: float = 0.0
    matrix_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.bits > 0 or min(self.block_rows, self.block_cols, self.block_bytes, self.matrix_bytes) < 0:
            raise ValueError(f"number format {self.name!r}: bits must be above 0 and blocks not negative")

    def bytes(self, rows: int, cols: int) -> float:
        """Bytes of one matrix of this format, its scales included; a block that is not full counts whole."""
        blocks = ceil(rows / (self.block_rows or rows)) * ceil(cols / (self.block_cols or cols))
        return rows * cols * self.bits / 8 + blocks * self.block_bytes + self.matrix_bytes


BF16 = NumberFormat("bf16", 16)
FP16 = NumberFormat("fp16", 16)
FP32 = NumberFormat("fp32", 32)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight matrix, or vector (`cols` = 1), of every layer in `layers`.

    layers: layer numbers from 0; () = outside the layers: the embedding stands before the first one, all else (final
    norm, LM head) after the last.  rows x cols: outputs x inputs, as PyTorch stores a linear layer.  count: how many
    there are in one layer (experts); used: how many of them one token multiplies with (top-k; 0 for the embedding,
    which is a look-up of one row).  tied: these are the embedding's weights once more (no parameters of their own).

    cut: what a tensor-parallel rank may take a share of: `heads` and `kv_heads` (in `pieces` whole heads; KV heads
    fewer than ranks are copied), `width` (any share that keeps quantization blocks whole), `experts` (whole experts by
    ep, each cut in its width by what is left of tp), `vocab` (padded), `whole` (copied to every rank).
    axis: whether the rows (outputs) or the cols (inputs) are cut.  pieces: heads along that axis, else 0.
    """

    part: Part
    name: str
    layers: tuple[int, ...]
    rows: int
    cols: int
    format: NumberFormat = BF16
    cut: Cut = "whole"
    axis: Axis = ""
    pieces: int = 0
    count: int = 1
    used: int = 1
    tied: bool = False

    def __post_init__(self) -> None:
        if min(self.rows, self.cols, self.count) < 1 or not 0 <= self.used <= self.count:
            raise ValueError(f"{self.name}: no matrix is {self.count} of {self.rows} x {self.cols}, {self.used} used")
        if (self.cut == "whole") != (self.axis == ""):
            raise ValueError(f"{self.name}: cut {self.cut!r} and axis {self.axis!r} contradict each other")

    @property
    def copies(self) -> int:
        """Layers times matrices a layer."""
        return max(1, len(self.layers)) * self.count

    @property
    def parameters(self) -> int:
        """Weights in all layers; 0 where they are the embedding's."""
        return 0 if self.tied else self.rows * self.cols * self.copies

    @property
    def active(self) -> int:
        """Weights that one token meets in all layers."""
        return self.rows * self.cols * self.used * max(1, len(self.layers))

    @property
    def bytes(self) -> float:
        """Bytes in all layers; 0 where they are the embedding's."""
        return 0.0 if self.tied else self.format.bytes(self.rows, self.cols) * self.copies

    @property
    def flops(self) -> int:
        """Operations for one token in all layers: a multiplication and an addition a weight; none for vectors."""
        return 2 * self.active if self.cols > 1 and self.part != "embedding" else 0


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of attention and the layers that have it.

    full: every past token is attended.  sliding, chunked: only the last `window` tokens, or those of the same chunk of
    `window`.  mla: full attention over one latent vector a token.  linear: a state of fixed size a sequence.
    compressed: the last `window` tokens, and one entry for each `ratio` tokens of the whole context (0 = none), each
    one vector that serves as key and value (DeepSeek-V4).
    heads, kv_heads: of a layer (linear: value heads, key heads).  key_dim, value_dim: width of one head's query and
    key, and of its value.
    mla: q_rank (None: no low rank), kv_rank and rope_dim make up the cache; nope_dim + rope_dim = key_dim.
    index_heads, index_dim, index_top: the sparse indexer picks the `index_top` tokens that are attended (0 = none).
    conv: tokens that a linear layer's short convolution looks at.
    """

    kind: AttentionKind
    layers: tuple[int, ...]
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    q_rank: int | None = None
    kv_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_top: int = 0
    conv: int = 0
    ratio: int = 0

    def __post_init__(self) -> None:
        if (self.window is None) == (self.kind in ("sliding", "chunked", "compressed")):
            raise ValueError(f"{self.kind} attention {'needs a' if self.window is None else 'has no'} window")
        if self.ratio and self.kind != "compressed":
            raise ValueError(f"{self.kind} attention does not compress its cache")
        if min(self.heads, self.kv_heads, self.key_dim, self.value_dim) < 1:
            raise ValueError(f"{self.kind} attention of {self.heads} heads, {self.kv_heads} KV heads is none")

    @property
    def name(self) -> str:
        """The field's word for it: MHA, GQA, MQA, MLA, MLA + DSA, sliding GQA, compressed 4:1, linear."""
        if self.kind == "linear":
            return "linear"
        if self.kind == "compressed":
            return f"compressed {self.ratio}:1" if self.ratio else "sliding MQA"
        if self.kind == "mla":
            return "MLA + DSA" if self.index_top else "MLA"
        grouped = "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"
        return grouped if self.kind == "full" else f"{self.kind} {grouped}"

    @property
    def cached_values(self) -> int:
        """Numbers that one token leaves in one layer's KV cache, index keys aside."""
        if self.kind in ("linear", "compressed"):
            return self.key_dim if self.kind == "compressed" else 0
        return self.kv_rank + self.rope_dim if self.kind == "mla" else self.kv_heads * (self.key_dim + self.value_dim)

    @property
    def index_bytes(self) -> int:
        """Bytes of one token's index key in one layer: fp8 values and a 4-byte scale for each 128."""
        return self.index_dim + 4 * ceil(self.index_dim / INDEX_KEY_BLOCK)

    @property
    def state_values(self) -> int:
        """Numbers in one sequence's recurrent state in one layer: a key_dim x value_dim table a value head."""
        return self.heads * self.key_dim * self.value_dim if self.kind == "linear" else 0

    @property
    def conv_values(self) -> int:
        """Numbers in one sequence's convolution state in one layer: the last conv - 1 queries, keys and values."""
        width = 2 * self.kv_heads * self.key_dim + self.heads * self.value_dim
        return (self.conv - 1) * width if self.kind == "linear" and self.conv else 0

    def entries(self, context: int) -> int:
        """Entries that the whole of a sequence of `context` tokens leaves in the cache, apart from the window's."""
        if self.kind == "compressed":
            return context // self.ratio if self.ratio else 0
        return context if self.kind in ("full", "mla") else 0

    def cached_tokens(self, context: int) -> int:
        """Tokens, or entries for several of them, of a sequence of `context` that stay in the cache."""
        return self.entries(context) + (min(context, self.window) if self.window else 0)

    def attended_tokens(self, context: int) -> int:
        """Tokens or entries that the last token of a sequence of `context` attends to."""
        chosen = self.entries(context)
        chosen = min(chosen, self.index_top) if self.index_top else chosen
        return chosen + (min(context, self.window) if self.window else 0)

    def growth(self, value_bytes: float = 2.0) -> float:
        """Bytes that each further token of a long sequence adds in all layers of this kind; 0 past a window."""
        share = 1 / self.ratio if self.ratio else float(self.entries(1))
        return len(self.layers) * share * (self.cached_values * value_bytes + self.index_bytes)

    def kv_bytes(self, context: int, value_bytes: float = 2.0, state_bytes: float = 4.0) -> float:
        """Bytes that one sequence of `context` tokens holds in all layers of this kind.

        A linear layer's recurrent state has `state_bytes` a number (fp32 in the engines), all else `value_bytes`.
        """
        tokens = self.cached_tokens(context) * self.cached_values * value_bytes
        index = self.entries(context) * self.index_bytes
        return len(self.layers) * (tokens + index + self.state_values * state_bytes + self.conv_values * value_bytes)

    def flops(self, context: int, *, absorbed: bool = True) -> float:
        """Operations of scores and weighted values for the last token of `context`, in all layers of this kind.

        2 heads x (key + value) a token attended.  MLA when decoding works on the latent vectors (absorbed: key and
        value are kv_rank + rope_dim and kv_rank wide); when prefilling on the heads' own.  The indexer scores every
        entry of the context.  A linear layer decays, reads, corrects and reads its state: 6 operations a state number.
        """
        if self.kind == "linear":
            return 6.0 * self.state_values * len(self.layers)
        key, value = self.key_dim, self.value_dim
        if self.kind == "mla" and absorbed:
            key, value = self.kv_rank + self.rope_dim, self.kv_rank
        scored = 2.0 * self.index_heads * self.index_dim * self.entries(context)
        return len(self.layers) * (2.0 * self.heads * (key + value) * self.attended_tokens(context) + scored)


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts: `active` of `count` routed ones a token, each `width` wide, in `layers`.

    `shared` experts serve every token, `shared_width` wide together (0 = none).
    """

    count: int
    active: int
    width: int
    layers: tuple[int, ...]
    shared: int = 0
    shared_width: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.count or self.width < 1 or not self.layers:
            raise ValueError(f"{self.active} active of {self.count} experts of width {self.width} in "
                             f"{len(self.layers)} layers is no mixture of experts")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's shape.

    family: its `model_type`.  format: of activations and of weights that are not quantized.  context: the longest it
    was made for, None where unknown.  matrices: all weights that are served.  mtp: the weights of its multi-token
    prediction layers, numbered on from `layers`; they count only where an engine speculates with them.
    kv_format: what the checkpoint asks of the KV cache ("fp8", "" = nothing).
    file_bytes: bytes of the weight files where they or their index were read.
    notes: what was left out, derived or assumed, for people.
    multimodal: whether it stood beside a vision or audio encoder, which is not counted here; encoder: layers and width
    of the vision encoder, 0 where its configuration does not say.
    """

    name: str
    family: str
    layers: int
    hidden: int
    vocab: int
    tied: bool
    attention: tuple[Attention, ...]
    matrices: tuple[Matrix, ...]
    experts: Experts | None = None
    mtp: tuple[Matrix, ...] = ()
    format: NumberFormat = BF16
    context: int | None = None
    kv_format: str = ""
    file_bytes: int | None = None
    notes: tuple[str, ...] = ()
    multimodal: bool = False
    encoder: tuple[int, int] = (0, 0)

    @property
    def parameters(self) -> int:
        """All weights that are served, MTP layers aside."""
        return sum(matrix.parameters for matrix in self.matrices)

    @property
    def active(self) -> int:
        """Weights that one token meets.  The embedding is a look-up and not among them; the LM head is."""
        return sum(matrix.active for matrix in self.matrices)

    @property
    def active_with_embedding(self) -> int:
        """The same with the embedding table counted whole, as some publishers do."""
        return self.active + sum(m.parameters for m in self.matrices if m.part == "embedding" and not self.tied)

    @property
    def mtp_parameters(self) -> int:
        """Weights of the MTP layers, those shared with the model aside."""
        return sum(matrix.parameters for matrix in self.mtp)

    @property
    def bytes(self) -> float:
        """Bytes of all weights that are served."""
        return sum(matrix.bytes for matrix in self.matrices)

    @property
    def mtp_bytes(self) -> float:
        """Bytes of the MTP layers."""
        return sum(matrix.bytes for matrix in self.mtp)

    @property
    def by_part(self) -> tuple[tuple[Part, str, int, float], ...]:
        """(part, number format, parameters, bytes), largest first."""
        return _by_part(self.matrices)

    def attention_of(self, layer: int) -> Attention:
        """The attention of one layer.  Raises ValueError where there is no such layer."""
        for attention in self.attention:
            if layer in attention.layers:
                return attention
        raise ValueError(f"{self.name} has no layer {layer}")

    def kv_bytes(self, context: int, value_bytes: float = 2.0, state_bytes: float = 4.0) -> float:
        """Bytes that one sequence of `context` tokens holds in the cache on one copy of all layers."""
        return sum(kind.kv_bytes(context, value_bytes, state_bytes) for kind in self.attention)

    def kv_bytes_per_token(self, value_bytes: float = 2.0) -> float:
        """Bytes that each further token of a long sequence adds, in the layers that keep every token."""
        return sum(kind.growth(value_bytes) for kind in self.attention)

    def state_bytes(self, value_bytes: float = 2.0, state_bytes: float = 4.0) -> float:
        """Bytes of fixed size that a sequence holds in linear-attention layers."""
        return sum(kind.kv_bytes(0, value_bytes, state_bytes) for kind in self.attention)

    def flops_per_token(self, context: int = 0, *, absorbed: bool = True) -> float:
        """Operations of one forward pass for the last token of a sequence of `context` tokens."""
        attention = sum(kind.flops(context, absorbed=absorbed) for kind in self.attention)
        return sum(matrix.flops for matrix in self.matrices) + attention


def _by_part(matrices: Iterable[Matrix]) -> tuple[tuple[Part, str, int, float], ...]:
    sums: dict[tuple[Part, str], tuple[int, float]] = {}
    for matrix in matrices:
        if not matrix.tied:
            key = (matrix.part, matrix.format.name)
            parameters, count = sums.get(key, (0, 0.0))
            sums[key] = (parameters + matrix.parameters, count + matrix.bytes)
    rows = [(part, name, parameters, count) for (part, name), (parameters, count) in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row[3], row[0], row[1])))
