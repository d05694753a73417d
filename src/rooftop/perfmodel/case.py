"""One layout before its engine's rules: what a rule looks at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rooftop.domain.architecture import Architecture
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.plan import Plan, SettingValue
from rooftop.perfmodel.cuts import Ranks, ranks, settings_of

Reason = str | None


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at: one model in one layout of one engine on one machine (None = any).

    gguf: whether the model is a GGUF file.
    """

    architecture: Architecture
    engine: str
    layout: Layout
    machine: Machine | None
    settings: Mapping[str, SettingValue]
    gguf: bool = False

    @property
    def ranks(self) -> Ranks:
        """Over how many ranks each kind of matrix is cut."""
        return ranks(self.engine, self.layout, self.settings)

    def says(self, name: str) -> str:
        """A setting's value as text, "" where it is left to the engine."""
        value = self.settings.get(name)
        return "" if value is None else str(value).lower()

    def whole(self, name: str, default: int = 0) -> int:
        """A setting that is a whole number."""
        value = self.settings.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, which engines have it, where their source has it, the test that gives the reason, and what
    to do where no other layout is the answer.
    """

    name: str
    engines: tuple[str, ...]
    source: str
    check: Callable[[Case], Reason]
    remedy: str = ""


def case_of(plan: Plan, architecture: Architecture) -> Case:
    """The case of a plan; its layout is tp 1 where it names none."""
    return Case(architecture, plan.engine or "", plan.layout or Layout(), plan.machine, settings_of(plan),
                plan.model.path.endswith(".gguf"))
