"""Small charts as inline SVG: curves with whiskers, start-up bars, telemetry."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rooftop import units
from rooftop.report.scales import Scale, apart, ticks
from rooftop.report.words import plain

TONES = 8
PHASES = 10
_MARKS = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>',
    '<rect x="{x:.1f}" y="{y:.1f}" width="6" height="6" transform="translate(-3 -3)"/>',
    '<path d="M{x:.1f} {y:.1f}m0 -4l3.8 6.8h-7.6z"/>',
    '<path d="M{x:.1f} {y:.1f}m0 -4.3l4.3 4.3l-4.3 4.3l-4.3 -4.3z"/>',
)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured point: its place, the interval of y (None where there is none), the words shown on hovering."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    tip: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One setup's points from left to right; `tone` is its number, which gives colour and mark in every chart."""

    name: str
    tone: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Axes:
    """Titles with units; `x_ticks` where x has its own marks (value, text), then x is drawn by ratio if `log`."""

    title: str
    x: str
    y: str
    x_ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False


def clip(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than `most`."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def tone(number: int) -> str:
    """The CSS class of a setup's colour."""
    return f"t{number % TONES}"


def curve(lines: Sequence[Line], axes: Axes) -> str:
    """Lines over an axis that begins at zero, each labelled at its right end; "" where there is no point."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    width, height, left, right, top, bottom = 460.0, 290.0, 44.0, 132.0, 30.0, 40.0
    y_ticks = ticks(max(max(point.y, point.high or 0.0) for line in lines for point in line.points))
    y = Scale(0.0, y_ticks[-1], height - bottom, top)
    x_ticks = axes.x_ticks
    x = Scale(x_ticks[0][0], x_ticks[-1][0], left + 12, width - right, axes.log)
    places = apart([y.at(line.points[-1].y) for line in lines], 13.0, top, height - bottom)
    parts = [_grid(y, y_ticks, left, width - right + 6), _x_marks(x, x_ticks, height - bottom)]
    for line, place in zip(lines, places, strict=True):
        last = line.points[-1]
        parts.append(f'<g class="{tone(line.tone)}">{_points(line, x, y)}'
                     f'<path class="lead" d="M{x.at(last.x) + 6:.1f} {y.at(last.y):.1f}L{width - right + 12:.1f} '
                     f'{place:.1f}"/><text class="name" x="{width - right + 15:.1f}" y="{place + 3.5:.1f}">'
                     f'{escape(clip(line.name, 17))}</text></g>')
    parts.append(_titles(axes, width, height, left, right))
    return _svg(width, height, axes.title, parts)


def trade_off(lines: Sequence[Line], axes: Axes) -> str:
    """Both axes from zero; each point bears its label, each line its name at its highest point."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    width, height, left, right, top, bottom = 460.0, 290.0, 44.0, 70.0, 30.0, 40.0
    everything = [point for line in lines for point in line.points]
    y_ticks = ticks(max(max(point.y, point.high or 0.0) for point in everything))
    x_ticks = ticks(max(point.x for point in everything))
    y = Scale(0.0, y_ticks[-1], height - bottom, top)
    x = Scale(0.0, x_ticks[-1], left, width - right)
    parts = [_grid(y, y_ticks, left, width - right),
             _x_marks(x, tuple((mark, plain(mark)) for mark in x_ticks), height - bottom)]
    peaks = [max(line.points, key=lambda point: point.y) for line in lines]
    places = apart([y.at(point.y) - 9 if point.x <= 0.7 * x.high else y.at(point.y) - 18 for point in peaks], 13.0,
                   top - 12, height - bottom)
    for line, peak, place in zip(lines, peaks, places, strict=True):
        name = clip(line.name, 18)
        leftward = x.at(peak.x) - 7 - 6.8 * len(name) > left
        leftward = leftward and peak.x <= 0.7 * x.high
        at = x.at(peak.x) + (-7 if leftward else 7)
        parts.append(f'<g class="{tone(line.tone)}">{_points(line, x, y)}{_point_labels(line, x, y)}'
                     f'<text class="name halo{" end" if leftward else ""}" x="{at:.1f}" '
                     f'y="{place:.1f}">{escape(name)}</text></g>')
    parts.append(_titles(axes, width, height, left, right))
    return _svg(width, height, axes.title, parts)


def _point_labels(line: Line, x: Scale, y: Scale) -> str:
    """Labels beside their points, above even lines and below odd ones; points on one another share one (`1, 2, 4`)."""
    groups: list[tuple[float, float, list[str]]] = []
    for point in line.points:
        at_x, at_y = x.at(point.x), y.at(point.y)
        near = next((names for gx, gy, names in groups if abs(gx - at_x) < 9 and abs(gy - at_y) < 9), None)
        if near is None:
            groups.append((at_x, at_y, [point.label]))
        else:
            near.append(point.label)
    right = line.tone % 2 == 0
    return "".join(f'<text class="small halo{"" if right else " end"}" x="{at_x + (6 if right else -6):.1f}" '
                   f'y="{at_y + (-5 if right else 12):.1f}">{escape(", ".join(names))}</text>'
                   for at_x, at_y, names in groups)


def _points(line: Line, x: Scale, y: Scale) -> str:
    path = "L".join(f"{x.at(point.x):.1f} {y.at(point.y):.1f}" for point in line.points)
    parts = [f'<path class="line{" dashed" if line.tone >= TONES else ""}" d="M{path}"/>']
    for point in line.points:
        at_x, at_y = x.at(point.x), y.at(point.y)
        whisker = ""
        if point.low is not None and point.high is not None:
            low, high = y.at(max(point.low, 0.0)), y.at(point.high)
            whisker = (f'<path class="whisker" d="M{at_x:.1f} {low:.1f}V{high:.1f}M{at_x - 3:.1f} {low:.1f}h6'
                       f'M{at_x - 3:.1f} {high:.1f}h6"/>')
        mark = _MARKS[line.tone % len(_MARKS)].format(x=at_x, y=at_y)
        parts.append(f'<g class="mark"><title>{escape(point.tip)}</title>{whisker}{mark}</g>')
    return "".join(parts)


def _grid(y: Scale, marks: Sequence[float], left: float, right: float) -> str:
    return "".join(
        f'<path class="{"axis" if mark == 0 else "grid"}" d="M{left:.1f} {y.at(mark):.1f}H{right:.1f}"/>'
        f'<text class="tick end" x="{left - 6:.1f}" y="{y.at(mark) + 3.5:.1f}">{plain(mark)}</text>'
        for mark in marks)


def _x_marks(x: Scale, marks: Sequence[tuple[float, str]], floor: float) -> str:
    return "".join(f'<path class="axis" d="M{x.at(value):.1f} {floor:.1f}v4"/>'
                   f'<text class="tick mid" x="{x.at(value):.1f}" y="{floor + 16:.1f}">{escape(text)}</text>'
                   for value, text in marks)


def _titles(axes: Axes, width: float, height: float, left: float, right: float) -> str:
    return (f'<text class="unit" x="4" y="14">{escape(axes.y)}</text>'
            f'<text class="unit mid" x="{(left + width - right) / 2:.1f}" y="{height - 6:.1f}">{escape(axes.x)}</text>')


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
            f'{"".join(parts)}</svg>')


