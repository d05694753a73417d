"""Which deployments of a model fit on a machine: layouts, memory, users, commands."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from rooftop import registry
from rooftop.domain.architecture import Architecture
from rooftop.domain.engine import Engine, Refusal, Seat
from rooftop.domain.fit import Fit, Option, Proposal, Refused
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.errors import BadInput, DoesNotFit, NoLayout
from rooftop.perfmodel.fitting import fit
from rooftop.perfmodel.layouts import Layouts, candidates, nearest, sort_out
from rooftop.workflows.fetch import find
from rooftop.workflows.look import look_at_model
from rooftop.workflows.look_machine import look_at_machine
from rooftop.workflows.speed import USERS, Aim, ranked, settings_worth, tables_used, with_speed

GPU_ENGINES, GGUF_ENGINES = ("sglang", "vllm"), ("llamacpp",)
PORT = 8000
MOST_SLOTS = 256


def plan(model: str, machine: str | None = None, *, engines: Sequence[str] = (), input_tokens: int = 1024,
         output_tokens: int = 1024, gpus: int | None = None, settings: Sequence[Setting] = (),
         aim: Aim = USERS) -> Proposal:
    """All layouts of a model on a machine: those that fit, best first, and those that a rule or memory refuses.

    model: a catalog's name, a folder, a config.json or a GGUF file; machine: as `look_at_machine` takes it, None = this
    one; engines: () = those that read such a model; gpus: use only so many; settings: flags for every engine asked;
    aim: what is best (default: most users).
    Where only a flag stands between a layout and its fit (the engine's share of memory, the longest context, an fp8
    cache), the option carries that flag and a note says so.
    Raises BadInput for what is not there or contradicts itself, DoesNotFit where no layout fits, naming the nearest
    change that does, NoLayout where no layout is legal.
    """
    if min(input_tokens, output_tokens) < 1:
        raise BadInput(f"{input_tokens} tokens in and {output_tokens} out is no request", where="lengths",
                       remedy="--input-tokens and --output-tokens of at least 1")
    named, architecture = _model(model)
    place = _part_of(look_at_machine(machine), gpus)
    longest = architecture.context
    if longest and input_tokens + output_tokens > longest:
        raise DoesNotFit(f"a request of {input_tokens} + {output_tokens} tokens exceeds the {longest} that "
                         f"{architecture.name} was made for", where=model,
                         remedy=f"--input-tokens and --output-tokens of at most {longest} together")
    options: list[Option] = []
    refused: list[Refused] = []
    unfit: list[Fit] = []
    for name in engines or (GGUF_ENGINES if named.path.endswith(".gguf") else GPU_ENGINES):
        engine = cast("Engine", registry.load("engines", name))
        asked = Plan(named, name, settings=tuple(settings), machine=place)
        found = sort_out(asked, architecture, candidates(architecture, name, place.world), engine.refuses)
        fits = [_fitted(replace(asked, layout=layout), architecture, input_tokens, output_tokens)
                for layout in found.legal]
        unfit += [one for _, one in fits if not one.fits]
        options += [Option(made, one, engine.command(made, _seat(engine)))
                    for made, one in fits if one.fits]
        refused += _grouped(name, found, [one for _, one in fits])
    if not options:
        raise _nothing(architecture, place, unfit, refused)
    options = ranked([with_speed(option, architecture, input_tokens, output_tokens, aim) for option in options], aim)
    return Proposal(architecture.name, place, input_tokens, output_tokens, tuple(options), tuple(refused),
                    (*architecture.notes, *_about_nodes(place), *tables_used(options[0])),
                    settings_worth(options[0], architecture, input_tokens, output_tokens))


def _about_nodes(machine: Machine) -> Iterator[str]:
    if machine.nodes > 1:
        yield f"the command is that of one node: on {machine.nodes} nodes it needs the engine's own flags for nodes"


def _seat(engine: Engine) -> Seat:
    """The engine's usual program at its usual port, in words that hold on another machine too."""
    return Seat(tuple("python3" if word == "{python}" else word for word in engine.programs[0].argv), PORT)


def _model(name: str) -> tuple[Model, Architecture]:
    """The model as a plan names it, and its shape.  A folder with one GGUF file is that file."""
    path = Path(name).expanduser()
    if not path.exists() and "/" not in name:
        known = find(name)
        return known, look_at_model(known.path)
    architecture = look_at_model(name)
    files = sorted(path.glob("*.gguf")) if path.is_dir() and not (path / "config.json").is_file() else []
    served = files[0] if files else path.parent if path.name == "config.json" else path
    return Model(architecture.name, str(served) if path.exists() else name), architecture


