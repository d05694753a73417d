import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop import telemetry
from rooftop.domain.engine import Reading
from rooftop.domain.trial import Sample
from rooftop.errors import ServerRefused
from rooftop.telemetry import Source, Telemetry, watching

PERIOD_S = 0.01


def until(holds: Callable[[], bool], *, every_s: float = 0.002) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it did not come to pass in 30 s"
        time.sleep(every_s)


def counting(series: str) -> Callable[[], tuple[Reading, ...]]:
    numbers = count()
    return lambda: (Reading(series, float(next(numbers)), counter=True),)


def values(watch: Telemetry, series: str, origin_ns: int = 0) -> list[float]:
    return [sample.value for sample in watch.samples(origin_ns) if sample.series == series]


def test_readings_become_samples_in_order_with_their_server() -> None:
    origin_ns = time.monotonic_ns()
    with watching([Source("a", counting("x"), 0), Source("b", counting("y"), 1)], period_s=PERIOD_S) as watch:
        until(lambda: min(len(values(watch, "x")), len(values(watch, "y"))) >= 5)
    samples = watch.samples(origin_ns)
    assert [sample.at_s for sample in samples] == sorted(sample.at_s for sample in samples)
    assert 0 <= samples[0].at_s <= samples[-1].at_s <= (time.monotonic_ns() - origin_ns) / 1e9
    assert {(sample.series, sample.server) for sample in samples} == {("x", 0), ("y", 1)}
    assert values(watch, "x") == list(range(len(values(watch, "x"))))


def test_readings_before_the_origin_are_left_out() -> None:
    with watching([Source("a", counting("x"))], period_s=PERIOD_S) as watch:
        until(lambda: len(values(watch, "x")) >= 3)
        origin_ns = time.monotonic_ns()
        until(lambda: len(values(watch, "x", origin_ns)) >= 3)
    assert values(watch, "x", origin_ns)[0] >= 3
    assert all(sample.at_s >= 0 for sample in watch.samples(origin_ns))


def test_the_first_reading_is_at_once_and_the_others_keep_the_period() -> None:
    with watching([Source("a", counting("x"))], period_s=60) as watch:
        until(lambda: len(values(watch, "x")) == 1)
    assert values(watch, "x") == [0]


def test_a_source_that_hangs_or_fails_hinders_no_other_and_no_end() -> None:
    release = threading.Event()

    def hang() -> tuple[Reading, ...]:
        release.wait()
        return (Reading("late", 1.0),)

    def fail() -> tuple[Reading, ...]:
        raise ServerRefused("no such page")

    turn = count()

    def sometimes() -> tuple[Reading, ...]:
        if next(turn) % 2:
            raise ConnectionRefusedError(111, "refused")
        return (Reading("even", 1.0),)

    sources = (Source("hanging", hang), Source("failing", fail), Source("moody", sometimes))
    with watching([*sources, Source("good", counting("x"))], period_s=PERIOD_S) as watch:
        until(lambda: len(values(watch, "x")) >= 10 and len(values(watch, "even")) >= 3)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10, "leaving must not wait for the source that hangs"
    release.set()
    until(lambda: not any(thread.name == "hanging" for thread in threading.enumerate()))
    assert {sample.series for sample in watch.samples(0)} == {"x", "even"}
    hanging, failing, moody = watch.notes
    assert hanging == "telemetry: the hanging did not answer while the level ran"
    assert failing.endswith("(no such page)")
    assert "the failing could not be read" in failing
    assert "refused" in moody


def test_a_slow_source_is_noted_with_the_readings_left_out() -> None:
    def slow() -> tuple[Reading, ...]:
        time.sleep(5 * PERIOD_S)
        return (Reading("x", 1.0),)

    with watching([Source("slow one", slow)], period_s=PERIOD_S) as watch:
        until(lambda: len(values(watch, "x")) >= 3)
    (note,) = watch.notes
    assert note.startswith("telemetry: the slow one was slow: ")


def test_the_end_comes_at_once_also_by_an_exception() -> None:
    names = {thread.name for thread in threading.enumerate()}
    with suppress(KeyboardInterrupt), watching([Source("alone", counting("x"))], period_s=3600):
        raise KeyboardInterrupt
    until(lambda: {thread.name for thread in threading.enumerate()} <= names)


@contextmanager
def page(status: int, body: bytes, seen: list[tuple[str, str | None]]) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def words(text: str) -> tuple[Reading, ...]:
    return tuple(Reading(name, float(value)) for name, value in (line.split() for line in text.splitlines()))


def test_a_metrics_page_is_read_by_the_engines_words() -> None:
    seen: list[tuple[str, str | None]] = []
    with page(200, b"running 3\nwaiting 0.5\n", seen) as url:
        source = telemetry.metrics_page(f"{url}/metrics?x=1", words, server=2, headers=(("Authorization", "Bearer k"),))
        assert list(source.read()) == [Reading("running", 3.0), Reading("waiting", 0.5)]
        with watching([source], period_s=PERIOD_S) as watch:
            until(lambda: len(values(watch, "running")) >= 3)
    assert seen[0] == ("/metrics?x=1", "Bearer k")
    assert {sample.server for sample in watch.samples(0)} == {2}
    assert not any("could not be read" in note for note in watch.notes)


