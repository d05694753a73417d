"""What one rank does in a step: its matrices, experts and attention as operations."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import comb

from rooftop.domain.architecture import Architecture, Attention, Matrix
from rooftop.perfmodel.cuts import Ranks, cut_size, held
from rooftop.perfmodel.efficiency import kernel_format

FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up",
         "w1": "gate_up", "w3": "gate_up", "q_a_proj": "down", "kv_a_proj_with_mqa": "down",
         "in_proj_qkv": "in", "in_proj_z": "in", "in_proj_b": "ba", "in_proj_a": "ba"}
"""Matrices that the engines multiply as one (SGLang and vLLM: QKV, gate and up, the low-rank halves of MLA)."""
ROUTING_SKEW = 0.7
"""How unevenly experts are chosen.  With it as many experts are met as the kernel times of aiconfigurator-core 0.12.0
for its skewed routing (power_law_1.2) tell beside those for balanced routing: 150 of 384 by 32 tokens of 8 experts;
0.7 gives 148, 0.5 (its power_law_1.01) 170, uniform routing 188."""
SMALL = {"mla": 5, "linear": 4}
"""Small kernels beside an attention; 2 where not named."""
QUANTIZED = ("fp8", "fp8 block", "nvfp4")
"""Formats of weights whose products need their input quantized."""
EXPERT_KERNELS = 7
"""Launches of a mixture of experts without graphs: sort, align, two products, activation, quantization, sum."""


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product on one rank: `layers` of it on the stage; bytes and parameters a layer, scales included.

    once: it works on one row a request (LM head) and not on every token.  grouped: a batched product a head.
    """

    name: str
    form: str
    layers: int
    bytes: float
    parameters: float
    once: bool = False


@dataclass(frozen=True, slots=True)
class Mixture:
    """The routed experts of one rank: `layers` of them; bytes and parameters of its share of one expert.

    count, active: of the whole model; spread: ranks that share the experts.
    """

    form: str
    layers: int
    bytes: float
    parameters: float
    count: int
    active: int
    spread: int

    def touched(self, tokens: int) -> tuple[float, float]:
        """Experts of the busiest rank that any of `tokens` meets, and its share of all routed rows, times `spread`.

        An expert that a token picks with chance q is met with 1 - (1 - q)^tokens (`met`).  The experts lie on their
        ranks in no order, so that a rank's number is binomial; the busiest rank has the expected maximum of `spread`.
        """
        chance = met(self.count, self.active, tokens) / self.count
        here = self.count // self.spread
        mean: float = here * chance
        if self.spread == 1:
            return mean, 1.0
        most = _expected_maximum(here, chance, self.spread)
        rows = tokens * self.active / self.spread
        return most, max(1.0, min(float(self.spread), 1 + (most / mean - 1) * min(1.0, mean / rows)))


@cache
def met(count: int, active: int, tokens: int) -> float:
    """Expected number of `count` experts that `tokens` tokens of `active` experts each meet.

    Uniform routing gives count x (1 - (1 - active/count)^tokens).  Real routing favours some: here the chance of the
    n-th favourite falls with n^-ROUTING_SKEW.
    """
    weights = [float(rank) ** -ROUTING_SKEW for rank in range(1, count + 1)]
    each = active / sum(weights)
    total = 0.0
    for weight in weights:
        total += 1.0 - float((1.0 - min(1.0, weight * each)) ** tokens)
    return total


@dataclass(frozen=True, slots=True)
class Reading:
    """One kind of attention on one rank: `layers` of it, `heads` and `kv_heads` of this rank."""

    kind: Attention
    layers: int
    heads: int
    kv_heads: int


@dataclass(frozen=True, slots=True)
class Work:
    """All that one rank of one pipeline stage does.

    small: further kernels over all layers (norms, rotary embedding, cache write, activation, routing, quantization)
    that move next to no bytes; beside: those of them that are the shared experts'.  expert_layers: those with experts.
    norm_sums: layers whose norm over all heads needs a sum over the ranks that share the heads (MiniMax-M2).
    """

    layers: int
    products: tuple[Product, ...]
    mixtures: tuple[Mixture, ...]
    readings: tuple[Reading, ...]
    small: int
    expert_layers: int
    norm_sums: int
    first: bool
    last: bool
    beside: int = 0

    @property
    def kernels(self) -> int:
        """Launches of one step without a graph."""
        return (self.small + sum(one.layers for one in self.products) + 2 * sum(one.layers for one in self.readings)
                + EXPERT_KERNELS * sum(one.layers for one in self.mixtures))


