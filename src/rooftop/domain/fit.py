"""What a layout does to memory: bytes on each GPU by purpose, or why not."""

from dataclasses import dataclass
from typing import Literal

from rooftop.domain.engine import Command, Refusal
from rooftop.domain.finding import Finding
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.stepcost import Prediction

Purpose = Literal["weights", "kv cache", "states", "activations", "graphs", "runtime", "system"]
Basis = Literal["counted", "rule", "estimate"]


@dataclass(frozen=True, slots=True)
class Use:
    """Memory of one purpose on one GPU.

    part: of weights, which (`experts`, `attention`, ...).  copied: how much of it other ranks of the tp group hold too.
    basis: `counted` follows from shapes, `rule` from the engine's own arithmetic; an `estimate` lies between `low` and
    `high` where those are known (None = no interval can be given).  note: how it came about.
    """

    purpose: Purpose
    bytes: float
    part: str = ""
    copied: float = 0.0
    basis: Basis = "counted"
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One GPU of a pipeline stage; all GPUs of a stage hold as much, as far as their shares are whole.

    layers: the numbers it holds.  token_bytes: KV cache of one token on this GPU.  pool_bytes: memory of its KV pool;
    kv_tokens: tokens that this holds.  left_bytes: memory in no use at all, below 0 where the estimates exceed it.
    """

    number: int
    layers: tuple[int, ...]
    uses: tuple[Use, ...]
    token_bytes: float
    pool_bytes: float
    kv_tokens: int
    left_bytes: float

    def bytes_of(self, purpose: Purpose) -> float:
        """All bytes of one purpose on this GPU."""
        return sum(use.bytes for use in self.uses if use.purpose == purpose)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a layout of an engine fits, and what it then holds.

    gpu_bytes: memory of the smallest GPU as the engine sees it.  budget_bytes: what the engine allows for weights and
    KV cache together (vLLM: and for activations).  kv_tokens: tokens of one KV pool, the least over the stages, with
    their interval where the estimates have one; pools: how many such pools there are (dp x attention-dp).
    users: requests of the asked lengths that fit at once in all pools; bound: what ends them (`KV cache`, or the
    engine's own limit).  longest: tokens of the longest request that one pool holds.
    raised: the engine's share of memory at which even the high end of all estimates leaves nothing over, None where
    that is no more than it has; raised_tokens, raised_users: what a pool, and all pools, then hold.
    settings: flags and defaults that the arithmetic went by.  refusal: why it does not fit and the nearest change
    that does, None where it fits; change: the settings of that change where settings are enough.
    """

    engine: str
    layout: Layout
    gpu_bytes: float
    budget_bytes: float
    stages: tuple[Stage, ...]
    kv_tokens: int
    kv_tokens_low: int | None
    kv_tokens_high: int | None
    pools: int
    users: int
    bound: str
    longest: int
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: Refusal | None = None
    change: tuple[Setting, ...] = ()
    raised: Setting | None = None
    raised_tokens: int = 0
    raised_users: int = 0

    @property
    def fits(self) -> bool:
        """Whether it starts and holds at least one request of the asked lengths."""
        return self.refusal is None

    @property
    def left_bytes(self) -> float:
        """Head room: the least memory left on any GPU."""
        return min(stage.left_bytes for stage in self.stages)

    @property
    def fullest(self) -> Stage:
        """The stage that bounds the KV cache."""
        return min(self.stages, key=lambda stage: stage.kv_tokens)


@dataclass(frozen=True, slots=True)
class Option:
    """One deployment that fits: its plan, its memory, and the command that starts it (of one replica).

    one: tokens/s of one user.  many: output tokens/s of all users that fit.  Both None where the GPU has no data sheet.
    within: users that stay within the asked TTFT and TPOT, None where none was asked.
    """

    plan: Plan
    fit: Fit
    command: Command
    one: Prediction | None = None
    many: Prediction | None = None
    within: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Layouts of one engine that the same rule refuses; the reason and remedy of the first one stand for all."""

    engine: str
    refusal: Refusal
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What `rooftop plan` answers: deployments that fit, the best for the goal first, and what is refused.

    gains: settings that would move the first option's speed, with the predicted gain.
    """

    model: str
    machine: Machine
    input_tokens: int
    output_tokens: int
    options: tuple[Option, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...] = ()
    gains: tuple[Finding, ...] = ()
