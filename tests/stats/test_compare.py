"""Is one better, and may one say so?"""

import dataclasses

import numpy as np
import pytest

from rooftop.domain.launch import Claim, Fault
from rooftop.domain.trial import Trial
from rooftop.stats.compare import best, compare

from .levels import reply, trial


def level(step_ms: float, identity: str = "t", launch: str = "l") -> Trial:
    """One user, eight requests of five tokens, `step_ms` between tokens: tokens_per_s_per_user is 1000 / step_ms."""
    length = 100 + 4 * step_ms
    return trial([reply(n, length * n, [length * n + 100 + step_ms * k for k in range(5)], output=5) for n in range(8)],
                 identity=identity, launch=launch)


def levels(*steps_ms: float) -> list[Trial]:
    return [level(step, f"t{number}", f"l{number}") for number, step in enumerate(steps_ms)]


def test_ratio_and_difference_by_hand() -> None:
    found = compare(levels(10.0, 12.5), levels(20.0, 25.0), "tokens_per_s_per_user")
    assert found.a.value == pytest.approx(90.0)
    assert found.b.value == pytest.approx(45.0)
    assert found.ratio.value == pytest.approx(2.0)
    assert found.difference.value == pytest.approx(45.0)
    assert found.difference.interval is not None
    error = (100 / 2 + 25 / 2) ** 0.5
    freedom = 62.5 ** 2 / (50 ** 2 + 12.5 ** 2)
    assert 2.9200 < (found.difference.interval.high - 45.0) / error < 6.3138
    assert 1.0 < freedom < 2.0
    ratio = found.ratio.interval
    assert ratio is not None
    assert np.log(ratio.high) - np.log(2.0) == pytest.approx(np.log(2.0) - np.log(ratio.low))
    # Equal spreads of two and two: 2 degrees of freedom.
    assert np.log(ratio.high / 2.0) == pytest.approx(2.9200 * np.log(1.25) / 2 ** 0.5, rel=1e-4)


def test_a_clear_difference_is_sure_and_a_blurred_one_is_not() -> None:
    clear = compare(levels(10.0, 10.1, 9.9), levels(12.0, 12.1, 11.9), "tokens_per_s_per_user")
    assert clear.sure
    assert "excludes 1" in clear.why
    blurred = compare(levels(10.0, 14.0, 9.0), levels(12.0, 9.0, 13.0), "tokens_per_s_per_user")
    assert not blurred.sure
    assert "does not allow the claim" in blurred.why


def test_one_repeat_is_never_sure() -> None:
    found = best({"a": levels(10.0), "b": levels(40.0)}, "tokens_per_s_per_user", higher_is_better=True)
    assert (found.winner, found.runner_up, found.sure) == ("a", "b", False)
    assert found.margin is not None
    assert found.margin.value == pytest.approx(4.0)
    assert found.margin.interval is None
    assert "one repeat" in found.why


@pytest.mark.parametrize(("metric", "higher", "winner"), [
    ("tokens_per_s_per_user", True, "fast"), ("tpot_p50", False, "fast"), ("tpot_p50", True, "slow")])
def test_the_margin_is_the_winners_advantage(metric: str, higher: bool, winner: str) -> None:
    groups = {"slow": levels(20.0, 20.2, 19.8), "fast": levels(10.0, 10.1, 9.9), "middle": levels(16.0, 16.1, 15.9)}
    found = best(groups, metric, higher_is_better=higher)
    assert (found.winner, found.runner_up) == (winner, "middle")
    assert found.sure
    assert found.margin is not None
    assert found.margin.value == pytest.approx(1.6 if winner == "fast" else 1.25, rel=0.01)
    assert found.margin.interval is not None
    assert found.margin.interval.low > 1.0


def test_a_badly_measured_third_group_forbids_the_claim() -> None:
    groups = {"a": levels(10.0, 10.1, 9.9), "b": levels(11.0, 11.1, 10.9), "c": levels(8.0, 30.0, 12.0)}
    found = best(groups, "tokens_per_s_per_user", higher_is_better=True)
    assert found.winner == "a"
    assert not found.sure
    assert "a against c" in found.why


def test_invalid_trials_are_left_out_and_named() -> None:
    broken = dataclasses.replace(level(1.0, "t7"), claims=(Claim("layout.tp", 8, 4, False),))
    died = dataclasses.replace(level(1.0, "t8"), fault=Fault("died", "out of memory"))
    found = best({"a": [*levels(10.0, 10.1), broken, died], "b": levels(20.0, 20.1)}, "tokens_per_s_per_user",
                 higher_is_better=True)
    assert found.value.value == pytest.approx(99.5, rel=0.001)
    assert found.left_out == ("a: trial t7 is not valid: it did not run as asked",
                              "a: trial t8 is not valid: out of memory")


def test_alone_or_nothing_at_all() -> None:
    alone = best({"a": levels(10.0, 10.1), "b": []}, "tokens_per_s_per_user", higher_is_better=True)
    assert (alone.winner, alone.runner_up, alone.sure) == ("a", "", False)
    none = best({}, "tokens_per_s_per_user", higher_is_better=True)
    assert none.winner == ""
    assert none.value.value is None


def test_repeats_on_one_start_say_so() -> None:
    same = [level(step, launch="l1") for step in (10.0, 10.1, 9.9)]
    other = [level(step, launch="l2") for step in (20.0, 20.1, 19.9)]
    assert "one start" in compare(same, other, "tokens_per_s_per_user").why


def test_no_ratio_of_nothing() -> None:
    found = compare(levels(10.0, 10.1), levels(10.0, 10.1), "requests_failed")
    assert found.ratio.value is None
    assert found.difference.value == 0.0