@dataclass(frozen=True, slots=True)
class Bar:
    """One setup's start-up: (phase, begin, end) in seconds, the whole time, a word at its end."""

    name: str
    parts: tuple[tuple[str, float, float], ...]
    total_s: float
    note: str = ""


def bars(rows: Sequence[Bar]) -> str:
    """Start-up phases as horizontal bars on one time axis, with a legend of the phases; "" where there is none."""
    rows = [row for row in rows if row.total_s > 0]
    if not rows:
        return ""
    width, left, right, pitch = 940.0, 190.0, 190.0, 30.0
    phases = list(dict.fromkeys(name for row in rows for name, _, _ in row.parts))
    legend, top = _legend(phases, width)
    height = top + pitch * len(rows) + 38
    marks = ticks(max(row.total_s for row in rows), count=6)
    x = Scale(0.0, marks[-1], left, width - right)
    parts = [f'<path class="grid" d="M{x.at(mark):.1f} {top:.1f}V{height - 34:.1f}"/>' for mark in marks]
    parts += [legend, _x_marks(x, tuple((mark, plain(mark)) for mark in marks), height - 34)]
    for number, row in enumerate(rows):
        y = top + pitch * number + 6
        parts.append(f'<text class="name end" x="{left - 10:.1f}" y="{y + 13:.1f}">{escape(clip(row.name, 28))}</text>')
        for name, begin, end in row.parts:
            wide = max(x.at(end) - x.at(begin), 0.8)
            parts.append(f'<rect class="p{phases.index(name) % PHASES}" x="{x.at(begin):.1f}" y="{y:.1f}" '
                         f'width="{wide:.1f}" height="18"><title>{escape(name)}: {units.seconds(end - begin)}</title>'
                         f'</rect>')
        parts.append(f'<text class="tick" x="{x.at(row.total_s) + 6:.1f}" y="{y + 13:.1f}">'
                     f'{units.seconds(row.total_s)}{", " if row.note else ""}{escape(row.note)}</text>')
    parts.append(f'<text class="unit mid" x="{(left + width - right) / 2:.1f}" y="{height - 4:.1f}">'
                 f'seconds after the start of the process</text>')
    return _svg(width, height, "Start-up phases", parts)


