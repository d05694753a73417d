"""Models and machines for the tests of this room."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from rooftop.domain.architecture import Architecture
from rooftop.domain.fit import Fit
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.models.fields import Fields
from rooftop.models.read import read_config, read_model
from rooftop.perfmodel.fitting import fit

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
MIB = 1 << 20
# MiB as nvidia-smi prints them, NVLink bytes/s, compute capability
GPUS = {"h100": (81559, 450e9, "9.0"), "h200": (143771, 450e9, "9.0"), "pro6000": (97887, 0.0, "12.0"),
        "4090": (24564, 0.0, "8.9"), "5090": (32607, 0.0, "12.0"), "l40s": (46068, 0.0, "8.9")}
OLD_VLLM = (Setting("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0"),)


@cache
def model(name: str, fp8: bool = False) -> Architecture:
    if not fp8:
        return read_model(str(CONFIGS / name))
    config = json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return read_config(Fields(config, name), name=name)


def changed(name: str, fp8: bool = False, **fields: object) -> Architecture:
    """The model of a configuration with some fields changed."""
    config = json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))
    config |= fields
    if fp8:
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return read_config(Fields(config, name), name=name)


def machine(gpu: str, count: int, nodes: int = 1) -> Machine:
    mib, fabric, sm = GPUS[gpu]
    return Machine(f"{count}x {gpu}", "", 64, 512 << 30,
                   tuple(Gpu(gpu, mib * MIB, sm=sm, fabric_bytes_per_s=fabric) for _ in range(count)), nodes=nodes)


def settings(values: dict[str, SettingValue]) -> tuple[Setting, ...]:
    return tuple(Setting(name, value) for name, value in values.items())


def plan(architecture: Architecture, engine: str, layout: Layout, on: Machine | None = None, path: str = "",
         **flags: SettingValue) -> Plan:
    values = {name.replace("_", "-"): value for name, value in flags.items()}
    return Plan(Model(architecture.name, path), engine, layout, settings(values), machine=on)


def fitted(architecture: Architecture, engine: str, layout: Layout, on: Machine,
           lengths: tuple[int, int] = (1024, 1024), **flags: SettingValue) -> Fit:
    return fit(plan(architecture, engine, layout, on, **flags), architecture, *lengths)


def older(asked: Plan) -> Plan:
    """vLLM before 0.21, which did not count its graphs."""
    return replace(asked, environment=OLD_VLLM)