@pytest.mark.parametrize(("status", "body", "words_of_it"), [
    (404, b"", "HTTP 404"), (401, b"running 3", "HTTP 401"), (200, b"\xff\x00 garbage garbage", "unpack")])
def test_a_page_that_is_none_is_counted_as_a_failure(status: int, body: bytes, words_of_it: str) -> None:
    with page(status, body, []) as url, watching([telemetry.metrics_page(url, words)], period_s=PERIOD_S) as watch:
        until(lambda: "could not be read" in "".join(watch.notes))
    (note,) = watch.notes
    assert words_of_it in note
    assert watch.samples(0) == ()


def test_a_server_that_is_gone_silent_or_talks_nonsense_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        silent = telemetry.metrics_page(url, words, timeout_s=0.05)
        with pytest.raises(TimeoutError):
            silent.read()

        def talk() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises((ValueError, ConnectionError)):
            telemetry.metrics_page(url, words).read()
        thread.join()
    with pytest.raises(ConnectionRefusedError):
        telemetry.metrics_page(url, words).read()


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "x = bytearray(32 << 20); print('up', flush=True)\\nwhile True: pass"])
time.sleep(600)
"""


@contextmanager
def family() -> Iterator[int]:
    """A process that sleeps, with a child that holds 32 MiB and burns one core."""
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    try:
        yield parent.pid
    finally:
        for child in psutil.Process(parent.pid).children():
            child.kill()
        parent.kill()
        parent.wait()
        parent.stdout.close()


def read(source: Source) -> dict[str, float]:
    return {reading.series: reading.value for reading in source.read()}


def test_a_servers_whole_tree_is_counted_and_is_not_the_client() -> None:
    with family() as pid:
        source = telemetry.processes([pid])
        first = read(source)
        assert first["server_rss_bytes"] > 32 << 20
        assert 32 << 20 < first["server_pss_bytes"] <= first["server_rss_bytes"]
        until(lambda: read(source)["server_cpu_s"] >= first["server_cpu_s"] + 0.3, every_s=0.1)
        last = read(source)
        assert "server_pss_bytes" not in last
        assert last["machine_busy_s"] - first["machine_busy_s"] >= 0.1
        server, client = (last[name] - first[name] for name in ("server_cpu_s", "client_cpu_s"))
        machine = last["machine_all_s"] - first["machine_all_s"]
        assert 0.3 <= server < machine
        assert 0 <= client < server / 2, "the servers are children of this process, and yet not the client"
    until(lambda: "server_cpu_s" not in read(source))
    assert "machine_all_s" in read(source)


def test_the_clients_own_work_and_its_children_count_as_the_client() -> None:
    source = telemetry.processes([])
    first = read(source)["client_cpu_s"]
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True)
    assert read(source)["client_cpu_s"] >= first + 0.15


def test_the_kernels_own_list_names_the_same_children_as_psutil() -> None:
    with family() as pid:
        tree = {process.pid for process in telemetry._trees([pid])}
        assert tree == {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        assert len(tree) == 2
        assert telemetry._trees([pid, pid]) == telemetry._trees([pid])
    assert telemetry._trees([pid]) == []


def growth(series: str, *values: float) -> list[Sample]:
    return [Sample(float(i), series, value) for i, value in enumerate(values)]


MACHINE = [*growth("machine_busy_s", 0, 1), *growth("machine_all_s", 0, 2)]


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100), st.floats(0.1, 100), st.floats(0, 1e6))
def test_the_share_of_others_is_what_is_left(server: float, client: float, other: float, idle: float,
                                             before: float) -> None:
    busy = server + client + other
    samples = [*growth("server_cpu_s", before, before + server), *growth("client_cpu_s", 5, 5 + client),
               *growth("machine_busy_s", before, before + busy), *growth("machine_all_s", 0, busy + idle),
               Sample(0.5, "running", 3.0)]
    assert telemetry.other_cpu_share(samples) == pytest.approx(other / (busy + idle), abs=1e-6)


@pytest.mark.parametrize("samples", [
    [],
    MACHINE,
    [*MACHINE, *growth("server_cpu_s", 5, 1), *growth("client_cpu_s", 0, 1)],
    [one for one in (*MACHINE, *growth("server_cpu_s", 5), *growth("client_cpu_s", 0)) if one.at_s == 0],
])
def test_the_share_of_others_is_unknown_where_samples_do_not_tell(samples: list[Sample]) -> None:
    assert telemetry.other_cpu_share(samples) is None


def test_a_busy_neighbour_is_seen() -> None:
    source = telemetry.processes([os.getpid()])
    first = read(source)
    until(lambda: read(source)["machine_all_s"] >= first["machine_all_s"] + 0.2)
    last = read(source)
    samples = [Sample(at, name, values[name]) for at, values in ((0.0, first), (1.0, last)) for name in values]
    share = telemetry.other_cpu_share(samples)
    assert share is not None
    assert 0 <= share <= 1
