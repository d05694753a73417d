"""The seam between workflows and engines: what an engine is told, what it says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rooftop.domain.launch import Evidence, Fact, Fault
from rooftop.domain.plan import Plan


@dataclass(frozen=True, slots=True)
class Program:
    """A way to run an engine: `argv` begins its command (`{python}` stands for this Python).

    It is there if `module` can be found by this Python or, where `module` is "", if `argv[0]` is on the path.
    `install` tells a person how to get it.
    """

    name: str
    argv: tuple[str, ...]
    module: str = ""
    install: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one server: the program's first words, address, replica number and the cores it may use."""

    program: tuple[str, ...]
    port: int
    host: str = "127.0.0.1"
    replica: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: the words and the environment to add."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan cannot run: the rule in words, and the nearest change that can."""

    rule: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a metrics page under rooftop's own name of the series (`running`, `waiting`, `kv_usage`, ...).

    `counter` numbers only grow; their differences mean something, their values do not.
    """

    series: str
    value: float
    counter: bool = False


class Witness(Protocol):
    """What an engine says of itself, read by pure functions.  A fact that is not shown is absent, never guessed."""

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        """All facts that the log proves, each with its line."""
        ...

    def read_info(self, path: str, text: str) -> tuple[Evidence, ...]:
        """All facts that the page at `path` (`/props`, `/server_info`, `/metrics`, ...) proves."""
        ...

    def read_metrics(self, text: str) -> tuple[Reading, ...]:
        """The live series of a metrics page."""
        ...

    def fault(self, lines: Sequence[str], exit_code: int | None) -> Fault | None:
        """Why a start or a run failed, by the log; None where the log shows nothing wrong.

        `exit_code` is None while the process lives or where it is not known; negative for a signal.
        """
        ...


class Engine(Protocol):
    """One serving engine.  `routes_dp`: it spreads requests over its own replicas; otherwise dp is n servers.

    `ready_path` answers 200 when it can serve, `info_paths` tell what it resolved, `metrics_path` its live series.
    """

    @property
    def name(self) -> str:
        """The name of its file."""
        ...

    @property
    def programs(self) -> tuple[Program, ...]:
        """Ways to run it, the preferred first."""
        ...

    @property
    def routes_dp(self) -> bool:
        """Whether one server of it is all replicas of a dp layout."""
        ...

    @property
    def pages(self) -> "Pages":
        """Its endpoints."""
        ...

    @property
    def witness(self) -> Witness:
        """The reader of its words."""
        ...

    def command(self, plan: Plan, seat: Seat) -> Command:
        """The command and environment that ask for `plan` at `seat`.  The plan must not be refused."""
        ...

    def refuses(self, plan: Plan) -> Refusal | None:
        """The engine's own rule against this plan, None where it would take it."""
        ...

    def asks(self, plan: Plan) -> tuple[tuple[str, Fact], ...]:
        """The facts that must hold if the engine does what the plan asks: (name, value)."""
        ...

    def phase(self, line: str) -> str | None:
        """The start-up phase that this log line begins, None for all other lines."""
        ...


@dataclass(frozen=True, slots=True)
class Pages:
    """Paths of an engine's endpoints; "" where it has none."""

    ready: str = "/health"
    metrics: str = "/metrics"
    info: tuple[str, ...] = ()
    version: str = ""
