"""The spread of a mean: its laws, and its coverage where neighbours move together."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.stats.columns import Floats
from rooftop.stats.dependence import _half as half_of
from rooftop.stats.dependence import _waves as waves
from rooftop.stats.dependence import spread


def deviations(values: Floats) -> Floats:
    return values - np.mean(values)


def test_two_rounds_are_too_few() -> None:
    assert spread(np.array([1.0, -1.0])) is None
    assert spread(deviations(np.arange(50.0)), rounds=2) is None
    assert spread(deviations(np.arange(50.0)), rounds=3) is not None


def test_equal_observations_have_no_spread() -> None:
    one = spread(np.zeros(9))
    assert one is not None
    assert (one.size, one.half) == (0.0, 0.0)


def test_the_waves_hold_all_of_the_variance() -> None:
    """Parseval: n - 1 cosine waves and the mean span everything, so the squared projections sum to n sum d_i^2."""
    some = deviations(np.random.default_rng(1).normal(size=12))
    assert np.sum((some @ waves(12, 11)) ** 2) == pytest.approx(12 * np.sum(some ** 2))


def test_one_hypothesis_is_students_t() -> None:
    assert half_of(np.array([1.0]), np.array([2.0]), 9, 0.9) == pytest.approx(2 * 1.8331, rel=1e-3)
    assert half_of(np.array([1.0]), np.array([1.0]), 2, 0.95) == pytest.approx(4.3027, rel=1e-3)


def test_half_lies_between_those_of_two_hypotheses() -> None:
    mixed = half_of(np.array([0.5, 0.5]), np.array([1.0, 3.0]), 40, 0.9)
    assert 1.684 < mixed < 3 * 1.684
    assert mixed == pytest.approx(1.684 * 2.37, rel=0.02)


def test_independent_observations_have_the_classical_error() -> None:
    errors = [spread(deviations(np.random.default_rng(seed).normal(size=500))) for seed in range(40)]
    sizes = [one.size * math.sqrt(500) for one in errors if one]
    assert np.mean(sizes) == pytest.approx(1.0, abs=0.05)
    assert np.mean([one.half / one.size for one in errors if one]) == pytest.approx(1.7, abs=0.15)


@pytest.mark.parametrize("block", [5, 20])
def test_observations_in_equal_blocks_count_once_a_block(block: int) -> None:
    sizes = []
    for seed in range(40):
        one = spread(deviations(np.repeat(np.random.default_rng(seed).normal(size=2000 // block), block)))
        assert one is not None
        sizes.append(one.size * math.sqrt(2000 / block))
    assert np.median(sizes) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("phi", "n", "least"), [(0.8, 200, 0.86), (0.9, 1000, 0.87), (0.95, 200, 0.84)])
def test_intervals_of_an_autoregression_hold_the_truth(phi: float, n: int, least: float) -> None:
    """The hard ones: as few as five observations' worth.  400 repeats, standard error 1.5 %."""
    rng, held = np.random.default_rng(5), 0
    noise = rng.normal(size=(n, 400)) * math.sqrt(1 - phi * phi)
    series = [rng.normal(size=400)]
    for row in noise[1:]:
        series.append(phi * series[-1] + row)
    for values in np.array(series).T:
        one = spread(deviations(np.ascontiguousarray(values)))
        assert one is not None
        held += abs(np.mean(values)) <= one.half
    assert least <= held / 400 <= 0.955


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 3000), st.floats(1e-9, 1e9), st.integers(0, 2 ** 32 - 1))
def test_units_and_direction_of_time_do_not_matter(n: int, scale: float, seed: int) -> None:
    some = deviations(np.random.default_rng(seed).exponential(1.0, n))
    one, other = spread(some), spread(some * scale)
    assert one is not None
    assert other is not None
    assert other.half == pytest.approx(one.half * scale, rel=1e-3)
    assert 0.0 < one.size < one.half
    if n <= 1024:
        back = spread(some[::-1])
        assert back is not None
        assert back.half == pytest.approx(one.half, rel=1e-3)


def test_a_longer_series_is_summed_in_blocks_without_changing_the_answer() -> None:
    values = np.repeat(np.random.default_rng(6).normal(size=1024), 8)
    long, short = spread(deviations(values)), spread(deviations(values[::8]))
    assert long is not None
    assert short is not None
    assert long.size == pytest.approx(short.size, rel=0.1)
