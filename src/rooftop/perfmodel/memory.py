"""Bytes on one GPU: weights by part, KV cache by kind of attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from rooftop.domain.architecture import Architecture, Attention, Matrix
from rooftop.domain.fit import Use
from rooftop.domain.layout import Layout
from rooftop.domain.plan import SettingValue
from rooftop.perfmodel.cuts import Ranks, cut_size, held, share_bytes

GIB = float(1 << 30)
MIB = float(1 << 20)
DSA_SCALE_BLOCK = 128
"""Latent values behind one 4-byte scale in the fp8 cache of sparse MLA (both engines: 512 + 16 + 128 = 656 bytes)."""
SAMPLED_LOGIT_BYTES = 15.0
"""Logits in fp32, their sorted copy and indices: 15.2 to 15.4 bytes a logit in vLLM 0.19 for 100 k to 256 k words."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What one kind of attention keeps on one GPU, all of the stage's layers of that kind together.

    row_bytes: of one token, or of one entry for `ratio` tokens (0 = one a token).  index_bytes: of one token's index
    key.  window: tokens that stay, None = all.  state_bytes: of fixed size for each sequence.
    """

    row_bytes: float
    index_bytes: float = 0.0
    window: int | None = None
    ratio: int = 0
    state_bytes: float = 0.0

    @property
    def growth(self) -> float:
        """Bytes that each further token of a long sequence adds."""
        if self.window is not None and not self.ratio:
            return 0.0
        return (self.row_bytes + self.index_bytes) / (self.ratio or 1)

    def request_bytes(self, tokens: int, page: int = 1) -> float:
        """Bytes that a sequence of `tokens` holds, in whole pages."""
        def paged(count: int) -> int:
            return ceil(count / page) * page
        kept = 0.0
        if self.window is None or self.ratio:
            kept += paged(tokens // (self.ratio or 1)) * (self.row_bytes + self.index_bytes)
        if self.window is not None:
            kept += paged(min(tokens, self.window)) * self.row_bytes
        return kept + self.state_bytes


def weights(architecture: Architecture, layout: Layout, ranks: Ranks, stage: int, layers: Sequence[int],
            *, speculates: bool = False) -> tuple[Use, ...]:
    """Weights of one GPU of a stage by part, largest first.

    `Use.copied` is what other ranks of the tp group hold too (norms, router, MLA's low-rank projections, KV heads fewer
    than ranks, attention under attention-dp).  With `speculates` the last stage holds the MTP layers as well.
    """
    here = frozenset(layers)
    bytes_of: dict[str, float] = {}
    copied: dict[str, float] = {}
    for matrix in architecture.matrices:
        count = held(matrix, stage, layout.pp, here)
        if count:
            size = count * share_bytes(matrix, ranks)
            bytes_of[matrix.part] = bytes_of.get(matrix.part, 0.0) + size
            copied[matrix.part] = copied.get(matrix.part, 0.0) + size * (_distinct(matrix, ranks) < layout.tp)
    if speculates and stage == layout.pp - 1:
        bytes_of["mtp"] = sum(share_bytes(matrix, ranks) * max(1, len(matrix.layers)) for matrix in architecture.mtp
                              if not matrix.tied)
    uses = [Use("weights", size, part, copied.get(part, 0.0)) for part, size in bytes_of.items() if size]
    absorbed = sum(_absorbed(kind, here, ranks, architecture) for kind in architecture.attention)
    if absorbed:
        uses.append(Use("weights", absorbed, "absorbed kv_b", basis="estimate", low=0.0, high=absorbed,
                        note="16-bit copies of MLA's kv_b_proj for decoding"))
    return tuple(sorted(uses, key=lambda use: -use.bytes))


def _distinct(matrix: Matrix, ranks: Ranks) -> int:
    """How many different shares of a matrix there are."""
    match matrix.cut:
        case "whole":
            return 1
        case "kv_heads":
            return min(ranks.attention, matrix.pieces or ranks.attention)
        case "experts":
            return ranks.experts * ranks.expert_width
        case "heads":
            return ranks.attention
        case "vocab":
            return ranks.embedding if matrix.part == "embedding" else ranks.head
        case "width":
            return ranks.shared if matrix.part == "shared_experts" else ranks.mlp


def _absorbed(kind: Attention, layers: frozenset[int], ranks: Ranks, architecture: Architecture) -> float:
    """Bytes of the matrices that both engines split off kv_b_proj (w_kc and w_vc; W_UK_T and W_UV)."""
    if kind.kind != "mla":
        return 0.0
    here = len(layers.intersection(kind.layers))
    return here * ceil(kind.heads / ranks.attention) * (kind.nope_dim + kind.value_dim) * kind.kv_rank * (
        architecture.format.bits / 8)


def caches(architecture: Architecture, layout: Layout, ranks: Ranks, layers: Sequence[int], value_bytes: float
           ) -> tuple[Cache, ...]:
    """The KV cache of one GPU that holds these layers, by kind of attention; rows are shared out over dcp ranks.

    GQA: max(1, KV heads / ranks) heads a rank.  MLA: the latent vector, the same on every rank of tp, so that more
    ranks hold no more tokens (engine source: pool_configurator.py:291-345).  fp8 latents of sparse MLA carry a scale
    for each 128 values and keep the rope part in 16 bits.
    """
    here = frozenset(layers)
    made = []
    for kind in architecture.attention:
        count = len(here.intersection(kind.layers))
        if not count:
            continue
        heads = ceil(kind.kv_heads / max(1, ranks.attention // layout.dcp))
        row = kind.key_dim + kind.value_dim
        if kind.kind == "linear":
            share = kind.state_values * 4.0 + kind.conv_values * 2.0
            made.append(Cache(0.0, state_bytes=count * share / ranks.attention))
            continue
        if kind.kind == "mla":
            scaled = kind.index_top and value_bytes == 1
            size = (kind.kv_rank + 4 * kind.kv_rank / DSA_SCALE_BLOCK + 2 * kind.rope_dim if scaled
                    else kind.cached_values * value_bytes)
        else:
            size = (kind.key_dim if kind.kind == "compressed" else heads * row) * value_bytes
        made.append(Cache(count * size / layout.dcp, count * kind.index_bytes, kind.window, kind.ratio))
    return tuple(made)


def kv_value_bytes(architecture: Architecture, engine: str, settings: Mapping[str, SettingValue], sm: str = ""
                   ) -> float:
    """Bytes of one cached number: what `--kv-cache-dtype` says, else what the checkpoint asks, else 16 bits.

    SGLang caches sparse MLA in fp8 from SM100 on unless told otherwise (arg_groups/overrides.py:533).
    """
    asked = str(settings.get("kv-cache-dtype", settings.get("cache-type-k", "auto"))).lower()
    if asked == "auto":
        sparse = engine == "sglang" and any(kind.index_top and kind.kind == "mla" for kind in architecture.attention)
        newer = sm.partition(".")[0].isdigit() and float(sm) >= 10
        return 1.0 if architecture.kv_format.startswith("fp8") or (sparse and newer) else 2.0
    known = {"f32": 4.0, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_1": 20 / 32, "q5_0": 22 / 32, "q5_1": 24 / 32}
    return known.get(asked, 1.0 if "8" in asked else 0.5 if "4" in asked else 2.0)


def activations(architecture: Architecture, ranks: Ranks, tokens: int, rows: int) -> float:
    """An estimate of the most working memory of a step over `tokens` that samples `rows` next tokens (0 = no head).

    The larger of the forward pass, tokens x (4 hidden + 3 x the widest MLP share) in 16 bits, and sampling, 15 bytes
    a logit and the hidden states; with it the experts' two workspaces, tokens x top-k x (max(2 width, hidden) +
    max(width, hidden)), which stay.  Within 10 % of what vLLM 0.19 reported for 16 of 19 models on H100.
    """
    wide = max((cut_size(matrix, ranks)[0] for matrix in architecture.matrices
                if matrix.part in ("mlp", "shared_experts") and matrix.axis == "rows"), default=0)
    hidden, experts = architecture.hidden, architecture.experts
    forward = tokens * (4 * hidden + 3 * wide) * 2.0
    sampling = (rows * architecture.vocab * SAMPLED_LOGIT_BYTES + tokens * hidden * 2.0) if rows else 0.0
    if experts is None:
        return max(forward, sampling)
    width = ceil(experts.width / ranks.expert_width)
    return max(forward, sampling) + 2.0 * tokens * experts.active * (max(2 * width, hidden) + max(width, hidden))


def graphs(layers: int, count: int) -> float:
    """An estimate of the memory of `count` captured graphs over a stage's layers: 0.25 MB a layer and graph.

    From logs: 67 graphs of a 32-layer model took 0.5 to 0.6 GiB (vLLM), 8 took 0.15 and 36 took 1.04 GiB (SGLang).
    """
    return 0.25e6 * layers * count
