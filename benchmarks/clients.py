"""The load client against a native server that logs when it wrote each token.

    python benchmarks/clients.py                      all loads, median of five
    python benchmarks/clients.py --repeats 1 --tokens 100000 --only paced-256 open-500

Needs Linux, gcc and two cores: the server (mock.c) has one, the client the other.  The client is the whole of
`rooftop bench`: probe, prompts, warm-up, load, spool, store, statistics, table.  Processor time is of the whole
process tree, marginal to an empty run.  TTFT and ITL errors are client minus server, reply by reply, from the store
and the server's log.
"""

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rooftop.store import Store

HERE = Path(__file__).parent
SERVER_CORE, CLIENT_CORE = 0, 1
PACED = {"ttft_us": 200_000, "itl_us": 20_000}
EARLY = {"ttft_us": 20_000, "itl_us": 0}


@dataclass(frozen=True)
class Load:
    """One load: what the server does, what the bench is asked."""

    name: str
    server: dict[str, int]
    users: int = 0
    rate: float = 0.0
    tokens: int = 128
    least_requests: int = 0
    seconds: float = 0.0

    def requests(self, tokens: int) -> int:
        """Requests that make `tokens` output tokens, in whole rounds of all users."""
        if self.seconds:
            return round(self.rate * self.seconds)
        if self.least_requests:
            return self.least_requests
        return max(2, -(-tokens // (self.tokens * self.users))) * self.users


LOADS = (
    Load("paced-64", PACED, users=64),
    Load("paced-256", PACED, users=256),
    Load("paced-1024", PACED, users=1024),
    Load("itl0-256", {"ttft_us": 0, "itl_us": 0}, users=256, tokens=256),
    Load("burst-256", PACED, users=256, tokens=16, least_requests=256),
    Load("open-500", EARLY, rate=500, tokens=4, seconds=5),
    Load("open-2000", EARLY, rate=2000, tokens=4, seconds=5),
)


@dataclass
class Run:
    """What one run of the client gave."""

    wall_s: float
    cpu_s: float
    first_request_s: float
    first_level_s: float
    tokens: int = 0
    tokens_per_s: float = 0.0
    ttft_ms: list[float] = field(default_factory=list)
    itl_ms: list[float] = field(default_factory=list)
    on_time: float | None = None
    wrong: int = 0
    server: dict[str, Any] = field(default_factory=dict)


class Server:
    """mock.c on its core; `log()` gives (received, chunk times) by request id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "mock"
        subprocess.run(["gcc", "-O2", "-w", "-o", program, HERE / "mock.c"], check=True)
        self.port = 9100 + os.getpid() % 800
        self.process = subprocess.Popen([program, "--port", str(self.port)], preexec_fn=self._place,
                                        start_new_session=True)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(100):
            with suppress(OSError):
                self.control("stat")
                return
            time.sleep(0.05)
        raise SystemExit("the mock server did not start")

    @staticmethod
    def _place() -> None:
        os.sched_setaffinity(0, {SERVER_CORE})
        with suppress(OSError):
            os.nice(-10)
            Path("/proc/self/autogroup").write_text("-10", encoding="ascii")

    def control(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/ctl/{path}", timeout=30) as answer:
            data: bytes = answer.read()
        return data

    def reset(self, settings: dict[str, int]) -> None:
        self.control("reset?osl=0&" + "&".join(f"{name}={value}" for name, value in settings.items()))

    def log(self) -> dict[str, tuple[int, np.ndarray]]:
        path = self.folder / "log"
        self.control(f"dump?{path}")
        data, place, served = path.read_bytes(), 0, {}
        while place < len(data):
            _, received, _, _, count, _ = struct.unpack_from("<6q", data, place)
            name = data[place + 48:place + 128].split(b"\0")[0].decode()
            place += 128
            served[name or f"probe-{len(served)}"] = (received, np.frombuffer(data, "<i8", count, place))
            place += 8 * count
        return served


@contextmanager
def serving(folder: Path) -> Any:
    server = Server(folder)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()


def bench(server: Server, words: list[str], folder: Path) -> tuple[float, float, int, Path]:
    """Run `rooftop bench`: wall and processor seconds, its start on the monotonic clock, its store."""
    store = folder / "store.sqlite"
    for old in folder.glob("store.sqlite*"):
        old.unlink() if old.is_file() else None
    command = [sys.executable, "-m", "rooftop", "bench", server.url, "--store", str(store), "--json", *words]
    with (folder / "out.json").open("wb") as out, (folder / "err.txt").open("wb") as err:
        begun = time.monotonic_ns()
        process = subprocess.Popen(command, stdout=out, stderr=err,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {CLIENT_CORE}))
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((folder / "err.txt").read_text()[-2000:])
    return (time.monotonic_ns() - begun) * 1e-9, usage.ru_utime + usage.ru_stime, begun, store


def measure(server: Server, load: Load, tokens: int, folder: Path) -> Run:
    server.reset(load.server)
    words = ["--output-tokens", str(load.tokens), "--requests", str(load.requests(tokens))]
    words += ["--concurrency", str(load.users)] if load.users else ["--rate", str(load.rate)]
    wall, cpu, begun, path = bench(server, words, folder)
    served = server.log()
    with Store.open(path, read_only=True) as store:
        trial = next(iter(store.trials()))
    mine = {name: times for name, times in served.items() if name.startswith("rooftop-")}
    by_number = {int(name.rsplit("-", 1)[1]): times for name, times in mine.items()}
    first = min(received for received, _ in mine.values())
    level = min(by_number[reply.number + trial.workload.warmup][0] for reply in trial.replies)
    run = Run(wall, cpu, (first - begun) * 1e-9, (level - begun) * 1e-9, server=json.loads(server.control("stat")))
    late = 0
    for reply in trial.replies:
        received, theirs = by_number[reply.number + trial.workload.warmup]
        times = np.asarray(reply.times_ns(), np.int64)
        run.tokens += reply.output_tokens or 0
        late += reply.sent_ns - reply.due_ns > 1_000_000
        if not reply.ok or reply.output_tokens != load.tokens or len(times) != len(theirs):
            run.wrong += 1
            continue
        run.ttft_ms.append(((times[0] - reply.due_ns) - (theirs[0] - received)) / 1e6)
        run.itl_ms.extend(((np.diff(times) - np.diff(theirs)) / 1e6).tolist())
    run.tokens_per_s = run.tokens / trial.measured_s
    if load.rate:
        run.on_time = 1 - late / len(trial.replies)
    return run


def quantile(values: list[float], share: float) -> float:
    return float(np.quantile(np.abs(values), share)) if values else float("nan")


def row(load: Load, runs: list[Run], empty_cpu_s: float) -> list[str]:
    def middle(figure: Any) -> float:
        return statistics.median(figure(run) for run in runs)

    def error(name: str, share: float) -> float:
        return middle(lambda run: quantile(getattr(run, name), share))

    cpu = middle(lambda run: (run.cpu_s - empty_cpu_s) / max(1, run.server["tokens"]) * 1e6)
    return [load.name, f"{middle(lambda run: run.tokens):.0f}", f"{middle(lambda run: run.tokens_per_s):.0f}",
            f"{error('ttft_ms', 0.5):.3f} / {error('ttft_ms', 0.99):.3f}", f"{error('itl_ms', 0.99):.3f}", f"{cpu:.1f}",
            "" if runs[0].on_time is None else f"{middle(lambda run: run.on_time) * 100:.2f} %",
            f"{sum(run.wrong for run in runs)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="least output tokens of a closed load")
    parser.add_argument("--only", nargs="*", default=[load.name for load in LOADS])
    asked = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this needs two cores")
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
        folder = Path(name)
        nothing = Load("empty", EARLY, users=1, tokens=1, least_requests=1)
        empty = [measure(server, nothing, 1, folder) for _ in range(max(3, asked.repeats))]
        empty_cpu_s = statistics.median(run.cpu_s for run in empty)
        wall, first, level = (statistics.median(getattr(run, name) for run in empty)
                              for name in ("wall_s", "first_request_s", "first_level_s"))
        print(f"empty run: {wall:.2f} s, {empty_cpu_s:.2f} s of processor time, first request after {first:.2f} s, "
              f"first of the level after {level:.2f} s; load average {os.getloadavg()[0]:.1f}")
        head = ["load", "tokens", "tokens/s", "TTFT error p50 / p99, ms", "ITL error p99, ms", "CPU s per 1M tokens",
                "sent within 1 ms", "wrong"]
        print(" | ".join(head))
        for load in LOADS:
            if load.name in asked.only:
                runs = [measure(server, load, asked.tokens, folder) for _ in range(asked.repeats)]
                print(" | ".join(row(load, runs, empty_cpu_s)), flush=True)


if __name__ == "__main__":
    main()
