"""Run a study: launch each setup, verify it, measure its levels, store, go on."""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from rooftop.domain.engine import Engine
from rooftop.domain.launch import Fault
from rooftop.domain.plan import Plan
from rooftop.domain.progress import Progress, Tell
from rooftop.domain.study import Study
from rooftop.domain.trial import Trial
from rooftop.errors import BadInput, Interrupted, ServerRefused, ServerUnreachable, StoreFailed
from rooftop.hardware.local import this_machine
from rooftop.load.job import Target
from rooftop.load.target import probe
from rooftop.store import Store
from rooftop.telemetry import Source, metrics_page, processes
from rooftop.workflows.ask import refusals
from rooftop.workflows.launch import Running, started
from rooftop.workflows.run import Seen, Slot, locked, new_head, recover, run_level, spool_folder
from rooftop.workflows.steps import Step, check_files, engine_of, failed_plans, launcher_of, plans, remaining, rounds

STARTS = 2
DYING_S = 1.0


@dataclass(slots=True)
class Clock:
    """How far a study is, and how long what remains should take by what has run so far."""

    total: int
    done: int = 0
    spent_s: float = 0.0
    timed: int = 0

    def count(self, seconds: float) -> None:
        """One level took `seconds`, its share of the start included."""
        self.done += 1
        self.timed += 1
        self.spent_s += seconds

    def skip(self, levels: int) -> None:
        """Levels that will not be run."""
        self.done += levels

    @property
    def left_s(self) -> float | None:
        """Seconds that remain at the mean pace so far; None before the first level has ended."""
        return (self.total - self.done) * self.spent_s / self.timed if self.timed else None


@dataclass(slots=True)
class Site:
    """What all setups of one run of a study share."""

    study: Study
    engine: Engine
    store: Store
    tell: Tell
    clock: Clock
    title: str = ""
    refused: Mapping[str, Fault] = field(default_factory=dict)
    now: str = field(default="", init=False)

    def say(self, stage: str, detail: str = "") -> None:
        """Tell what runs now, with the place in the whole study."""
        self.now = f"{self.title}: {detail}" if detail else self.title
        self._tell(stage, self.now)

    def relay(self, progress: Progress) -> None:
        """Pass on what a part of the work says, behind what runs now."""
        self._tell(progress.stage, f"{self.now}, {progress.detail}" if progress.detail else self.now)

    def _tell(self, stage: str, words: str) -> None:
        self.tell(Progress(stage, words, self.clock.done, self.clock.total, self.clock.left_s))


def run_study(study: Study, *, store: Store, tell: Tell, retry_failed: bool = False) -> None:
    """Run what remains of a study, one setup after another; each level is stored the moment it ends.

    A setup that does not start is kept with its reason and the study goes on; on a later run it is tried again only
    with `retry_failed`.  Raises Interrupted on Ctrl-C, after all servers are gone; BadInput for a study that cannot be,
    StoreFailed where another rooftop works on it.
    """
    all_plans = plans(study, this_machine())
    check_files(study)
    with _alone(study, store):
        recover(store)
        todo = remaining(study, all_plans, store)
        failed = failed_plans(study, store) if not retry_failed else set()
        site = Site(study, engine_of(study), store, tell, Clock(sum(map(len, todo.values()))))
        site.refused = _refused(site, [plan for plan in all_plans if plan.key not in failed and any(
            todo[number, plan.key] for number in range(study.order.rounds))])
        for number, plan in rounds(study, all_plans):
            levels = todo[number, plan.key]
            site.title = plan.title
            if levels and plan.key in failed:
                site.say("skip", "did not start before; --retry-failed tries again")
                site.clock.skip(len(levels))
            elif levels and not _run_setup(plan, levels, site):
                failed.add(plan.key)
    tell(Progress("study", done=site.clock.done, total=site.clock.total, last=True))


def _refused(site: Site, waiting: Sequence[Plan]) -> Mapping[str, Fault]:
    """What the engine's own parser refuses of the plans that wait, by their keys."""
    if not site.study.ask_parser or not waiting:
        return {}
    site.say("ask", "the engine's own parser")
    return refusals(waiting, site.engine)


