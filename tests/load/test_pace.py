import pytest

from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.load.pace import Pace, gather_s, share_of

SECOND = 1_000_000_000


@pytest.mark.parametrize(("elapsed_s", "streams", "done", "chunks", "wanted_s"), [
    (0.5, 64, 0, 0, 0.0), (0.5, 64, 0, 64, 0.5e-3), (10, 64, 240, 32_000, 1e-3), (1, 256, 800, 200_000, 0.32e-3),
    (1, 1, 200, 1000, 0.0), (1, 4, 10, 100_000, 0.0),
], ids=["nothing came", "none done", "20 ms gaps", "as fast as it can", "5 ms requests", "40 us gaps"])
def test_arrivals_gather_as_long_as_nothing_is_bent(elapsed_s: float, streams: int, done: int, chunks: int,
                                                    wanted_s: float) -> None:
    assert gather_s(round(elapsed_s * SECOND), streams, done, chunks) == pytest.approx(wanted_s)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_make_the_whole(parts: int) -> None:
    whole = Workload(arrivals=Arrivals(concurrency=10), stop=Stop(requests=23), warmup=11)
    shares = [share_of(whole, part, parts) for part in range(parts)]
    assert sum(share.arrivals.concurrency for share in shares) == 10
    assert sum(share.stop.requests or 0 for share in shares) == 23
    assert sum(share.warmup for share in shares) == 11
    numbers = []
    for part in range(parts):
        pace = Pace(whole, part=part, parts=parts)
        while pace.wants(0):
            numbers.append(pace.number)
            pace.take()
    assert sorted(numbers) == list(range(23))


def test_parts_deal_out_one_schedule() -> None:
    arrivals = Arrivals(kind="gamma", concurrency=0, rate_per_s=50, cv=2)
    level = Workload(arrivals=arrivals, stop=Stop(requests=40), seed=5)

    def schedule(part: int, parts: int) -> dict[int, int | None]:
        pace, found = Pace(level, part=part, parts=parts), {}
        while pace.wants(1 << 62):
            number = pace.number
            found[number] = pace.take()
        return found

    assert schedule(0, 2) | schedule(1, 2) == schedule(0, 1)
