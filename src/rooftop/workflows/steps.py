"""What a study asks for: its plans, load levels, order, and what of it is still to do."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path

from rooftop import registry
from rooftop.domain import codec
from rooftop.domain.engine import Engine
from rooftop.domain.launcher import Launcher, Place
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.study import Setup, Study
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import BadInput
from rooftop.load.job import Target
from rooftop.load.tokenizer import open_tokenizer
from rooftop.store import Store
from rooftop.workflows.fetch import find
from rooftop.workflows.program import installed_version
from rooftop.workflows.soundness import check_study

LOCAL = "local"
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class Step:
    """One level still to be measured: its plan, workload and number of repeat over all rounds."""

    plan: Plan
    workload: Workload
    repeat: int


def read_study(file: str) -> Study:
    """The study in a TOML file, or one that rooftop brings along by its name (`smollm2-cpu`).

    Raises BadInput for a file that is not there, cannot be read or has anything wrong in it.
    """
    path = Path(file)
    if not path.is_file() and path.suffix != ".toml":
        brought = resources.files("rooftop.catalog") / "studies"
        inside = brought / f"{file}.toml"
        if inside.is_file():
            return codec.from_toml(Study, inside.read_text(encoding="utf-8"), where=f"rooftop's own study {file}")
        names = ", ".join(sorted(one.name.removesuffix(".toml") for one in brought.iterdir()))
        raise BadInput("there is no such file, and no study of that name", where=file,
                       remedy=f"name a TOML file, or one of: {names}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the study cannot be read: {error}", where=file) from error
    study = codec.from_toml(Study, text, where=file)
    check_study(study, file)
    return study


def plans(study: Study, machine: Machine) -> tuple[Plan, ...]:
    """The plan of each setup, in the file's order.

    Raises BadInput for two setups that are the same or share a title, and for a study without setups.
    """
    for field, number in (("order.repeats", study.order.repeats), ("order.rounds", study.order.rounds)):
        if number < 1:
            raise BadInput(f"{field} must be at least 1, not {number}")
    if not study.setup:
        raise BadInput("the study has no [[setup]]", remedy="add a [[setup]] table with a layout or settings")
    model, engine = model_of(study), engine_of(study)
    made: list[Plan] = []
    for setup in study.setup:
        plan = Plan(model=model, engine=study.engine, layout=setup.layout, machine=machine,
                    settings=_merged(study.settings, setup.settings),
                    environment=_merged(study.environment, setup.environment),
                    binary=setup.binary or study.binary, title=setup.title or _title(setup),
                    launcher=study.launcher if study.launcher != LOCAL else "", image=setup.image or study.image,
                    launcher_options=study.launcher_options)
        if launcher_of(plan).here:
            plan = replace(plan, engine_version=installed_version(plan, engine))
        for other in made:
            if other.title == plan.title:
                raise BadInput(f"two setups are titled {plan.title!r}", remedy="give each [[setup]] a title of its own")
            if other.key == plan.key:
                raise BadInput(f"setups {other.title!r} and {plan.title!r} ask for the same thing",
                               remedy="change one of them, or raise order.rounds to start a setup more than once")
        made.append(plan)
    return tuple(made)


def _merged(common: tuple[Setting, ...], own: tuple[Setting, ...]) -> tuple[Setting, ...]:
    values = {setting.name: setting for setting in (*common, *own)}
    return tuple(values.values())


def _title(setup: Setup) -> str:
    words = [str(setup.layout)] if setup.layout != Layout() or not setup.settings else []
    words += [f"{setting.name} {setting.value}" for setting in setup.settings]
    return ", ".join(words)


def workloads(study: Study) -> tuple[Workload, ...]:
    """The load levels of a study, in the file's order."""
    load = study.load
    listed = load.concurrency
    if not listed or min(listed) < 1 or len(set(listed)) < len(listed):
        raise BadInput("load.concurrency must list whole numbers of at least 1, each once")
    for name in ("input_tokens", "output_tokens", "requests_per_user", "seconds"):
        value = getattr(load, name)
        if value is not None and value <= 0:
            raise BadInput(f"load.{name} must be above 0, not {value:g}")
    per_user = load.requests_per_user
    if per_user is None and load.seconds is None:
        per_user = 4
    return tuple(Workload(arrivals=Arrivals(concurrency=users), input_tokens=load.input_tokens,
                          output_tokens=load.output_tokens, natural=load.natural,
                          shared_prefix_tokens=load.shared_prefix_tokens, warmup=users, seed=load.seed, api=load.api,
                          stop=Stop(requests=max(per_user * users, load.least_requests) if per_user else None,
                                    seconds=load.seconds))
                 for users in listed)


