"""One flag of an engine and its value."""

from dataclasses import dataclass

SettingValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Setting:
    """One engine flag in the engine's own word, without its leading dashes (`parallel`, `max-num-seqs`)."""

    name: str
    value: SettingValue
