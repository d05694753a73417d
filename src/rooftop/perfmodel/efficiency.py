"""Which constants of the ledger hold for a GPU, an operation and a number format."""

from rooftop.domain.architecture import NumberFormat
from rooftop.domain.machine import Gpu
from rooftop.domain.stepcost import Kernel, Ledger

GENERATIONS = {"8.0": "ampere", "8.6": "ada", "8.9": "ada", "9.0": "hopper", "10.0": "blackwell", "10.3": "blackwell",
               "12.0": "sm120", "12.1": "sm120"}
"""Compute capability -> whose kernel times hold for it (8.6 has none of its own; like 8.9 it has GDDR6)."""
TIMED = ("8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0")
"""Compute capabilities of which a GPU with the same kind of memory was timed; 12.1 (GB10) has another than 12.0."""
STAND_IN = "hopper"
"""Whose efficiencies stand for GPUs without any (AMD, Volta, Turing)."""
NEAREST = {"nvfp4": ("mxfp4", "int4", "fp8 block", "bf16"), "mxfp4": ("int4", "nvfp4", "fp8 block", "bf16"),
           "int4": ("mxfp4", "nvfp4", "fp8 block", "bf16"), "fp8": ("fp8 block", "bf16"),
           "fp8 block": ("fp8", "bf16"), "bf16": ()}
"""Formats whose kernels stand in, nearest first, where a generation was not measured with the format."""


def generation(gpu: Gpu) -> str:
    """The generation whose measured kernels hold for a GPU; hopper's stand in for those without."""
    return GENERATIONS.get(gpu.sm, STAND_IN)


def timed(gpu: Gpu) -> bool:
    """Whether kernels of a GPU of its kind were timed, and no other's stand in."""
    return gpu.vendor == "nvidia" and gpu.sm in TIMED


def kernel_format(form: NumberFormat) -> str:
    """The ledger's word for a number format of weights."""
    name = form.name
    if name.startswith(("int4", "int3")) or (name.startswith("int") and form.bits <= 4):
        return "int4"
    if name in ("nvfp4", "mxfp4"):
        return name
    if name.startswith("fp8 ") and "channel" not in name:
        return "fp8 block"
    if name.startswith(("fp8", "mxfp8")):
        return "fp8"
    if form.bits <= 5:
        return "int4"
    return "fp8" if form.bits <= 9 else "bf16"


def weight_only(form: str, gpu: Gpu) -> bool:
    """Whether the engines multiply these weights in 16 bits: int4, and what the GPU has no format of its own for."""
    if form in ("int4", "bf16"):
        return True
    if form in ("nvfp4", "mxfp4"):
        return gpu.flops_per_s("fp4") is None
    return gpu.flops_per_s("fp8") is None


def peak(form: str, gpu: Gpu) -> float | None:
    """Dense operations/s that the GPU's sheet gives for weights of a format; None where it gives none."""
    sixteen = gpu.flops_per_s("bf16") or gpu.flops_per_s("fp16")
    if weight_only(form, gpu):
        return sixteen
    if form == "mxfp4":
        return gpu.flops_per_s("fp8") or sixteen
    return gpu.flops_per_s("fp4" if form == "nvfp4" else "fp8") or sixteen


def kernel(ledger: Ledger, gpu: Gpu, operation: str, form: str, engine: str = "") -> Kernel:
    """The efficiency of an operation: the engine's own kernel, else that of all engines together.

    Where the format was not measured, the nearest format stands in; then the stand-in generation.  Products whose
    weights alone are small run like 16-bit ones, for they multiply in 16 bits.

    Raises KeyError where the ledger has nothing for the operation.
    """
    table = {(one.generation, one.format, one.engine): one for one in ledger.kernels if one.operation == operation}
    names = (form, "bf16") if operation == "gemm" and weight_only(form, gpu) else (form, *NEAREST.get(form, ()))
    for made in (generation(gpu), STAND_IN):
        for name in names:
            for whose in (engine, ""):
                found = table.get((made, name, whose))
                if found is not None:
                    return found
    raise KeyError(f"{operation} {form}")
