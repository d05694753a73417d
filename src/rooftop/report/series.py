"""Telemetry of trials as steps over time, and whether requests waited."""

from collections.abc import Sequence
from dataclasses import dataclass

from rooftop import units
from rooftop.domain.trial import Trial
from rooftop.report.charts import Panel
from rooftop.report.words import level_name, plain

Steps = tuple[tuple[float, float], ...]


def steps(trial: Trial, series: str, *, mean: bool = False) -> Steps:
    """(seconds, value) at each reading, summed over the servers (their mean if `mean`); each server's last reading
    holds until its next.  Begins when every server has been read once.
    """
    samples = sorted((one for one in trial.samples if one.series == series), key=lambda one: one.at_s)
    servers = {one.server for one in samples}
    last: dict[int, float] = {}
    out: list[tuple[float, float]] = []
    for one in samples:
        last[one.server] = one.value
        if len(last) < len(servers):
            continue
        value = sum(last.values()) / (len(last) if mean else 1)
        if out and out[-1][0] == one.at_s:
            out[-1] = (one.at_s, value)
        else:
            out.append((one.at_s, value))
    return tuple(out)


def panel(trial: Trial) -> Panel | None:
    """A trial's telemetry for its chart; None where the engine gave none."""
    running, waiting = steps(trial, "running"), steps(trial, "waiting")
    if not running and not waiting:
        return None
    end = max(trial.measured_s, *(at for at, _ in running + waiting))
    return Panel(level_name(trial.workload.level), end, running, waiting, steps(trial, "kv_usage", mean=True))


@dataclass(frozen=True, slots=True)
class Queue:
    """How much requests waited in the engine: the most at once, and the share of the time in which any did."""

    most: float
    share: float


def queue(trial: Trial) -> Queue | None:
    """The engine's queue while a level ran; None where the engine does not tell."""
    waiting = [(at, value) for at, value in steps(trial, "waiting") if at >= 0]
    if not waiting:
        return None
    ends = [at for at, _ in waiting[1:]] + [max(trial.measured_s, waiting[-1][0])]
    whole = ends[-1] - waiting[0][0]
    queued = sum(end - at for (at, value), end in zip(waiting, ends, strict=True) if value > 0)
    return Queue(max(value for _, value in waiting), queued / whole if whole > 0 else float(waiting[0][1] > 0))


def waited(named: Sequence[tuple[str, Trial]]) -> tuple[str, ...]:
    """One sentence for each setup in which requests waited inside the engine: from its worst level."""
    worst: dict[str, tuple[Queue, Trial]] = {}
    for name, trial in named:
        seen = queue(trial)
        if seen is not None and seen.most > 0 and (name not in worst or seen.most > worst[name][0].most):
            worst[name] = (seen, trial)
    return tuple(f"Requests waited in {name}: at {level_name(trial.workload.level)} up to {plain(seen.most)} "
                 f"stood in the engine's queue, and some did for {units.share(seen.share)} of the time. "
                 f"TTFT there includes that wait."
                 for name, (seen, trial) in worst.items())
