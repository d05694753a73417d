"""What follows from trials: measurements and findings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval: `low` to `high` in the unit of its value, at `level` (0.9 = 90 %)."""

    low: float
    high: float
    level: float = 0.9


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure with its unit and its uncertainty.

    `value` is None where the data cannot carry it; `why_not` then says what is missing.  `interval` is None where none
    can be given; `count` is the number of observations behind the value.
    """

    metric: str
    unit: str
    value: float | None
    interval: Interval | None = None
    count: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's conclusion: the claim, what supports it, the remedy and the gain it should bring ("" = not known)."""

    rule: str
    claim: str
    evidence: tuple[str, ...]
    remedy: str = ""
    gain: str = ""
