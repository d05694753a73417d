"""A spooled level read back: requests with their raw bytes and mapped stamps."""

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooftop.errors import StoreFailed
from rooftop.load.job import Job
from rooftop.load.reply import Taken
from rooftop.load.spool import ENDS, NOTHING, Batch, read_batches, read_job, read_prompt_index

Ints = NDArray[np.int64]
STEP_NS = 500_000


@dataclass(frozen=True, slots=True)
class Record:
    """All of a spool folder.  Arrays are in the order of the reads; times are monotonic nanoseconds.

    who, sizes, offsets, stamps, seen: request, bytes, place in the file, arrival and handling of each read.
    sends: rows of (request, prompt, connection, server, due, sent, after).  ends: rows of (request, time, how).
    origin_ns, warm_ns: origins of the level (None: it never began) and of the warm-up.
    """

    job: Job
    prompts: list[tuple[int, int, int]]
    begin: dict[str, Any]
    end: dict[str, Any] | None
    data: memoryview
    who: Ints
    sizes: Ints
    offsets: Ints
    stamps: Ints
    seen: Ints
    sends: Ints
    ends: Ints
    words: dict[int, str]
    origin_ns: int | None
    last_ns: int
    missing: int
    step_ns: int


def read_record(folder: Path) -> Record:
    """Read a spool folder as far as it is whole.  Raises StoreFailed where it holds no level."""
    job = read_job(folder)
    try:
        prompts = read_prompt_index(folder)
        with (folder / "reads.bin").open("rb") as file:
            size = file.seek(0, 2)
            data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b"")
    except FileNotFoundError:
        prompts, data = [], memoryview(b"")
    except OSError as error:
        raise StoreFailed(f"the spool cannot be read: {error.strerror}", where=str(folder)) from error
    batches = list(read_batches(data))
    who, sizes = _joined(batches, "who", "<i4"), _joined(batches, "sizes", "<u4")
    ends = _joined(batches, "ends").reshape(-1, 3)
    marks = ends[ends[:, 0] == NOTHING]
    clocks = _joined(batches, "clocks").reshape(-1, 2)
    seen = _seen(batches)
    stamps, missing, step = _monotonic(_joined(batches, "stamps").reshape(-1, 2), clocks, seen)
    level = marks[marks[:, 2] == 0]
    return Record(
        job=job, prompts=prompts, begin=_json(folder / "begin.json") or {}, end=_json(folder / "end.json"), data=data,
        who=who, sizes=sizes, offsets=_offsets(batches), stamps=stamps, seen=seen,
        sends=_joined(batches, "sends").reshape(-1, 7), ends=ends[ends[:, 0] != NOTHING],
        words={number: text for batch in batches for number, text in batch.words},
        origin_ns=int(level[0, 1]) if len(level) else None, last_ns=int(clocks[-1, 0]) if len(clocks) else 0,
        missing=missing, step_ns=step)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _joined(batches: list[Batch], name: str, kind: str = "<i8") -> Ints:
    return np.frombuffer(b"".join(getattr(batch, name) for batch in batches), dtype=kind).astype(np.int64)


def _offsets(batches: list[Batch]) -> Ints:
    parts = []
    for batch in batches:
        sizes = np.frombuffer(batch.sizes, dtype="<u4").astype(np.int64)
        parts.append(batch.offset + np.cumsum(sizes) - sizes)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _seen(batches: list[Batch]) -> Ints:
    """When each read was surely over: the end of its turn of the loop."""
    laps = _joined(batches, "laps").reshape(-1, 2)
    return np.repeat(laps[:, 0], laps[:, 1])


def _monotonic(stamps: Ints, clocks: Ints, seen: Ints) -> tuple[Ints, int, int]:
    """Kernel stamps on the monotonic clock; how many are missing, and the largest step of the wall clock, ns.

    wall = monotonic + offset, and the offset is known at each pair of `clocks`; between two pairs it is taken as a
    straight line (a slewed clock), and where it jumped, or a stamp falls after its own read, the read's time serves.
    """
    if not len(stamps) or not len(clocks):
        return np.empty(0, np.int64), 0, 0
    lost = stamps[:, 0] < 0
    wall = stamps[:, 0] * 1_000_000_000 + stamps[:, 1]
    base = int(clocks[0, 1] - clocks[0, 0])
    drift = clocks[:, 1] - clocks[:, 0] - base
    jumps = np.abs(np.diff(drift))
    step = int(jumps.max()) if len(jumps) else 0
    times = wall - base - np.rint(np.interp(seen - clocks[0, 0], clocks[:, 0] - clocks[0, 0], drift)).astype(np.int64)
    if step > STEP_NS:
        turn = np.clip(np.searchsorted(clocks[:, 0], seen) - 1, 0, max(0, len(jumps) - 1))
        lost = lost | (jumps[turn] > STEP_NS)
    lost = lost | (times > seen + 1_000)
    own = np.where(stamps[:, 0] < 0, stamps[:, 1], seen)
    return np.where(lost, own, times), int(lost.sum()), step if step > STEP_NS else 0


def requests(record: Record, *, warmup: bool = False) -> Iterator[Taken]:
    """The requests of the level (or of its warm-up) in the order of their numbers, times after the origin."""
    origin = record.origin_ns or 0
    order = np.argsort(record.who, kind="stable")
    sorted_who = record.who[order]
    sends = {int(row[0]): row for row in record.sends}
    ends = {int(row[0]): row for row in record.ends}
    numbers = sorted(number for number in sends if (number < 0) == warmup)
    lows = np.searchsorted(sorted_who, numbers, side="left")
    highs = np.searchsorted(sorted_who, numbers, side="right")
    for number, low, high in zip(numbers, lows, highs, strict=True):
        picks = order[low:high]
        sizes = record.sizes[picks].tolist()
        places = record.offsets[picks].tolist()
        raw = b"".join([record.data[place:place + size] for place, size in zip(places, sizes, strict=True)])
        _, prompt, connection, server, due, sent, _ = sends[number].tolist()
        _, input_tokens, output_tokens = record.prompts[prompt % len(record.prompts)]
        ended = ends.get(number)
        broken = "lost" if ended is None else ENDS[int(ended[2])]
        words = "rooftop was killed while it came" if ended is None else record.words.get(number, "")
        yield Taken(number=number, due_ns=due - origin, sent_ns=sent - origin, raw=raw, sizes=sizes,
                    stamps=(record.stamps[picks] - origin).tolist(),
                    end_ns=(record.last_ns if ended is None else int(ended[1])) - origin, broken=broken, detail=words,
                    asked_input_tokens=max(0, input_tokens), asked_output_tokens=output_tokens,
                    connection=connection, server=server)
