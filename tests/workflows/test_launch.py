"""Launches: ready, failed in every way, and nothing left behind; a fake program and the real one."""

import _thread
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from rooftop.catalog import phases
from rooftop.domain.engine import Command, Seat
from rooftop.domain.launch import Evidence, Fault, Launch
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.progress import Progress
from rooftop.domain.vocabulary import ERRORS
from rooftop.engines.llamacpp import ENGINE
from rooftop.errors import MissingPart
from rooftop.launchers.local import Local, LocalProcess
from rooftop.load import http
from rooftop.workflows import patience, start
from rooftop.workflows.fetch import find
from rooftop.workflows.launch import Running, started
from rooftop.workflows.program import Replica
from rooftop.workflows.start import Start

LOCAL = Local(grace_s=0.5)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The fake llama-server as a program of its own."""
    path = tmp_path_factory.mktemp("bin") / "llama-server"
    script = Path(__file__).with_name("fake_llama_server.py").read_text(encoding="utf-8")
    path.write_text(f"#!{sys.executable}\n{script}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def fake(program: str, mode: str = "good", layout: Layout | None = None, **settings: int) -> Plan:
    made = tuple(Setting(name.replace("_", "-"), value) for name, value in settings.items())
    return Plan(Model("tiny", program), "llamacpp", layout or Layout(), made, (Setting("FAKE", mode),), binary=program)


def failed(plan: Plan, folder: Path, timeout_s: float = 30.0, launcher: Local = LOCAL) -> tuple[Launch, Running]:
    with started(plan, engine=ENGINE, launcher=launcher, logs=folder, timeout_s=timeout_s) as running:
        assert not running.launch.ready
        assert not running.alive()
        assert running.urls == ()
        assert running.launch.fault is not None
        assert running.launch.fault.kind in ERRORS
    return running.launch, running


def test_ready_and_verified(program: str, tmp_path: Path) -> None:
    said: list[Progress] = []
    plan = fake(program, parallel=4, ctx_size=4096)
    with started(plan, engine=ENGINE, launcher=LOCAL, logs=tmp_path, study="s", tell=said.append) as running:
        launch = running.launch
        assert launch.ready
        assert launch.fault is None
        assert running.alive()
        assert running.fault() is None
        assert len(running.urls) == len(running.pids) == 1
        assert [(claim.fact, claim.found, claim.holds) for claim in running.check()] == [
            ("limits.max_running", 4, True), ("limits.max_model_len", 1024, True)]
    assert not running.alive()
    assert launch.claims == running.launch.claims
    assert launch.study == "s"
    assert launch.engine_version == "version: 1234 (abcdef)"
    assert launch.caches == "warm"
    assert [phase.name for phase in launch.phases] == ["start process", "open model", "open slots", "first token"]
    assert all(0 <= phase.begin_s <= phase.end_s for phase in launch.phases)
    assert launch.startup_s == pytest.approx(launch.phases[-1].end_s)
    assert all(one.begin_s == pytest.approx(before.end_s)
               for before, one in zip(launch.phases, launch.phases[1:], strict=False))
    assert launch.greedy[0] == "The capital of France is and so on"
    assert "listening" in running.log_texts()[0]
    assert said[-1] == Progress("launch", "verifying")


def test_replicas(program: str, tmp_path: Path) -> None:
    plan = fake(program, layout=Layout(dp=2), parallel=2)
    with started(plan, engine=ENGINE, launcher=LOCAL, logs=tmp_path) as running:
        assert running.launch.ready
        assert len(set(running.urls)) == 2
        assert running.launch.claims[0].fact == "layout.dp"
        assert running.launch.claims[0].holds is True
        cores = [server.cores for server in running.launch.servers]
        if len(os.sched_getaffinity(0)) > 1:
            assert set(cores[0]).isdisjoint(cores[1])
        assert {one.source.partition(":")[0] for one in running.launch.evidence} == {
            "replica 0", "replica 1", "decode check"}
        process = running.starts[1].process
        assert process is not None
        process.stop()
        assert not running.alive()
        assert running.fault() is not None


def test_a_broken_claim(program: str, tmp_path: Path) -> None:
    plan = fake(program, "one slot", parallel=4)
    with started(plan, engine=ENGINE, launcher=LOCAL, logs=tmp_path) as running:
        (claim,) = running.launch.claims
        assert (claim.asked, claim.found, claim.holds) == (4, 1, False)


def test_a_claim_that_breaks_later(program: str, tmp_path: Path) -> None:
    with started(fake(program, parallel=4), engine=ENGINE, launcher=LOCAL, logs=tmp_path) as running:
        assert [claim.holds for claim in running.launch.claims] == [True]
        assert http.fetch(f"{running.urls[0]}/shrink").status == 200
        (claim,) = running.check()
        assert (claim.found, claim.holds) == (1, False)
        assert claim.proof is not None
        assert claim.proof.text in running.log_texts()[0].splitlines()[claim.proof.line - 1]


def test_a_growing_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = Start(Replica(0, Plan(Model("m")), ()), (), log)
    assert start.tail() == []
    seen = []
    for part in (b"one\ntw", b"o\r\n", "drei: ü".encode()[:-1], "ü".encode()[1:] + b"\nlast"):
        with log.open("ab") as file:
            file.write(part)
        seen.append(start.tail())
    assert seen == [["one"], ["two"], [], ["drei: ü"]]
    assert start.finish() == ["one", "two", "drei: ü", "last"]
    assert start.count == 4
    assert [at for at, _ in start.lines] == sorted(at for at, _ in start.lines)


@pytest.mark.parametrize(("mode", "kind", "reason", "phase"), [
    ("exits", "unknown_flag", "invalid argument: --metrics", "start process"),
    ("ends", "unknown", "exit code 0", "start process"),
    ("dead at first token", "segfault_first_token", "SIGSEGV", "first token"),
    ("dead after first token", "segfault_first_token", "SIGSEGV", "first token"),
    ("gone at first token", "unknown", "GGML_ASSERT", "first token"),
    ("500", "unknown", "HTTP 500: {\"error\": {\"message\": \"compute error\"}}", "first token"),
    ("empty", "unknown", "without a token", "first token"),
])
def test_failures(program: str, tmp_path: Path, mode: str, kind: str, reason: str, phase: str,
                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "DEATH_S", 10.0 if "dead" in mode or "gone" in mode else 0.1)
    launch, running = failed(fake(program, mode), tmp_path)
    fault = launch.fault
    assert fault is not None
    assert fault.kind == kind
    assert reason in fault.reason
    assert fault.remedy
    assert fault.last_phase == phase
    assert launch.startup_s is None
    assert running.logs[0].read_text() == running.log_texts()[0]


@pytest.mark.parametrize("mode", ["hangs", "loading for ever"])
def test_a_hang_is_ended(program: str, tmp_path: Path, mode: str) -> None:
    launch, running = failed(fake(program, mode), tmp_path, timeout_s=1.5)
    assert launch.fault is not None
    assert "not ready after" in launch.fault.reason
    assert "loading model" in running.log_texts()[0]


def test_a_hang_is_declared_by_its_phase(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: replace(row, usual_s=1.0, silence_s=3.0) for name, row in phases.known().items()}
    monkeypatch.setattr(phases, "known", lambda: rows)
    monkeypatch.setattr(patience, "LOOK_S", 0.3)
    launch, _ = failed(fake(program, "hangs"), tmp_path)
    fault = launch.fault
    assert fault is not None
    assert (fault.kind, fault.last_phase, fault.line) == ("unknown", "open model", 1)
    assert fault.reason.startswith("it hangs while start of the program: silent for 3")
    assert "usually takes up to 1.00 s" in fault.reason
    assert "loading model" in fault.reason
    assert "known causes: " in fault.remedy


def test_work_without_a_word_is_no_hang(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: replace(row, usual_s=1.0, silence_s=1.5) for name, row in phases.known().items()}
    monkeypatch.setattr(phases, "known", lambda: rows)
    monkeypatch.setattr(patience, "LOOK_S", 0.2)
    with started(fake(program, "compiles"), engine=ENGINE, launcher=LOCAL, logs=tmp_path) as running:
        assert running.launch.fault is None
        assert running.launch.ready
        assert running.launch.startup_s is not None
        assert running.launch.startup_s > 3.0


class Mild:
    """A witness that has seen something mild, and nothing else."""

    def fault(self, lines: Sequence[str], exit_code: int | None) -> Fault:
        return Fault("kernel_fallback", "a generic kernel", "install the fast one")

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        return ()


class Warned:
    """llama.cpp's engine with that witness."""

    witness = Mild()

    def __getattr__(self, name: str) -> object:
        return getattr(ENGINE, name)


