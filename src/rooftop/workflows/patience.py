"""How long a start may stand still: by its phase, not by one fixed time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rooftop import units
from rooftop.catalog.phases import FIRST, Phase
from rooftop.domain.launch import Fault
from rooftop.hardware.pagecache import WEIGHTS

LOOK_S = 2.0
PAGES_PER_S = 50.0
"""A tree that touches or reads fewer pages than these in a second (200 kB) waits; polls and heartbeats stay below."""

# Lines that only say that something else is waited for.
_WAITING = re.compile(r"No available shared memory broadcast block|still waiting|"
                      r"(?i:waiting for .* to (?:start|be ready|come up|initiali[sz]e))|\"GET /(?:health|metrics)")


@dataclass(slots=True)
class Patience:
    """Watches one start; all times are on one monotonic clock.

    `phases` are the catalog's rows by name, `weight_bytes` the size of the model, `gpus` whether its ranks are on GPUs.
    """

    phases: Mapping[str, Phase]
    weight_bytes: int = 0
    gpus: bool = False
    _began: dict[str, float] = field(default_factory=dict)
    _moved: float = 0.0
    _looked: float = 0.0
    _work: int | None = None

    def begin(self, now: float) -> None:
        """The start begins (again)."""
        self._began.clear()
        self._moved = self._looked = now
        self._work = None

    def due(self, now: float) -> bool:
        """Whether it is time to count the work again, which costs some milliseconds."""
        return now - self._looked >= LOOK_S

    def see(self, now: float, phase: str, text: str, work: int | None = None) -> None:
        """Take in the phase, what the log has grown by, and the work counted now (None: not counted)."""
        if phase not in self._began or any(line.strip() and not _WAITING.search(line) for line in text.splitlines()):
            self._moved = now
        self._began.setdefault(phase, now)
        if work is not None:
            if self._work is not None and work - self._work >= PAGES_PER_S * (now - self._looked):
                self._moved = now
            self._work, self._looked = work, now

    def fault(self, now: float, phase: str) -> Fault | None:
        """The hang, where the phase has stood still or gone on for too long; None while there is hope."""
        row = self.row(phase)
        silent_s, whole_s = now - self._moved, now - self._began.get(phase, now)
        if silent_s >= row.silence_s:
            what = f"it hangs while {row.kind}: {self.told(now, phase)}"
        elif whole_s >= row.longest(self.weight_bytes):
            what = f"{row.kind} does not end: {units.seconds(whole_s)} so far, {self.told(now, phase)}"
        else:
            return None
        return Fault(row.error if row.error and self.gpus else "unknown", what, remedy(row), phase)

    def told(self, now: float, phase: str) -> str:
        """How long it has been silent, and what is usual."""
        usual = units.seconds(self.row(phase).usual(self.weight_bytes))
        silent = units.seconds(max(0.0, now - self._moved))
        return f"silent for {silent} (nothing logged, read or allocated; this phase usually takes up to {usual})"

    def row(self, phase: str) -> Phase:
        """The table's row of a phase; one that it does not know is taken for the start of the program."""
        return self.phases.get(phase) or self.phases[FIRST]


def remedy(row: Phase) -> str:
    """What is known to cause a hang in this phase."""
    return "known causes: " + "; ".join(row.causes)


def weight_bytes(path: str) -> int:
    """Bytes of the weights at a path, a file or a folder; 0 where they are not here."""
    place = Path(path)
    try:
        files = [place] if place.is_file() else [one for one in place.iterdir() if one.suffix in WEIGHTS]
        return sum(one.stat().st_size for one in files)
    except OSError:
        return 0
