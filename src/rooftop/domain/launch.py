"""One start of one engine, and what the engine itself said."""

from dataclasses import dataclass
from typing import Literal

from rooftop.domain.plan import Plan

Level = Literal["asked", "resolved", "built", "used"]
Fact = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact in the engine's own words.

    `fact` is a name of the closed vocabulary (`layout.tp`); `level` says how far it proves: asked, resolved (the
    engine decided it), built (it exists), used (it runs in real steps).  `source` is where it was read (`log`,
    `/props`, `/metrics`), `line` its line number there (from 1; 0 where lines mean nothing), `text` the proof itself.
    """

    fact: str
    value: Fact
    level: Level
    source: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Something asked, held against what the engine said.

    `holds` is None where the engine does not say: unknown is not false.  `proof` is the evidence that decided.
    """

    fact: str
    asked: Fact
    found: Fact | None
    holds: bool | None
    proof: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the start-up, in seconds after the start of the process."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a start or a level failed.

    `kind` is a name of the closed list of error kinds (`unknown` where the log does not tell), `reason` the engine's
    own words, `remedy` what to do, `last_phase` the last start-up phase that was reached, `line` the log line.
    """

    kind: str
    reason: str
    remedy: str = ""
    last_phase: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """One process of a launch: its replica number, command, environment it was given (no secrets), URL and cores."""

    replica: int
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    url: str
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one engine, shared by all the load levels that ran on it.

    `caches`: whether the weights were in the page cache and compiled code was at hand (cold, warm, unknown).
    `startup_s` is from the start of the first process to the first decoded token; None where it never came.
    `greedy` is the text that each fixed prompt got, for holding one layout's answers against another's.
    `margins` has for each of these texts its tokens, and by how many nats each led the next best; empty where the
    server gives no logprobs.
    """

    id: str
    plan: Plan
    servers: tuple[Server, ...]
    started_at: str
    caches: Literal["cold", "warm", "unknown"] = "unknown"
    startup_s: float | None = None
    phases: tuple[Phase, ...] = ()
    engine_version: str = ""
    evidence: tuple[Evidence, ...] = ()
    claims: tuple[Claim, ...] = ()
    greedy: tuple[str, ...] = ()
    fault: Fault | None = None
    study: str = ""
    margins: tuple[tuple[tuple[str, float], ...], ...] = ()

    @property
    def ready(self) -> bool:
        """It decoded a token and nothing went wrong with the start."""
        return self.fault is None and self.startup_s is not None