def work(architecture: Architecture, ranks: Ranks, stage: int, pp: int, layers: tuple[int, ...]) -> Work:
    """The work of one rank of a stage that holds `layers`."""
    here = frozenset(layers)
    fused: dict[tuple[str, str, int], list[float]] = {}
    mixtures: dict[tuple[str, int], list[float]] = {}
    for matrix in architecture.matrices:
        count = _run(matrix, stage, pp, here)
        if not count or matrix.part == "embedding" or matrix.cols == 1:
            continue
        rows, cols = cut_size(matrix, ranks)
        form = kernel_format(matrix.format)
        if matrix.part == "experts":
            key = (form, count)
            sums = mixtures.setdefault(key, [0.0, 0.0])
        else:
            name = FUSED.get(matrix.name, matrix.name) if matrix.part != "indexer" else matrix.name
            sums = fused.setdefault((f"{matrix.part} {name}", form, count), [0.0, 0.0])
        sums[0] += matrix.format.bytes(rows, cols)
        sums[1] += rows * cols
    experts = architecture.experts
    made = tuple(Mixture(form, count, size, size_of, experts.count, experts.active, ranks.experts)
                 for (form, count), (size, size_of) in mixtures.items() if experts is not None)
    products = tuple(_products(fused))
    readings = tuple(_readings(architecture, ranks, here))
    first, last = stage == 0, stage == pp - 1
    small = _small(architecture, here, products) + (2 if first else 0) + (8 if last else 0)
    return Work(len(layers), products, made, readings, small, sum(one.layers for one in made),
                _norm_sums(architecture, ranks, here), first, last, _beside(products))


def _run(matrix: Matrix, stage: int, pp: int, here: frozenset[int]) -> int:
    """How many layers of a matrix a stage runs; a tied LM head runs on the last stage whoever holds it."""
    if matrix.tied:
        return int(stage == pp - 1)
    return held(matrix, stage, pp, here)


def _products(fused: dict[tuple[str, str, int], list[float]]) -> Iterator[Product]:
    for (name, form, count), (size, parameters) in fused.items():
        if name == "attention kv_b_proj":
            yield Product("attention absorbed", "bf16", 2 * count, parameters, parameters / 2)
        else:
            yield Product(name, form, count, size, parameters, name.startswith("lm_head"))


def _readings(architecture: Architecture, ranks: Ranks, here: frozenset[int]) -> Iterator[Reading]:
    for kind in architecture.attention:
        count = len(here.intersection(kind.layers))
        if count:
            yield Reading(kind, count, max(1, kind.heads // ranks.attention), max(1, kind.kv_heads // ranks.attention))


def _norm_sums(architecture: Architecture, ranks: Ranks, here: frozenset[int]) -> int:
    cut = (matrix for matrix in architecture.matrices if matrix.part == "norm" and matrix.cut == "heads")
    return sum(len(here.intersection(matrix.layers)) for matrix in cut) if ranks.attention > 1 else 0


def _small(architecture: Architecture, here: frozenset[int], products: tuple[Product, ...]) -> int:
    """Kernels without weights worth counting, over all layers of a stage.

    A layer: two norms.  Attention: rotary embedding and cache write; MLA: two norms more and a concatenation; its
    indexer: norm, rotation, quantization, cache write, scores, top-k.  Linear attention: rearrangement, convolution,
    gating and gated norm.
    Norms of queries and keys: one.  Feed-forward: one activation; experts: routing.  Products in 8 bits or nvfp4:
    one quantization of their input each.
    """
    count = 2 * len(here)
    for kind in architecture.attention:
        of_kind = len(here.intersection(kind.layers))
        count += of_kind * SMALL.get(kind.kind, 2)
        count += of_kind * 6 if kind.index_top else 0
    normed = {layer for matrix in architecture.matrices if matrix.part == "norm" and matrix.name == "q_norm"
              for layer in matrix.layers}
    count += len(here & normed)
    count += sum(one.layers for one in products if one.name.endswith("gate_up"))
    count += sum(2 * one.layers for one in products if one.name.startswith("router"))
    count += sum(one.layers for one in products if one.name == "shared_experts down_proj")
    return count + sum(one.layers for one in products if one.form in QUANTIZED)


def _beside(products: tuple[Product, ...]) -> int:
    """Small kernels of the shared experts: their activation, and the quantization of each of their inputs."""
    shared = [one for one in products if one.name.startswith("shared_experts")]
    return sum(one.layers for one in shared if one.name.endswith("gate_up")) + sum(
        one.layers for one in shared if one.form in QUANTIZED)


def _expected_maximum(trials: int, chance: float, ranks: int) -> float:
    """The expected largest of `ranks` independent binomial(trials, chance) numbers."""
    below, expected = 0.0, 0.0
    for value in range(trials):
        below += comb(trials, value) * chance ** value * (1 - chance) ** (trials - value)
        expected += 1 - min(1.0, below) ** ranks
    return expected
