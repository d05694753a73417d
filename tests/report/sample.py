"""A study as it may come out: three setups that ran, one that did not start, cells that must not be ranked."""

import struct

from rooftop.domain.finding import Interval, Measurement
from rooftop.domain.launch import Claim, Evidence, Fault, Launch, Phase, Server
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.matrix import Best, Cell, Matrix, Row
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.trial import ClientProof, Reply, Sample, Surroundings, Trial
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.report import words

MACHINE = Machine("worker-3", "Intel Xeon Gold 6338 @ 2.00 GHz", 2, 8_300_000_000, system="Linux 6.1, Python 3.12.4")
LEVELS = ("1", "2", "4", "8")
ONE, EIGHT, DP, BROKEN = "one slot", "eight slots", "dp 2, one thread each", "eight slots, q8 KV"

# setup, level -> tokens/s in total, per user, TTFT p50 in s
TRUTH = {
    (ONE, "1"): (61.2, 64.8, 0.141), (ONE, "2"): (61.9, 64.7, 2.21), (ONE, "4"): (62.3, 64.5, 6.35),
    (ONE, "8"): (62.1, 64.6, 14.6),
    (EIGHT, "1"): (60.6, 64.1, 0.144), (EIGHT, "2"): (93.4, 50.2, 0.205), (EIGHT, "4"): (128.0, 35.4, 0.392),
    (EIGHT, "8"): (151.0, 21.3, 0.781),
    (DP, "1"): (38.7, 40.3, 0.239), (DP, "2"): (76.9, 40.1, 0.241), (DP, "4"): (111.0, 30.2, 0.455),
    (DP, "8"): (139.0, 19.0, 0.874),
}


def figure(metric: str, value: float, unit: str, half: float | None = None, count: int = 3) -> Measurement:
    interval = None if half is None else Interval(value - half, value + half)
    return Measurement(metric, unit, value, interval, count)


def figures(setup: str, level: str) -> tuple[Measurement, ...]:
    total, each, ttft = TRUTH[setup, level]
    found = [figure(words.THROUGHPUT, total, "tokens/s", total * 0.015), figure(words.BUSY, total * 1.03, "tokens/s"),
             figure(words.PER_USER, each, "tokens/s", each * 0.011), figure("ramp_share", 0.021, "share"),
             figure("tail_share", 0.084, "share")]
    for kind, middle in (("ttft", ttft), ("tpot", 1 / each), ("itl", 0.97 / each), ("e2e", ttft + 63 / each)):
        found.append(figure(words.latency(kind, "p50"), middle, "s", middle * 0.013, 24))
        found.append(figure(words.latency(kind, "p90"), middle * 1.11, "s", middle * 0.03, 24))
        if kind == "itl":
            found.append(figure("itl_p99", middle * 1.6, "s", middle * 0.05, 1512))
        else:
            found.append(Measurement(f"{kind}_p99", "s", None, None, 24, "needs at least 300 replies; there are 24"))
    return tuple(found)


def matrix() -> Matrix:
    cells = [Cell(setup, level, figures(setup, level), 3) for setup, level in TRUTH]
    dead = cells.index(next(cell for cell in cells if (cell.setup, cell.level) == (DP, "8")))
    cells[dead] = Cell(DP, "8", figures(DP, "8"), 1, False, "a server ended during repeat 2")
    program = "llama-server -m SmolLM2-135M-Instruct-Q8_0.gguf --host 127.0.0.1"
    rows = (
        Row(ONE, Layout(), "parallel 1, threads 2", ("a1",), (f"{program} --port 41001 -np 1 -t 2",), 2.31,
            (Phase("load weights", 0.08, 0.61), Phase("warm up", 0.61, 1.42), Phase("decode check", 1.42, 2.31)),
            "warm", same_text=True),
        Row(EIGHT, Layout(), "parallel 8, threads 2", ("a2",), (f"{program} --port 41002 -np 8 -t 2",), 2.52,
            (Phase("load weights", 0.08, 0.65), Phase("warm up", 0.65, 1.71), Phase("decode check", 1.71, 2.52)),
            "warm", same_text=True),
        Row(DP, Layout(dp=2), "parallel 4, threads 1", ("a3",),
            (f"{program} --port 41003 -np 4 -t 1", f"{program} --port 41004 -np 4 -t 1"), 4.02,
            (Phase("load weights", 0.09, 1.02), Phase("warm up", 1.02, 2.75), Phase("decode check", 2.75, 3.9)),
            "warm", same_text=True,
            fault=Fault("engine died", "replica 1 ended with signal 9 (killed)", "look at the machine's memory", "")),
        Row(BROKEN, Layout(), "parallel 8, cache-type-v q8_0", ("a4",),
            (f"{program} --port 41005 -np 8 -ctv q8_0 -fa off",), None, (Phase("load weights", 0.08, 0.66),), "warm",
            fault=Fault("unsupported setting", "V cache quantization requires flash_attn",
                        "leave out cache-type-v, or set flash-attn to on", "create context", 212),
            log="studies/first/launches/a4/server-0.log"),
    )
    best = (
        Best("one user", ONE, "1", figure(words.PER_USER, 64.8, "tokens/s", 0.71), EIGHT, "1",
             figure("margin", 1.011, "ratio", 0.016), False,
             "the intervals of the 3 repeats overlap; more repeats could tell them apart"),
        Best("throughput", EIGHT, "8", figure(words.THROUGHPUT, 151.0, "tokens/s", 2.3), DP, "4",
             figure("margin", 1.36, "ratio", 0.03), True, "the spread of 3 repeats allows the claim"),
    )
    conditions = (("rooftop", "0.1.0"), ("Engine", "llama.cpp b6942 (xllamacpp 2026.10.1)"),
                  ("Weights", "SmolLM2-135M-Instruct-Q8_0.gguf, 138 MiB, sha256 5a1395716f7913741cc5…"),
                  ("Prompts", "128 tokens in, 64 out (fixed), every prompt unique: no prefix cache helps"),
                  ("Repeats", "3 a level, interleaved; one start a setup, caches warm"),
                  ("Token counts", "usage of the server"), ("Other load", "3 % of the processors before the start"))
    return Matrix("first", "SmolLM2-135M", "llama.cpp", MACHINE, LEVELS, rows, tuple(cells), best,
                  "128 tokens in, 64 out, every prompt unique", conditions,
                  ("The load client shares both cores with the server.",), "2026-03-11 14:02", 151.0)


