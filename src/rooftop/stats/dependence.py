"""The error of a mean of observations that may follow each other in time."""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log, pi, sqrt

import numpy as np

from rooftop.stats.beta import t_quantile
from rooftop.stats.columns import Floats

MOST_WAVES = 40
LEAST_ROUNDS = 3
BLOCKS = 512
FLAT, APART = 40.0, 10.0
"""Prior weights of "no dependence that lasts" and of "no dependence at all"; each knee has 1."""
FLOORS = (0.0, 0.05)


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a mean may be off.

    size: its standard error.  half: half the width of its interval; wider than the normal one by what is not known of
    the error itself.
    """

    size: float
    half: float


def spread(deviations: Floats, level: float = 0.9, rounds: int | None = None) -> Spread | None:
    """The spread of a mean of observations in the order of time, from their deviations x_i - mean.

    The deviations are projected on q slow cosine waves; the squared projections P_j estimate the spectrum at j half
    turns over the whole series, and n times the squared error of the mean is the spectrum at 0 (Lazarus, Lewis, Stock
    and Watson, "HAR Inference", Journal of Business & Economic Statistics 36(4), 2018).  Where the spectrum is flat
    over these waves it is their mean, with q degrees of freedom.  Whether it is, the data must say: the hypotheses are

      flat, of any height; s_j = f + (1 - f) / (1 + (w_j / knee)^2), of any height, with w_j = 2n/pi sin(pi j / 2n)
      (f = 0: the first-order autoregression), for knees from half a turn to q; and independent, of the height of the
      variance, to which the autocorrelation of neighbours bears witness as well.

    Each is weighted by its likelihood, the height integrated out (a uniform prior of its logarithm), and the interval
    is that of the mixture of their t distributions.

    rounds: how many times over the observations were made by requests that were in flight together.  Those may move
    together as one, so waves shorter than two rounds do not count.  None with fewer than 3 rounds or observations.
    """
    n = len(deviations)
    most = n if rounds is None else min(n, rounds)
    if most < LEAST_ROUNDS:
        return None
    q = min(MOST_WAVES, most - 1)
    variance = float(deviations @ deviations) / n
    if not variance > 0.0:
        return Spread(0.0, 0.0)
    sums = deviations
    if n > 2 * BLOCKS:
        sums = np.add.reduceat(deviations, np.linspace(0, n, BLOCKS, endpoint=False).astype(np.int64))
    power = (sums @ _waves(len(sums), q)) ** 2 / n
    inverse, evidence = _shapes(min(n, 2 * BLOCKS), q)
    heights = np.append(inverse @ power / q, variance)
    heights = np.maximum(heights, 1e-12 * variance)
    neighbours = float(deviations[1:] @ deviations[:-1]) / (n * variance)
    apart = log(APART) + 0.5 * log(n / (2.0 * pi)) - 0.5 * n * neighbours * neighbours
    weights = evidence - 0.5 * q * np.log(heights)
    weights[-1] += apart - 0.5 * float(np.sum(power)) / variance
    weights = np.exp(weights - np.max(weights))
    weights /= np.sum(weights)
    size = 1.0 / sqrt(float(weights @ (1.0 / heights)))
    return Spread(size / sqrt(n), _half(weights, np.sqrt(heights), q, level) / sqrt(n))


@lru_cache(maxsize=16)
def _waves(count: int, q: int) -> Floats:
    """sqrt(2) cos(pi j (i - 1/2) / count) for i = 1..count, j = 1..q."""
    turns = np.outer((np.arange(count) + 0.5) / count, np.arange(1, q + 1))
    waves: Floats = sqrt(2.0) * np.cos(pi * turns)
    return waves


@lru_cache(maxsize=16)
def _shapes(n: int, q: int) -> tuple[Floats, Floats]:
    """Each hypothesis' 1 / s_j, the independent one's aside, and the parts of all log weights that know no data."""
    waves = 2.0 * n / pi * np.sin(pi * np.arange(1, q + 1) / (2.0 * n))
    knees = 2.0 ** np.arange(-1.0, np.log2(q), 0.5)
    shapes = [np.ones(q)]
    shapes += [floor + (1.0 - floor) / (1.0 + (waves / knee) ** 2) for knee in knees for floor in FLOORS]
    spectra = np.array(shapes)
    prior = np.log(np.append(FLAT, np.full(len(shapes) - 1, 1.0 / len(FLOORS))))
    any_height = lgamma(q / 2.0) - 0.5 * q * log(q / 2.0) - log(log(100.0))
    return 1.0 / spectra, np.append(prior - 0.5 * np.sum(np.log(spectra), axis=1) + any_height, 0.0)


@lru_cache(maxsize=64)
def _tails(q: int) -> tuple[Floats, Floats]:
    """Points from 0 on, and the share of Student's t with q degrees of freedom that lies further out, both sides."""
    points = np.linspace(0.0, 40.0, 4001)
    height = exp(lgamma((q + 1) / 2.0) - lgamma(q / 2.0)) / sqrt(q * pi)
    density = height * (1.0 + points * points / q) ** (-(q + 1) / 2.0)
    inside = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])]) * (points[1] - points[0])
    return points, np.maximum(1.0 - inside, 0.0)


def _half(weights: Floats, sizes: Floats, q: int, level: float) -> float:
    """The h beyond which 1 - level of the mixture of t distributions with these sizes lies."""
    points, tail = _tails(q)
    quantile = t_quantile(0.5 + level / 2.0, q)
    low, high = quantile * float(np.min(sizes)), quantile * float(np.max(sizes))
    while high - low > 1e-4 * high:
        middle = (low + high) / 2.0
        if float(weights @ np.interp(middle / sizes, points, tail)) > 1.0 - level:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
