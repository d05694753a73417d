"""A matrix and its trials as charts: scaling, trade-off, telemetry, start-up."""

from collections.abc import Sequence
from html import escape

from rooftop.domain.finding import Measurement
from rooftop.domain.matrix import Matrix, Row
from rooftop.domain.trial import Trial
from rooftop.report import charts, series, words
from rooftop.report.charts import Axes, Line, Point

_CURVES = ((words.THROUGHPUT, "All users together", "output tokens/s, total"),
           (words.PER_USER, "Each user", "tokens/s per user"),
           (words.TTFT, "Time to first token", "TTFT p50 in {unit}; less is better"))

SHORT_S = 2.0


def scaling(matrix: Matrix) -> str:
    """Throughput and per-user speed against load, and one against the other."""
    places, ratio = level_places(matrix.levels)
    marks = tuple((places[level], level) for level in matrix.levels)
    figures = []
    for metric, title, unit in _CURVES if len(marks) > 1 else ():
        in_ms = metric == words.TTFT and _most(matrix, metric) < SHORT_S
        lines = [Line(row.setup, number, tuple(_points(matrix, row.setup, metric, places, 1e3 if in_ms else 1.0)))
                 for number, row in enumerate(matrix.rows)]
        unit = unit.format(unit="ms" if in_ms else "s")
        figures.append(figure(title, charts.curve(lines, Axes(title, _load(matrix.levels), unit, marks, ratio))))
    lines = [Line(row.setup, number, tuple(_trades(matrix, row.setup))) for number, row in enumerate(matrix.rows)]
    if sum(len(line.points) for line in lines) > 1:
        drawn = charts.trade_off(lines, Axes("The trade-off", "tokens/s per user", "output tokens/s, total"))
        figures.append(figure("The trade-off", drawn,
                              f"A point is a load level ({_load(matrix.levels)}). Up is more work done, right is "
                              f"faster for each user; further out is better in both. Waiting for the first token is "
                              f"not in it."))
    if not any(figures):
        return ""
    whiskers = "Whiskers are 90 % intervals." if any(
        cell.valid and (one := cell.figure(words.THROUGHPUT)) and one.interval for cell in matrix.cells) else ""
    return f'<h2>How it scales</h2><p class="note">{whiskers}</p><div class="pair">{"".join(figures)}</div>'


def level_places(levels: Sequence[str]) -> tuple[dict[str, float], bool]:
    """The place of each level on the axis and whether it is drawn by ratio: users or rates so, other names evenly."""
    try:
        places = {level: float(level.removesuffix("/s")) for level in levels}
    except ValueError:
        places = {}
    if not places or min(places.values()) <= 0:
        return {level: float(number) for number, level in enumerate(levels)}, False
    return places, True


def _load(levels: Sequence[str]) -> str:
    return "requests sent per second" if any(level.endswith("/s") for level in levels) else "users at once"


def _tip(setup: str, level: str, one: Measurement) -> str:
    tip = f"{setup}, {words.level_name(level)}: {words.full_text(one)}"
    return f"{tip} ({words.range_text(one)})" if one.interval is not None else tip


def _most(matrix: Matrix, metric: str) -> float:
    figures = [cell.figure(metric) for cell in matrix.cells if cell.valid]
    return max((one.value for one in figures if one is not None and one.value is not None), default=0.0)


def _points(matrix: Matrix, setup: str, metric: str, places: dict[str, float], scale: float) -> list[Point]:
    points = []
    for level in sorted(matrix.levels, key=places.__getitem__):
        cell = matrix.cell(setup, level)
        one = cell.figure(metric) if cell is not None and cell.valid else None
        if one is not None and one.value is not None:
            low, high = (one.interval.low * scale, one.interval.high * scale) if one.interval else (None, None)
            points.append(Point(places[level], one.value * scale, low, high, _tip(setup, level, one)))
    return points


def _trades(matrix: Matrix, setup: str) -> list[Point]:
    points = []
    for level in matrix.levels:
        cell = matrix.cell(setup, level)
        if cell is None or not cell.valid:
            continue
        each, total = cell.figure(words.PER_USER), cell.figure(words.THROUGHPUT)
        if each is not None and total is not None and each.value is not None and total.value is not None:
            tip = f"{_tip(setup, level, total)} in total, {words.full_text(each)} per user"
            points.append(Point(each.value, total.value, tip=tip, label=level))
    return points


def telemetry(named: Sequence[tuple[str, Trial]]) -> str:
    """The engine's own queue while each level ran: of each (setup, level) the first trial that has samples."""
    by_setup: dict[str, dict[str, charts.Panel]] = {}
    for name, trial in named:
        panels = by_setup.setdefault(name, {})
        if trial.workload.level not in panels and (panel := series.panel(trial)) is not None:
            panels[trial.workload.level] = panel
    drawn = "".join(figure(name, charts.telemetry(list(panels.values()), f"Telemetry of {name}"))
                    for name, panels in by_setup.items() if panels)
    if not drawn:
        return ""
    queues = series.waited(named)
    said = ("".join(f'<p class="warn">{escape(text)}</p>' for text in queues)
            or "<p>No request waited in an engine's queue.</p>")
    key = "".join(f'<span><span class="swatch" style="background:var(--{colour})"></span>{text}</span>'
                  for colour, text in (("run", "running"), ("wait", "waiting in the engine's queue"),
                                       ("soft", "KV cache in use"))
                  if colour != "soft" or any(panel.kv for panels in by_setup.values() for panel in panels.values()))
    return (f"<h2>Inside the engine while it was measured</h2>{said}"
            f'<p class="note key">{key} The first repeat of each level; time from its first request.</p>{drawn}')


def start_up(rows: Sequence[Row]) -> str:
    """Phases of each start, to its first decoded token."""
    bars = [charts.Bar(row.setup, _phases(row), _end(row), _start_note(row)) for row in rows]
    drawn = charts.bars(bars)
    return f'<h2>Start-up</h2>{figure("", drawn, "From the start of the process to its first decoded token.")}' \
        if drawn else ""


def _start_note(row: Row) -> str:
    if row.startup_s is None:
        after = row.fault.last_phase if row.fault is not None else ""
        return f"then failed{f' during {after}' if after else ''}"
    return "" if row.caches == "unknown" else f"{row.caches} caches"


def _end(row: Row) -> float:
    return row.startup_s or max((phase.end_s for phase in row.phases), default=0.0)


def _phases(row: Row) -> tuple[tuple[str, float, float], ...]:
    parts = [(phase.name, phase.begin_s, phase.end_s) for phase in row.phases]
    end = max((stop for _, _, stop in parts), default=0.0)
    if row.startup_s is not None and row.startup_s > end:
        parts.append(("to the first token", end, row.startup_s))
    return tuple(parts)


def figure(title: str, drawn: str, caption: str = "") -> str:
    """A chart under its title; "" where nothing was drawn."""
    if not drawn:
        return ""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}{drawn}{below}</figure>"
