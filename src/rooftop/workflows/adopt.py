"""Bring your own: a deployment read from its file, studied, and handed back changed."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rooftop import registry
from rooftop.domain.engine import Engine, Refusal, Seat
from rooftop.domain.form import Deployment, Form
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.study import Study
from rooftop.errors import BadInput, NoLayout

# What of a deployment's text means that it has GPUs; vLLM's and SGLang's images do nothing without.
_GPUS = frozenset(("gpus", "device", "devices", "runtime", "runtimeClassName", "deploy", "resources"))
_LIMIT = re.compile(r"^[ \t]*((?:Memory|CPU|IO|Tasks|Limit|OOM|Nice|NUMA)\w*=[^\n]*?)[ \t]*$", re.M)
_PYTHON = re.compile(r"""(?<![\w$/{}%])(/[^\s"'$]*/python[\d.]*)\s+-m\s+(?:vllm|sglang)[.\s]""")


def adopt(path: Path | str, part: str = "") -> Deployment:
    """The deployment in a file; `part` names which of several engines in it is meant.

    Raises BadInput for a file that cannot be read, has none of the known forms or runs no engine.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file cannot be read: {error}", where=str(path)) from error
    for name in registry.names("forms"):
        form = _form(name)
        if form.reads(text):
            try:
                return form.read(text, part)
            except BadInput as error:
                raise BadInput(error.what, where=", ".join(filter(None, (str(path), error.where))),
                               remedy=error.remedy) from error
    raise BadInput("there is no vLLM, SGLang or llama-server command in it", where=str(path),
                   remedy=f"give one of: {', '.join(registry.names('forms'))}; where a script starts the engine, give "
                          "that script")


def refuses(deployment: Deployment) -> Refusal | None:
    """The engine's own rule against the deployment as it stands; None where it takes it, or the layout is unknown."""
    return _engine(deployment.plan).refuses(deployment.plan)


def hand_over(deployment: Deployment, plan: Plan) -> str:
    """The deployment's text with the plan's layout, settings and environment; all else as it stood, secrets too.

    Model, served name, host and port stay the deployment's own.  Raises BadInput for a plan of another engine or
    model, or a change that this form cannot say; NoLayout where the engine refuses the plan (for another reason than it
    would refuse the deployment as it stands: a fork may know options of its own).
    """
    old, engine = deployment.plan, _engine(deployment.plan)
    if plan.engine != old.engine:
        raise BadInput(f"the plan is for {plan.engine}, the deployment runs {old.engine}")
    if not _names(plan) & _names(old):
        raise BadInput(f"the plan serves {plan.model.name}, the deployment {old.model.name}",
                       remedy="choose a plan of the same model")
    refusal = engine.refuses(plan)
    if refusal is not None and refusal != engine.refuses(old):
        raise NoLayout(f"{refusal.rule}: {refusal.reason}", remedy=refusal.remedy)
    if not engine.routes_dp and (plan.layout or Layout()).dp > 1:
        raise BadInput(f"one {engine.name} server is one replica, the plan has dp {(plan.layout or Layout()).dp}",
                       remedy="hand over the plan with dp 1 and deploy it that many times behind a router")
    form = _form(deployment.form)
    changed = replace(deployment, environment=_environment(deployment, plan))
    settings = _settings(deployment, plan, engine)
    for flags in _layouts(deployment, plan, engine, settings):
        text = form.write(replace(changed, flags=tuple(Setting(*pair) for pair in flags.items())))
        if plan.layout is None or form.read(text, deployment.part).plan.layout in (plan.layout, None):
            return text
    raise BadInput(f"this {deployment.form} cannot be made to say {plan.layout}",
                   remedy="write the parallel sizes in it as plain numbers, then try again")


def chosen(deployment: Deployment, study: Study, title: str) -> Plan:
    """The plan of one setup of a study that `as_study` began: its layout, settings and environment.

    Raises BadInput for a title that the study has not, or a study of another engine.
    """
    setup = next((one for one in study.setup if one.title == title), None)
    if setup is None or study.engine != deployment.plan.engine:
        titles = ", ".join(repr(one.title) for one in study.setup if one.title)
        raise BadInput(f"the study {study.name} has no setup {title!r} for {deployment.plan.engine}",
                       remedy=f"name one of: {titles}" if titles else "give its setups titles")
    settings, environment = ({one.name: one for one in (*both[0], *both[1])} for both in (
        (study.settings, setup.settings), (study.environment, setup.environment)))
    silent = deployment.plan.layout is None and setup.layout == Layout()
    return replace(deployment.plan, layout=None if silent else setup.layout, settings=tuple(settings.values()),
                   environment=tuple(environment.values()), title=title)


def place_of(deployment: Deployment) -> tuple[str, tuple[str, ...]]:
    """Where a study runs the deployment's engine: the launcher's name and its options.

    An image runs in docker with the text's mounts, a unit's engine as a unit with its limits, all else on this machine.
    Secrets go into a container by name, with the values that they have where rooftop runs.
    """
    if not deployment.image:
        unit = deployment.form == "systemd"
        return ("systemd", tuple(_LIMIT.findall(deployment.text))) if unit else ("local", ())
    gpus = deployment.plan.engine != "llamacpp" or deployment.gpus or _GPUS & set(deployment.kept)
    sources = ((_source(one.source), one.target) for one in deployment.mounts if one.source)
    mounts = [word for source, target in sources if "$" not in source for word in ("--volume", f"{source}:{target}")]
    secrets = [word for name in deployment.secrets if not name.startswith("--") for word in ("--env", name)]
    return "docker", (*(("--gpus", "all") if gpus else ()), "--ipc", "host", *mounts, *secrets)


def _source(path: str) -> str:
    """A mounted folder as docker takes it: absolute, or the name of a volume."""
    told = os.path.expandvars(str(Path(path).expanduser()))
    return str(Path(told).absolute()) if path.startswith(".") else told


def cautions(deployment: Deployment, plan: Plan) -> tuple[str, ...]:
    """What a person must still change by hand around the engine's command."""
    ranks = plan.layout.ranks if plan.layout else 1
    if deployment.gpus is not None and ranks > deployment.gpus:
        return (f"{plan.layout} needs {ranks} GPUs, the text gives it {deployment.gpus}",)
    return ()


def _names(plan: Plan) -> set[str]:
    """Every name by which a model may be known: served name, file or folder, with and without .gguf."""
    path = plan.model.path.rstrip("/").rsplit("/", 1)[-1]
    return {name.lower() for name in (plan.model.name, path, path.removesuffix(".gguf")) if name}


def _form(name: str) -> Form:
    form: Form = registry.load("forms", name)  # type: ignore[assignment]  # its last line is the check
    return form


def _engine(plan: Plan) -> Engine:
    engine: Engine = registry.load("engines", plan.engine or "")  # type: ignore[assignment]
    return engine


def _spoken(engine: Engine, plan: Plan) -> dict[str, SettingValue]:
    """The engine's own command for a plan, as flags by their long names."""
    words = engine.command(plan, Seat(engine.programs[0].argv, 1)).argv
    return {one.name: one.value for one in _form("command").read(shlex.join(words)).flags}


def _settings(deployment: Deployment, plan: Plan, engine: Engine) -> dict[str, SettingValue]:
    """The deployment's flags with the plan's settings, each changed one as the engine's version spells it."""
    flags = {one.name: one.value for one in deployment.flags}
    alone = replace(plan, layout=None, settings=(), environment=(), engine_version=deployment.plan.engine_version)
    silent = _spoken(engine, alone)
    old = {one.name: one.value for one in deployment.plan.settings}
    named = {one.name for one in plan.settings}
    for setting in plan.settings:
        if old.get(setting.name) == setting.value and setting.name in old:
            continue
        spoken = _spoken(engine, replace(alone, settings=(setting,)))
        said = {name: value for name, value in spoken.items() if silent.get(name) != value or name == setting.name}
        named |= set(said)
        flags |= said
        if setting.name not in said:
            flags.pop(setting.name, None)
    for one in _studied(deployment)[0]:
        if one.name not in named:
            flags.pop(one.name, None)
    return flags


def _layouts(deployment: Deployment, plan: Plan, engine: Engine,
             flags: dict[str, SettingValue]) -> Iterator[dict[str, SettingValue]]:
    """The flags with the plan's layout: first without what the text did without so far, then with all of it."""
    if plan.layout is None or plan.layout == deployment.plan.layout:
        yield flags
        return
    alone = replace(plan, settings=(), environment=(), engine_version=deployment.plan.engine_version)
    silent = _spoken(engine, replace(alone, layout=Layout()))
    new, old = ({name: value for name, value in _spoken(engine, replace(alone, layout=layout)).items()
                 if silent.get(name) != value} for layout in (plan.layout, deployment.plan.layout or Layout()))
    kept = {name: value for name, value in flags.items()
            if name not in deployment.sizes or name in new or (value == 1 and value is not True)}
    yield {**kept, **{name: value for name, value in new.items() if name in kept or name not in old}}
    yield {**kept, **new}


def _environment(deployment: Deployment, plan: Plan) -> tuple[Setting, ...]:
    """The deployment's variables with the plan's; those that a study never sees stay."""
    told = {one.name: one.value for one in deployment.environment}
    new = {one.name: one.value for one in plan.environment}
    for one in _studied(deployment)[1]:
        if one.name not in new:
            told.pop(one.name)
    return tuple(Setting(*pair) for pair in {**told, **new}.items())


def _studied(deployment: Deployment) -> tuple[tuple[Setting, ...], tuple[Setting, ...]]:
    """The settings and variables that mean the same in a study: those of known values."""
    return (tuple(one for one in deployment.plan.settings if _known(one.value)),
            tuple(one for one in deployment.plan.environment if _known(one.value)))


def _known(value: SettingValue) -> bool:
    return not isinstance(value, str) or not re.search(r"\$[\w{(]|`", value)


def as_study(deployment: Deployment, name: str = "") -> str:
    """A study file with the deployment as its one setup, ready for more.

    The model's path is the machine's where a mount tells it.  Secrets are named in a comment only: the engine takes
    them from the environment in which the study runs.  Raises BadInput where model or layout are not in the text.
    """
    plan = deployment.plan
    model = _outside(deployment, plan.model.path)
    if not model or not _known(model):
        raise BadInput("the study needs a model, which the text does not tell",
                       remedy="write the model's path into the command in place of the variable")
    if plan.layout is None and deployment.sizes:
        raise BadInput("the study needs a layout, which the text does not tell: "
                       + ", ".join(f"--{size}" for size in deployment.sizes),
                       remedy="write the parallel sizes into the command as plain numbers")
    settings, environment = _studied(deployment)
    launcher, options = place_of(deployment)
    binary = plan.binary or ("" if deployment.image else next(iter(_PYTHON.findall(deployment.text)), ""))
    left = [one.name for one in plan.settings if one not in settings]
    lines = [f"# A {deployment.form} deployment of {plan.engine}"
             + (f" {plan.engine_version}" if plan.engine_version else "") + ", as its owner wrote it.",
             *([f"# Not here: {', '.join(deployment.secrets)}.  Set what is needed where this study runs."]
               if deployment.secrets else []),
             *([f"# Left out, their values are not in the text: {', '.join(left)}."] if left else []),
             f"name = {_toml(name or plan.title or plan.model.name)}", f"engine = {_toml(plan.engine or '')}",
             f"model = {_toml(model)}", *([f"binary = {_toml(binary)}"] if binary else []),
             *([f"launcher = {_toml(launcher)}"] if launcher != "local" else []),
             *([f"image = {_toml(deployment.image)}"] if deployment.image else []),
             *([f"launcher_options = {json.dumps(options)}"] if options else []),
             *_table("settings", settings), *_table("environment", environment),
             "", "[[setup]]", 'title = "as deployed"', *_degrees(plan.layout),
             "", "# Each further [[setup]] is a variation: another layout, or settings on top of those above.", ""]
    return "\n".join(lines)


def _outside(deployment: Deployment, path: str) -> str:
    """A path inside the container as the machine has it."""
    for mount in sorted(deployment.mounts, key=lambda one: -len(one.target)):
        inside = mount.target.rstrip("/")
        if mount.source and (path == inside or path.startswith(inside + "/")):
            return mount.source.rstrip("/") + path[len(inside):]
    return path


def _table(name: str, settings: tuple[Setting, ...]) -> list[str]:
    values: Mapping[str, SettingValue] = {one.name: one.value for one in settings}
    return ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in values.items())] if values else []


def _degrees(layout: Layout | None) -> list[str]:
    if layout is None:
        return ["# layout: not in the text; without one the engine spreads the model as it does by itself"]
    degrees = {name: getattr(layout, name) for name in ("tp", "pp", "dp", "ep", "attention_dp", "dcp")}
    told = ", ".join(f"{name} = {value}" for name, value in degrees.items() if value > 1)
    return [f"layout = {{ {told} }}" if told else "layout = { tp = 1 }"]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _toml(value: SettingValue) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else str(value)
