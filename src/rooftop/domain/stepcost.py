"""The cost of one engine step by cause, and predictions made from it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from rooftop.domain.finding import Interval

Phase = Literal["decode", "prefill"]
Cause = Literal["memory", "compute", "launch", "link latency", "link bandwidth", "host"]
Bound = Literal["memory", "compute", "launch", "link latency", "link bandwidth", "host", "capacity", "arrivals"]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of an engine: `requests` sequences with `tokens` new tokens together, over all replicas.

    decode: one token each (tokens = requests).  context: mean tokens that a sequence already holds in the cache.
    """

    phase: Phase
    requests: int
    tokens: int
    context: float

    def __post_init__(self) -> None:
        if self.requests < 1 or self.tokens < self.requests or self.context < 0:
            raise ValueError(f"a step of {self.tokens} tokens for {self.requests} requests at context {self.context} "
                             "is none")


@dataclass(frozen=True, slots=True)
class Term:
    """Seconds of one operation of a step that one cause takes, over all layers and stages on the critical path."""

    operation: str
    cause: Cause
    seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one step costs; its terms add up to its time."""

    terms: tuple[Term, ...]

    @property
    def seconds(self) -> float:
        """Time from the start of the step to the start of the next one."""
        return sum(term.seconds for term in self.terms)

    @property
    def by_cause(self) -> dict[Cause, float]:
        """Seconds by cause, largest first."""
        sums: dict[Cause, float] = {}
        for term in self.terms:
            sums[term.cause] = sums.get(term.cause, 0.0) + term.seconds
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    @property
    def by_operation(self) -> dict[str, float]:
        """Seconds by operation, largest first."""
        sums: dict[str, float] = {}
        for term in self.terms:
            sums[term.operation] = sums.get(term.operation, 0.0) + term.seconds
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    @property
    def bound(self) -> Cause:
        """The cause that takes most of the time."""
        return next(iter(self.by_cause))


class StepCost(Protocol):
    """The seam between the performance model and a simulator: what one step costs."""

    def cost(self, step: Step) -> Cost:
        """Seconds of one step, by operation and cause."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of the model with its unit and where it comes from: data sheet, table, or fitted on which rows."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """How fast one kind of operation runs on one generation of GPUs.

    time = base_s + max(bytes / (memory x bandwidth), operations / (compute x peak)).  operation: gemm, moe, attention,
    mla, linear (attention with a state).  format: of the weights (bf16, fp8, fp8 block, nvfp4, mxfp4, int4), or of the
    cache.  fill: of attention, the batch that reaches half of the share of bandwidth: share = memory x B / (B + fill).
    engine: whose kernel, "" = all engines' together.
    """

    generation: str
    operation: str
    format: str
    base_s: float
    memory: float
    compute: float
    source: str
    fill: float = 0.0
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured all-reduce: (bytes, seconds) in rising order, of one algorithm on `ranks` GPUs of one kind.

    gpu: the catalog's name.  engine: whose kernel it is ("" = NCCL), timed in a graph.
    """

    gpu: str
    link: str
    ranks: int
    engine: str
    points: tuple[tuple[float, float], ...]
    source: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What one rank asks of a kernel, batch and context left open.

    sizes: of experts (moe) hidden size, width of an expert, experts, experts a token, ranks that share an expert, ranks
    that share the experts; of attention heads, KV heads and values a head, of mla heads, all of one rank.
    """

    operation: str
    format: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.operation} {self.format} {'x'.join(map(str, self.sizes))}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Measured kernel times of one shape: points of (tokens or sequences, context, seconds) in rising order.

    gpu: the catalog's name.  engine: whose kernels.
    """

    gpu: str
    engine: str
    shape: Shape
    points: tuple[tuple[float, float, float], ...]
    source: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every constant of the model with its provenance.  grids: measured kernels, which replace `kernels`."""

    constants: tuple[Constant, ...]
    kernels: tuple[Kernel, ...]
    timings: tuple[Timing, ...]
    grids: tuple[Grid, ...] = ()

    def value(self, name: str) -> float:
        """A constant's value.  Raises KeyError where there is none of that name."""
        for constant in self.constants:
            if constant.name == name:
                return constant.value
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One predicted figure, with what bounds it and how sure it is.

    interval: at its level, from the spread of the model's own errors on sources that no constant saw; None where no
    such error is known.  share: of the physical limit (only bytes over data-sheet bandwidth, operations over data-sheet
    rate), 0 to 1.  causes: (cause, seconds a token).  constants: those that it used.
    """

    metric: str
    unit: str
    value: float
    interval: Interval | None
    bound: Bound
    share: float
    causes: tuple[tuple[Cause, float], ...]
    constants: tuple[Constant, ...]
    notes: tuple[str, ...] = ()
