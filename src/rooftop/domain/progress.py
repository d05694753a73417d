"""What a workflow says while it works; the face reads it and may miss it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of long work: what runs now, how far it is, what remains.

    `done` of `total` parts are finished (total 0 = not known); `left_s` is the estimated time that remains,
    None where there is no estimate.  `last` marks the end of `stage`.
    """

    stage: str
    detail: str = ""
    done: int = 0
    total: int = 0
    left_s: float | None = None
    last: bool = False


Tell = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """A listener that does not listen."""
