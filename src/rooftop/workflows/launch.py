"""One start of one engine: command, readiness, first token, evidence, and its end."""

import math
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rooftop.domain.engine import Engine
from rooftop.domain.launch import Claim, Evidence, Fault, Launch, Server
from rooftop.domain.launcher import Launcher
from rooftop.domain.plan import Plan
from rooftop.domain.progress import Progress, Tell, silent
from rooftop.domain.vocabulary import state, stops
from rooftop.errors import RooftopError
from rooftop.hardware import pagecache
from rooftop.load.http import fetch
from rooftop.workflows import decode, verify
from rooftop.workflows.program import replicas, resolve, version
from rooftop.workflows.start import DEATH_S, Start, bring_up

__all__ = ["Running", "replicas", "resolve", "started"]

LOGS = "rooftop-logs"
_LOOK_S = 0.1
_GREEDY_S = 60.0
_PAGE_S = 15.0  # vLLM looks at its whole machine before it shows its settings for the first time


@dataclass(slots=True)
class Running:
    """A started engine, or one that failed to start (`launch.fault` says why; it then has no URLs)."""

    launch: Launch
    engine: Engine
    starts: tuple[Start, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URL of each server; none unless all of them are ready."""
        return tuple(start.url for start in self.starts) if self.launch.ready else ()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes under which all servers' processes are."""
        return tuple(start.process.pid for start in self.starts if start.process and start.process.pid is not None)

    @property
    def logs(self) -> tuple[Path, ...]:
        """Where each server's log is."""
        return tuple(start.log for start in self.starts)

    def alive(self) -> bool:
        """It is ready and all of its servers still run."""
        return self.launch.ready and all(start.process and start.process.poll() is None for start in self.starts)

    def fault(self) -> Fault | None:
        """Why a server ended since it was ready, by its log; None while all run."""
        for start in self.starts:
            if start.process is not None and (code := start.process.poll()) is not None:
                lines = start.text()
                found = self.engine.witness.fault(lines, code)
                if found is not None and stops(found.kind):
                    return found
                return Fault("unknown", f"a server ended by itself with exit code {code}", "read its log",
                             line=len(lines))
        return None

    def check(self) -> tuple[Claim, ...]:
        """The claims as they hold now: the start's evidence, what the logs say since, and the pages as they are."""
        if not self.launch.ready:
            return self.launch.claims
        return _verified(self.launch.plan, self.engine, self.starts)[1]

    def log_texts(self) -> tuple[str, ...]:
        """The whole log of each server so far."""
        return tuple(start.log.read_text(encoding="utf-8", errors="replace") if start.log.is_file() else ""
                     for start in self.starts)

    def stop(self) -> None:
        """End all servers; returns when no process of theirs lives.  May be called again."""
        for start in self.starts:
            if start.process is not None:
                start.process.stop(wait=False)
        for start in self.starts:
            if start.process is not None:
                start.process.stop()


@contextmanager
def started(plan: Plan, *, engine: Engine, launcher: Launcher, logs: Path, timeout_s: float | None = None,
            study: str = "", tell: Tell = silent, refused: Fault | None = None) -> Iterator[Running]:
    """Start what a plan asks for and hold it against what the engine says; everything is gone at the end.

    Ready means: every replica answers its ready page and has streamed a token.  A start that fails yields a Running
    whose launch has a fault.  In the folder `logs` each server's log goes to `rooftop-logs/ID/replica-N.log`.
    `timeout_s` is for readiness; None: as long as each phase may take (`catalog/phases.toml`).  Raises MissingPart
    where the engine's program is not here.  With `refused`, or a rule of the engine against it, nothing is started.
    """
    now = datetime.now(UTC)
    launch = Launch(id=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}", plan=plan, servers=(), study=study,
                    started_at=now.isoformat(timespec="milliseconds"))
    running = Running(launch, engine)
    abort = threading.Event()
    try:
        if refused is None and (refusal := engine.refuses(plan)) is not None:
            kind = "unknown_flag" if "does not know" in refusal.rule else "layout_not_supported"
            refused = Fault(kind, f"{refusal.rule}: {refusal.reason}", refusal.remedy)
        if refused is not None:
            running.launch = replace(launch, fault=refused)
        else:
            program = resolve(plan, engine, here=launcher.here)
            folder = logs / LOGS / launch.id
            folder.mkdir(parents=True, exist_ok=True)
            running.starts = tuple(Start(one, program, folder / f"replica-{one.number}.log")
                                   for one in replicas(plan, engine))
            _launch(running, launcher, abort, timeout_s, tell)
        yield running
    finally:
        abort.set()
        running.stop()


