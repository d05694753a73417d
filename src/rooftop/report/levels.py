"""A bench run by load level: repeats pooled, failures counted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rooftop.domain.finding import Measurement
from rooftop.domain.trial import Reply, Trial
from rooftop.report import words
from rooftop.stats.columns import STOPPED
from rooftop.stats.intervals import across


@dataclass(frozen=True, slots=True)
class LevelRun:
    """All trials of one workload, and their figures over the repeats (of the valid ones where there are any)."""

    trials: tuple[Trial, ...]
    figures: dict[str, Measurement]

    @property
    def level(self) -> str:
        """The level's name as its workload gives it."""
        return self.trials[0].workload.level

    @property
    def name(self) -> str:
        """The level in words."""
        return words.level_name(self.level)

    @property
    def failures(self) -> "Counter[str]":
        """Requests that failed, by kind; those that the end of the level cut off did not fail."""
        return Counter(reply.error for trial in self.trials for reply in trial.replies
                       if reply.error is not None and reply.error != STOPPED)

    @property
    def requests(self) -> int:
        """Requests that came to an end, whole or failed."""
        return sum(reply.error != STOPPED for trial in self.trials for reply in trial.replies)

    def example(self, kind: str) -> Reply | None:
        """A reply that failed so, one with details where there is one."""
        found = [reply for trial in self.trials for reply in trial.replies if reply.error == kind]
        return next((reply for reply in found if reply.detail), found[0] if found else None)


def by_level(trials: Sequence[Trial], measurements: Sequence[Sequence[Measurement]]) -> tuple[LevelRun, ...]:
    """Trials (with each one's measurements in the same order) grouped by workload, in the order of their first."""
    groups: dict[object, list[tuple[Trial, Sequence[Measurement]]]] = {}
    for trial, found in zip(trials, measurements, strict=True):
        groups.setdefault(trial.workload, []).append((trial, found))
    return tuple(LevelRun(tuple(trial for trial, _ in group), _pooled(group)) for group in groups.values())


def _pooled(group: Sequence[tuple[Trial, Sequence[Measurement]]]) -> dict[str, Measurement]:
    kept = [found for trial, found in group if trial.valid] or [found for _, found in group]
    names = dict.fromkeys(one.metric for found in kept for one in found)
    return {name: across([one for found in kept for one in found if one.metric == name]) for name in names}
