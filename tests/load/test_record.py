import errno
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.load.job import Job, Prompt, Target
from rooftop.load.level import read_spool
from rooftop.load.record import _monotonic, read_record, requests
from rooftop.load.spool import MISSING, Writer, raw_answers, write_job

WALL = 1_800_000_000_000_000_000
SECOND = 1_000_000_000
ANSWER = b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices":[{"text":"a","finish_reason":"length"}],"usage":{' \
         b'"completion_tokens":1}}\n\ndata: [DONE]\n\n'


def stamp(wall_ns: int) -> bytes:
    return struct.pack("<qq", *divmod(wall_ns, SECOND))


def spooled(folder: Path, count: int) -> None:
    """A folder with `count` flushed batches of one whole reply each; request i is sent at i ms, answered 1 ms later."""
    workload = Workload(arrivals=Arrivals(concurrency=1), stop=Stop(requests=count))
    write_job(Job(Target(("http://127.0.0.1:1",), "m"), workload, str(folder)), [Prompt(b"{}", None, 1)] * count)
    writer = Writer(folder)
    writer.ends.extend((-(1 << 31), 1000, 0))
    for number in range(count):
        at = 1000 + number * 1_000_000
        writer.clocks.extend((at, WALL + at))
        writer.sends.extend((number, number, 0, 0, at, at + 10, number - 1))
        for begin, size in ((0, 40), (40, len(ANSWER) - 40)):
            writer.view[writer.used:writer.used + size] = ANSWER[begin:begin + size]
            writer.used += size
            writer.who.append(number)
            writer.sizes.append(size)
            writer.stamps += stamp(WALL + at + 1_000_000)
        writer.laps.extend((at + 1_000_100, 2))
        writer.ends.extend((number, at + 1_000_200, 1))
        writer.flush()
    writer.close()


def test_what_was_flushed_comes_back(tmp_path: Path) -> None:
    spooled(tmp_path, 3)
    level = read_spool(tmp_path)
    assert [(reply.number, reply.ok, reply.output_tokens) for reply in level.replies] == [
        (0, True, 1), (1, True, 1), (2, True, 1)]
    assert [list(reply.times_ns()) for reply in level.replies] == [[1_000_000], [2_000_000], [3_000_000]]
    assert level.fault is not None
    assert level.fault.kind == "killed"


@pytest.mark.parametrize("lost", [1, 30, 200, 300])
def test_a_batch_cut_short_is_left_out(tmp_path: Path, lost: int) -> None:
    spooled(tmp_path, 3)
    path = tmp_path / "reads.bin"
    path.write_bytes(path.read_bytes()[:-lost])
    assert [reply.number for reply in read_spool(tmp_path).replies] == [0, 1]


def test_a_request_without_an_end_is_lost(tmp_path: Path) -> None:
    spooled(tmp_path, 1)
    writer = Writer(tmp_path)
    writer.sends.extend((1, 1, 0, 0, 5_000_000, 5_000_010, 0))
    writer.flush()
    writer.close()
    assert [taken.broken for taken in requests(read_record(tmp_path))] == ["eof", "lost"]
    assert [reply.error for reply in read_spool(tmp_path).replies] == [None, "lost"]


def test_raw_answers_are_those_of_the_record(tmp_path: Path) -> None:
    spooled(tmp_path, 3)
    data = memoryview((tmp_path / "reads.bin").read_bytes())
    assert raw_answers(data) == {number: (ANSWER, [40, len(ANSWER) - 40], "eof") for number in range(3)}


def mapped(walls: list[int], seen: list[int], clocks: list[tuple[int, int]]) -> tuple[list[int], int, int]:
    stamps = np.array([divmod(wall, SECOND) for wall in walls], np.int64).reshape(-1, 2)
    times, lost, step = _monotonic(stamps, np.array(clocks, np.int64), np.array(seen, np.int64))
    return times.tolist(), int(lost.sum()), step


def test_a_slewed_clock_is_followed() -> None:
    clocks = [(0, WALL), (SECOND, WALL + SECOND + 400_000)]
    times, missing, step = mapped([WALL + 500_000_000 + 200_000], [500_000_500], clocks)
    assert times[0] == pytest.approx(500_000_000, abs=2)
    assert (missing, step) == (0, 0)


def test_a_clock_step_is_told_and_its_reads_are_timed_at_the_read() -> None:
    clocks = [(0, WALL), (SECOND, WALL + SECOND), (2 * SECOND, WALL + 7 * SECOND), (3 * SECOND, WALL + 8 * SECOND)]
    walls = [WALL + 500_000_000, WALL + 1_400_000_000, WALL + 7_500_000_000]
    seen = [500_100_000, 1_400_100_000, 2_500_100_000]
    times, missing, step = mapped(walls, seen, clocks)
    assert times == pytest.approx([500_000_000, 1_400_100_000, 2_500_000_000], abs=300)
    assert (missing, step) == (1, 5 * SECOND)


def test_a_read_without_a_stamp_has_its_own_time() -> None:
    stamps = np.frombuffer(MISSING.pack(-1, 77), dtype="<i8").reshape(-1, 2)
    times, lost, _ = _monotonic(stamps, np.array([(0, WALL)], np.int64), np.array([99], np.int64))
    assert (times.tolist(), lost.tolist()) == ([77], [True])


def test_half_a_batch_on_a_full_disk_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space may come back: a batch after a broken one must not be read as its rest."""
    writer = Writer(tmp_path)
    true, room = os.write, [300]

    def write(descriptor: int, data: memoryview) -> int:
        if room and not room[0]:
            room.clear()
            raise OSError(errno.ENOSPC, "full")
        taken = true(descriptor, data[:room[0]] if room else data)
        if room:
            room[0] -= taken
        return taken

    for number in range(3):
        writer.ends.extend((number, 1, 0))
        writer.words.append((number, "x" * 100))
        if number == 1:
            monkeypatch.setattr(os, "write", write)
            writer.words.append((number, "x" * 1000))
            with pytest.raises(OSError, match="full"):
                writer.flush()
        else:
            writer.flush()
    writer.close()
    assert sorted(raw_answers(memoryview((tmp_path / "reads.bin").read_bytes()))) == [0, 2]
