"""Measured kernel times of a shape between and beyond the points where they were taken."""

from itertools import groupby

from rooftop.domain.machine import Gpu
from rooftop.domain.stepcost import Grid, Ledger, Shape
from rooftop.perfmodel.collectives import interpolate


def grid_of(ledger: Ledger, gpu: Gpu, engine: str, shape: Shape) -> Grid | None:
    """The measured times of a shape on this kind of GPU with the engine's kernels; None where there are none."""
    return next((one for one in ledger.grids
                 if one.shape == shape and one.gpu == gpu.kind and one.engine == engine), None)


def kernel_s(grid: Grid, rows: float, context: float) -> float:
    """Seconds at a batch and a context, straight in logarithms; constant below the points, proportional above."""
    curve = tuple((batch, interpolate(tuple((place, time) for _, place, time in points), context))
                  for batch, points in groupby(grid.points, key=lambda point: point[0]))
    return interpolate(curve, rows)
