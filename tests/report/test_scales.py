from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.report.scales import Scale, apart, ticks


@pytest.mark.parametrize(("scale", "value", "place"), [
    (Scale(0, 10, 0, 100), 0, 0), (Scale(0, 10, 0, 100), 2.5, 25), (Scale(0, 10, 100, 0), 10, 0),
    (Scale(1, 64, 0, 60, log=True), 1, 0), (Scale(1, 64, 0, 60, log=True), 8, 30),
    (Scale(1, 64, 0, 60, log=True), 64, 60),
    (Scale(4, 4, 0, 60), 4, 30), (Scale(4, 4, 10, 20, log=True), 4, 15)])
def test_scale_places_values(scale, value, place):
    assert scale.at(value) == pytest.approx(place)


@pytest.mark.parametrize(("high", "marks"), [
    (10, (0, 2, 4, 6, 8, 10)), (151, (0, 50, 100, 150, 200)), (0.9, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    (1, (0, 0.2, 0.4, 0.6, 0.8, 1.0)), (0, (0, 1)), (-3, (0, 1)), (float("inf"), (0, 1)), (float("nan"), (0, 1))])
def test_ticks_are_round_and_reach_the_top(high, marks):
    assert ticks(high) == pytest.approx(marks)


@given(st.floats(1e-9, 1e12))
def test_ticks_hold_the_value_without_waste(high):
    marks = ticks(high)
    assert marks[0] == 0
    assert marks[-1] >= high * (1 - 1e-8)
    assert marks[-2] < high
    assert 3 <= len(marks) <= 7


@pytest.mark.parametrize(("wanted", "places"), [
    ((), ()), ((50,), (50,)), ((20, 60), (20, 60)), ((50, 50), (45, 55)), ((52, 50), (56, 46)),
    ((2, 1), (10, 0)), ((99, 100), (90, 100)), ((50, 51, 49), (50, 60, 40))])
def test_labels_move_apart_around_what_they_want(wanted, places):
    assert apart(wanted, 10, 0, 100) == pytest.approx(places)


@given(st.lists(st.floats(-20, 320), max_size=20))
def test_labels_never_overlap_and_keep_their_order(wanted):
    places = apart(wanted, 13, 0, 300)
    ordered = sorted(places)
    assert all(b - a >= 13 - 1e-6 for a, b in pairwise(ordered))
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in places)
    for i, a in enumerate(wanted):
        for j, b in enumerate(wanted):
            assert not a < b or places[i] < places[j]