def rounds(study: Study, all_plans: Sequence[Plan]) -> Iterator[tuple[int, Plan]]:
    """(round, plan) in the order in which setups are started; shuffled anew each round where the study asks so."""
    for number in range(study.order.rounds):
        order = list(all_plans)
        if study.order.setups == "shuffled":
            random.Random(f"{study.load.seed}/{number}").shuffle(order)
        yield from ((number, plan) for plan in order)


def steps(study: Study, plan: Plan, number: int) -> tuple[Step, ...]:
    """The levels of one start of a setup: repeats outside, levels inside, so that drift touches all levels alike."""
    return tuple(Step(plan, workload, number * study.order.repeats + repeat)
                 for repeat in range(study.order.repeats) for workload in workloads(study))


def remaining(study: Study, all_plans: Sequence[Plan], store: Store) -> dict[tuple[int, str], tuple[Step, ...]]:
    """What is still to be measured, by (round, plan key); a level that a fault ended counts as measured."""
    done = {(trial.plan.key, trial.workload, trial.repeat) for trial in store.trial_heads(study=study.name)
            if not trial.unfinished}
    return {(number, plan.key): tuple(step for step in steps(study, plan, number)
                                      if (plan.key, step.workload, step.repeat) not in done)
            for number, plan in rounds(study, all_plans)}


def failed_plans(study: Study, store: Store) -> set[str]:
    """Keys of the plans whose latest start failed."""
    latest = {launch.plan.key: launch for launch in store.launches(study=study.name)}
    return {key for key, launch in latest.items() if launch.fault is not None}


def engine_of(study: Study) -> Engine:
    """The engine that a study names.  Raises BadInput where there is none of that name."""
    engine: Engine = registry.load("engines", study.engine)  # type: ignore[assignment]  # its last line is the check
    return engine


def launcher_of(plan: Plan) -> Launcher:
    """The launcher that a plan names, for its image, options and model.

    Raises BadInput where there is none of that name, or it cannot give what the plan asks.
    """
    launcher: Launcher = registry.load("launchers", plan.launcher or LOCAL)  # type: ignore[assignment]
    paths = (plan.model.path,) if plan.model.path.startswith("/") and Path(plan.model.path).exists() else ()
    return launcher.at(Place(plan.image, plan.launcher_options, paths))


def model_of(study: Study) -> Model:
    """The study's model: of the catalog, at a path, by its name on a hub, or by its path inside a container.

    vLLM and SGLang get a hub's models themselves; llama-server is given a file.  A name of two words is a hub's only
    where its first is no folder here: it is more often a path that is mistyped.  Raises MissingPart and BadInput as
    `fetch.find` does.
    """
    try:
        return find(study.model)
    except BadInput:
        inside = any(study.model.startswith(target) for target in _targets(study.launcher_options))
        hub = _HUB.fullmatch(study.model) and not Path(study.model).parent.is_dir()
        if (inside and study.launcher != LOCAL) or (hub and (study.launcher != LOCAL or study.engine != "llamacpp")):
            return Model(study.model if not inside else Path(study.model).stem, study.model)
        raise


def check_files(study: Study) -> None:
    """See that the engine can take the model for what it is, and that the tokenizer is one.

    Raises BadInput where not, MissingPart where the package that reads the tokenizer is not installed.
    """
    path = Path(model_of(study).path)
    if study.engine == "llamacpp" and path.is_dir():
        inside = sorted(one.name for one in path.glob("*.gguf"))
        raise BadInput("llama-server reads one GGUF file, and this is a folder", where=str(path),
                       remedy=f"name a file in it: {', '.join(inside[:5])}" if inside else "convert the model to GGUF")
    if study.engine == "llamacpp" and path.is_file() and not _begins(path, b"GGUF"):
        raise BadInput("llama-server reads GGUF files, and this is none", where=str(path),
                       remedy="name a .gguf file; one that was cut off or is a pointer must be downloaded again")
    if study.engine in ("vllm", "sglang") and path.is_dir() and not any(path.glob("*.json")):
        raise BadInput("this folder holds no model: it has no config.json", where=str(path),
                       remedy="name the folder that holds config.json and the weights")
    if study.tokenizer:
        open_tokenizer(Target((), ""), study.tokenizer)


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _targets(options: Sequence[str]) -> Iterator[str]:
    """Where a container sees what is mounted into it (`SOURCE:TARGET[:MODE]`)."""
    for flag, value in pairwise((*options, "")):
        told = flag.partition("=")[2] if flag.startswith("--volume=") else value if flag in ("-v", "--volume") else ""
        if len(parts := told.split(":")) > 1:
            yield parts[1].rstrip("/") + "/"
