"""One load level on a running server: prompts, load, samples, and the stored trial."""

import fcntl
import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rooftop.domain import codec
from rooftop.domain.launch import Claim, Fault, Launch
from rooftop.domain.plan import Plan
from rooftop.domain.progress import Tell
from rooftop.domain.trial import Sample, Trial
from rooftop.domain.workload import Workload
from rooftop.errors import BadInput, ServerRefused, ServerUnreachable, StoreFailed
from rooftop.hardware.local import surroundings, this_machine
from rooftop.load import level as levels
from rooftop.load import prompts
from rooftop.load.job import Job, Target
from rooftop.load.place import hide, secret_values
from rooftop.load.spool import read_job
from rooftop.store import Store
from rooftop.telemetry import Source, other_cpu_share, watching

HEAD = "trial.json"
OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Seen:
    """What watches a level: sources sampled at 2 Hz, and the check of claims once it has run.

    `death` says why a server has ended; it is asked where a reply failed.
    """

    sources: tuple[Source, ...] = ()
    claims: Callable[[], tuple[Claim, ...]] = tuple
    death: Callable[[], Fault | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a level: its plan and launch, its study and number of repeat, the tokenizer for its prompts.

    `processes` load processes share its load.
    """

    plan: Plan
    launch: Launch | None = None
    study: str = ""
    repeat: int = 0
    tokenizer: str = ""
    timeout_s: float = 120.0
    processes: int = 1


def run_level(target: Target, workload: Workload, slot: Slot, *, store: Store, tell: Tell,
              seen: Seen | None = None) -> Trial:
    """Measure one level and store it whole before anything is computed from it.

    Bytes and stamps are spooled beside the store while it runs; the spool goes once the trial is stored, and stays if
    storing fails.  A level that fails is a Trial with a fault, not an exception; one that the server cannot be asked
    for (BadInput, ServerRefused, ServerUnreachable) has not begun, and nothing is stored.  One that was stopped keeps
    the claims of its start: people press Ctrl-C because a server hangs, and it would not answer.  Raises StoreFailed.
    """
    seen = seen or Seen()
    head = new_head(workload, slot)
    spool = spool_folder(store.path) / head.id
    count = prompt_count(workload) + slot.processes - 1
    made, notes = prompts.make_prompts(target, workload, count, tokenizer=slot.tokenizer, seed_salt=head.id)
    head = replace(head, notes=(*target.notes, *notes))
    job = Job(target=target, workload=workload, spool=str(spool), timeout_s=slot.timeout_s, processes=slot.processes)
    with _owned(spool, head), watching(seen.sources) as watch:
        try:
            level = hidden(levels.measure(job, made, tell=tell), target)
        except (BadInput, ServerRefused, ServerUnreachable):  # the server's tokenizer failed: nothing was sent
            shutil.rmtree(spool, ignore_errors=True)
            raise
        trial = finished(head, level, samples=watch.samples(level.origin_ns), notes=watch.notes)
        failed = trial.fault is not None or not all(reply.ok for reply in trial.replies)
        death = seen.death() if failed and not trial.unfinished else None
        claims = seen.claims() if not trial.unfinished else slot.launch.claims if slot.launch else ()
        trial = replace(trial, claims=claims, fault=death or trial.fault)
        store.add_trial(trial, spool=spool)
    shutil.rmtree(spool, ignore_errors=True)
    return trial


def new_head(workload: Workload, slot: Slot) -> Trial:
    """A trial of a level that is about to run, under an id of its own."""
    now = datetime.now(UTC)
    return Trial(id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}", origin="measured", plan=slot.plan, workload=workload,
                 started_at=now.isoformat(timespec="milliseconds"),
                 surroundings=surroundings(slot.plan.machine or this_machine()),
                 launch_id=slot.launch.id if slot.launch else "", study=slot.study, repeat=slot.repeat)


def finished(head: Trial, level: levels.Level, *, samples: Sequence[Sample] = (), notes: Sequence[str] = ()) -> Trial:
    """The trial that a level made of its head."""
    around = head.surroundings
    if around is not None:
        around = replace(around, other_cpu_share=other_cpu_share(samples))
    return replace(head, surroundings=around, replies=level.replies, client=level.client, fault=level.fault,
                   measured_s=level.measured_s,
                   samples=tuple(samples), started_at=level.started_at or head.started_at,
                   notes=(*head.notes, *_lengths(head.workload, level), *level.notes, *notes))


def _lengths(workload: Workload, level: levels.Level) -> tuple[str, ...]:
    """A note where prompts of known length are not as long as was asked."""
    asked = workload.input_tokens
    off = sum(reply.asked_input_tokens not in (0, asked) for reply in level.replies)
    return (f"{off} of {len(level.replies)} prompts are not {asked} tokens long but near it: no text of that length "
            "was found",) if off else ()


def hidden(level: levels.Level, target: Target) -> levels.Level:
    """The level without any key that a server may have repeated in its words of an error."""
    try:
        headers = (*target.headers, *secret_values(target.secret_headers))
    except BadInput:
        return replace(level, replies=tuple(replace(one, detail="") for one in level.replies))
    if not headers:
        return level
    fault = level.fault and replace(level.fault, reason=hide(level.fault.reason, headers))
    return replace(level, fault=fault, replies=tuple(
        replace(one, detail=hide(one.detail, headers)) if one.detail else one for one in level.replies))


def recover(store: Store) -> int:
    """Store what is left in the spools of levels whose rooftop was killed, or could not store; how many there were.

    A level that had ended well is whole, with the claims of its start; any other is a trial whose fault is `killed`.
    A spool belongs to a living rooftop while its process holds the lock of its `owner` file; those are left alone, and
    so are those of another rooftop version.  One whose trial is stored already, or that never began, goes.
    """
    folder = spool_folder(store.path)
    count = 0
    for spool in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (spool / HEAD).is_file() or is_locked(spool / OWNER):
            continue
        try:
            head = codec.from_json(Trial, (spool / HEAD).read_text(encoding="utf-8"), where=str(spool / HEAD))
        except BadInput:
            continue
        known = any(trial.id == head.id for trial in store.trial_heads(study=head.study))
        if not known and (level := _left(spool)) is not None:
            store.add_trial(_recovered(head, level, store), spool=spool)
            count += 1
        shutil.rmtree(spool, ignore_errors=True)
    return count


def _recovered(head: Trial, level: levels.Level, store: Store) -> Trial:
    if level.fault is not None or not all(reply.ok for reply in level.replies):
        return replace(finished(head, level), fault=Fault("killed", "rooftop was killed during this level"))
    starts = (one for one in store.launches(study=head.study) if one.id == head.launch_id)
    note = f"level {head.workload.level} was stored by a later rooftop: no samples, claims as they were at the start"
    return replace(finished(head, level, notes=(note,)), claims=next((one.claims for one in starts), ()))


def _left(spool: Path) -> levels.Level | None:
    """What a killed rooftop's spool holds; None where it was killed before the job was written, so nothing was sent."""
    try:
        target = read_job(spool).target if (spool / "job.json").exists() else None
    except BadInput:
        return None
    return hidden(levels.read_spool(spool), target) if target is not None else None


@contextmanager
def _owned(spool: Path, head: Trial) -> Iterator[None]:
    """A new spool with the head of its trial, locked: the kernel lets go when this process ends, however it ends."""
    with ExitStack() as stack:
        try:
            spool.mkdir(mode=0o700, parents=True)
            stack.enter_context(locked(spool / OWNER))
            part = spool / (HEAD + ".part")
            part.write_text(codec.to_json(head), encoding="utf-8")
            part.replace(spool / HEAD)
        except OSError as error:
            raise StoreFailed(f"the level's raw bytes cannot be kept: {error.strerror}", where=str(spool),
                              remedy="free space there, or put the store elsewhere with --store") from error
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file.  Raises BlockingIOError where another process holds it."""
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of this file."""
    try:
        with locked(path):
            return False
    except BlockingIOError:
        return True


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
