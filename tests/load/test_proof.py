from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooftop.domain.trial import ClientProof, Reply
from rooftop.domain.workload import Arrivals, Workload
from rooftop.load.job import Job, Target
from rooftop.load.proof import prove
from rooftop.load.record import Record

MS = 1_000_000


def record(arrivals: Arrivals, **fields: Any) -> Record:
    """Two requests of one user: sent at 0 and 10 ms, two reads each, one and two ms after."""
    made: dict[str, Any] = {
        "job": Job(Target(("http://h",), "m"), Workload(arrivals=arrivals), "spool"), "prompts": [], "begin": {},
        "end": {"cpu_share": 0.2, "streams_open_max": 1, "connect_ns": [3000, 5000], "tls_ns": [0, 0], "dns_s": 0.5,
                "pool": 1}, "data": memoryview(b""),
        "who": np.array([0, 0, 1, 1]), "sizes": np.array([1] * 4), "offsets": np.arange(4),
        "stamps": np.array([1, 2, 11, 12]) * MS, "seen": np.array([1, 2, 11, 13]) * MS,
        "sends": np.array([[0, 0, 0, 0, 0, 1000, -(1 << 31)], [1, 1, 0, 0, 10 * MS, 10 * MS + 1000, 0]]),
        "ends": np.empty((0, 3), np.int64), "words": {}, "origin_ns": 0, "last_ns": 13 * MS, "missing": 0, "step_ns": 0}
    return Record(**(made | fields))


def reply(*times: int) -> Reply:
    return Reply(number=0, due_ns=0, sent_ns=0, headers_ns=1, end_ns=10 * MS, chunk_ns=array("q", times).tobytes())


def proof(arrivals: Arrivals, *replies: Reply, **fields: Any) -> ClientProof:
    return prove(record(arrivals, **fields), replies or (reply(1, 2), reply(1, 2)))


CLOSED = Arrivals(concurrency=1)
OPEN = Arrivals(kind="poisson", rate_per_s=100.0, concurrency=0)


def test_a_quiet_client_has_nothing_to_warn_of() -> None:
    seen = proof(OPEN)
    assert seen.warnings == ()
    assert seen.stamps == "kernel"
    assert seen.send_late_max_s == pytest.approx(1e-6)
    assert (seen.connect_max_s, seen.dns_s, seen.cpu_share) == (5e-6, 0.5, 0.2)
    assert seen.loop_lag_max_s == pytest.approx(1e-3)


def test_a_closed_send_is_late_against_what_freed_its_user() -> None:
    seen = proof(CLOSED)
    assert seen.send_late_max_s == pytest.approx(8.001e-3)
    assert any("users waited" in warning for warning in seen.warnings)


def test_a_user_whose_request_timed_out_was_not_kept_waiting_by_the_client() -> None:
    seen = proof(CLOSED, ends=np.array([[0, 10 * MS, 3], [1, 13 * MS, 0]]))
    assert seen.send_late_max_s == pytest.approx(1e-6)
    assert seen.warnings == ()


def test_a_pause_of_the_client_counts_in_the_mean() -> None:
    sends = [[0, 0, 0, 0, 0, 1000, -(1 << 31)], *([n, n, 0, 0, 0, 12 * MS + 1000, 1] for n in range(2, 9)),
             [9, 1, 0, 0, 0, 92 * MS, 1]]
    seen = proof(CLOSED, sends=np.array(sends))
    assert seen.send_late_p50_s == pytest.approx(1e-6)
    assert seen.send_late_mean_s == pytest.approx(80e-3 / 9, rel=0.01)
    assert any("users waited" in warning for warning in seen.warnings)


def test_a_warm_up_is_no_part_of_the_lag() -> None:
    seen = proof(OPEN, who=np.array([-1, -1, 1, 1]), seen=np.array([90, 90, 11, 12]) * MS)
    assert seen.loop_lag_max_s == 0.0


@pytest.mark.parametrize(("missing", "stamps"), [(0, "kernel"), (2, "mixed"), (4, "read")])
def test_stamps_say_where_they_are_from(missing: int, stamps: str) -> None:
    assert proof(OPEN, missing=missing).stamps == stamps


def test_chunks_that_share_a_stamp_are_counted() -> None:
    seen = proof(OPEN, reply(5, 5, 5, 9), reply(1, 2, 3, 4))
    assert seen.merged_share == pytest.approx(3 / 8)
    assert any("in one read" in warning for warning in seen.warnings)


END: dict[str, Any] = {"cpu_share": 0.1, "streams_open_max": 2}
LATE = {"sends": np.array([[0, 0, 0, 0, 0, 9 * MS, 0]])}
WARNINGS = [
    ("late or later", OPEN, LATE), ("raise it", Arrivals(kind="constant", rate_per_s=9.0, concurrency=2), LATE),
    ("of one core", OPEN, {"end": {**END, "cpu_share": 0.95}}),
    ("streams were open at once", Arrivals(concurrency=2), {"end": {**END, "streams_open_max": 1}}),
    ("jumped by", OPEN, {"step_ns": 5 * MS}),
    ("prompts came twice", OPEN, {"end": {**END, "wrapped": True}}),
    ("gives no receive times", OPEN, {"missing": 4, "seen": np.array([99] * 4) * MS}),
]


@pytest.mark.parametrize(("words", "arrivals", "fields"), WARNINGS, ids=[case[0] for case in WARNINGS])
def test_each_trouble_has_its_warning(words: str, arrivals: Arrivals, fields: dict[str, Any]) -> None:
    assert any(words in warning for warning in proof(arrivals, **fields).warnings)


def test_a_request_on_a_new_connection_waited_for_it() -> None:
    sends = np.array([[0, 0, 0, 0, 0, 1000, 0], [1, 1, 7, 0, 0, 4 * MS, 0]])
    assert proof(OPEN, sends=sends).pool_wait_max_s == pytest.approx(4e-3)


def test_a_killed_run_still_has_a_proof(tmp_path: Path) -> None:
    assert proof(OPEN, end=None).cpu_share == 0.0
