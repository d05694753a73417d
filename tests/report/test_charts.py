import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rooftop.report.charts import Axes, Bar, Line, Panel, Point, bars, clip, curve, telemetry, trade_off

AXES = Axes("title", "users at once", "tokens/s", ((1.0, "1"), (2.0, "2"), (4.0, "4")), log=True)
UP = Line("up", 0, (Point(1, 10, 8, 12, "tip"), Point(2, 20), Point(4, 40)))
FLAT = Line("flat", 1, (Point(1, 10), Point(4, 38)))


def texts(svg):
    return [node.text for node in ElementTree.fromstring(svg).iter("text")]


def numbers(path):
    return [float(number) for number in re.findall(r"-?[\d.]+", path)]


def test_a_curve_begins_at_zero_and_names_its_lines():
    svg = curve([UP, FLAT], AXES)
    assert {"up", "flat", "0", "10", "40", "users at once", "tokens/s", "1", "2", "4"} <= set(texts(svg))


def test_levels_are_placed_by_ratio_and_values_by_height():
    path = next(node for node in ElementTree.fromstring(curve([UP], AXES)).iter("path") if node.get("class") == "line")
    x1, y1, x2, y2, x4, y4 = numbers(path.get("d"))
    assert x2 - x1 == pytest.approx(x4 - x2, abs=0.2)
    assert (y1 - y4) == pytest.approx(3 * (y1 - y2), abs=0.3)


def test_whiskers_span_the_interval():
    svg = ElementTree.fromstring(curve([UP], AXES))
    whiskers = [node for node in svg.iter("path") if node.get("class") == "whisker"]
    assert len(whiskers) == 1
    _, low, high = numbers(whiskers[0].get("d"))[:3]
    line = next(node for node in svg.iter("path") if node.get("class") == "line")
    _, y10, _, y20 = numbers(line.get("d"))[:4]
    assert low - high == pytest.approx((y10 - y20) * 0.4, abs=0.2)


def test_line_labels_do_not_overlap():
    svg = ElementTree.fromstring(curve([UP, FLAT, Line("third", 2, (Point(4, 39),))], AXES))
    heights = sorted(float(node.get("y")) for node in svg.iter("text") if node.get("class") == "name")
    assert len(heights) == 3
    assert min(b - a for a, b in pairwise(heights)) >= 12.9


def test_points_on_one_another_share_a_label():
    line = Line("one", 0, (Point(60, 50, label="1"), Point(60.1, 50.2, label="2"), Point(20, 10, label="4")))
    assert {"1, 2", "4"} <= set(texts(trade_off([line], Axes("t", "x", "y"))))


@pytest.mark.parametrize("drawn", [curve([], AXES), curve([Line("none", 0, ())], AXES), trade_off([], AXES),
                                   bars([]), bars([Bar("none", (), 0.0)]), telemetry([], "t")])
def test_nothing_to_draw_draws_nothing(drawn):
    assert drawn == ""


def test_start_up_bars_are_as_long_as_their_phases():
    svg = ElementTree.fromstring(bars([Bar("a", (("load", 0.0, 1.0), ("warm up", 1.0, 4.0)), 4.0, "cold caches")]))
    widths = [float(node.get("width")) for node in svg.iter("rect") if node.get("height") == "18"]
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.3)
    assert {"load", "warm up", "4.00 s, cold caches"} <= {node.text for node in svg.iter("text")}


def test_a_long_legend_wraps_inside_the_picture():
    names = [f"a phase with a long name {number}" for number in range(14)]
    parts = tuple((name, float(at), at + 1.0) for at, name in enumerate(names))
    svg = ElementTree.fromstring(bars([Bar("a", parts, 14.0)]))
    width = float(svg.get("viewBox").split()[2])
    shown = [node for node in svg.iter("text") if node.text in names]
    assert len(shown) == 14
    assert all(float(node.get("x")) + 6 * len(node.text) < width for node in shown)
    bar = next(node for node in svg.iter("rect") if node.get("height") == "18")
    assert max(float(node.get("y")) for node in shown) < float(bar.get("y"))


def test_waiting_requests_stand_on_running_ones():
    panel = Panel("8 users", 10.0, ((0.0, 2.0), (5.0, 1.0)), ((0.0, 6.0), (5.0, 0.0)), ((0.0, 0.5),))
    paths = {node.get("class"): numbers(node.get("d")) for node in ElementTree.fromstring(
        telemetry([panel], "t")).iter("path")}
    floor = paths["waiting"][1]
    waiting, running = floor - paths["waiting"][3], floor - paths["running"][3]
    assert waiting == pytest.approx(4 * running, abs=0.3)
    assert "kv" in paths


def test_hostile_names_stay_text():
    evil = '<script>alert("x")</script>&'
    line = Line(evil, 0, (Point(1, 1, tip=evil, label=evil), Point(2, 2, tip=evil, label=evil)))
    axes = Axes(evil, evil, evil, ((1.0, evil), (2.0, evil)))
    for svg in (curve([line], axes), trade_off([line], axes), bars([Bar(evil, ((evil, 0, 1),), 1, evil)]),
                telemetry([Panel(evil, 1, ((0, 1),), ())], evil)):
        assert not list(ElementTree.fromstring(svg).iter("script"))


@pytest.mark.parametrize(("text", "most", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("a bcd", 3, "a…")])
def test_clip(text, most, shown):
    assert clip(text, most) == shown
