"""One load level and everything that was seen while it ran; never edited."""

from dataclasses import dataclass, field
from typing import Literal

from rooftop.domain.finding import Measurement
from rooftop.domain.launch import Claim, Fault
from rooftop.domain.machine import Machine
from rooftop.domain.plan import Plan
from rooftop.domain.reply import CountSource as CountSource
from rooftop.domain.reply import Reply as Reply
from rooftop.domain.workload import Workload

Origin = Literal["measured", "emulated", "simulated", "imported"]
StampSource = Literal["kernel", "read", "mixed", "simulated"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one series while a level ran; `at_s` is seconds after the level's origin."""

    at_s: float
    series: str
    value: float
    server: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The conditions of a level: what else could have moved its numbers.

    `other_cpu_share` is the share of the machine's processor time that neither the client nor the servers used.
    """

    machine: Machine
    rooftop_version: str
    python_version: str
    load_before: float = 0.0
    other_cpu_share: float | None = None


@dataclass(frozen=True, slots=True)
class ClientProof:
    """What the load client knows of its own error; seconds unless named otherwise.

    `stamps` says where receive times were taken; `merged_share` is the share of token chunks that came in one read
    with another chunk and so share its stamp; `missing_stamps` counts reads without a kernel stamp.
    `clock_step_s` is how far the wall clock moved against the monotonic one during the level.  `send_late_mean_s` is
    what a closed loop's rates are short by, as a share of a request's time; None in trials of before it was known.
    """

    stamps: StampSource
    send_late_p50_s: float
    send_late_p99_s: float
    send_late_max_s: float
    loop_lag_p99_s: float
    loop_lag_max_s: float
    cpu_share: float
    streams_asked: int
    streams_open_max: int
    connect_p50_s: float
    connect_max_s: float
    tls_max_s: float = 0.0
    dns_s: float = 0.0
    pool_wait_max_s: float = 0.0
    merged_share: float = 0.0
    missing_stamps: int = 0
    clock_step_s: float = 0.0
    processes: int = 1
    warnings: tuple[str, ...] = ()
    send_late_mean_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One load level: a plan under a workload, its replies and its conditions.

    `measured_s` is the length of the level from its origin to its last reply.  `fault` is None for a level that ran to
    its stop rule.  `claims` were checked under load; a broken one makes the trial invalid (see `valid`).
    `notes` is what a reader must know before trusting a figure.  `reported` holds the figures of an imported trial
    that came without replies.
    """

    id: str
    origin: Origin
    plan: Plan
    workload: Workload
    started_at: str
    surroundings: Surroundings | None = None
    launch_id: str = ""
    study: str = ""
    repeat: int = 0
    replies: tuple[Reply, ...] = ()
    samples: tuple[Sample, ...] = ()
    client: ClientProof | None = None
    measured_s: float = 0.0
    claims: tuple[Claim, ...] = ()
    fault: Fault | None = None
    notes: tuple[str, ...] = ()
    reported: tuple[Measurement, ...] = field(default=())

    @property
    def valid(self) -> bool:
        """Nothing failed, and no claim about the engine is broken."""
        return self.fault is None and all(claim.holds is not False for claim in self.claims)

    @property
    def unfinished(self) -> bool:
        """It was cut short from outside (Ctrl-C, a killed process): kept, but neither ranked nor done."""
        return self.fault is not None and self.fault.kind in ("stopped", "killed")
