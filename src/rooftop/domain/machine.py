"""Where a model is served: nodes, GPUs, cores, memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as found or as its data sheet says; None where it is not known."""

    name: str
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One node.  `cores` are the logical processors, `memory_bytes` the memory that this process may use."""

    name: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    system: str = ""
