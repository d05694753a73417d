"""Samples at 2 Hz, from whatever sources it is given, while a level runs."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rooftop.domain.engine import Reading
from rooftop.domain.trial import Sample
from rooftop.errors import RooftopError

if TYPE_CHECKING:
    from psutil import Process

PERIOD_S = 0.5
_PAGE_LIMIT = 16 << 20
_FAILURES = (OSError, ValueError, LookupError, ArithmeticError, RooftopError)
_GRACE_S = 0.2
_TREE_EVERY = 4
_PSS_EVERY_S = 10.0

Read = Callable[[], Iterable[Reading]]


@dataclass(frozen=True, slots=True)
class Source:
    """Something to sample.

    `read` returns its readings now, and raises OSError, ValueError or RooftopError when it cannot.  `server` is the
    replica that the readings are of; `name` stands in the note of its failures.
    """

    name: str
    read: Read
    server: int = 0


class Telemetry:
    """Reads every source once a period, each in a thread of its own, so that no source waits for another.

    Counters are kept as they were read: their differences are taken later.
    """

    def __init__(self, sources: Sequence[Source], *, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._stop = threading.Event()
        self._watches = tuple(_Watch(source) for source in sources)
        self._threads = tuple(threading.Thread(target=self._follow, args=(watch,), name=watch.source.name, daemon=True)
                              for watch in self._watches)

    def start(self) -> None:
        """Begin to sample."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End at once; a source that is still reading is left behind, and what it says no longer counts."""
        self._stop.set()
        end = time.monotonic() + _GRACE_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        for watch in self._watches:
            watch.close()

    def samples(self, origin_ns: int) -> tuple[Sample, ...]:
        """The samples from the level's origin on, by time; `origin_ns` is on the clock of `time.monotonic_ns`."""
        seen = [Sample((at_ns - origin_ns) / 1e9, reading.series, reading.value, watch.source.server)
                for watch in self._watches for at_ns, readings in watch.kept() if at_ns >= origin_ns
                for reading in readings]
        return tuple(sorted(seen, key=lambda sample: sample.at_s))

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each source that failed or was too slow for the period."""
        return tuple(note for watch in self._watches if (note := watch.note()))

    def _follow(self, watch: "_Watch") -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            watch.read()
            now = time.monotonic()
            due += self._period_s
            if due < now:
                missed = int((now - due) / self._period_s) + 1
                due += missed * self._period_s
                watch.missed += missed
            self._stop.wait(due - now)


@contextmanager
def watching(sources: Sequence[Source], *, period_s: float = PERIOD_S) -> Iterator[Telemetry]:
    """Sample `sources` while the block runs."""
    telemetry = Telemetry(sources, period_s=period_s)
    telemetry.start()
    try:
        yield telemetry
    finally:
        telemetry.stop()


class _Watch:
    """What one source said so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.missed = 0
        self._lock = threading.Lock()
        self._open = True
        self._kept: list[tuple[int, tuple[Reading, ...]]] = []
        self._reads = 0
        self._failed = 0
        self._last = ""

    def read(self) -> None:
        begin = time.monotonic_ns()
        failure = ""
        readings: tuple[Reading, ...] = ()
        try:
            readings = tuple(self.source.read())
        except _FAILURES as error:
            failure = str(error) or type(error).__name__
        at = (begin + time.monotonic_ns()) // 2
        with self._lock:
            if not self._open:
                return
            self._reads += 1
            if failure:
                self._failed += 1
                self._last = failure
            elif readings:
                self._kept.append((at, readings))

    def close(self) -> None:
        with self._lock:
            self._open = False

    def kept(self) -> list[tuple[int, tuple[Reading, ...]]]:
        with self._lock:
            return list(self._kept)

    def note(self) -> str:
        name = f"telemetry: the {self.source.name}"
        if self._failed:
            return f"{name} could not be read {self._failed} of {self._reads} times ({self._last})"
        if not self._reads:
            return f"{name} did not answer while the level ran"
        if self.missed * 10 > self._reads:
            return f"{name} was slow: {self._reads} readings, {self.missed} left out"
        return ""