def _launch(running: Running, launcher: Launcher, abort: threading.Event, timeout_s: float | None, tell: Tell) -> None:
    """Bring all servers up and fill in the launch."""
    engine, plan = running.engine, running.launch.plan
    caches = pagecache.caches(plan.model.path)
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    with ThreadPoolExecutor(len(running.starts), thread_name_prefix="start") as threads:
        try:
            futures = [threads.submit(bring_up, start, engine, launcher, abort, until) for start in running.starts]
            shown = ""
            while not all(future.done() for future in futures):
                phase = min((start.phase for start in running.starts), key=len)
                if phase != shown:
                    tell(Progress("launch", phase))
                    shown = phase
                if any(start.fault for start in running.starts):
                    break
                abort.wait(_LOOK_S)
        finally:
            if not all(future.done() for future in futures):
                abort.set()
                running.stop()
    for future in futures:
        future.result()
    running.launch = _launched(running, caches, launcher.here, tell)


def _launched(running: Running, caches: str, here: bool, tell: Tell) -> Launch:
    """The launch as it came out: failed, or ready with evidence, claims and texts."""
    starts, engine, launch = running.starts, running.engine, running.launch
    plan = launch.plan
    origin = min(start.began for start in starts)
    broken = next((start for start in starts if start.fault is not None and start.fault.kind != "stopped"), None)
    slowest = broken or max(starts, key=lambda start: start.token_at or 0.0)
    launch = replace(
        launch, servers=tuple(Server(start.replica.number, start.command.argv, start.command.environment, start.url,
                                     start.replica.cores) for start in starts),
        caches="cold" if caches == "cold" else "warm" if caches == "warm" else "unknown",
        phases=slowest.phases(engine.phase),
        engine_version=version(engine, starts[0].program, starts[0].url, here=here))
    if broken is not None and broken.fault is not None:
        lines = broken.text()
        fault = broken.fault
        if not fault.last_phase and launch.phases:
            fault = replace(fault, last_phase=launch.phases[-1].name)
        if len(starts) > 1:
            fault = replace(fault, reason=f"replica {broken.replica.number}: {fault.reason}")
        return replace(launch, fault=fault, evidence=engine.witness.read_log(lines))
    tell(Progress("launch", "verifying"))
    evidence, claims = _verified(plan, engine, starts)
    texts, margins = decode.greedy([start.url for start in starts], plan.model.name, timeout_s=_GREEDY_S)
    give_up = time.monotonic() + (0.0 if texts else DEATH_S)
    while (death := running.fault()) is None and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
    if death is not None:
        return replace(launch, evidence=evidence, claims=claims, fault=replace(death, last_phase="first token"))
    return replace(launch, evidence=evidence, claims=claims, greedy=texts, margins=margins,
                   startup_s=max(start.token_at or 0.0 for start in starts) - origin)


def _verified(plan: Plan, engine: Engine, starts: Sequence[Start]) -> tuple[tuple[Evidence, ...], tuple[Claim, ...]]:
    """What every replica said, and the claims that follow."""
    evidence: list[Evidence] = []
    claims = []
    for start in starts:
        said = _said(start, engine)
        claims.append(verify.check(engine.asks(start.replica.plan), said))
        if len(starts) > 1:
            said = tuple(replace(one, source=f"replica {start.replica.number}: {one.source}") for one in said)
        evidence += said
    merged = verify.merge(claims)
    if len(starts) > 1 and plan.layout is not None:
        text = f"{len(starts)} servers, and each of them decoded a token"
        proof = state("layout.dp", len(starts), "built", "decode check", 0, text)
        evidence.append(proof)
        merged = (*verify.check((("layout.dp", plan.layout.dp),), (proof,)), *merged)
    return tuple(evidence), merged


def _said(start: Start, engine: Engine) -> tuple[Evidence, ...]:
    """One server's words so far: its log (the start whole, of the rest the last lines) and its pages."""
    start.tail()
    if not start.evidence:
        start.evidence = engine.witness.read_log([line for _, line in start.lines])
    skipped = start.count - len(start.late)
    late = tuple(replace(one, line=one.line + skipped) for one in engine.witness.read_log(tuple(start.late)))
    pages: list[Evidence] = []
    for path in engine.pages.info:
        try:
            answer = fetch(start.url + path, timeout_s=_PAGE_S)
        except RooftopError:
            continue
        if answer.status == 200:
            pages += engine.witness.read_info(path, answer.text)
    used = state("startup.ready", True, "used", "decode check", 0, f"first token: {start.token!r}")
    return (*start.evidence, *late, *pages, used)
