"""The record of a level on disk: batches of raw bytes and stamps, appended as they come."""

import contextlib
import json
import os
import struct
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rooftop.domain.codec import from_json, to_json
from rooftop.errors import StoreFailed
from rooftop.load.job import Job, Prompt

MAGIC = b"RTS1"
HEADER = struct.Struct("<4s7I")
STAMP_BYTES = 16
MISSING = struct.Struct("<qq")
BATCH_BYTES = 1 << 18
READ_MOST = 1 << 16
GO = b"g"  # what a load process that shares a level hears on its input when all are ready
ENDS = ("", "eof", "reset", "timeout", "stopped", "malformed", "too large", "connect", "tls", "lost")
NOTHING = -(1 << 31)  # no request: in `ends` the origin of a phase, in `sends` a request that nothing freed


def write_job(job: Job, prompts: Iterable[Prompt]) -> None:
    """Put a job and its prompts into its spool folder, for the load process.  Raises StoreFailed."""
    folder = Path(job.spool)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place in part_folders(folder, job.processes):
            place.mkdir(exist_ok=True)
            for name in ("reads.bin", "begin.json", "end.json"):
                (place / name).unlink(missing_ok=True)
        index = array("q")
        with (folder / "prompts.bin").open("wb") as file:
            for prompt in prompts:
                file.write(prompt.body)
                tokens = -1 if prompt.input_tokens is None else prompt.input_tokens
                index.extend((len(prompt.body), tokens, prompt.output_tokens))
        (folder / "prompts.idx").write_bytes(index.tobytes())
        (folder / "job.json").write_text(to_json(job), encoding="utf-8")
    except OSError as error:
        with contextlib.suppress(OSError):
            (folder / "prompts.bin").unlink(missing_ok=True)
        raise StoreFailed(f"the spool cannot be written: {error.strerror}", where=str(folder),
                          remedy="free some space, or choose another folder for it") from error


def part_folders(folder: Path, parts: int) -> tuple[Path, ...]:
    """Where each of the load processes writes: the spool folder itself where there is only one."""
    return tuple(folder / f"part-{part}" for part in range(parts)) if parts > 1 else (folder,)


def read_job(folder: Path) -> Job:
    """The job of a spool folder.  Raises StoreFailed where there is none."""
    try:
        text = (folder / "job.json").read_text(encoding="utf-8")
    except OSError as error:
        raise StoreFailed("this folder holds no spooled level", where=str(folder)) from error
    return from_json(Job, text, where=str(folder / "job.json"))


def read_prompt_index(folder: Path) -> "list[tuple[int, int, int]]":
    """Length in bytes, input tokens (-1 = approximate) and output tokens of each prompt."""
    numbers = array("q")
    numbers.frombytes((folder / "prompts.idx").read_bytes())
    flat = iter(numbers)
    return list(zip(flat, flat, flat, strict=True))


class Writer:
    """The batch being filled.  The driving loop appends to its lists itself; `flush` writes them out.

    who, sizes, stamps: request, bytes and kernel stamp (two int64: seconds, nanoseconds; seconds -1 marks a clock
    read on the monotonic clock) of each read; `page` holds the bytes, `used` of them.  laps: end of each turn of the
    loop that read something (monotonic ns) and the number of reads in it.  clocks: pairs of monotonic and wall time.
    """

    __slots__ = ("clocks", "ends", "fd", "laps", "page", "sends", "sizes", "stamps", "used", "view", "who", "words",
                 "written")

    def __init__(self, folder: Path) -> None:
        self.fd = os.open(folder / "reads.bin", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.page = bytearray(BATCH_BYTES + READ_MOST)
        self.view = memoryview(self.page)
        self.used = 0
        self.written = os.fstat(self.fd).st_size
        self.who, self.sizes = array("i"), array("I")
        self.stamps = bytearray()
        self.laps, self.sends, self.ends, self.clocks = array("q"), array("q"), array("q"), array("q")
        self.words: list[tuple[int, str]] = []

    def mark_clocks(self) -> None:
        """The wall clock against the monotonic one: the tightest of five readings."""
        best = (1 << 62, 0, 0)
        for _ in range(5):
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            best = min(best, (after - before, (before + after) // 2, wall))
        self.clocks.extend(best[1:])

    def flush(self) -> None:
        """Write the batch.  Raises OSError (a full disk); what was written of the batch is then cut off again, so that
        a later one is not read as its rest."""
        if not (self.who or self.sends or self.ends or self.clocks):
            return
        words = json.dumps(self.words).encode() if self.words else b""
        arrays = (self.who, self.sizes, self.laps, self.sends, self.ends, self.clocks)
        parts = [part.tobytes() for part in arrays[:2]] + [bytes(self.stamps)] + [part.tobytes() for part in arrays[2:]]
        head = HEADER.pack(MAGIC, len(self.who), len(self.laps), len(self.sends), len(self.ends), len(self.clocks),
                           len(words), self.used)
        whole = b"".join((head, *parts, words, self.view[:self.used]))
        for part in arrays:
            del part[:]
        self.stamps.clear()
        self.words.clear()
        self.used = 0
        left = memoryview(whole)
        try:
            while left:
                left = left[os.write(self.fd, left):]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.written)
            raise
        self.written += len(whole)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as read back; `offset` is where its raw bytes begin in the file."""

    who: bytes
    sizes: bytes
    stamps: bytes
    laps: bytes
    sends: bytes
    ends: bytes
    clocks: bytes
    words: tuple[tuple[int, str], ...]
    offset: int


def read_batches(data: memoryview) -> Iterator[Batch]:
    """All whole batches of a spool file; the first broken one ends it."""
    position = 0
    while position + HEADER.size <= len(data):
        magic, reads, laps, sends, ends, clocks, words, used = HEADER.unpack_from(data, position)
        position += HEADER.size
        lengths = (reads * 4, reads * 4, reads * STAMP_BYTES, laps * 8, sends * 8, ends * 8, clocks * 8, words)
        if magic != MAGIC or position + sum(lengths) + used > len(data):
            return
        parts = []
        for length in lengths:
            parts.append(bytes(data[position:position + length]))
            position += length
        told = tuple((number, text) for number, text in json.loads(parts[7] or b"[]"))
        who, sizes, stamps, laps, sends, ends, clocks, _ = parts
        yield Batch(who, sizes, stamps, laps, sends, ends, clocks, told, position)
        position += used


def raw_answers(data: memoryview) -> dict[int, tuple[bytes, list[int], str]]:
    """Bytes, sizes of reads and end of each request in a spool file, without their times; needs no NumPy."""
    parts: dict[int, list[memoryview]] = {}
    hows: dict[int, int] = {}
    for batch in read_batches(data):
        who, sizes, ends, place = array("i"), array("I"), array("q"), batch.offset
        for numbers, packed in ((who, batch.who), (sizes, batch.sizes), (ends, batch.ends)):
            numbers.frombytes(packed)
        for number, size in zip(who, sizes, strict=True):
            parts.setdefault(number, []).append(data[place:place + size])
            place += size
        hows.update(zip(ends[::3], ends[2::3], strict=True))
    return {number: (b"".join(parts.get(number, ())), [len(part) for part in parts.get(number, ())], ENDS[how])
            for number, how in hows.items() if number != NOTHING}
