"""One server from its command to its first token, every line stamped as it comes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rooftop.catalog import phases
from rooftop.domain.engine import Command, Engine, Seat
from rooftop.domain.launch import Evidence, Fault, Phase
from rooftop.domain.launcher import Launcher, Process
from rooftop.domain.vocabulary import stops
from rooftop.errors import RooftopError, ServerUnreachable
from rooftop.load.http import fetch
from rooftop.workflows import decode
from rooftop.workflows.patience import Patience, remedy, weight_bytes
from rooftop.workflows.program import Replica

HOST = "127.0.0.1"
PORT_TRIES = 4
LATE_LINES = 5000
_TAIL_S = 0.01
_PROBE_S, _PROBE_SHARE, _PROBE_MAX_S = 0.05, 0.005, 0.25
DEATH_S = 3.0
_DECODE_S = 60.0


@dataclass(slots=True)
class Start:
    """One server on its way up.

    `lines` are (arrival, line), the arrival on the clock of `time.monotonic`, to within 10 ms; `began`, `ready_at` and
    `token_at` are on the same clock.  Once the start's evidence is taken, the last of the lines that follow are `late`;
    `count` is the number of all lines, `fresh` the bytes of the log that came last, a line's beginning included.
    """

    replica: Replica
    program: tuple[str, ...]
    log: Path
    command: Command = field(default_factory=lambda: Command(()))
    url: str = ""
    port: int = 0
    process: Process | None = None
    began: float = 0.0
    ready_at: float | None = None
    token_at: float | None = None
    ended_at: float | None = None
    token: str = ""
    phase: str = phases.FIRST
    fault: Fault | None = None
    evidence: tuple[Evidence, ...] = ()
    lines: list[tuple[float, str]] = field(default_factory=list)
    late: deque[str] = field(default_factory=lambda: deque(maxlen=LATE_LINES))
    count: int = 0
    fresh: bytes = b""
    patience: Patience = field(default_factory=lambda: Patience(phases.known()))
    _offset: int = 0
    _rest: bytes = b""

    def tail(self) -> list[str]:
        """Take in what the log has grown by; the new whole lines."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            self.fresh = b""
            return []
        self.fresh = data
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        now = time.monotonic()
        new = [line.decode("utf-8", "replace").rstrip("\r") for line in whole]
        self._take(new, now)
        return new

    def _take(self, new: list[str], now: float) -> None:
        self.count += len(new)
        if self.evidence:
            self.late.extend(new)
        else:
            self.lines += [(now, line) for line in new]

    def text(self) -> list[str]:
        """The lines of the start and the last of those after it, up to the log's end as it is now."""
        self.tail()
        return [*(line for _, line in self.lines), *self.late]

    def finish(self) -> list[str]:
        """The log to its end, a last line without its end included; for a server that has ended."""
        self.tail()
        if self._rest:
            self._take([self._rest.decode("utf-8", "replace")], time.monotonic())
            self._rest = b""
        return [line for _, line in self.lines]

    def phases(self, name_of: Callable[[str], str | None]) -> tuple[Phase, ...]:
        """The start-up phases by the lines that begin them, then the way from ready to the first token."""
        marks = [(self.began, "start process")]
        for at, line in self.lines:
            name = name_of(line)
            if name is not None and name != marks[-1][1] and (self.ready_at is None or at <= self.ready_at):
                marks.append((at, name))
        if self.ready_at is not None:
            marks.append((self.ready_at, "first token"))
        ends = [at for at, _ in marks[1:]] + [self.token_at or self.ended_at or marks[-1][0]]
        return tuple(Phase(name, at - self.began, end - self.began)
                     for (at, name), end in zip(marks, ends, strict=True))

    def reset(self) -> None:
        """Forget a try whose port was taken; its log stays under another name."""
        if self.log.exists():
            self.log.rename(self.log.with_name(f"{self.log.stem}-port-{self.port}.log"))
        self.lines.clear()
        self.count = 0
        self._offset, self._rest, self.ready_at, self.ended_at = 0, b"", None, None


def bring_up(start: Start, engine: Engine, launcher: Launcher, abort: threading.Event, until: float) -> None:
    """Start a server and wait for its first token; `start.fault` says why there was none.

    A port that someone took between choice and use is exchanged for another, a few times.  `until` is the end of the
    user's own patience (infinite without); a start that hangs by what is usual for its phase is ended before.
    """
    plan = start.replica.plan
    start.patience = Patience(phases.known(), weight_bytes(plan.model.path), bool(plan.machine and plan.machine.gpus))
    for last in (*[False] * (PORT_TRIES - 1), True):
        start.port = launcher.free_port(HOST)
        start.url = f"http://{HOST}:{start.port}"
        seat = Seat(start.program, start.port, HOST, start.replica.number, start.replica.cores)
        start.command = engine.command(start.replica.plan, seat)
        start.command = Command(start.command.argv, (*start.replica.environment, *start.command.environment))
        start.began = time.monotonic()
        start.patience.begin(start.began)
        start.process = process = launcher.start(start.command, seat, start.log)
        fault = _await_ready(start, process, engine, abort, until)
        if fault is None:
            fault = _await_token(start, process, engine, until)
        if fault is None or fault.kind != "port_in_use" or last or abort.is_set():
            break
        process.stop()
        start.reset()
    if fault is not None:
        start.ended_at = time.monotonic()
        process.stop()
        start.finish()
    start.fault = fault


