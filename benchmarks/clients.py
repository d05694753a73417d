"""Load clients against a native server that logs when it wrote each token: `rooftop bench` and its peers.

    python benchmarks/clients.py                                      all loads, median of five
    python benchmarks/clients.py --peer rust=ENV/bin/python --peer vllm=ENV/bin/python
    python benchmarks/clients.py --repeats 1 --tokens 100000 --only paced-256 open-500

Needs Linux, gcc and two cores: the server (mock.c) has one, the client the other.  The client is the whole of
`rooftop bench`: probe, prompts, warm-up, load, spool, store, statistics, table.  A peer runs by the Python of an
environment that holds it (rust: sglang's wheel is enough, `pip install --no-deps sglang`); its runs alternate with
rooftop's.  Processor time is of the whole process tree, marginal to an empty run of the same client.

Errors: quantile of the client less quantile of the server, as the peers tell no more.  For rooftop the last column has
the stricter figure: client minus server reply by reply and gap by gap, from the store and the server's log.
"""

import argparse
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peers import PEERS, Asked, Peer

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
EMPTY = Load("empty", {"ttft_us": 0, "itl_us": 0}, users=1, tokens=1, least_requests=1)
QUANTILES = (0.5, 0.99)


@dataclass
class Run:
    """What one run of a client gave.  Errors are in ms, at the median and at p99."""

    wall_s: float
    cpu_s: float
    first_s: float
    level_s: float
    tokens: int = 0
    rate: float = 0.0
    tokens_per_s: float = 0.0
    ttft_error: tuple[float, ...] = ()
    itl_error: tuple[float, ...] = ()
    exact: tuple[float, ...] = ()
    on_time: float | None = None
    wrong: int = 0


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


def _on_client_core() -> None:
    os.sched_setaffinity(0, {CLIENT_CORE})


def spend(command: list[str], folder: Path) -> tuple[float, float, int]:
    """Run a client on its core: wall and processor seconds of its tree, its start on the monotonic clock."""
    with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
        begun = time.monotonic_ns()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, preexec_fn=_on_client_core)
        _, status, usage = os.wait4(process.pid, 0)
    wall = (time.monotonic_ns() - begun) * 1e-9
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:4]} ended with {process.returncode}\n"
                         f"{(folder / 'stdout.txt').read_text()[-1000:]}{(folder / 'stderr.txt').read_text()[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime, begun


def measure(server: Server, load: Load, tokens: int, tokenizer: str, client: tuple[Peer, str] | None) -> Run:
    """One run of one client; None is rooftop."""
    server.reset(load.server)
    asked = load.requests(tokens)
    with tempfile.TemporaryDirectory(dir=server.folder) as name:
        folder = Path(name)
        if client is None:
            words = [sys.executable, "-m", "rooftop", "bench", server.url, "--store", str(folder / "store.sqlite"),
                     "--json", "--output-tokens", str(load.tokens), "--requests", str(asked)]
            words += ["--concurrency", str(load.users)] if load.users else ["--rate", str(load.rate)]
        else:
            peer, python = client
            words = [python, *peer.command(Asked(server.url, asked, load.tokens, load.users, load.rate, folder,
                                                 tokenizer))]
        wall, cpu, begun = spend(words, folder)
        served = sorted(server.log().items(), key=lambda item: item[1][0])
        run = Run(wall, cpu, (served[0][1][0] - begun) * 1e-9, (served[-asked][1][0] - begun) * 1e-9)
        theirs = [times for _, times in served[-asked:]]
        begin, end = theirs[0][0], max(chunks[-1] for _, chunks in theirs)
        run.tokens = sum(len(chunks) for _, chunks in theirs)
        run.tokens_per_s = run.tokens / (end - begin) * 1e9
        run.rate = (asked - 1) / max(1, theirs[-1][0] - begin) * 1e9
        ttft, itl = hold(run, load, dict(served), folder) if client is None else peer.read(folder)
        truth = [(chunks[0] - received) / 1e6 for received, chunks in theirs]
        run.ttft_error = difference(ttft, truth)
        run.itl_error = difference(itl, np.concatenate([np.diff(chunks) for _, chunks in theirs]) / 1e6)
    return run


def difference(client: Any, server: Any) -> tuple[float, ...]:
    """Quantiles of the client less those of the server, without sign."""
    if not len(client) or not len(server):
        return tuple(float("nan") for _ in QUANTILES)
    return tuple(abs(float(np.quantile(client, share) - np.quantile(server, share))) for share in QUANTILES)


