"""Quantiles against published tables and against their own inverse."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.stats.beta import beta_quantile, incomplete_beta, t_quantile


# Student's t: any printed table (0.95 and 0.975 columns).
@pytest.mark.parametrize(("share", "freedom", "value"), [
    (0.95, 1, 6.3138), (0.95, 2, 2.9200), (0.95, 4, 2.1318), (0.95, 19, 1.7291), (0.975, 1, 12.7062),
    (0.975, 10, 2.2281), (0.975, 30, 2.0423), (0.975, math.inf, 1.9600), (0.05, 4, -2.1318), (0.5, 3, 0.0)])
def test_t_quantile_is_that_of_the_table(share: float, freedom: float, value: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(value, abs=5e-5)


def test_beta_with_closed_forms() -> None:
    assert beta_quantile(0.3, 1, 1) == pytest.approx(0.3)
    assert beta_quantile(0.95, 1, 5) == pytest.approx(1 - 0.05 ** 0.2)
    assert beta_quantile(0.05, 7, 1) == pytest.approx(0.05 ** (1 / 7))
    assert incomplete_beta(0.5, 3, 3) == pytest.approx(0.5)


@given(st.floats(0.001, 0.999), st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_beta_quantile_inverts_the_distribution(share: float, a: float, b: float) -> None:
    assert incomplete_beta(beta_quantile(share, a, b), a, b) == pytest.approx(share, rel=1e-6)