@contextmanager
def _alone(study: Study, store: Store) -> Iterator[None]:
    """Two rooftops may share a store, but not a study: each would measure what the other measures."""
    folder = spool_folder(store.path)
    lock = folder / f"study-{hashlib.sha256(study.name.encode()).hexdigest()[:16]}.lock"
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(lock))
        except BlockingIOError as error:
            raise StoreFailed(f"another rooftop is running the study {study.name!r} on this store",
                              where=str(store.path), remedy="wait until it has ended, or give --store another file, or "
                              "this study another name") from error
        except OSError as error:
            raise StoreFailed(f"the folder for raw bytes cannot be written: {error.strerror}", where=str(folder),
                              remedy="free space there, or put the store elsewhere with --store") from error
        yield


def _run_setup(plan: Plan, levels: Sequence[Step], site: Site) -> bool:
    """Start a setup and measure its levels; False where it did not start.

    An engine that dies under load is started once more for the levels that remain.
    """
    left = list(levels)
    for _ in range(STARTS):
        began = time.monotonic()
        site.say("launch", "starting")
        with started(plan, engine=site.engine, launcher=launcher_of(plan), logs=site.store.path.parent,
                     timeout_s=site.study.start_timeout_s, study=site.study.name, tell=site.relay,
                     refused=site.refused.get(plan.key)) as running:
            target = _target(running, site)
            site.store.add_launch(running.launch, running.log_texts())
            if target is None:
                site.clock.skip(len(left))
                return False
            while left and running.alive():
                _measure(left.pop(0), target, running, site)
                site.clock.count(time.monotonic() - began)
                began = time.monotonic()
        if not left:
            return True
    site.clock.skip(len(left))
    return True


def _target(running: Running, site: Site) -> Target | None:
    """What the server takes; None, and the launch has a fault, where it did not start or refuses to be asked."""
    if not running.launch.ready:
        return None
    site.say("probe", "asking what the server takes")
    try:
        return probe(running.urls, model=running.launch.plan.model.name, api=site.study.load.api)
    except (ServerRefused, ServerUnreachable) as error:
        fault = death(running) or Fault("unknown", f"it was ready, but {error.what}", error.remedy)
        running.launch = replace(running.launch, fault=replace(fault, last_phase="probe"))
        return None


def death(running: Running) -> Fault | None:
    """Why a server ended, None where all run; one that is just dying is given a moment to be gone."""
    until = time.monotonic() + DYING_S
    while (fault := running.fault()) is None and time.monotonic() < until:
        time.sleep(0.02)
    return fault


def _measure(step: Step, target: Target, running: Running, site: Site) -> Trial:
    users = step.workload.arrivals.concurrency
    site.say("level", f"{users} user{'s' if users > 1 else ''}, repeat {step.repeat + 1}")
    slot = Slot(plan=step.plan, launch=running.launch, study=site.study.name, repeat=step.repeat,
                tokenizer=site.study.tokenizer)
    seen = Seen(sources(running, site.engine), running.check, lambda: death(running))
    try:
        trial = run_level(target, step.workload, slot, store=site.store, tell=site.relay, seen=seen)
    except (BadInput, ServerRefused, ServerUnreachable) as error:
        died = None if isinstance(error, BadInput) else death(running)
        fault = died or Fault("prompts", error.what, error.remedy)
        trial = replace(new_head(step.workload, slot), fault=fault)
        site.store.add_trial(trial)
    if trial.fault is not None and trial.fault.kind == "stopped":
        raise Interrupted("stopped", where=site.study.name,
                          remedy="run the same command again: it goes on where it stopped")
    return trial


def sources(running: Running, engine: Engine) -> tuple[Source, ...]:
    """What is sampled while a level runs: each server's metrics page and the machine's processors."""
    pages = [metrics_page(url + engine.pages.metrics, engine.witness.read_metrics, server=number)
             for number, url in enumerate(running.urls)]
    return (*pages, processes(running.pids))
