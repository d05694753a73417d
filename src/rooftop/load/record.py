"""A spooled level read back: requests with their raw bytes and mapped stamps."""

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooftop.errors import StoreFailed
from rooftop.load.job import Job
from rooftop.load.reply import Taken
from rooftop.load.spool import ENDS, NOTHING, Batch, part_folders, read_batches, read_job, read_prompt_index

Ints = NDArray[np.int64]
STEP_NS = 500_000


@dataclass(frozen=True, slots=True)
class Record:
    """All of a spool folder.  Arrays are in the order of the reads; times are monotonic nanoseconds.

    who, sizes, offsets, stamps, seen: request, bytes, place in the file, arrival and handling of each read.
    sends: rows of (request, prompt, connection, server, due, sent, after).  ends: rows of (request, time, how).
    origin_ns: origin of the level (None: it never began).  missing: reads of the level without a kernel stamp.
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


def read_records(folder: Path) -> tuple[Record, ...]:
    """The records of all load processes of a spooled level.  Raises StoreFailed where the folder holds none."""
    parts = read_job(folder).processes
    return tuple(read_record(place, folder) for place in part_folders(folder, parts))


def merged(records: tuple[Record, ...]) -> Record:
    """What the processes of a level know together, as far as the proof asks for it; without the raw bytes.

    Numbers of requests are of the whole level already; connections are numbered anew.
    """
    if len(records) == 1:
        return records[0]
    parts = len(records)
    sends = [record.sends.copy() for record in records]
    for part, rows in enumerate(sends):
        rows[:, 2] = rows[:, 2] * parts + part
    origins = [record.origin_ns for record in records if record.origin_ns is not None]

    def joined(name: str) -> Ints:
        return np.concatenate([getattr(record, name) for record in records])

    return replace(
        records[0], who=joined("who"), sizes=joined("sizes"), offsets=joined("offsets"), stamps=joined("stamps"),
        seen=joined("seen"), ends=joined("ends"), data=memoryview(b""), end=_merged_end(records),
        sends=np.concatenate(sends), origin_ns=min(origins, default=None),
        last_ns=max(record.last_ns for record in records),
        missing=sum(record.missing for record in records), step_ns=max(record.step_ns for record in records),
        words={number: text for record in records for number, text in record.words.items()})


def _merged_end(records: tuple[Record, ...]) -> dict[str, Any] | None:
    """What the loops told at their end: the busiest counts for processor time, all for streams and connections.

    None where one was killed.  Where the warm-up of one failed the others were stopped for it.
    """
    ends = [record.end for record in records if record.end is not None]
    told = [end for end in ends if "why" in end]
    fault = next((end["fault"] for end in ends if end.get("fault")), None)
    if len(ends) < len(records) and fault is None:
        return None
    whys = [end["why"] for end in told]
    return {"why": next((why for why in ("warm-up failed", "stopped") if why in whys), (*whys, "")[0]),
            "fault": fault, "cpu_share": max((end["cpu_share"] for end in told), default=0.0),
            "streams_open_max": sum(end["streams_open_max"] for end in told),
            "connect_ns": [span for end in told for span in end["connect_ns"]],
            "tls_ns": [span for end in told for span in end["tls_ns"]],
            "dns_s": max((end["dns_s"] for end in told), default=0.0),
            "opened": sum(end["opened"] for end in told),
            "pool": len(records) * max((end.get("pool", 0) for end in told), default=0),
            "wrapped": any(end.get("wrapped") for end in told)}


def read_record(folder: Path, home: Path | None = None) -> Record:
    """Read what one process spooled, as far as it is whole; `home` holds job and prompts where they are elsewhere.

    Raises StoreFailed where there is no level.
    """
    home = home or folder
    job = read_job(home)
    try:
        prompts = read_prompt_index(home)
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
    stamps, lost, step = _monotonic(_joined(batches, "stamps").reshape(-1, 2), clocks, seen)
    level = marks[marks[:, 2] == 0]
    return Record(
        job=job, prompts=prompts, begin=_json(folder / "begin.json") or {}, end=_json(folder / "end.json"), data=data,
        who=who, sizes=sizes, offsets=_offsets(batches), stamps=stamps, seen=seen,
        sends=_joined(batches, "sends").reshape(-1, 7), ends=ends[ends[:, 0] != NOTHING],
        words={number: text for batch in batches for number, text in batch.words},
        origin_ns=int(level[0, 1]) if len(level) else None, last_ns=int(clocks[-1, 0]) if len(clocks) else 0,
        missing=int(lost[who >= 0].sum()), step_ns=step)


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


def _monotonic(stamps: Ints, clocks: Ints, seen: Ints) -> tuple[Ints, NDArray[np.bool_], int]:
    """Kernel stamps on the monotonic clock; which of them are missing, and the largest step of the wall clock, ns.

    wall = monotonic + offset, and the offset is known at each pair of `clocks`; between two pairs it is taken as a
    straight line (a slewed clock), and where it jumped, or a stamp falls after its own read, the read's time serves.
    """
    if not len(stamps) or not len(clocks):
        return np.empty(0, np.int64), np.zeros(len(stamps), bool), 0
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
    return np.where(lost, own, times), lost, step if step > STEP_NS else 0


def requests(record: Record, *, warmup: bool = False, origin_ns: int | None = None) -> Iterator[Taken]:
    """The requests of the level (or of its warm-up) in the order of their numbers, times after the origin."""
    origin = origin_ns or record.origin_ns or 0
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