def hold(run: Run, load: Load, served: dict[str, tuple[int, np.ndarray]], folder: Path) -> tuple[Any, Any]:
    """Hold rooftop's replies against the server's log, one by one: fills the exact errors; gives TTFT and ITL in ms."""
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        trial = next(iter(store.trials()))
    mine = {int(name.rsplit("-", 1)[1]): times for name, times in served.items() if name.startswith("rooftop-")}
    ttft, itl, ttft_off, itl_off, late = [], [], [], [], 0
    for reply in trial.replies:
        received, chunks = mine[reply.number + trial.workload.warmup]
        times = np.asarray(reply.times_ns(), np.int64)
        late += reply.sent_ns - reply.due_ns > 1_000_000
        if not reply.ok or reply.output_tokens != load.tokens or len(times) != len(chunks):
            run.wrong += 1
            continue
        ttft.append((times[0] - reply.due_ns) / 1e6)
        ttft_off.append(abs(ttft[-1] - (chunks[0] - received) / 1e6))
        itl.append(np.diff(times) / 1e6)
        itl_off.append(np.abs(itl[-1] - np.diff(chunks) / 1e6))
    gaps, gaps_off = np.concatenate(itl), np.concatenate(itl_off)
    run.exact = (float(np.quantile(ttft_off, 0.5)), float(np.quantile(ttft_off, 0.99)),
                 float(np.quantile(gaps_off, 0.99)) if len(gaps_off) else float("nan"))
    run.level_s = (mine[trial.workload.warmup][0] - (served_begin(served) - run.first_s * 1e9)) * 1e-9
    if load.rate:
        run.on_time = 1 - late / len(trial.replies)
    return ttft, gaps


def served_begin(served: dict[str, tuple[int, np.ndarray]]) -> int:
    """When the first request of all had come."""
    return min(received for received, _ in served.values())


def row(name: str, load: Load, runs: list[Run], empty_cpu_s: float) -> str:
    """One line of the table: medians over the runs."""
    def middle(figure: Any) -> float:
        return statistics.median(figure(run) for run in runs)

    def both(name: str) -> str:
        return " / ".join(f"{statistics.median(values):.3f}" for values in zip(*(getattr(run, name) for run in runs),
                                                                               strict=True))

    cpu = middle(lambda run: (run.cpu_s - empty_cpu_s) / run.tokens * 1e6)
    reached = f"{middle(lambda run: run.rate):.0f}/s" if load.rate else f"{middle(lambda run: run.tokens_per_s):.0f}"
    on_time = "" if runs[0].on_time is None else f"{middle(lambda run: run.on_time) * 100:.2f} %"
    return " | ".join((load.name, name, str(len(runs)), f"{middle(lambda run: run.tokens):.0f}", reached,
                       both("ttft_error"), both("itl_error"), f"{cpu:.1f}", on_time, both("exact"),
                       str(sum(run.wrong for run in runs)) if name == "rooftop" else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", nargs="*", default=[], metavar="NAME=N", help="fewer runs of a slow peer")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="least output tokens of a closed load")
    parser.add_argument("--only", nargs="*", default=[load.name for load in LOADS if load.name != "paced-64"])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON",
                        help=f"of {', '.join(PEERS)}")
    parser.add_argument("--tokenizer", default="", help="folder with a tokenizer, which most peers need")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this needs two cores")
    clients: dict[str, tuple[Peer, str] | None] = {"rooftop": None}
    for word in asked.peer:
        name, _, python = word.partition("=")
        clients[name] = (PEERS[name], python)
    often = dict.fromkeys(clients, asked.repeats)
    often |= {name: int(times) for name, _, times in (word.partition("=") for word in asked.peer_repeats)}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        empty_cpu_s = {}
        for name, client in clients.items():
            runs = [measure(server, EMPTY, 1, asked.tokenizer, client) for _ in range(max(3, often[name]))]
            empty_cpu_s[name] = statistics.median(run.cpu_s for run in runs)
            first, level, wall = (statistics.median(getattr(run, what) for run in runs)
                                  for what in ("first_s", "level_s", "wall_s"))
            print(f"empty run of {name}: first request after {first:.2f} s, first of the load after {level:.2f} s, "
                  f"{wall:.2f} s in all, {empty_cpu_s[name]:.2f} s of processor time; "
                  f"load average {os.getloadavg()[0]:.1f}", flush=True)
        print("load | client | runs | tokens | tokens/s, or requests/s | TTFT error p50 / p99, ms | "
              "ITL error p50 / p99, ms | CPU s per 1M tokens | sent within 1 ms | "
              "reply by reply: TTFT p50 / p99, ITL p99, ms | wrong")
        for load in (load for load in LOADS if load.name in asked.only):
            runs: dict[str, list[Run]] = {name: [] for name in clients}
            for turn in range(asked.repeats):
                for name, client in clients.items():
                    if turn < often[name]:
                        runs[name].append(measure(server, load, asked.tokens, asked.tokenizer, client))
            for name, found in runs.items():
                print(row(name, load, found, empty_cpu_s[name]), flush=True)


if __name__ == "__main__":
    main()
