"""What the load client knows of its own error, from the record of a level."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooftop.domain.trial import ClientProof, Reply, StampSource
from rooftop.load.record import Ints, Record
from rooftop.units import seconds, share

LATE_S = 0.001
IDLE = 0.01
LAG_S = 0.005
BUSY = 0.85
MERGED = 0.05


def prove(record: Record, replies: tuple[Reply, ...]) -> ClientProof:
    """Lateness, lag, processor share, streams, connections, stamps; with warnings that say what to change."""
    end = record.end or {}
    origin = record.origin_ns or 0
    sends = record.sends[record.sends[:, 0] >= 0] if len(record.sends) else record.sends
    late = _lateness(record, sends, origin) * 1e-9
    mine = record.who >= 0
    lag = (record.seen[mine] - record.stamps[mine]) * 1e-9
    reads, missing = int(mine.sum()), record.missing
    stamps: StampSource = "kernel" if reads and not missing else "read" if missing == reads else "mixed"
    connect = np.array(end.get("connect_ns") or [0]) * 1e-9
    tls = np.array(end.get("tls_ns") or [0]) * 1e-9
    arrivals = record.job.workload.arrivals
    proof = ClientProof(
        stamps=stamps, send_late_p50_s=_quantile(late, 0.5), send_late_p99_s=_quantile(late, 0.99),
        send_late_max_s=_quantile(late, 1.0), loop_lag_p99_s=_quantile(lag, 0.99), loop_lag_max_s=_quantile(lag, 1.0),
        cpu_share=float(end.get("cpu_share", 0.0)), streams_asked=arrivals.concurrency,
        streams_open_max=int(end.get("streams_open_max", 0)), connect_p50_s=_quantile(connect, 0.5),
        connect_max_s=_quantile(connect, 1.0), tls_max_s=_quantile(tls, 1.0), dns_s=float(end.get("dns_s", 0.0)),
        pool_wait_max_s=_pool_wait(record, sends), merged_share=_merged(replies), missing_stamps=missing,
        clock_step_s=record.step_ns * 1e-9, processes=record.job.processes,
        send_late_mean_s=float(late.mean()) if len(late) else 0.0)
    return _with_warnings(proof, record, replies)


def _quantile(values: NDArray[Any], share_below: float) -> float:
    return float(np.quantile(values, share_below)) if len(values) else 0.0


def _lateness(record: Record, sends: Ints, origin: int) -> Ints:
    """Sent minus intended, ns.  Open loop: intended is due.  Closed loop: the moment that freed the user, which is the
    arrival of the last byte of the reply before, its end where that did not come by its last byte (a timeout), or the
    origin."""
    if record.job.workload.arrivals.kind != "closed" or not len(sends):
        return sends[:, 5] - sends[:, 4]
    last = dict(zip(record.who.tolist(), record.stamps.tolist(), strict=True))
    last |= {number: at for number, at, how in record.ends.tolist() if how}
    freed = np.array([last.get(after, origin if after < 0 else sent)
                      for after, sent in zip(sends[:, 6].tolist(), sends[:, 5].tolist(), strict=True)])
    late: Ints = np.maximum(0, sends[:, 5] - freed)
    return late


def _pool_wait(record: Record, sends: Ints) -> float:
    """The longest that a request on a connection opened within the level was late, seconds."""
    late = _lateness(record, sends, record.origin_ns or 0)
    fresh = sends[:, 2] >= int((record.end or {}).get("pool", 1 << 30))
    return float(late[fresh].max()) * 1e-9 if fresh.any() else 0.0


def _merged(replies: tuple[Reply, ...]) -> float:
    """Share of token chunks whose stamp is that of another chunk of the same reply."""
    merged = total = 0
    for reply in replies:
        times = np.frombuffer(reply.chunk_ns, dtype="<i8")
        same = times[1:] == times[:-1]
        shared = np.zeros(len(times), bool)
        shared[1:] |= same
        shared[:-1] |= same
        merged += int(shared.sum())
        total += len(times)
    return merged / total if total else 0.0


def _with_warnings(proof: ClientProof, record: Record, replies: tuple[Reply, ...]) -> ClientProof:
    arrivals = record.job.workload.arrivals
    spans = np.array([reply.end_ns - reply.due_ns for reply in replies if reply.ok])
    typical = _quantile(spans, 0.5) * 1e-9
    told = []
    more = f"--processes {proof.processes + 1}"
    closed = arrivals.kind == "closed"
    if not closed and proof.send_late_p99_s > LATE_S:
        cause = "the cap on open streams held them back: raise it" if arrivals.concurrency \
            else f"lower the rate, give the client a core of its own, or share the load ({more})"
        told.append(f"1 % of the requests went out {seconds(proof.send_late_p99_s)} late or later: {cause}")
    idle = (proof.send_late_mean_s or 0.0) / typical if closed and typical else 0.0
    if idle > IDLE:
        told.append(f"users waited {share(idle)} of a request's time for the client to send their next one: throughput "
                    f"is too low by up to that; give the client a core of its own, or share the load ({more})")
    if proof.loop_lag_p99_s > LAG_S and proof.stamps == "read":
        told.append(f"the client read late (p99 {seconds(proof.loop_lag_p99_s)}) and the kernel gives no receive "
                    "times: TTFT and ITL are too long by up to that; give the client a core of its own")
    if proof.cpu_share > BUSY:
        told.append(f"the client used {share(proof.cpu_share)} of one core: it may be the limit; share the load "
                    f"({more}), or run it on another machine")
    asked = min(proof.streams_asked, len(replies)) if closed else 0
    if proof.streams_open_max < asked:
        told.append(f"only {proof.streams_open_max} of {asked} streams were open at once")
    if proof.merged_share > MERGED:
        told.append(f"{share(proof.merged_share)} of the chunks came in one read with another: their gaps are 0 and "
                    "the gap before is long; the server, or the way to it, sends them together")
    if proof.clock_step_s:
        told.append(f"the wall clock jumped by {seconds(proof.clock_step_s)}: reads near it are timed at the read")
    if (record.end or {}).get("wrapped"):
        told.append("there were fewer prompts than requests, so prompts came twice: a prefix cache may have helped")
    return replace(proof, warnings=tuple(told))