def workload(level: str) -> Workload:
    return Workload(Arrivals("closed", int(level)), 128, 64, stop=Stop(requests=3 * int(level)))


def reply(number: int, error: str | None = None) -> Reply:
    start = number * 400_000_000
    times = [start + 140_000_000 + 16_000_000 * token for token in range(64)]
    if error is not None:
        return Reply(number, start, start, start, times[-1], error=error)
    return Reply(number, start, start, start + 5_000_000, times[-1], struct.pack("64q", *times),
                 struct.pack("64I", *[1] * 64), 128, 64, 0, "usage", 128, 64, "length")


def samples(setup: str, users: int, seconds: float) -> tuple[Sample, ...]:
    slots = {ONE: 1, EIGHT: 8, DP: 4}[setup]
    servers = 2 if setup == DP else 1
    out = []
    for server in range(servers):
        mine = users // servers if users >= servers else (users if server == 0 else 0)
        for step in range(int(seconds * 2)):
            busy = 0 if step in (0, int(seconds * 2) - 1) else mine
            for series, value in (("running", min(busy, slots)), ("waiting", max(busy - slots, 0)),
                                  ("kv_usage", min(busy, slots) / slots * (0.2 + 0.15 * (step % 4)))):
                out.append(Sample(step / 2, series, float(value), server))
    return tuple(out)


def trials(setup: str = EIGHT, launch: str = "a2") -> tuple[Trial, ...]:
    proof = ClientProof("kernel", 4e-5, 1.1e-4, 3.2e-4, 2e-4, 6e-4, 0.12, 8, 8, 3e-4, 9e-4)
    plan = Plan(Model("SmolLM2-135M", "http://127.0.0.1:8080"), "llama.cpp", title=setup)
    surroundings = Surroundings(MACHINE, "0.1.0", "3.12.4", 0.1, 0.03)
    out = []
    for number, level in enumerate(LEVELS):
        seconds = 6.0 + 2 * number
        errors = {3: "cut"} if level == "8" else {}
        replies = tuple(reply(index, errors.get(index)) for index in range(3 * int(level)))
        notes = ("Prompt lengths are approximate: the server has no tokenizer route.",) if level == "8" else ()
        out.append(Trial(f"{launch}-{level}", "measured", plan, workload(level), "2026-03-11 14:02", surroundings,
                         launch, "first", 0, replies, samples(setup, int(level), seconds), proof, seconds,
                         notes=notes))
    return tuple(out)


def all_trials() -> tuple[Trial, ...]:
    return trials(ONE, "a1") + trials(EIGHT, "a2") + trials(DP, "a3")


def launch() -> Launch:
    plan = Plan(Model("SmolLM2-135M", "SmolLM2-135M-Instruct-Q8_0.gguf"), "llamacpp", Layout(),
                (Setting("parallel", 8), Setting("threads", 2)), title=EIGHT)
    slots = Evidence("slots", 4, "built", "log", 118, "srv  load_model: initializing slots, n_slots = 4")
    threads = Evidence("threads", 2, "resolved", "log", 31, "system_info: n_threads = 2 (n_threads_batch = 2) / 2")
    return Launch(
        "a2", plan, (Server(0, ("llama-server", "-m", "SmolLM2 135M.gguf", "-np", "8"), (("OMP_NUM_THREADS", "2"),),
                            "http://127.0.0.1:41002", (0, 1)),),
        "2026-03-11 14:02", "warm", 2.52,
        (Phase("load weights", 0.08, 0.65), Phase("warm up", 0.65, 1.71), Phase("decode check", 1.71, 2.52)),
        "b6942", (slots, threads),
        (Claim("slots", 8, 4, False, slots), Claim("threads", 2, 2, True, threads),
         Claim("kv.dtype", "f16", None, None)))
