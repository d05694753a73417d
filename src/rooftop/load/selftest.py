"""This machine's timing error and client limit, against the true-timing server."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooftop.domain.finding import Measurement
from rooftop.domain.progress import Progress, Tell, silent
from rooftop.domain.trial import StampSource
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import ServerRefused
from rooftop.load.job import Job, Prompt, Target
from rooftop.load.level import Level, measure
from rooftop.load.truth import Served, Truth

USERS = 64
TOKENS = 64
PACED = {"ttft_s": 0.1, "itl_s": 0.02}
FLOOD = {"burst": 32}


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What the client can do here: figures (seconds, tokens/s), where stamps come from, and what to change."""

    figures: tuple[Measurement, ...]
    stamps: StampSource
    warnings: tuple[str, ...]


def self_test(tell: Tell = silent, *, users: int = USERS, tokens: int = TOKENS) -> SelfTest:
    """Measure a server on loopback that logs when each chunk went out, and hold the client's stamps against its log.

    ttft_error, itl_error: client minus server, absolute, seconds (the server's own lag is not in them).
    client_tokens_per_s: tokens a core of this machine takes in at one chunk a token, from the processor time of the
    load process.  flood_tokens_per_s: tokens taken in when the server holds nothing back; the server shares the
    machine, so the client can do at least that.  Raises ServerRefused when the test itself fails.
    """
    with Truth() as server:
        tell(Progress("self-test", f"{users} streams, 50 tokens/s each", 0, 2))
        paced = _run(server, users, tokens, PACED)
        errors = _errors(paced, server.log)
        server.log.clear()
        tell(Progress("self-test", "as fast as it can", 1, 2))
        flood = _run(server, users, tokens * 8, FLOOD)
        tell(Progress("self-test", done=2, total=2, last=True))
    figures = []
    for name, values in errors:
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            figures.append(Measurement(f"{name}_{label}", "s", float(np.quantile(values, share)), count=len(values)))
    for name, level, per_cpu in (("client_tokens_per_s", paced, True), ("flood_tokens_per_s", flood, False)):
        count = sum(reply.output_tokens or 0 for reply in level.replies)
        share = level.client.cpu_share if level.client and per_cpu else 1.0
        figures.append(Measurement(name, "tokens/s", count / (level.measured_s * share), count=count))
    proof = paced.client
    return SelfTest(tuple(figures), proof.stamps if proof else "read", proof.warnings if proof else ())


def _run(server: Truth, users: int, tokens: int, script: Mapping[str, float]) -> Level:
    body = json.dumps({"model": "truth", "stream": True, "max_tokens": tokens, "truth": script}).encode()
    workload = Workload(arrivals=Arrivals(concurrency=users), stop=Stop(requests=2 * users), output_tokens=tokens)
    with tempfile.TemporaryDirectory(prefix="rooftop-self-test-") as spool:
        level = measure(Job(Target((server.url,), "truth"), workload, spool), [Prompt(body, None, tokens)] * 2 * users)
    wrong = next((reply for reply in level.replies if not reply.ok or reply.output_tokens != tokens), None)
    if level.fault or wrong or not level.measured_s:
        words = level.fault.reason if level.fault else wrong.detail if wrong else "nothing was measured"
        raise ServerRefused(f"the self-test failed: {words}", where=server.url,
                            remedy="this is a defect of rooftop or of this machine's loopback; please report it")
    return level


def _errors(level: Level, log: Sequence[Served]) -> tuple[tuple[str, NDArray[np.float64]], ...]:
    """Absolute errors of TTFT (one a reply) and of gaps (one a gap), seconds."""
    served = {int(one.request_id.rsplit("-", 1)[1]): one for one in log}
    ttft, gaps = [], []
    for reply in level.replies:
        mine = np.asarray(reply.times_ns(), np.int64)
        theirs = np.asarray(served[reply.number].chunk_ns, np.int64)
        ttft.append((mine[0] - reply.due_ns) - (theirs[0] - served[reply.number].received_ns))
        gaps.append(np.diff(mine) - np.diff(theirs))
    return (("ttft_error", np.abs(np.array(ttft)) * 1e-9), ("itl_error", np.abs(np.concatenate(gaps)) * 1e-9))
