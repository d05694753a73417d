"""One load level on a running server: prompts, load, samples, and the stored trial."""

import fcntl
import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rooftop.domain import codec
from rooftop.domain.launch import Claim, Launch
from rooftop.domain.plan import Plan
from rooftop.domain.progress import Tell
from rooftop.domain.trial import Sample, Trial
from rooftop.domain.workload import Workload
from rooftop.errors import StoreFailed
from rooftop.hardware.local import surroundings, this_machine
from rooftop.load import level as levels
from rooftop.load import prompts
from rooftop.load.job import Job, Target
from rooftop.store import Store
from rooftop.telemetry import Source, other_cpu_share, watching

HEAD = "trial.json"
OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Seen:
    """What watches a level: sources sampled at 2 Hz, and the check of claims once it has run."""

    sources: tuple[Source, ...] = ()
    claims: Callable[[], tuple[Claim, ...]] = tuple


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a level: its plan and launch, its study and number of repeat, the tokenizer for its prompts."""

    plan: Plan
    launch: Launch | None = None
    study: str = ""
    repeat: int = 0
    tokenizer: str = ""
    timeout_s: float = 120.0


def run_level(target: Target, workload: Workload, slot: Slot, *, store: Store, tell: Tell,
              seen: Seen | None = None) -> Trial:
    """Measure one level and store it whole before anything is computed from it.

    Bytes and stamps are spooled beside the store while it runs; the spool goes once the trial is stored, and stays if
    storing fails.  Raises StoreFailed; a level that fails is a Trial with a fault, not an exception.
    """
    seen = seen or Seen()
    spool = spool_folder(store.path) / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    made, notes = prompts.make_prompts(target, workload, prompt_count(workload), tokenizer=slot.tokenizer,
                                       seed_salt=spool.name)
    machine = slot.plan.machine or this_machine()
    head = Trial(id=spool.name, origin="measured", plan=slot.plan, workload=workload,
                 started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                 surroundings=surroundings(machine), launch_id=slot.launch.id if slot.launch else "",
                 study=slot.study, repeat=slot.repeat, notes=(*target.notes, *notes))
    _open_spool(spool, head)
    job = Job(target=target, workload=workload, spool=str(spool), timeout_s=slot.timeout_s)
    with _owned(spool), watching(seen.sources) as watch:
        level = levels.measure(job, made, tell=tell)
    trial = finished(head, level, samples=watch.samples(level.origin_ns), notes=watch.notes)
    trial = replace(trial, claims=seen.claims())
    store.add_trial(trial, spool=spool)
    shutil.rmtree(spool, ignore_errors=True)
    return trial


def _open_spool(spool: Path, head: Trial) -> None:
    try:
        spool.mkdir(parents=True)
        (spool / HEAD).write_text(codec.to_json(head), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"the level's raw bytes cannot be kept: {error.strerror}", where=str(spool),
                          remedy="free space there, or put the store elsewhere with --store") from error


def finished(head: Trial, level: levels.Level, *, samples: Sequence[Sample] = (), notes: Sequence[str] = ()) -> Trial:
    """The trial that a level made of its head."""
    around = head.surroundings
    if around is not None:
        around = replace(around, other_cpu_share=other_cpu_share(samples))
    return replace(head, surroundings=around, replies=level.replies, client=level.client, fault=level.fault,
                   measured_s=level.measured_s,
                   samples=tuple(samples), started_at=level.started_at or head.started_at,
                   notes=(*head.notes, *level.notes, *notes))


def recover(store: Store) -> int:
    """Store what is left in the spools of levels whose rooftop was killed, as stopped trials; how many there were.

    A spool belongs to a living rooftop while its process holds the lock of its `owner` file; those are left alone.
    """
    folder = spool_folder(store.path)
    count = 0
    for spool in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (spool / HEAD).is_file() or _is_owned(spool):
            continue
        head = codec.from_json(Trial, (spool / HEAD).read_text(encoding="utf-8"), where=str(spool / HEAD))
        store.add_trial(finished(head, levels.read_spool(spool), notes=("rooftop was killed during this level",)))
        shutil.rmtree(spool, ignore_errors=True)
        count += 1
    return count


@contextmanager
def _owned(spool: Path) -> Iterator[None]:
    """Hold the spool's lock: the kernel lets go of it when this process ends, however it ends."""
    with (spool / OWNER).open("w", encoding="utf-8") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        yield


def _is_owned(spool: Path) -> bool:
    try:
        with (spool / OWNER).open("w", encoding="utf-8") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def prompt_count(workload: Workload) -> int:
    """How many prompts a level needs: its requests, its schedule, or more than a fast server could answer in time.

    For a level of `seconds` this assumes at least 4 ms a token and 50 ms a request, and never more than 20,000; the
    load process uses prompts again past that, and says so.
    """
    stop, users = workload.stop, workload.arrivals.concurrency
    if stop.requests is not None:
        return stop.requests + workload.warmup
    seconds = stop.seconds if stop.seconds is not None else 600.0
    if workload.arrivals.kind != "closed":
        return min(20_000, math.ceil(seconds * workload.arrivals.rate_per_s * 1.2) + 16) + workload.warmup
    shortest_s = 0.05 + 0.004 * workload.output_tokens
    return min(20_000, users * max(4, math.ceil(seconds / shortest_s))) + workload.warmup


def spool_folder(store: Path) -> Path:
    """Where the spools of a store's levels lie while they run."""
    return store.with_name(store.name + "-spool")
