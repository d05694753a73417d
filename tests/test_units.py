import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rooftop import units


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 s"), (3.12e-4, "312 us"), (9.999e-4, "1.00 ms"), (0.0201, "20.1 ms"), (0.9996, "1.00 s"), (1.45, "1.45 s"),
    (9.996, "10.0 s"), (119.4, "119 s"), (119.9, "2 min 0 s"), (125, "2 min 5 s"), (7199.7, "2 h 0 min"),
    (7380, "2 h 3 min"), (-0.5, "-500 ms"), (math.nan, "nan s"), (math.inf, "inf s"),
])
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (0.01234, "0.0123"), (9.996, "10.0"), (45.6, "45.6"), (999.4, "999"), (999.6, "1 000"), (12345, "12 345"),
    (-1234567, "-1 234 567"), (math.nan, "nan"),
])
def test_number(value: float, text: str) -> None:
    assert units.number(value) == text


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (98 << 20, "98.0 MiB"), ((1 << 30) - 1, "1.00 GiB"),
    (1.46 * 2**30, "1.46 GiB"), (3 << 40, "3.00 TiB"), (1 << 52, "4096 TiB"),
])
def test_size(count: float, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 %"), (0.004, "0.4 %"), (0.37, "37 %"), (1, "100 %"), (-0.05, "-5.0 %")])
def test_share(value: float, text: str) -> None:
    assert units.share(value) == text


SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@example(8624.0)
@given(st.floats(1e-6, 1e6))
def test_seconds_are_right_to_half_a_per_cent_and_never_longer_than_their_unit(value: float) -> None:
    text = units.seconds(value)
    read = sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))
    assert read == pytest.approx(value, rel=0.00501)
    assert not text.startswith("1000 ")


@given(st.integers(0, 1 << 60))
def test_sizes_are_right_to_half_a_per_cent(count: int) -> None:
    number, unit = units.size(count).split()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert float(number) * scale == pytest.approx(count, rel=0.00501)
    assert float(number) < 1024 or unit == "TiB"
