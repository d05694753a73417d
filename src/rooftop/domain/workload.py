"""What is asked of a server: arrivals, lengths, stop rule, objective."""

from dataclasses import dataclass, field
from typing import Literal

ArrivalKind = Literal["closed", "constant", "poisson", "gamma"]
Api = Literal["chat", "completions", "generate"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When requests go out.

    closed: `concurrency` users, each sends its next request when the last one ended.
    constant, poisson, gamma: `rate_per_s` requests a second on a schedule fixed in advance; `cv` is the coefficient
    of variation of the gaps of gamma arrivals (1 = Poisson); the rate rises linearly over the first `ramp_s` seconds;
    `concurrency` then caps the open streams (0 = no cap).
    """

    kind: ArrivalKind = "closed"
    concurrency: int = 1
    rate_per_s: float = 0.0
    cv: float = 1.0
    ramp_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """When a level ends: after `requests`, after `seconds`, or when output tokens/s is known to `precision`.

    None = that rule is off.  `precision` is the half width of the 90 % interval as a share of the value (0.05 = 5 %);
    the first rule that holds ends the level.
    """

    requests: int | None = None
    seconds: float | None = None
    precision: float | None = None


@dataclass(frozen=True, slots=True)
class Slo:
    """Service-level objective: the most seconds a request may take; None = no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One load level.

    `input_tokens` and `output_tokens` are asked lengths; with `natural` the model ends its own replies and
    `output_tokens` is only the limit.  `shared_prefix_tokens` of each prompt are the same for all requests (0: every
    prompt is unique from its first token, so that no prefix cache helps).  `warmup` requests go out at the level's
    own concurrency before it and are not counted.
    """

    arrivals: Arrivals = field(default_factory=Arrivals)
    input_tokens: int = 128
    output_tokens: int = 128
    natural: bool = False
    shared_prefix_tokens: int = 0
    stop: Stop = field(default_factory=Stop)
    warmup: int = 0
    seed: int = 0
    api: Api = "chat"
    slo: Slo = field(default_factory=Slo)

    @property
    def level(self) -> str:
        """Name of the level in tables: its users, or its rate."""
        if self.arrivals.kind == "closed":
            return str(self.arrivals.concurrency)
        return f"{self.arrivals.rate_per_s:g}/s"


    @property
    def shape(self) -> str:
        """Prompts and replies in one phrase."""
        reply = f"up to {self.output_tokens}" if self.natural else f"{self.output_tokens}"
        shared = (f"the first {self.shared_prefix_tokens} tokens of each prompt shared"
                  if self.shared_prefix_tokens else "every prompt unique")
        return f"{self.input_tokens} tokens in, {reply} out, {shared}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: its number, when it is due (seconds after the level's start), its lengths in tokens."""

    number: int
    due_s: float
    input_tokens: int
    output_tokens: int
