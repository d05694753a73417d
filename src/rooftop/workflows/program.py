"""Which program runs an engine, in which version, and as how many servers."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rooftop.domain.engine import Engine, Program
from rooftop.domain.plan import Plan
from rooftop.errors import MissingPart, RooftopError
from rooftop.load.http import fetch

_VERSION_S = 30.0
_MODULES = {"vllm": ("-m", "vllm.entrypoints.openai.api_server"), "sglang": ("-m", "sglang.launch_server")}
_SHEBANG = re.compile(rb"\A#! ?(\S*python[\d.]*)(?:[ \t][^\n]*)?\n|"
                      rb"\A#!/bin/sh\n'''exec' \"?([^\"\n]*?python[\d.]*)\"? ")
_PYTHON = re.compile(r"python[\d.]*")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# The official images' own: vllm/vllm-openai, lmsysorg/sglang, ghcr.io/ggml-org/llama.cpp (server).
_IN_IMAGES = {"vllm": ("vllm",), "sglang": ("python3", "-m", "sglang.launch_server"),
              "llamacpp": ("/app/llama-server",)}


@dataclass(frozen=True, slots=True)
class Replica:
    """One server of a plan: its number, the plan it is to run, its cores, and environment that is its alone."""

    number: int
    plan: Plan
    cores: tuple[int, ...]
    environment: tuple[tuple[str, str], ...] = ()


def resolve(plan: Plan, engine: Engine, *, here: bool = True) -> tuple[str, ...]:
    """The words that begin the engine's command.

    `plan.binary` is one of the engine's programs by name, or a path or name of the user's own (of a Python, its module
    of the engine); "" takes the first of the engine's programs that is here.  Where `here` is false it runs in an
    image: `plan.binary` as it stands, "" is the program of the engine's official image.  Raises MissingPart, with the
    way to get it, where there is none.
    """
    if not here:
        return (plan.binary,) if plan.binary else _IN_IMAGES.get(engine.name, engine.programs[0].argv)
    named = [program for program in engine.programs if program.name == plan.binary]
    if plan.binary and not named:
        found = shutil.which(Path(plan.binary).expanduser())
        if found is None:
            raise MissingPart(f"there is no program {plan.binary!r} that can be run",
                              remedy=f"give its path, or one of: {', '.join(one.name for one in engine.programs)}")
        module = _MODULES.get(engine.name, ()) if _PYTHON.fullmatch(Path(found).name) else ()
        return (str(found), *module)
    for program in named or engine.programs:
        if _here(program):
            return tuple(sys.executable if word == "{python}" else word for word in program.argv)
    wanted = named or engine.programs
    ways = "; or ".join(program.install for program in wanted if program.install)
    raise MissingPart(f"{engine.name} needs {' or '.join(one.name for one in wanted)}, which is not here", remedy=ways)


def entry(program: tuple[str, ...]) -> dict[str, str]:
    """The `python` and the `program` (a script) or `module` behind a command of vLLM or SGLang; {} where it is none."""
    if _PYTHON.fullmatch(Path(program[0]).name):
        engine = program[-1].partition(".")[0] in ("vllm", "sglang") and program[-2] == "-m"
        return {"python": str(Path(program[0]).absolute()), "module": program[-1]} if engine else {}
    path = shutil.which(program[0])
    if path is None:
        return {}
    with Path(path).open("rb") as file:
        head = file.read(2000)
    found = _SHEBANG.match(head)
    if found is None or not re.search(rb"\b(?:from|import) (?:vllm|sglang)\b", head):
        return {}
    return {"python": (found[1] or found[2]).decode(), "program": str(Path(path).absolute())}


def installed_version(plan: Plan, engine: Engine) -> str:
    """The version of vLLM or SGLang that is installed beside the program of a plan; "" where that cannot be told."""
    try:
        order = entry(resolve(plan, engine))
    except MissingPart:
        return ""
    return _distribution(order["python"], engine.name) if order else ""


@cache
def _distribution(python: str, name: str) -> str:
    """The version in the metadata of an installed package; nothing of it is imported."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    try:
        done = subprocess.run((python, "-c", code), capture_output=True, text=True, timeout=_VERSION_S, check=False,
                              stdin=subprocess.DEVNULL, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _here(program: Program) -> bool:
    if program.module:
        return find_spec(program.module) is not None
    return shutil.which(program.argv[0]) is not None


def replicas(plan: Plan, engine: Engine) -> tuple[Replica, ...]:
    """The servers of a plan: one, or dp of them where the engine has no router; each has its share of cores and GPUs.

    Where there are fewer cores than servers, servers share cores in turn.
    """
    cores = tuple(sorted(os.sched_getaffinity(0)))
    layout = plan.layout
    count = 1 if layout is None or engine.routes_dp else layout.dp
    if layout is None or count == 1:
        return (Replica(0, plan, cores),)
    alone = replace(plan, layout=replace(layout, dp=1, ep=1 if layout.ep == 1 else layout.ep))
    return tuple(Replica(number, alone, _share(cores, number, count), _gpus(plan, number, count))
                 for number in range(count))


def _share(cores: tuple[int, ...], number: int, count: int) -> tuple[int, ...]:
    have = len(cores)
    if count > have:
        return (cores[number % have],)
    return cores[number * have // count:(number + 1) * have // count]


def _gpus(plan: Plan, number: int, count: int) -> tuple[tuple[str, str], ...]:
    """The GPUs that a replica may see; nothing where there are none, or where the user chose them himself."""
    have = len(plan.machine.gpus) if plan.machine is not None else 0
    if have < count or any(one.name == _VISIBLE for one in plan.environment):
        return ()
    outer = os.environ.get(_VISIBLE, "").split(",") if os.environ.get(_VISIBLE) else list(map(str, range(have)))
    each = len(outer) // count
    return ((_VISIBLE, ",".join(outer[number * each:(number + 1) * each])),) if each else ()


def version(engine: Engine, program: tuple[str, ...], url: str, *, here: bool = True) -> str:
    """The engine's version by its own word: its version page, else `--version` of a program of this machine.

    "" where neither tells.
    """
    if engine.pages.version:
        try:
            said = fetch(url + engine.pages.version).json()
        except RooftopError:
            return ""
        return str(said.get("version", "")) if isinstance(said, dict) else ""
    return _told_version(program) if here else ""


@cache
def _told_version(program: tuple[str, ...]) -> str:
    try:
        done = subprocess.run((*program, "--version"), capture_output=True, text=True, timeout=_VERSION_S, check=False,
                              stdin=subprocess.DEVNULL, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode != 0:
        return ""
    lines = (line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines())
    return next((line for line in lines if any(letter.isdigit() for letter in line)), "")
