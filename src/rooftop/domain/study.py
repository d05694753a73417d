"""A study as its user writes it: one model, many setups, load levels, an order."""

from dataclasses import dataclass, field
from typing import Literal

from rooftop.domain.layout import Layout
from rooftop.domain.plan import Setting
from rooftop.domain.workload import Api


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration: its layout, and settings and environment on top of the study's own.

    `binary` names another engine program, `image` another container image, for this setup alone.
    """

    title: str = ""
    layout: Layout = field(default_factory=Layout)
    settings: tuple[Setting, ...] = ()
    environment: tuple[Setting, ...] = ()
    binary: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The load levels of a study: `concurrency` users each, prompts and replies of the given lengths.

    A level ends after `requests_per_user` requests for each user, but not before `least_requests` in all (a median
    needs five), or after `seconds` (None = that rule is off).
    """

    concurrency: tuple[int, ...] = (1, 4, 8)
    input_tokens: int = 128
    output_tokens: int = 128
    natural: bool = False
    shared_prefix_tokens: int = 0
    requests_per_user: int | None = None
    least_requests: int = 6
    seconds: float | None = None
    api: Api = "completions"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """`rounds`: how often each setup is started anew.  `repeats`: how often each level runs on one start.

    Repeats interleave the levels.  `setups` "shuffled" draws a new order of setups for each round (by the load's seed).
    """

    repeats: int = 3
    rounds: int = 1
    setups: Literal["written", "shuffled"] = "written"


@dataclass(frozen=True, slots=True)
class Study:
    """What to try and how to measure it.  `model` is a path, or a name of the catalog; `tokenizer` a path or "".

    `launcher` is where the engine runs: `local`, `docker` (in `image`), `systemd`; `launcher_options` are words for it.
    `start_timeout_s` is the longest time to be ready; None leaves it to what is usual for each phase.
    `ask_parser`: the installed engine's own parser is asked to take each command before anything is started.
    """

    name: str
    engine: str
    model: str
    setup: tuple[Setup, ...]
    load: Load = field(default_factory=Load)
    order: Order = field(default_factory=Order)
    settings: tuple[Setting, ...] = ()
    environment: tuple[Setting, ...] = ()
    binary: str = ""
    tokenizer: str = ""
    start_timeout_s: float | None = None
    launcher: str = "local"
    image: str = ""
    launcher_options: tuple[str, ...] = ()
    ask_parser: bool = True