def _await_ready(start: Start, process: Process, engine: Engine, abort: threading.Event, until: float) -> Fault | None:
    """Wait for the ready page; None once it answers 200."""
    probe_at = 0.0
    start.phase = phases.FIRST
    while not abort.is_set():
        for line in start.tail():
            start.phase = engine.phase(line) or start.phase
        fresh = start.fresh.decode("utf-8", "replace").replace("\r", "\n")
        if (code := process.poll()) is not None:
            return _death(start, engine, code, "before it was ready")
        now = time.monotonic()
        if now >= probe_at:
            if process.listens(start.port) is not False and _ready(start.url + engine.pages.ready):
                start.ready_at = time.monotonic()
                start.phase = "first token"
                return None
            probe_at = time.monotonic() + min(_PROBE_MAX_S, max(_PROBE_S, _PROBE_SHARE * (now - start.began)))
        start.patience.see(now, start.phase, fresh, process.work() if start.patience.due(now) else None)
        hang = start.patience.fault(now, start.phase)
        if hang is not None or now > until:
            return _hang(start, process, engine, hang)
        abort.wait(_TAIL_S)
    return Fault("stopped", "stopped while it started", "", start.phase)


def _ready(url: str) -> bool:
    try:
        return fetch(url).status == 200
    except RooftopError:
        return False


def _hang(start: Start, process: Process, engine: Engine, hang: Fault | None) -> Fault:
    """Why it is not ready: a stranger at its port, what the log says, the hang, or the end of the user's patience."""
    lines = [line for _, line in start.lines]
    now = time.monotonic()
    if process.listens(start.port) is False and _ready(start.url + engine.pages.ready):
        return Fault("port_in_use", f"another process answers at port {start.port}, the server itself never did",
                     "end the other process, or start anew: another port will be chosen", start.phase, len(lines))
    found = engine.witness.fault(lines, None)
    if found is not None and stops(found.kind):
        return found
    if hang is not None:
        return replace(hang, reason=f"{hang.reason}; its last words: {_last(lines)}", line=len(lines))
    row = start.patience.row(start.phase)
    waited = f"not ready after {now - start.began:.0f} s (start_timeout_s), and it still runs"
    return Fault("unknown", f"{waited}: {row.kind}, {start.patience.told(now, start.phase)}; its last words: "
                 f"{_last(lines)}", f"raise start_timeout_s, or leave it out; {remedy(row)}", start.phase, len(lines))


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no log")


def _death(start: Start, engine: Engine, code: int, when: str) -> Fault:
    """Why it ended, by the log; a mild finding (a lesser kernel, a slow compilation) is no cause of a death."""
    lines = start.finish()
    found = engine.witness.fault(lines, code)
    if found is not None and stops(found.kind):
        return found
    return Fault("unknown", f"it ended {when} with exit code {code}; its last words: {_last(lines)}",
                 "read its log", start.phase, len(lines))


def _await_token(start: Start, process: Process, engine: Engine, until: float) -> Fault | None:
    """Ask for a real streamed completion: healthy but dead on the first token is not ready."""
    longest_s = start.patience.row("first token").longest_s
    timeout_s = min(longest_s, max(_DECODE_S, until - time.monotonic()))
    try:
        start.token, start.token_at = decode.first_token(start.url, start.replica.plan.model.name, timeout_s=timeout_s)
        return None
    except RooftopError as error:
        failure = error
    give_up = time.monotonic() + DEATH_S
    while process.poll() is None and time.monotonic() < give_up:
        time.sleep(_TAIL_S)
    code = process.poll()
    start.tail()
    lines = [line for _, line in start.lines]
    if code is not None:
        fault = _death(start, engine, code, "at the first token")
        if fault.kind == "unknown" and code < 0:
            return Fault("segfault_first_token", f"it was healthy and died on the first token: {fault.reason}",
                         fault.remedy, "first token", fault.line)
        return replace(fault, last_phase="first token")
    found = engine.witness.fault(lines, None)
    if found is not None and stops(found.kind):
        return replace(found, last_phase="first token")
    stalled = isinstance(failure, ServerUnreachable) and "stood still" in failure.what
    return Fault("hang_after_ready" if stalled else "unknown", f"it was healthy, but {failure.what}",
                 "health proves nothing: read the log's last lines; another layout may decode", "first token",
                 len(lines))
