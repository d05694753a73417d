"""The load process: `python -m rooftop.load SPOOL` drives one level and spools it."""

import contextlib
import gc
import json
import mmap
import os
import resource
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rooftop.errors import RooftopError, ServerUnreachable, StoreFailed
from rooftop.load.drive import Drive
from rooftop.load.endpoint import find_endpoints
from rooftop.load.job import Job
from rooftop.load.pace import Pace, pool_size, share_of
from rooftop.load.promptness import be_prompt
from rooftop.load.reply import Taken, read_reply
from rooftop.load.spool import GO, Writer, part_folders, raw_answers, read_job, read_prompt_index

ROOM_BYTES = 1 << 24
ROOM_PER_TOKEN = 1 << 12


class Prompts:
    """The request bodies of a job, mapped from its spool folder; they come round again when there are too few."""

    def __init__(self, folder: Path, seed: int, part: int, parts: int) -> None:
        self.part, self.parts = part, parts
        self.index = read_prompt_index(folder)
        with (folder / "prompts.bin").open("rb") as file:
            empty = os.fstat(file.fileno()).st_size == 0
            self.data = memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        self.offsets = [0]
        for length, _, _ in self.index:
            self.offsets.append(self.offsets[-1] + length)
        self.name = f"rooftop-{os.getpid():x}-{seed & 0xffffffff:x}"

    def __call__(self, sent: int) -> tuple[bytes, memoryview, int]:
        """End of the request head, body, and the most bytes its response may have, for the process's next request."""
        number = sent * self.parts + self.part
        place = number % len(self.index)
        length, _, output = self.index[place]
        begin = self.offsets[place]
        head = f"X-Request-Id: {self.name}-{number}\r\nContent-Length: {length}\r\n\r\n".encode()
        return head, self.data[begin:begin + length], ROOM_BYTES + ROOM_PER_TOKEN * output


def main(folder: Path, part: int = 0) -> int:
    """Drive the level spooled in `folder`, or one part of it.  What went wrong is told in its end.json.

    Where not even that can be written, the exit code is that of StoreFailed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_blocking(sys.stdout.fileno(), False)
    end: dict[str, Any] = {}
    place = folder
    try:
        job = read_job(folder)
        place = part_folders(folder, job.processes)[part]
        end = run(job, folder, place, part)
    except RooftopError as error:
        kind = "connect" if isinstance(error, ServerUnreachable) else error.kind
        end = {"fault": [kind, error.what, error.remedy]}
    return 0 if write_json(place / "end.json", end) else StoreFailed.exit_code


def run(job: Job, folder: Path, place: Path, part: int) -> dict[str, Any]:
    """Connections, warm-up, level; what the loop knows of itself.  `place` is where this process writes."""
    workload = job.workload
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    be_prompt()
    endpoints = find_endpoints(job.target, os.environ)
    parts = job.processes
    prompts = Prompts(folder, workload.seed, part, parts)
    if not prompts.index:
        return {"fault": ["BadInput", "there is no prompt to send", ""]}
    writer = Writer(place)
    context = None
    if any(endpoint.tls for endpoint in endpoints):
        from rooftop.load.tls import make_context

        context = make_context(verify=job.target.verify_tls)
    drive = Drive(endpoints, context, writer, prompts, job.timeout_s)
    drive.listen(sys.stdin.fileno())
    level = Pace(workload, part=part, parts=parts)
    mine = share_of(workload, part, parts)
    drive.open_all(max(pool_size(mine.arrivals, level.limit), min(mine.warmup, mine.arrivals.concurrency)))
    gc.collect()
    gc.freeze()
    gc.disable()
    if mine.warmup and not drive.fault:
        drive.tell = lambda now: tell(now, "warm-up", mine.warmup)
        drive.run(Pace(workload, warmup=True, part=part, parts=parts))
        if not drive.stopping and not drive.fault and not _any_whole(place):
            return ended(drive, "warm-up failed", 0.0)
    if parts > 1 and not drive.fault and not drive.stopping:
        tell(drive, "ready", 0)
        drive.stopping = os.read(sys.stdin.fileno(), 1) != GO
    drive.tell = lambda now: tell(now, "level", level.limit or 0)
    write_json(place / "begin.json", {"started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                                       "name": prompts.name})
    pool = drive.pool.opened
    cpu, wall = time.process_time(), time.monotonic()
    if not drive.fault and not drive.stopping:
        drive.run(level)
    share = (time.process_time() - cpu) / max(1e-9, time.monotonic() - wall)
    end = ended(drive, level.why, share) | {"pool": pool}
    end["wrapped"] = (drive.sent_prompts - 1) * parts + part >= len(prompts.index)
    return end


def _any_whole(folder: Path) -> bool:
    """Whether any request of the warm-up was answered as it should; read exactly as the level will be."""
    answers = raw_answers(memoryview((folder / "reads.bin").read_bytes()))
    return any(read_reply(Taken(number, 0, 0, raw, sizes, range(len(sizes)), 0, broken)).ok
               for number, (raw, sizes, broken) in answers.items())


def ended(drive: Drive, why: str, cpu_share: float) -> dict[str, Any]:
    """What only the loop knows, for the proof."""
    return {"why": "stopped" if drive.stopping else why, "fault": [*drive.fault, ""] if drive.fault else None,
            "cpu_share": cpu_share, "streams_open_max": drive.active_most, "connect_ns": drive.pool.connect_ns[:4096],
            "tls_ns": drive.pool.tls_ns[:4096], "dns_s": max(point.dns_s for point in drive.pool.endpoints),
            "opened": drive.pool.opened}


def tell(drive: Drive, stage: str, total: int) -> None:
    """One line of progress for the parent; it may miss it."""
    line = json.dumps({"stage": stage, "done": drive.done, "failed": drive.failed, "total": total,
                       "open": drive.active, "chunks": drive.chunks,
                       "seconds": (time.monotonic_ns() - drive.origin_ns) * 1e-9})
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode() + b"\n")


def write_json(path: Path, value: dict[str, Any]) -> bool:
    """Write a small file whole, or not at all; whether it is written."""
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(value), encoding="utf-8")
        part.replace(path)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
