"""When a start hangs: by phase and silence; progress and work are no hang."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.catalog import phases
from rooftop.workflows.patience import PAGES_PER_S, Patience, weight_bytes

ROWS = phases.known()
NOTICE = ("(EngineCore pid=1) INFO 01-01 01:03:58 [shm_broadcast.py:681] No available shared memory broadcast block "
          "found in 60 seconds. This typically happens when some processes are hanging or doing some work")


def patience(size: int = 0, *, gpus: bool = True) -> Patience:
    made = Patience(ROWS, size, gpus)
    made.begin(0.0)
    return made


@pytest.mark.parametrize("phase", sorted(ROWS))
def test_silence_is_a_hang_by_its_phase(phase: str) -> None:
    row, watch = ROWS[phase], patience()
    watch.see(10.0, phase, "")
    assert watch.fault(10.0 + row.silence_s - 1.0, phase) is None
    fault = watch.fault(10.0 + row.silence_s, phase)
    assert fault is not None
    assert fault.last_phase == phase
    assert fault.kind == (row.error or "unknown")
    assert row.kind in fault.reason
    assert "silent for" in fault.reason
    assert "usually" in fault.reason
    assert row.causes[0] in fault.remedy


def test_ranks_without_gpus_have_no_peer_to_peer() -> None:
    watch = patience(gpus=False)
    watch.see(0.0, "distributed", "")
    fault = watch.fault(300.0, "distributed")
    assert fault is not None
    assert fault.kind == "unknown"


@given(st.lists(st.floats(0.1, ROWS["compile"].silence_s - 1), max_size=7))
def test_lines_reset_the_clock(gaps: list[float]) -> None:
    watch, now = patience(), 0.0
    watch.see(now, "compile", "Compiling")
    for gap in gaps:
        now += gap
        assert watch.fault(now, "compile") is None
        watch.see(now, "compile", "Compiling a graph for compile range (1, 8192) takes 44.99 s\n")
    assert watch.fault(now + ROWS["compile"].silence_s + 1e-6, "compile") is not None


def test_a_notice_that_it_waits_does_not_reset_it() -> None:
    watch = patience()
    watch.see(0.0, "compile", "")
    for minute in range(1, 15):
        watch.see(60.0 * minute, "compile", NOTICE + "\n")
    assert watch.fault(60.0 * 14, "compile") is None
    assert watch.fault(ROWS["compile"].silence_s, "compile") is not None


@pytest.mark.parametrize(("pages_per_s", "hangs"), [(0.0, True), (PAGES_PER_S / 2, True), (PAGES_PER_S * 2, False)])
def test_work_resets_the_clock(pages_per_s: float, hangs: bool) -> None:
    watch = patience()
    watch.see(0.0, "compile", "", 0)
    for second in range(2, 1801, 2):
        assert watch.due(second)
        watch.see(second, "compile", "", int(second * pages_per_s))
    assert (watch.fault(1800.0, "compile") is not None) is hangs


def test_37_minutes_of_compiling_are_no_hang() -> None:
    """As reported: two lines at the end of 2,222 s, and the compiler at work."""
    watch = patience()
    for second in range(0, 2222, 2):
        watch.see(second, "compile", NOTICE if second % 60 == 0 else "", second * 5000)
        assert watch.fault(second, "compile") is None


def test_a_phase_that_never_ends_is_a_hang_whatever_it_does() -> None:
    watch = patience()
    for second in range(0, int(ROWS["distributed"].longest_s) + 2, 2):
        watch.see(second, "distributed", "still here", second * 5000)
    fault = watch.fault(float(ROWS["distributed"].longest_s), "distributed")
    assert fault is not None
    assert "does not end" in fault.reason


def test_large_weights_may_take_longer() -> None:
    row = ROWS["weights"]
    assert row.longest(0) == 1200.0
    assert row.longest(400 * 10**9) == pytest.approx(1200.0 + 8000.0)
    assert row.usual(140 * 10**9) == pytest.approx(60.0 + 140.0)


def test_a_phase_that_comes_again_keeps_its_clock() -> None:
    watch = patience()
    watch.see(0.0, "weights", "")
    watch.see(10.0, "compile", "")
    watch.see(20.0, "weights", "")
    assert watch.fault(20.0 + ROWS["weights"].silence_s - 11.0, "weights") is None
    assert watch.fault(10.0 + ROWS["weights"].silence_s, "weights") is not None


def test_a_phase_of_no_row_is_the_start() -> None:
    assert patience().row("something new") == ROWS[phases.FIRST]


def test_a_port_taken_begins_anew() -> None:
    watch = patience()
    watch.see(0.0, "weights", "", 5)
    watch.begin(500.0)
    watch.see(501.0, "weights", "")
    assert watch.fault(900.0, "weights") is None


def test_bytes_of_weights(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(100))
    (tmp_path / "b.safetensors").write_bytes(bytes(50))
    (tmp_path / "config.json").write_bytes(bytes(9))
    assert weight_bytes(str(tmp_path)) == 150
    assert weight_bytes(str(tmp_path / "a.safetensors")) == 100
    assert weight_bytes("Example/Hub-7B") == 0
