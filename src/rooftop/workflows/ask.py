"""Asks the installed engine's own parser to take the commands of plans, before anything is started.

Nothing is known where the engine runs in an image, is not here, or is no program whose parser can be asked alone.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from rooftop.domain.engine import Command, Engine, Seat
from rooftop.domain.launch import Fault
from rooftop.domain.plan import Plan
from rooftop.domain.vocabulary import stops
from rooftop.errors import RooftopError
from rooftop.llama_server import parser
from rooftop.workflows.program import entry, replicas, resolve
from rooftop.workflows.steps import launcher_of

PORT = 8000
IMPORT_S = 180.0
HELP_S = 30.0
_LONGEST = 400
_OWN = ("-m", "rooftop.llama_server")
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}

Words = tuple[str, ...]
Answer = tuple[str, tuple[str, ...]]


def refusals(plans: Iterable[Plan], engine: Engine) -> dict[str, Fault]:
    """By the keys of plans, why the engine's own parser does not take their commands; those that it takes are absent.

    Plans of one program are asked together: a Python engine is imported once for them, which takes seconds.
    """
    groups: dict[Words, dict[str, Command]] = defaultdict(dict)
    for plan in plans:
        if launcher_of(plan).here:
            try:
                program = resolve(plan, engine)
            except RooftopError:
                continue
            groups[program][plan.key] = _command(plan, engine, program)
    found: dict[str, Fault] = {}
    for program, commands in groups.items():
        answers = _asked(program, tuple(commands.values()))
        found |= {key: _fault(answer, engine, program)
                  for key, answer in zip(commands, answers, strict=True) if answer is not None}
    return found


def _command(plan: Plan, engine: Engine, program: Words) -> Command:
    first = replicas(plan, engine)[0]
    return engine.command(first.plan, Seat(program, PORT, replica=first.number, cores=first.cores))


def _asked(program: Words, commands: Sequence[Command]) -> list[Answer | None]:
    """For each command what the parser says against it and the flags that it knows; None where it says nothing."""
    told = [(one.argv[len(program):], dict(one.environment)) for one in commands]
    if program[-2:] == _OWN:
        return [_by_own_parser(words) for words, _ in told]
    if order := entry(program):
        return _by_python(order, told)
    if Path(program[0]).name.startswith("llama-server"):
        return [_by_help(program, {**os.environ, **variables}, words) for words, variables in told]
    return [None for _ in commands]


def _by_python(order: dict[str, str], commands: Sequence[tuple[Words, dict[str, str]]]) -> list[Answer | None]:
    """What vLLM's or SGLang's parser says, each command run up to it in one process of its Python."""
    source = Path(__file__).with_name("_parse_only.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="rooftop-ask-") as folder:
        answer = Path(folder) / "answer.json"
        asked = json.dumps({**order, "commands": commands, "port": PORT, "answer": str(answer)})
        try:
            subprocess.run((order["python"], "-c", source), input=asked.encode(), env={**_QUIET, **os.environ},
                           check=False, cwd=folder, timeout=IMPORT_S, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            told = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return [None for _ in commands]
    return [(one["words"], tuple(one["flags"])) if one["verdict"] == "refused" else None for one in told]


def _by_help(program: Words, environment: dict[str, str], words: Words) -> Answer | None:
    """What a llama-server says: with `--help` behind a command it parses all of it, and serves nothing."""
    known = _run((*program, "--help"), environment)
    if known is None or known.returncode != 0 or "--model" not in known.stdout:
        return None
    done = _run((*program, *words, "--help"), environment)
    if done is None or done.returncode == 0:
        return None
    return done.stderr or done.stdout, tuple(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", known.stdout)))


def _run(words: Words, environment: dict[str, str]) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(words, capture_output=True, text=True, errors="replace", env=environment, check=False,
                              timeout=HELP_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _by_own_parser(words: Words) -> Answer | None:
    """What the parser before the wheel's llama-server says; it is rooftop's own, so it is asked right here."""
    own = parser()
    try:
        _, unknown = own.parse_known_args(words)
    except argparse.ArgumentError as error:
        return f"error while handling argument: {error}", ()
    return (f"error: invalid argument: {unknown[0]}", tuple(own._option_string_actions)) if unknown else None


def _fault(answer: Answer, engine: Engine, program: Words) -> Fault:
    """The refusal in the engine's own words, by its witness where that knows them."""
    text, flags = answer
    lines = text.splitlines()
    found = engine.witness.fault(lines, 2)
    said = _said(lines)
    kind = found.kind if found is not None and stops(found.kind) else "unknown"
    wrong = next(iter(re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", said.partition("error:")[2] or said)), "")
    near = get_close_matches(wrong, flags, n=1, cutoff=0.7) if wrong and wrong not in flags else []
    remedy = f"did you mean {near[0]}?" if near else found.remedy if found is not None and kind != "unknown" else (
        f"correct that setting, or take it out: this {engine.name} does not take it")
    return Fault(kind, f"{Path(program[0]).name}'s own parser refuses the command: {said}", remedy, "arguments")


def _said(lines: Sequence[str]) -> str:
    """The parser's error with what follows it; all that it said where no line is one."""
    at = max((place for place, line in enumerate(lines) if "error:" in line), default=0)
    told = "; ".join(line.strip() for line in lines[at:] if line.strip() and "For further information" not in line)
    return told[:_LONGEST] or "nothing"