def metrics_page(url: str, read: Callable[[str], tuple[Reading, ...]], *, server: int = 0,
                 headers: Sequence[tuple[str, str]] = (), timeout_s: float = 2.0) -> Source:
    """An engine's metrics page, its text handed to `read`; `server` is the replica it is of."""
    import http.client

    parts = urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def get() -> tuple[Reading, ...]:
        connection = connect(parts.hostname or "", parts.port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers={"Connection": "close", **dict(headers)})
            answer = connection.getresponse()
            text = answer.read(_PAGE_LIMIT).decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ValueError(f"no HTTP answer: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}")
        return read(text)

    return Source(f"metrics page of server {server}", get, server)


def processes(pids: Sequence[int]) -> Source:
    """Processor time and memory of the servers (trees under `pids`), the client and the whole machine, at one instant.

    Series: `server_cpu_s`, `client_cpu_s` (this process and its descendants but for the servers), `machine_busy_s`
    and `machine_all_s` (over all processors) are counters in processor seconds; `server_rss_bytes` counts memory that
    processes share in each of them, `server_pss_bytes` once.  The latter comes every ten seconds or more: the kernel
    walks all pages for it.
    """
    servers: list[Process] = []
    clients: list[Process] = []
    turn, pss_due = 0, 0.0

    def get() -> tuple[Reading, ...]:
        nonlocal turn, pss_due, servers, clients
        if turn % _TREE_EVERY == 0:
            servers = _trees(pids)
            theirs = {process.pid for process in servers}
            clients = [process for process in _trees((os.getpid(),)) if process.pid not in theirs]
        turn += 1
        readings = [Reading("client_cpu_s", _spent(clients)[0], counter=True), *_machine()]
        cpu_s, rss = _spent(servers)
        if rss:
            readings += [Reading("server_cpu_s", cpu_s, counter=True), Reading("server_rss_bytes", rss)]
        now = time.monotonic()
        if now >= pss_due:
            pss = _pss(servers)
            if pss:
                readings.append(Reading("server_pss_bytes", pss))
            pss_due = now + max(_PSS_EVERY_S, 200 * (time.monotonic() - now))
        return tuple(readings)

    return Source("processes", get)


def other_cpu_share(samples: Iterable[Sample]) -> float | None:
    """Share of the machine's processor time that neither servers nor client used; None where samples do not tell.

    (busy - servers - client) / all, each the growth of its counter from the first sample to the last.  A server that
    ended took its counter along: then it is None too.
    """
    ends: dict[str, tuple[float, float]] = {}
    for sample in samples:
        ends[sample.series] = ends.get(sample.series, (sample.value,))[0], sample.value
    growth = {series: last - first for series, (first, last) in ends.items()}
    own = [growth.get(series, -1.0) for series in ("server_cpu_s", "client_cpu_s")]
    every = growth.get("machine_all_s", 0.0)
    if min(own) < 0 or not every:
        return None
    return min(1.0, max(0.0, (growth["machine_busy_s"] - sum(own)) / every))


def _machine() -> tuple[Reading, Reading]:
    import psutil

    times = psutil.cpu_times()
    every = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    idle = times.idle + getattr(times, "iowait", 0.0)
    return Reading("machine_busy_s", every - idle, counter=True), Reading("machine_all_s", every, counter=True)


def _spent(family: "Iterable[Process]") -> tuple[float, float]:
    """Processor seconds (with those of children that ended and were waited for) and resident bytes of processes."""
    import psutil

    cpu_s = rss = 0.0
    for process in family:
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            continue
        cpu_s += times.user + times.system + times.children_user + times.children_system
        rss += memory.rss
    return cpu_s, rss


def _pss(family: "Iterable[Process]") -> float | None:
    """Memory of processes with shared pages counted once; None where the kernel does not tell it of each."""
    import psutil

    try:
        return float(sum(process.memory_full_info().pss for process in family))
    except (psutil.Error, AttributeError):
        return None


def _trees(pids: Iterable[int]) -> "list[Process]":
    """The processes under `pids`, these included."""
    import psutil

    found: dict[int, Process] = {}
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            try:
                found[pid] = psutil.Process(pid)
                todo += _children(found[pid])
            except psutil.Error:
                continue
    return list(found.values())


def _children(process: "Process") -> list[int]:
    """Children of a process from the kernel's own list: psutil would read every process of the machine for it."""
    tasks = Path(f"/proc/{process.pid}/task")
    if not Path("/proc/thread-self/children").exists():
        return [child.pid for child in process.children()]
    pids: list[int] = []
    with suppress(OSError):  # the process ends
        for task in tasks.iterdir():
            with suppress(OSError):  # the thread ends
                pids += map(int, (task / "children").read_text().split())
    return pids
