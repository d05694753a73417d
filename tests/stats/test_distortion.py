import pytest

from rooftop.domain.finding import Interval, Measurement
from rooftop.domain.trial import ClientProof, StampSource
from rooftop.stats.distortion import distortion, marked


def proof(stamps: StampSource = "kernel", late_p50: float = 0.0, late_p99: float = 0.0,
          lag: float = 0.0, mean: float | None = None) -> ClientProof:
    return ClientProof(stamps=stamps, send_late_p50_s=late_p50, send_late_p99_s=late_p99, send_late_max_s=late_p99,
                       loop_lag_p99_s=lag, loop_lag_max_s=lag, cpu_share=0.1, streams_asked=1, streams_open_max=1,
                       connect_p50_s=0.0, connect_max_s=0.0, send_late_mean_s=mean)


@pytest.mark.parametrize(("metric", "closed", "given", "moved"), [
    ("ttft_p50", False, {"late_p50": 0.001, "late_p99": 0.01}, 0.001),
    ("ttft_p99", False, {"late_p50": 0.001, "late_p99": 0.01}, 0.01),
    ("e2e_mean", False, {"late_p50": 0.001, "late_p99": 0.01}, 0.01),
    ("ttft_p99", True, {"late_p50": 0.001, "late_p99": 0.01}, 0.0),
    ("itl_p99", False, {"late_p99": 0.01}, 0.0),
    ("itl_p99", True, {"lag": 0.004}, 0.0),
    ("itl_p99", True, {"lag": 0.004, "stamps": "read"}, 0.004),
    ("tpot_p50", True, {"lag": 0.004, "stamps": "mixed"}, 0.004),
    ("output_tokens_per_s", True, {"late_p50": 0.1}, 5.0),
    ("output_tokens_per_s", True, {"late_p50": 0.0, "mean": 0.1}, 5.0),
    ("output_tokens_per_s", False, {"late_p50": 0.1}, 0.0),
    ("requests_failed", True, {"late_p50": 0.1, "lag": 1.0, "stamps": "read"}, 0.0),
])
def test_what_the_client_may_have_moved(metric: str, closed: bool, given: dict[str, float], moved: float) -> None:
    assert distortion(metric, 100.0, proof(**given), closed=closed, request_s=2.0) == pytest.approx(moved)  # type: ignore[arg-type]


def test_a_figure_is_marked_where_the_client_outweighs_its_interval() -> None:
    narrow = Measurement("ttft_p50", "s", 0.1, Interval(0.0995, 0.1005))
    wide = Measurement("ttft_p50", "s", 0.1, Interval(0.09, 0.11), why_not="few")
    late = proof(late_p50=0.001, late_p99=0.01)
    assert "up to 1.00 ms" in marked(narrow, late, closed=False, request_s=1.0).why_not
    assert marked(wide, late, closed=False, request_s=1.0) == wide
    assert marked(narrow, late, closed=True, request_s=1.0) == narrow
    bare = Measurement("ttft_p50", "s", 0.1, why_not="no interval")
    assert marked(bare, late, closed=False, request_s=1.0) == bare
    later = marked(bare, proof(late_p50=0.01), closed=False, request_s=1.0)
    assert later.why_not.startswith("no interval; the client itself may have moved this by up to 10.0 ms")
    nothing = Measurement("ttft_p50", "s", None)
    assert marked(nothing, proof(late_p50=1.0), closed=False, request_s=1.0) == nothing
