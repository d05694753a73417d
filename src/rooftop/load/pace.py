"""What a level sends and when it has sent enough: closed or open, three stop rules."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from rooftop.domain.workload import Arrivals, Workload
from rooftop.load.arrivals import half_width, schedule

TICK_NS = 500_000_000
GATHER_MOST_S, GATHER_LEAST_S = 1e-3, 50e-6


class Pace:
    """The next requests of one phase.  Times are nanoseconds after the phase's origin.

    A closed phase asks for a request whenever a user is free; an open one has a schedule, `next_due_ns`.
    The level may be shared by `parts` processes: part 0 has requests 0, parts, 2 parts, ..., and so on.
    """

    __slots__ = ("_counts", "_due", "_last", "closed", "limit", "next_due_ns", "part", "parts", "precision",
                 "seconds_ns", "sent", "users", "warmup", "why")

    def __init__(self, whole: Workload, *, warmup: bool = False, part: int = 0, parts: int = 1) -> None:
        workload = share_of(whole, part, parts)
        self.part, self.parts = part, parts
        stop, arrivals = workload.stop, workload.arrivals
        self.warmup = warmup
        self.closed = warmup or arrivals.kind == "closed"
        self.users = max(1, arrivals.concurrency) if arrivals.kind == "closed" else arrivals.concurrency
        if warmup:
            self.users = min(workload.warmup, self.users or workload.warmup)
        self.limit = workload.warmup if warmup else stop.requests
        self.seconds_ns = None if warmup or stop.seconds is None else round(stop.seconds * 1e9)
        self.precision = None if warmup else stop.precision
        self.sent = 0
        self.why = ""
        self._counts: list[float] = []
        self._last: tuple[int, int] | None = None
        self._due: Iterator[float] | None = None
        if not self.closed:
            self._due = islice(schedule(arrivals, workload.seed), part, None, parts)
        self.next_due_ns: int | None = None
        self._step()

    def _step(self) -> None:
        if self._due is not None:
            due = round(next(self._due) * 1e9)
            over = self.seconds_ns is not None and due >= self.seconds_ns
            self.next_due_ns = None if over or self.why else due
            if over:
                self.why = self.why or "seconds"

    @property
    def number(self) -> int:
        """Number of the next request; those of a warm-up are below zero."""
        number = self.sent * self.parts + self.part
        return -1 - number if self.warmup else number

    def wants(self, now_ns: int) -> bool:
        """Whether one more request is to go out now (open: whether the next one is due)."""
        if self.limit is not None and self.sent >= self.limit:
            self.why = self.why or "requests"
        elif self.closed and self.seconds_ns is not None and now_ns >= self.seconds_ns:
            self.why = self.why or "seconds"
        if self.why:
            self.next_due_ns = None
            return False
        return self.closed or (self.next_due_ns is not None and self.next_due_ns <= now_ns)

    def take(self) -> int | None:
        """Count one request as sent: its due time, None in a closed phase (due when it is sent)."""
        due = self.next_due_ns
        self.sent += 1
        self._step()
        return due

    def tick(self, now_ns: int, chunks: int, busy: bool) -> None:
        """Hear the number of chunks so far; spans in which all users were busy count towards the precision."""
        if self.precision is None:
            return
        if self._last is None or not busy:
            self._last = (now_ns, chunks) if busy else None
            return
        before, had = self._last
        if now_ns - before < TICK_NS:
            return
        self._last = (now_ns, chunks)
        self._counts.append((chunks - had) / (now_ns - before))
        width = half_width(self._counts)
        if width is not None and width <= self.precision:
            self.why = self.why or "precision"

    def stop(self, why: str) -> None:
        """Send nothing more."""
        self.why = self.why or why
        self.next_due_ns = None


def share_of(workload: Workload, part: int, parts: int) -> Workload:
    """What one of `parts` processes has of a level: users, requests and warm-up as even as can be.

    The whole is as precise as wanted where each part is by the root of `parts` less.
    """
    if parts == 1:
        return workload

    def mine(count: int) -> int:
        return count // parts + (part < count % parts)

    stop = workload.stop
    stop = replace(stop, requests=None if stop.requests is None else mine(stop.requests),
                   precision=None if stop.precision is None else stop.precision * parts**0.5)
    return replace(workload, warmup=mine(workload.warmup), stop=stop,
                   arrivals=replace(workload.arrivals, concurrency=mine(workload.arrivals.concurrency)))


class Waiting:
    """A request that is to go out: number, prompt, due time (None = when sent), what freed its user."""

    __slots__ = ("after", "due_ns", "number", "prompt", "server", "tries")

    def __init__(self, number: int, prompt: int, due_ns: int | None, after: int, server: int) -> None:
        self.number, self.prompt, self.due_ns, self.after, self.server = number, prompt, due_ns, after, server
        self.tries = 0


def gather_s(elapsed_ns: int, streams: int, done: int, chunks: int) -> float:
    """How long to let arrivals gather before they are read, seconds, so that one turn of the loop takes in many.

    Where the kernel stamps them it does not matter when they are read, but for two things.  A closed loop's next
    request goes out later by as much: at most a thousandth of a request's time (streams x elapsed / done; all that has
    elapsed while none is done).  Two chunks of one stream that gather share a stamp: at most a quarter of the mean gap
    between them.
    """
    if not chunks:
        return 0.0
    request_ns = elapsed_ns * streams / done if done else elapsed_ns
    gap_ns = elapsed_ns * streams / chunks
    least = min(request_ns / 1000, gap_ns / 4) * 1e-9
    return min(GATHER_MOST_S, least) if least >= GATHER_LEAST_S else 0.0


def pool_size(arrivals: Arrivals, limit: int | None) -> int:
    """Connections to open before a level: one a user; for open arrivals those of about one second, at most 1024."""
    wanted = arrivals.concurrency or min(1024, max(16, round(arrivals.rate_per_s)))
    return min(wanted, limit) if limit is not None else wanted
