"""An existing deployment in the form its owner keeps it in: what it asks, what is kept."""

from dataclasses import dataclass, field
from typing import Protocol

from rooftop.domain.plan import Plan, Setting


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the machine as a container sees it; `source` is "" for a volume that is no folder."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """One engine in a command, unit, compose file or manifest.

    `text` is the whole, kept as it stands; it may hold secrets, so it is never shown, stored or put into a study.
    `part` names which of several engines in the text this is ("" for the only one).  `flags` are all flags of the
    engine by their long names (parallel sizes, model and port too), `environment` all variables with a known value;
    of both, secrets are left out and named in `secrets`.  `kept` names what else the text says (restart policy,
    resources, mounts, ...), `notes` what could not be known from it, `sizes` the flags that tell the layout.  `gpus` is
    how many GPUs the text gives the engine, None where it does not count them.
    """

    form: str
    text: str = field(repr=False)
    plan: Plan
    part: str = ""
    flags: tuple[Setting, ...] = ()
    environment: tuple[Setting, ...] = ()
    secrets: tuple[str, ...] = ()
    image: str = ""
    host: str = ""
    port: int | None = None
    published: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    gpus: int | None = None


class Form(Protocol):
    """One way to write a deployment down.  `write(read(text))` is `text`, byte for byte."""

    @property
    def name(self) -> str:
        """The name of its file."""
        ...

    def reads(self, text: str) -> bool:
        """Whether the text has this form; a promise of its outline, not that an engine is in it."""
        ...

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine in the text, or the one that `part` names.

        Raises BadInput where there is none, or several and none is named; MissingPart where a reader is not installed.
        """
        ...

    def write(self, deployment: Deployment) -> str:
        """The text with the deployment's flags and environment; all else, and all that is equal, stays as it is.

        Raises BadInput where a value cannot be written in this form.
        """
        ...
