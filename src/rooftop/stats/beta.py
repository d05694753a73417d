"""Quantiles of the beta distribution and of Student's t, to nine digits."""

from functools import cache
from math import exp, inf, lgamma, log, log1p, sqrt
from statistics import NormalDist


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b): the distribution function of Beta(a, b) at x.

    The continued fraction of DLMF 8.17.22, evaluated by Lentz's method; mirrored (8.17.4) where it converges slowly.
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-13:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


@cache
def beta_quantile(share: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = share, for a, b > 0.

    Newton's steps from the mean, each kept inside the bracket that bisection holds.
    """
    low, high, x = 0.0, 1.0, a / (a + b)
    scale = lgamma(a + b) - lgamma(a) - lgamma(b)
    for _ in range(100):
        miss = incomplete_beta(x, a, b) - share
        low, high = (x, high) if miss < 0.0 else (low, x)
        step = 0.0
        if 0.0 < x < 1.0:
            density = scale + (a - 1.0) * log(x) + (b - 1.0) * log1p(-x)
            step = miss * exp(-density) if density > -600.0 else inf
        following = x - step
        if not low < following < high:
            following = (low + high) / 2.0
        if abs(following - x) <= 1e-13 * min(following, 1.0 - following) or low == high:
            return following
        x = following
    return x


@cache
def t_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom (any real number above 0; inf = normal).

    From t^2 / (freedom + t^2) ~ Beta(1/2, freedom/2) (Abramowitz and Stegun 26.5.27).
    """
    if share == 0.5:
        return 0.0
    if share < 0.5:
        return -t_quantile(1.0 - share, freedom)
    if freedom > 1e6:
        return NormalDist().inv_cdf(share)
    rest = beta_quantile(2.0 * (1.0 - share), freedom / 2.0, 0.5)
    return sqrt(freedom * (1.0 - rest) / rest)
