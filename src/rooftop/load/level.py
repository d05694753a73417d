"""One load level, from the parent's side: start the load process, follow it, read its spool."""

import contextlib
import json
import math
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from rooftop.domain.launch import Fault
from rooftop.domain.progress import Progress, Tell, silent
from rooftop.domain.trial import ClientProof, Reply
from rooftop.errors import BadInput, MissingPart
from rooftop.load.job import Job, Prompt
from rooftop.load.spool import write_job
from rooftop.units import share

GRACE_S = 10.0
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


def measure(job: Job, prompts: Sequence[Prompt], *, tell: Tell = silent, keep_text: bool = False) -> Level:
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
    write_job(job, prompts)
    folder = Path(job.spool)
    stopped = False
    with (folder / "client.log").open("wb") as log, _terminable():
        process = subprocess.Popen((sys.executable, "-P", "-m", "rooftop.load", str(folder)), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        try:
            _follow(process, stop.seconds, tell)
            process.wait()
        except KeyboardInterrupt:
            stopped = True
        finally:
            _end(process)
    level = read_spool(folder, keep_text=keep_text)
    if stopped:
        return replace(level, fault=STOPPED)
    if level.fault is None or level.fault.kind != "killed":
        return level
    tail = (folder / "client.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    words = f"the load process ended with {process.returncode}: {' '.join(tail)}"
    return replace(level, fault=replace(level.fault, reason=words))


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


def _follow(process: "subprocess.Popen[bytes]", seconds: float | None, tell: Tell) -> None:
    """Pass on the load process's lines of progress until it has no more."""
    pipe: IO[bytes] | None = process.stdout
    before = (0.0, 0)
    for line in pipe or ():
        try:
            now = json.loads(line)
        except ValueError:
            continue
        span, chunks = now["seconds"] - before[0], now["chunks"] - before[1]
        before = (now["seconds"], now["chunks"])
        speed = f"{chunks / span:.0f} chunks/s, " if span > 0 and chunks >= 0 else ""
        failed = f", {now['failed']} failed" if now["failed"] else ""
        left = None
        if now["total"] and now["done"]:
            left = now["seconds"] / now["done"] * (now["total"] - now["done"])
        if seconds is not None and now["stage"] == "level":
            left = min(max(0.0, seconds - now["seconds"]), math.inf if left is None else left)
        tell(Progress(now["stage"], f"{speed}{now['open']} open{failed}", now["done"], now["total"], left))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Closing its input tells the load process to stop; it is killed if it does not."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_spool(folder: Path, *, keep_text: bool = False) -> Level:
    """The level in a spool folder, also of a run that was killed: as far as its last whole batch.

    Raises StoreFailed where the folder holds none.
    """
    from rooftop.load.proof import prove
    from rooftop.load.record import read_record, requests
    from rooftop.load.reply import read_reply

    record = read_record(folder)
    end = record.end
    replies = tuple(read_reply(taken, keep_text=keep_text) for taken in requests(record))
    fault = _fault(end, replies)
    if end is not None and end.get("why") == "warm-up failed":
        warm = [read_reply(taken) for taken in requests(record, warmup=True)]
        kind, words = _most_frequent(warm)
        fault = Fault("warm-up", f"all {len(warm)} requests of the warm-up failed: {kind}: {words}",
                      remedy="check the URL, the model's name and the key; the server's log may say more")
    wanted, why = record.job.workload.stop.precision, (end or {}).get("why")
    notes = (f"output tokens/s was not known to {share(wanted)} when the level ended by its {why}",) \
        if wanted is not None and why in ("requests", "seconds") else ()
    measured = max((reply.end_ns for reply in replies), default=0) * 1e-9
    client = prove(record, replies) if record.origin_ns is not None else None
    return Level(replies, client, measured, str(record.begin.get("started_at", "")), notes, fault,
                 record.origin_ns or 0)


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
