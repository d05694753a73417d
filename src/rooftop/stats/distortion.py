"""What the load client itself may have added to a figure, held against the figure's interval."""

from dataclasses import replace

from rooftop.domain.finding import Measurement
from rooftop.domain.trial import ClientProof
from rooftop.units import seconds

UNKNOWN_WIDTH = 0.02
_STAMPED = ("ttft", "tpot", "itl", "chunk_gap", "e2e")
_RATES = ("output_tokens_per_s", "output_tokens_per_s_busy", "input_tokens_per_s", "requests_per_s",
          "goodput_requests_per_s")


def distortion(metric: str, value: float, proof: ClientProof, *, closed: bool, request_s: float) -> float:
    """The most by which the client may have moved a figure, in the figure's unit; 0 where it cannot have.

    TTFT and E2E of an open loop count from when a request was due: what it was sent late is in them, at the median up
    to the median lateness, elsewhere up to that at p99.  Times taken at the read, where the kernel stamps nothing, are
    late by the loop's lag (p99).  A closed loop's rates miss the share of a request's time, `request_s`, that users
    waited for the client in the mean: a pause of the client counts as much as many small delays.
    """
    kind, _, figure = metric.rpartition("_")
    if metric in _RATES:
        idle_s = proof.send_late_p50_s if proof.send_late_mean_s is None else proof.send_late_mean_s
        return value * idle_s / request_s if closed and request_s else 0.0
    if kind not in _STAMPED:
        return 0.0
    moved = 0.0 if proof.stamps in ("kernel", "simulated") else proof.loop_lag_p99_s
    if not closed and kind in ("ttft", "e2e"):
        moved += proof.send_late_p50_s if figure == "p50" else proof.send_late_p99_s
    return moved


def marked(one: Measurement, proof: ClientProof, *, closed: bool, request_s: float) -> Measurement:
    """The figure with a caution where the client may have moved it by more than half its interval's width.

    A figure without an interval gets one from 2 % of its value on.
    """
    if one.value is None:
        return one
    moved = distortion(one.metric, one.value, proof, closed=closed, request_s=request_s)
    width = (one.interval.high - one.interval.low) / 2 if one.interval else UNKNOWN_WIDTH * abs(one.value)
    if moved <= width:
        return one
    shown = seconds(moved) if one.unit == "s" else f"{moved:.3g} {one.unit}"
    said = f"the client itself may have moved this by up to {shown}, more than its interval tells; see its warnings"
    return replace(one, why_not="; ".join(filter(None, (one.why_not, said))))
