"""A study's answer: setups against load levels, the best of them, how sure."""

from dataclasses import dataclass
from typing import Literal

from rooftop.domain.finding import Measurement
from rooftop.domain.launch import Claim, Fault, Phase
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine

Question = Literal["one user", "throughput"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One setup at one load level: its figures over all `repeats` that ran.

    `why_not` says why a cell that is not valid must not be ranked (a broken claim, an engine that died, not run).
    """

    setup: str
    level: str
    measurements: tuple[Measurement, ...] = ()
    repeats: int = 0
    valid: bool = True
    why_not: str = ""

    def figure(self, metric: str) -> Measurement | None:
        """The measurement of that name, None where there is none."""
        return next((one for one in self.measurements if one.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Row:
    """One setup: what was asked, how it started, and whether it ran as asked.

    `setup` is its title, unique in a matrix; `settings` its flags in one line.  `startup_s`, `phases` and `caches` are
    of the first of `launches` (ids).  `commands` has one command a server; `log` is where the engine's log is kept.
    `broken` holds the claims that do not hold; `fault` is why the setup did not start or did not last.
    `same_text`: its greedy answers equal those of the first setup; None where they were not compared.
    """

    setup: str
    layout: Layout | None = None
    settings: str = ""
    launches: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    startup_s: float | None = None
    phases: tuple[Phase, ...] = ()
    caches: Literal["cold", "warm", "unknown"] = "unknown"
    broken: tuple[Claim, ...] = ()
    fault: Fault | None = None
    same_text: bool | None = None
    log: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """The answer to one question.

    `winner` has the best `value` at `level`; `runner_up` ("" where there is none) is the next best setup, at its own
    best level `runner_up_level`.  `margin` is the winner's advantage as a ratio (1.23 = 23 % better), its interval
    from the spread of the repeats.  `sure` says whether that spread allows the claim, `why` in one sentence why.
    """

    question: Question
    winner: str
    level: str
    value: Measurement
    runner_up: str = ""
    runner_up_level: str = ""
    margin: Measurement | None = None
    sure: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """All that a study found, ready to be shown.

    `levels` in the order they are shown; a cell is found by `cell(setup, level)`.  `load` is one sentence on prompts
    and replies; `conditions` are (name, value) lines on versions, settings and stamps; `warnings` are what a reader
    must know before trusting a figure.  `took_s` is the whole study's time.
    """

    study: str
    model: str
    engine: str
    machine: Machine
    levels: tuple[str, ...]
    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]
    best: tuple[Best, ...] = ()
    load: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    started_at: str = ""
    took_s: float = 0.0

    def cell(self, setup: str, level: str) -> Cell | None:
        """The cell of a setup at a level, None where it was not run."""
        return next((cell for cell in self.cells if cell.setup == setup and cell.level == level), None)

    def answer(self, question: Question) -> Best | None:
        """The best for a question, None where nothing valid was measured."""
        return next((best for best in self.best if best.question == question), None)
