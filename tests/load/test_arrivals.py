import statistics
from itertools import islice, pairwise

import pytest

from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import BadInput
from rooftop.load.arrivals import half_width, schedule
from rooftop.load.pace import Pace, pool_size


def due(count: int, seed: int = 1, **fields: object) -> list[float]:
    return list(islice(schedule(Arrivals(**fields), seed), count))  # type: ignore[arg-type]


def test_constant_arrivals_are_equally_spaced() -> None:
    assert due(4, kind="constant", rate_per_s=10.0) == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(("fields", "cv"), [({"kind": "poisson"}, 1.0), ({"kind": "gamma", "cv": 0.5}, 0.5),
                                            ({"kind": "gamma", "cv": 2.0}, 2.0)], ids=str)
def test_random_gaps_have_the_rate_and_the_spread_asked_for(fields: dict[str, object], cv: float) -> None:
    times = due(20_000, rate_per_s=50.0, **fields)
    gaps = [after - before for before, after in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.05)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert due(50, 7, kind="poisson", rate_per_s=5.0) == due(50, 7, kind="poisson", rate_per_s=5.0)
    assert due(50, 7, kind="poisson", rate_per_s=5.0) != due(50, 8, kind="poisson", rate_per_s=5.0)


def test_a_ramp_rises_linearly_and_then_holds_the_rate() -> None:
    times = due(1000, kind="constant", rate_per_s=100.0, ramp_s=4.0)
    assert sum(time < 2.0 for time in times) == 50
    assert sum(time < 4.0 for time in times) == 200
    assert sum(5.0 <= time < 6.0 for time in times) == pytest.approx(100, abs=1)
    assert times == sorted(times)


@pytest.mark.parametrize("fields", [{"kind": "closed"}, {"kind": "poisson"}, {"kind": "poisson", "rate_per_s": -1.0},
                                    {"kind": "constant", "rate_per_s": 1.0, "ramp_s": -1.0},
                                    {"kind": "gamma", "rate_per_s": 1.0, "cv": 0.0}], ids=str)
def test_what_means_nothing_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        due(1, **fields)


def test_the_half_width_is_that_of_batch_means() -> None:
    assert half_width([1.0] * 29) is None
    assert half_width([0.0] * 100) is None
    assert half_width([5.0] * 100) == 0.0
    batches = [9.0, 11.0] * 5
    counts = [value for batch in batches for value in [batch] * 4]
    assert half_width(counts) == pytest.approx(1.833 * statistics.stdev(batches) / 10**0.5 / 10)
    assert half_width([100.0, *counts]) == half_width(counts)


def closed(**stop: object) -> Workload:
    return Workload(arrivals=Arrivals(concurrency=3), stop=Stop(**stop), warmup=2)  # type: ignore[arg-type]


def test_a_closed_pace_stops_by_count() -> None:
    pace = Pace(closed(requests=2))
    assert [pace.number, pace.wants(0), pace.take(), pace.wants(0), pace.take(), pace.wants(0)] == [
        0, True, None, True, None, False]
    assert pace.why == "requests"


def test_a_closed_pace_stops_by_time() -> None:
    pace = Pace(closed(seconds=1.0))
    assert pace.wants(999_999_999)
    assert not pace.wants(1_000_000_000)
    assert pace.why == "seconds"


def test_a_pace_stops_once_its_rate_is_known() -> None:
    pace = Pace(closed(precision=0.05))
    for half in range(1, 40):
        pace.tick(half * 500_000_000, half * 1000 + half % 2, busy=True)
    assert pace.why == "precision"
    assert not pace.wants(0)


def test_spans_with_idle_users_do_not_count() -> None:
    pace = Pace(closed(precision=0.05))
    for half in range(1, 100):
        pace.tick(half * 500_000_000, half * 1000, busy=half % 2 == 0)
    assert pace.why == ""


def test_a_warm_up_has_numbers_of_its_own() -> None:
    pace = Pace(closed(requests=100), warmup=True)
    assert pace.users == 2
    numbers = []
    while pace.wants(0):
        numbers.append(pace.number)
        pace.take()
    assert numbers == [-1, -2]


def test_an_open_pace_gives_due_times_and_ends_before_its_seconds() -> None:
    workload = Workload(arrivals=Arrivals(kind="constant", rate_per_s=10.0), stop=Stop(seconds=0.35))
    pace = Pace(workload)
    taken = []
    while pace.next_due_ns is not None:
        assert not pace.wants(pace.next_due_ns - 1)
        assert pace.wants(pace.next_due_ns)
        taken.append(pace.take())
    assert taken == [0, 100_000_000, 200_000_000, 300_000_000]
    assert pace.why == "seconds"


@pytest.mark.parametrize(("arrivals", "limit", "size"), [
    (Arrivals(concurrency=64), None, 64), (Arrivals(concurrency=64), 10, 10),
    (Arrivals(kind="poisson", rate_per_s=5.0, concurrency=0), None, 16),
    (Arrivals(kind="poisson", rate_per_s=1e6, concurrency=0), None, 1024),
])
def test_the_pool_fits_the_load(arrivals: Arrivals, limit: int | None, size: int) -> None:
    assert pool_size(arrivals, limit) == size
