"""Bytes, seconds and rates: written for people."""

import math


def seconds(value: float) -> str:
    """A duration with three significant digits: `312 us`, `20.1 ms`, `1.45 s`, `2 min 5 s`."""
    if value < 0:
        return "-" + seconds(-value)
    if not math.isfinite(value):
        return f"{value} s"
    value = float(f"{value:.2e}") if value < 120 else value
    if value == 0:
        return "0 s"
    if value < 1e-3:
        return f"{_three(value * 1e6)} us"
    if value < 1.0:
        return f"{_three(value * 1e3)} ms"
    if value < 120:
        return f"{_three(value)} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes} min"


def number(value: float) -> str:
    """A plain number with three significant digits and thousands marked by thin groups: `0.0123`, `45.6`, `12 345`."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}".replace(",", " ")
    return _three(value)


def size(count: float) -> str:
    """A number of bytes in binary units: `98 MiB`, `1.46 GiB`."""
    if abs(count) < 1023.5:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1023.5:
            return f"{_three(count)} {unit}"
    count /= 1024
    return f"{_three(count)} TiB"


def share(value: float) -> str:
    """A share of one as per cent: `0.4 %`, `37 %`."""
    per_cent = value * 100
    return f"{per_cent:.0f} %" if abs(per_cent) >= 10 or per_cent == 0 else f"{per_cent:.1f} %"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.2e}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{digits}f}"
