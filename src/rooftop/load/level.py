"""One load level, from the parent's side: run the load processes, read their spool."""

import contextlib
import select
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rooftop.domain.launch import Fault
from rooftop.domain.progress import Tell, silent
from rooftop.domain.trial import ClientProof, Reply
from rooftop.errors import BadInput, MissingPart, StoreFailed
from rooftop.load.crew import SILENCE_S, Member, crew, follow
from rooftop.load.job import Job, Prompt
from rooftop.load.spool import write_job
from rooftop.units import share

MORE_CHUNKS = 0.1  # a token may come in two chunks where reasoning or a tool call begins or ends
STOPPED = Fault("stopped", "stopped by the user; what was measured is kept")


@dataclass(frozen=True, slots=True)
class Level:
    """What one load level gave: replies without those of the warm-up, and the client's proof.

    `measured_s` is from the level's origin to its last reply.  `fault` is None for a level that ran to its stop rule;
    its kind is `stopped` (Ctrl-C), `killed`, `warm-up`, `connect`, `spool`, or that of the error all replies share.
    `origin_ns` is the level's origin on the clock of `time.monotonic_ns`, 0 where it never began.
    """

    replies: tuple[Reply, ...]
    client: ClientProof | None
    measured_s: float
    started_at: str
    notes: tuple[str, ...] = ()
    fault: Fault | None = None
    origin_ns: int = 0


def measure(job: Job, prompts: Iterable[Prompt], *, tell: Tell = silent, keep_text: bool = False) -> Level:
    """Run one level in a load process and read back what came.

    Prompts go out in order, those of the warm-up first.  Ctrl-C and SIGTERM end the level early and keep what was
    measured (fault `stopped`).  Raises BadInput for a level without an end, MissingPart on a system without epoll,
    StoreFailed where the spool folder cannot be written.
    """
    stop = job.workload.stop
    if stop.requests is None and stop.seconds is None and stop.precision is None:
        raise BadInput("this level would never end", remedy="give it a number of requests, seconds or a precision")
    if not hasattr(select, "epoll"):
        raise MissingPart("the load client needs epoll, which only Linux has", remedy="run it on a Linux machine")
    job = replace(job, processes=_useful(job))
    write_job(job, prompts)
    folder = Path(job.spool)
    stopped = False
    members: tuple[Member, ...] = ()
    with _terminable():
        try:
            with crew(folder, job.processes) as members:
                follow(members, stop.seconds, tell)
        except KeyboardInterrupt:
            stopped = True
    level = read_spool(folder, keep_text=keep_text)
    if stopped:
        return replace(level, fault=STOPPED)
    if level.fault is None or level.fault.kind != "killed":
        return level
    dead = next((member for member in members if member.process.returncode), None)
    if dead is None:
        return level
    if dead.process.returncode == StoreFailed.exit_code:
        return replace(level, fault=Fault("spool", "the spool cannot be written: the disk is full or gone"))
    tail = (dead.folder / "client.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    words = ": ".join((f"the load process ended with {dead.process.returncode}", *tail))
    if dead.silent:
        words = f"a load process said nothing for {SILENCE_S:g} s and was killed"
    return replace(level, fault=replace(level.fault, reason=words))


def _useful(job: Job) -> int:
    """No more load processes than users or requests."""
    workload = job.workload
    limits = (workload.arrivals.concurrency or None, workload.stop.requests)
    return max(1, min((job.processes, *(limit for limit in limits if limit is not None))))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM acts like Ctrl-C inside, where nobody else has a use for it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def read_spool(folder: Path, *, keep_text: bool = False) -> Level:
    """The level in a spool folder, also of a run that was killed: as far as its last whole batch.

    Raises StoreFailed where the folder holds none.
    """
    from rooftop.load.proof import prove
    from rooftop.load.record import merged, read_records, requests
    from rooftop.load.reply import read_reply

    records = read_records(folder)
    record = merged(records)
    end = record.end
    replies = tuple(sorted((read_reply(taken, keep_text=keep_text) for one in records
                            for taken in requests(one, origin_ns=record.origin_ns)), key=lambda reply: reply.number))
    fault = _fault(end, replies)
    if end is not None and end.get("why") == "warm-up failed":
        warm = [read_reply(taken) for one in records for taken in requests(one, warmup=True)]
        bad = [reply for reply in warm if not reply.ok and reply.error != "stopped"]
        kind, words = _most_frequent(bad)
        many = f"all {len(warm)}" if len(bad) == len(warm) else f"{len(bad)} of {len(warm)}"
        fault = Fault("warm-up", f"{many} requests of the warm-up failed: {kind}: {words}",
                      remedy="check the URL, the model's name and the key; the server's log may say more")
    wanted, why = record.job.workload.stop.precision, (end or {}).get("why")
    notes = (*((f"output tokens/s was not known to {share(wanted)} when the level ended by its {why}",)
               if wanted is not None and why in ("requests", "seconds") else ()), *_doubts(replies))
    measured = max((reply.end_ns for reply in replies), default=0) * 1e-9
    client = prove(record, replies) if record.origin_ns is not None else None
    return Level(replies, client, measured, str(record.begin.get("started_at", "")), notes, fault,
                 record.origin_ns or 0)


def _doubts(replies: Sequence[Reply]) -> Iterator[str]:
    """What cannot be true of the server's own counts of tokens."""
    told = [reply for reply in replies if reply.ok and reply.output_tokens is not None]
    over = [reply for reply in told if (reply.output_tokens or 0) > reply.asked_output_tokens > 0]
    under = [reply for reply in told
             if (chunks := len(reply.chunk_ns) // 8) > (reply.output_tokens or 0) + MORE_CHUNKS * chunks + 1]
    doubt = "every figure in tokens is as wrong as these counts"
    if over:
        most = max(over, key=lambda reply: reply.output_tokens or 0)
        yield (f"the server counts more output tokens than were asked in {len(over)} of {len(told)} replies "
               f"({most.output_tokens} of {most.asked_output_tokens}): {doubt}")
    if under:
        yield (f"the server counts fewer output tokens than chunks with text came in {len(under)} of {len(told)} "
               f"replies ({under[0].output_tokens} in {len(under[0].chunk_ns) // 8} chunks): {doubt}")


def _fault(end: dict[str, Any] | None, replies: Sequence[Reply]) -> Fault | None:
    if end is None:
        return Fault("killed", "the load process ended without a word", remedy="see client.log in the spool folder")
    if end.get("fault"):
        kind, words, remedy = end["fault"]
        return Fault(kind, words, remedy=remedy)
    if end.get("why") == "stopped":
        return STOPPED
    if replies and not any(reply.ok for reply in replies):
        kind, words = _most_frequent(replies)
        return Fault(kind, f"all {len(replies)} requests failed: {words}")
    return None


def _most_frequent(replies: Sequence[Reply]) -> tuple[str, str]:
    kinds = Counter(reply.error or "no tokens" for reply in replies)
    kind = kinds.most_common(1)[0][0] if kinds else "nothing was sent"
    return kind, next((reply.detail for reply in replies if reply.error == kind), "")