@pytest.mark.parametrize("mode", ["hangs", "ends", "gone at first token"])
def test_a_mild_finding_is_no_cause(program: str, tmp_path: Path, mode: str) -> None:
    with started(fake(program, mode), engine=Warned(), launcher=LOCAL, logs=tmp_path,  # type: ignore[arg-type]
                 timeout_s=1.5) as running:
        fault = running.launch.fault
    assert fault is not None
    assert fault.kind == "unknown"
    assert "generic kernel" not in fault.reason


def test_one_replica_fails_all(program: str, tmp_path: Path) -> None:
    launch, running = failed(fake(program, "exits", Layout(dp=2)), tmp_path)
    assert launch.fault is not None
    assert launch.fault.reason.startswith("replica ")
    assert len(running.log_texts()) == 2


class Unlucky:
    """A launcher whose first port is someone else's."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.name = "unlucky"
        self.here = True

    def free_port(self, host: str) -> int:
        return self.ports.pop(0) if self.ports else LOCAL.free_port(host)

    def start(self, command: Command, seat: Seat, log: Path) -> LocalProcess:
        return LOCAL.start(command, seat, log)


def test_a_port_taken_meanwhile(program: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(fake(program), engine=ENGINE, launcher=Unlucky([port]), logs=tmp_path) as running:
            assert running.launch.ready
            assert not running.urls[0].endswith(f":{port}")
            first = running.logs[0].with_name(f"replica-0-port-{port}.log")
            assert "couldn't bind" in first.read_text()


def test_no_port_at_all(program: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        unlucky = Unlucky([taken.getsockname()[1]] * 10)
        launch, _ = failed(fake(program), tmp_path, launcher=unlucky)  # type: ignore[arg-type]
    assert launch.fault is not None
    assert launch.fault.kind == "port_in_use"
    assert len(unlucky.ports) == 6


class Stranger(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_a_stranger_that_answers_is_not_our_server(program: str, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        unlucky = Unlucky([stranger.server_port] * 10)
        launch, _ = failed(fake(program, "deaf"), tmp_path, 1.0, unlucky)  # type: ignore[arg-type]
        stranger.shutdown()
        thread.join()
    assert launch.fault is not None
    assert launch.fault.kind == "port_in_use"
    assert "another process" in launch.fault.reason


def test_a_refused_plan_starts_nothing(program: str, tmp_path: Path) -> None:
    plan = Plan(Model("tiny", program), "llamacpp", Layout(tp=2), machine=Machine("m", "c", 2, 1))
    launch, running = failed(plan, tmp_path)
    assert launch.fault is not None
    assert launch.fault.kind == "layout_not_supported"
    assert launch.servers == ()
    assert running.log_texts() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_not_here(tmp_path: Path) -> None:
    plan = Plan(Model("tiny"), "llamacpp", Layout(), binary="/nowhere/llama-server")
    with pytest.raises(MissingPart, match="/nowhere/llama-server"):
        failed(plan, tmp_path)


def test_ctrl_c_while_it_starts(program: str, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.detail == "open model":
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt), started(fake(program, "hangs"), engine=ENGINE, launcher=LOCAL, logs=tmp_path,
                                                   tell=interrupt):
        pytest.fail("it never became ready")


def weights() -> Model | None:
    try:
        return find("smollm2-135m")
    except MissingPart:
        return None


@pytest.mark.skipif(weights() is None, reason="the weights are not fetched: rooftop fetch smollm2-135m")
@pytest.mark.parametrize(("layout", "slots"), [(Layout(), 4), (Layout(dp=2), 1)])
def test_the_real_server(tmp_path: Path, layout: Layout, slots: int) -> None:
    model = weights()
    assert model is not None
    settings = {"parallel": slots, "threads": 1, "ctx-size": 512 * slots, "batch-size": 256, "flash-attn": True}
    plan = Plan(model, "llamacpp", layout, tuple(Setting(*one) for one in settings.items()), binary="xllamacpp")
    with started(plan, engine=ENGINE, launcher=LOCAL, logs=tmp_path, timeout_s=90) as running:
        launch = running.launch
        assert launch.ready, launch.fault
        assert launch.engine_version.startswith("xllamacpp ")
        held = {claim.fact: (claim.found, claim.holds) for claim in running.check()}
        assert held == {"limits.max_running": (slots, True), "limits.max_model_len": (512, True),
                        "limits.chunk_tokens": (256, True), "attention.backend": ("flash", True),
                        **({"layout.dp": (2, True)} if layout.dp > 1 else {})}
        assert launch.greedy[0].startswith(" Paris")
        assert {"load weights", "build context", "first token"} <= {phase.name for phase in launch.phases}
