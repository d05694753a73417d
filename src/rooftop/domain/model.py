"""What is served: a model's name, its files and what identifies them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model as a plan names it.

    `path` is what the engine is given (a folder, a GGUF file or a hub name).  `bytes` and `sha256` identify the
    weights where they were read; None where they were not.
    """

    name: str
    path: str = ""
    bytes: int | None = None
    sha256: str | None = None
