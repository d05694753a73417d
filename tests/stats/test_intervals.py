"""Intervals: by hand, by their laws, and by coverage over a few hundred simulated repeats."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.finding import Interval, Measurement
from rooftop.stats.columns import Floats
from rooftop.stats.dependence import spread
from rooftop.stats.intervals import across, mean, needed, quantile, ratio


@pytest.mark.parametrize(("share", "least"), [(0.5, 5), (0.9, 29), (0.99, 299), (0.01, 299)])
def test_needed_observations_are_those_of_wilks(share: float, least: int) -> None:
    far = max(share, 1 - share)
    assert needed(share) == least
    assert far ** least <= 0.05 < far ** (least - 1)


def test_mean_of_ten_is_about_the_t_interval_of_ten() -> None:
    """Independent ones and hardly skewed: 9 degrees of freedom, a little wider for what might be dependence."""
    one = mean(np.array([1.0, 4.0, 2.0, 5.0, 3.0, 1.0, 5.0, 2.0, 4.0, 3.0]))
    assert one.value == pytest.approx(3.0)
    assert one.interval is not None
    assert one.interval.high - 3.0 == pytest.approx(1.8331 * math.sqrt(20 / 9 / 10), rel=0.15)


def test_the_interval_of_a_skewed_mean_reaches_further_to_the_long_side() -> None:
    values = np.random.default_rng(3).lognormal(0.0, 1.0, 60)
    one, other = mean(values), mean(-values)
    assert one.interval is not None
    assert one.value is not None
    assert other.interval is not None
    assert one.interval.high - one.value > 1.2 * (one.value - one.interval.low)
    assert (-other.interval.high, -other.interval.low) == pytest.approx((one.interval.low, one.interval.high))


def test_ratio_by_hand() -> None:
    """Of equal times it is the mean, without skewness: sums 30 over 3."""
    one = ratio(np.array([10.0, 12.0, 8.0]), np.array([1.0, 1.0, 1.0]))
    same = spread(np.array([0.0, 2.0, -2.0]))
    assert one.value == pytest.approx(10.0)
    assert one.interval is not None
    assert same is not None
    assert one.interval.high - 10.0 == pytest.approx(same.half)
    assert ratio(np.array([20.0, 24.0, 16.0]), np.full(3, 2.0)).interval == one.interval


def test_too_few_say_how_many_would_do() -> None:
    few = quantile(np.arange(64.0), 0.99, unit="requests")
    assert few.value is None
    assert few.why_not == "needs at least 299 requests, there are 64"
    assert mean(np.empty(0)).value is None
    assert mean(np.arange(2.0)).interval is None
    assert "3 rounds of requests, there are 1" in mean(np.arange(50.0), rounds=1).why_not
    assert quantile(np.arange(50.0), 0.5, rounds=2).interval is None


def test_observations_that_move_together_are_refused_an_interval_far_out() -> None:
    blocks = np.repeat(np.random.default_rng(1).normal(size=20), 50)
    one = quantile(blocks, 0.99)
    assert one.value is not None
    assert one.interval is None
    assert "move together" in one.why_not


def test_constant_observations_have_an_interval_of_no_width() -> None:
    same = np.full(400, 0.02)
    for one in (mean(same), quantile(same, 0.5), quantile(same, 0.99)):
        assert one.interval == Interval(pytest.approx(0.02), pytest.approx(0.02))  # type: ignore[arg-type]


def test_the_p99_of_300_independent_requests_has_an_interval() -> None:
    shown = [quantile(np.random.default_rng(seed).exponential(1.0, 300), 0.99).interval for seed in range(100)]
    assert sum(interval is not None for interval in shown) > 80


def test_a_stall_that_hits_many_in_a_row_widens_or_refuses_the_p99() -> None:
    values = np.random.default_rng(4).exponential(1.0, 2000)
    calm = quantile(values, 0.99)
    values[700:725] += 20.0
    assert calm.interval is not None
    assert quantile(values, 0.99).interval is None


def independent(rng: np.random.Generator) -> Floats:
    return rng.exponential(1.0, 600)


def together(rng: np.random.Generator) -> Floats:
    return np.repeat(rng.exponential(1.0, 100), 6) * rng.uniform(0.999, 1.001, 600)


@pytest.mark.parametrize("draw", [independent, together])
@pytest.mark.parametrize(("share", "truth"), [(0.5, math.log(2)), (0.9, math.log(10)), (None, 1.0)])
def test_nine_in_ten_intervals_hold_the_truth(draw, share: float | None, truth: float) -> None:  # type: ignore[no-untyped-def]
    """600 repeats: the standard error of the coverage is 1.2 %, the band is 3 of them."""
    rng, held, shown = np.random.default_rng(12), 0, 0
    for _ in range(600):
        values = draw(rng)
        interval = (mean(values) if share is None else quantile(values, share)).interval
        if interval is not None:
            shown, held = shown + 1, held + (interval.low <= truth <= interval.high)
    assert shown > 550
    assert 0.86 < held / shown < 0.95


@settings(max_examples=50, deadline=None)
@given(st.integers(300, 600), st.floats(0.1, 10), st.floats(-5, 5), st.integers(0, 2 ** 32 - 1))
def test_units_do_not_matter(n: int, scale: float, shift: float, seed: int) -> None:
    values = np.random.default_rng(seed).exponential(1.0, n)
    for one, other in ((mean(values), mean(values * scale + shift)),
                       (quantile(values, 0.9), quantile(values * scale + shift, 0.9))):
        assert one.value is not None
        assert other.value == pytest.approx(one.value * scale + shift)
        if one.interval is not None and other.interval is not None:
            assert other.interval.low == pytest.approx(one.interval.low * scale + shift, abs=1e-9)
            assert other.interval.high == pytest.approx(one.interval.high * scale + shift, abs=1e-9)


def figure(value: float | None, half: float | None = None, why_not: str = "", metric: str = "m") -> Measurement:
    interval = Interval(value - half, value + half) if value is not None and half is not None else None
    return Measurement(metric, "s", value, interval, 10, why_not)


def test_across_repeats_is_the_t_interval_of_their_values() -> None:
    one = across([figure(9.0, 0.1), figure(10.0, 0.1), figure(11.0, 0.1)])
    assert (one.value, one.count) == (pytest.approx(10.0), 30)
    assert one.interval is not None
    assert one.interval.high - 10.0 == pytest.approx(2.9200 / math.sqrt(3), abs=1e-4)


def test_repeats_that_agree_by_chance_are_as_wide_as_the_repeats_themselves_say() -> None:
    one = across([figure(10.0, 0.6), figure(10.0, 0.8)])
    assert one.interval is not None
    assert one.interval.high - 10.0 == pytest.approx(0.5)


def test_one_repeat_stands_for_itself_and_missing_ones_are_named() -> None:
    alone = figure(10.0, 0.6)
    assert across([alone]) == alone
    some = across([alone, figure(None, why_not="too few")])
    assert (some.value, some.interval) == (10.0, alone.interval)
    assert some.why_not == "1 of 2 repeats have a value; the others: too few"
    assert across([figure(None, why_not="x"), figure(None, why_not="x")]).value is None


def test_cautions_stay_but_a_missing_interval_is_mended() -> None:
    caution = "no interval: it needs at least 3 rounds of requests, there are 1; no steady window: so it is"
    assert across([figure(1.0, why_not=caution), figure(2.0)]).why_not == "no steady window: so it is"


def test_across_refuses_a_mixture() -> None:
    with pytest.raises(ValueError, match="one metric"):
        across([figure(1.0), figure(1.0, metric="n")])
    with pytest.raises(ValueError, match="none"):
        across([])