def _part_of(machine: Machine, gpus: int | None) -> Machine:
    """The machine with only its first GPUs.  Raises BadInput for more than it has, and for none."""
    for gpu in machine.gpus:
        if gpu.memory_bytes is None:
            raise BadInput(f"the memory of {gpu.name} is not known", where=machine.name,
                           remedy="name a machine of the catalog, or describe this one in a .toml file")
    if gpus is None:
        return machine
    if not 1 <= gpus <= machine.world:
        raise BadInput(f"{gpus} GPUs were asked of {machine.name}, which has {machine.world}", where="--gpus",
                       remedy=f"1 to {machine.world}" if machine.world else "leave --gpus out, or name a machine")
    count = len(machine.gpus)
    if gpus <= count:
        return replace(machine, gpus=machine.gpus[:gpus], nodes=1)
    if gpus % count:
        raise BadInput(f"{gpus} GPUs do not fill nodes of {count}", where="--gpus", remedy=f"a multiple of {count}")
    return replace(machine, nodes=gpus // count)


def _fitted(asked: Plan, architecture: Architecture, input_tokens: int, output_tokens: int) -> tuple[Plan, Fit]:
    """The plan and its fit, with the settings that the fit itself names where those are all that is missing."""
    found = fit(asked, architecture, input_tokens, output_tokens)
    changed: list[Setting] = []
    for _ in range(3):
        if found.fits or not found.change:
            break
        changed += found.change
        kept = [one for one in asked.settings if one.name not in {new.name for new in found.change}]
        asked = replace(asked, settings=(*kept, *found.change))
        found = fit(asked, architecture, input_tokens, output_tokens)
    if found.fits and asked.engine == "llamacpp" and asked.setting("parallel") is None:
        slots = min(found.users // found.pools, MOST_SLOTS)
        more = (Setting("parallel", slots), Setting("ctx-size", slots * (input_tokens + output_tokens)))
        asked = replace(asked, settings=(*asked.settings, *more))
        found = fit(asked, architecture, input_tokens, output_tokens)
    if found.fits and changed:
        flags = ", ".join(f"--{one.name} {one.value}" for one in changed)
        found = replace(found, notes=(f"does not fit with the engine's defaults: {flags} is set", *found.notes))
    return asked, found


def _grouped(engine: str, layouts: Layouts, fits: Sequence[Fit]) -> Iterator[Refused]:
    """The refusals by rule, in the order in which they were met; memory's refusals name a layout that fits."""
    by_rule: dict[str, tuple[Refusal, list[Layout]]] = {}
    good = [one.layout for one in fits if one.fits]
    for layout, refusal in (*layouts.refused, *((one.layout, _pointed(one, good)) for one in fits if one.refusal)):
        by_rule.setdefault(refusal.rule, (refusal, []))[1].append(layout)
    yield from (Refused(engine, refusal, tuple(found)) for refusal, found in by_rule.values())


def _pointed(one: Fit, good: Sequence[Layout]) -> Refusal:
    """The refusal of a fit; where no flag helps, with the nearest layout that fits as its remedy."""
    refusal = one.refusal or Refusal("", "")
    near = nearest(one.layout, good)
    return replace(refusal, remedy=f"use {near}") if near is not None and not one.change else refusal


def _nothing(architecture: Architecture, machine: Machine, unfit: Sequence[Fit], refused: Sequence[Refused]
             ) -> DoesNotFit | NoLayout:
    """Why there is no option at all: what comes nearest to fitting, or the first rule."""
    if unfit:
        best = max(unfit, key=lambda one: (one.longest, one.left_bytes))
        reason = best.refusal.reason if best.refusal else ""
        return DoesNotFit(f"{architecture.name} does not fit on {machine.name}; nearest is {best.engine} with "
                          f"{best.layout}: {reason}", where=machine.name,
                          remedy=best.refusal.remedy if best.refusal else "")
    first = refused[0].refusal
    return NoLayout(f"no layout of {architecture.name} is legal on {machine.name}: {first.reason} ({first.rule})",
                    where=machine.name, remedy=first.remedy)