def _legend(names: Sequence[str], width: float) -> tuple[str, float]:
    """The phases' colours, in as many lines as they need, and where they end."""
    parts, x, y = [], 4.0, 6.0
    for number, name in enumerate(names):
        shown = clip(name, 40)
        wide = 14 + 6.4 * len(shown) + 14
        if x > 4.0 and x + wide > width:
            x, y = 4.0, y + 18
        parts.append(f'<rect class="p{number % PHASES}" x="{x:.1f}" y="{y:.1f}" width="10" height="10"/>'
                     f'<text class="tick" x="{x + 14:.1f}" y="{y + 9:.1f}">{escape(shown)}</text>')
        x += wide
    return "".join(parts), y + 24


@dataclass(frozen=True, slots=True)
class Panel:
    """Telemetry of one level: steps (seconds, value) of requests running and waiting, and of KV usage (0 to 1)."""

    title: str
    seconds: float
    running: tuple[tuple[float, float], ...]
    waiting: tuple[tuple[float, float], ...]
    kv: tuple[tuple[float, float], ...] = ()


def telemetry(panels: Sequence[Panel], title: str) -> str:
    """Panels side by side on one scale: requests as stacked steps, running below waiting; KV usage in a strip below."""
    if not panels:
        return ""
    width, left, top, tall, strip = 940.0, 44.0, 40.0, 84.0, 26.0
    has_kv = any(panel.kv for panel in panels)
    height = top + tall + (strip + 12 if has_kv else 0) + 32
    gap = 14.0
    wide = (width - left - 10) / len(panels) - gap
    most = max((a[1] + b for panel in panels for a, b in _stacked(panel)), default=1.0)
    marks = ticks(most, count=3)
    y = Scale(0.0, marks[-1], top + tall, top)
    parts = [_grid(y, marks, left, width - 10 - gap)]
    for number, panel in enumerate(panels):
        x = Scale(0.0, panel.seconds, left + number * (wide + gap), left + number * (wide + gap) + wide)
        floor = y.at(0)
        stacked = _stacked(panel)
        parts.append(f'<text class="tick" x="{x.start:.1f}" y="{top - 9:.1f}">{escape(clip(panel.title, 22))}</text>')
        parts.append(_area("waiting", [(at, run + wait) for (at, run), wait in stacked], x, y, floor))
        parts.append(_area("running", [at_run for at_run, _ in stacked], x, y, floor))
        bottom = floor
        if has_kv:
            bottom = floor + 12 + strip
            kv = Scale(0.0, 1.0, bottom, floor + 12)
            parts.append(f'<path class="grid" d="M{x.start:.1f} {kv.end:.1f}H{x.end:.1f}"/>')
            parts.append(f'<path class="axis" d="M{x.start:.1f} {bottom:.1f}H{x.end:.1f}"/>')
            parts.append(_area("kv", panel.kv, x, kv, bottom))
        parts.append(f'<text class="tick end" x="{x.end:.1f}" y="{bottom + 15:.1f}">'
                     f'{plain(round(panel.seconds, 1))} s</text>')
    parts.append('<text class="unit" x="4" y="14">requests</text>')
    if has_kv:
        parts.append(f'<text class="tick end" x="{left - 6:.1f}" y="{top + tall + 12 + 8:.1f}">100 %</text>'
                     f'<text class="unit end" x="{left - 6:.1f}" y="{top + tall + 12 + strip:.1f}">KV</text>')
    return _svg(width, height, title, parts)


def _stacked(panel: Panel) -> list[tuple[tuple[float, float], float]]:
    """((seconds, running), waiting) at every moment at which either changed."""
    moments = sorted({at for at, _ in panel.running} | {at for at, _ in panel.waiting})
    return [((at, _held(panel.running, at)), _held(panel.waiting, at)) for at in moments]


def _held(steps: Sequence[tuple[float, float]], at: float) -> float:
    return next((value for when, value in reversed(steps) if when <= at), 0.0)


def _area(kind: str, steps: Sequence[tuple[float, float]], x: Scale, y: Scale, floor: float) -> str:
    if not steps:
        return ""
    path = f"M{x.at(steps[0][0]):.1f} {floor:.1f}"
    for at, value in steps:
        path += f"H{min(x.at(at), x.end):.1f}V{y.at(value):.1f}"
    return f'<path class="{kind}" d="{path}H{x.end:.1f}V{floor:.1f}z"/>'
