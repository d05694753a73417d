"""Parts of the report in HTML: answer, matrix, figures, failures, conditions."""

from collections.abc import Iterable, Sequence
from html import escape

from rooftop import units
from rooftop.domain.finding import Measurement
from rooftop.domain.launch import Fault
from rooftop.domain.matrix import Cell, Matrix, Row
from rooftop.report import words
from rooftop.report.charts import tone
from rooftop.report.levels import LevelRun


def answers(matrix: Matrix, scope: str) -> str:
    """The answer first: one box a question, then what it is bound to."""
    boxes = []
    for best in matrix.best:
        question, winner, figure, sure = words.answer(best)
        boxes.append(f'<div class="{"sure" if best.sure else "open"}"><p class="q">{escape(question)}</p>'
                     f'<p class="w">{escape(winner)}</p><p class="f">{escape(figure)}</p><p>{escape(sure)}</p></div>')
    if not boxes:
        boxes.append('<div class="open"><p class="w">No valid figure was measured</p>'
                     '<p>Every setup failed or ran something other than what was asked; the reasons follow.</p></div>')
    return f'<div class="answer">{"".join(boxes)}</div><p class="note">{escape(scope)}</p>'


def warnings(texts: Iterable[str]) -> str:
    """What a reader must know before trusting a figure; "" where there is nothing."""
    items = "".join(f"<li>{escape(text)}</li>" for text in words.distinct(texts))
    return f'<ul class="plain warn">{items}</ul>' if items else ""


def matrix_tables(matrix: Matrix) -> str:
    """Two tables, setups by levels: all users together, and what each user sees."""
    total = "".join(_row(matrix, number, row, words.THROUGHPUT) for number, row in enumerate(matrix.rows))
    each = "".join(_row(matrix, number, row, words.PER_USER) for number, row in enumerate(matrix.rows))
    head = "".join(f'<th scope="col">{escape(words.level_name(level))}</th>' for level in matrix.levels)
    head = f'<thead><tr><th scope="col">Setup</th>{head}</tr></thead>'
    note = words.spread_note(matrix).strip()
    spread = f" {note}." if note else ""
    wide = 200 + 125 * len(matrix.levels)
    return (_table("<b>All users together</b>, output tokens/s. Underlined: the best of its column; dotted: not to be "
                   f"told apart from it.{spread}", head, total, wide)
            + _table("<b>Each user</b>, tokens/s while a reply streams, and the median time to the first token (TTFT).",
                     head, each, wide))


def _table(caption: str, head: str, body: str, wide: int) -> str:
    return (f'<p class="cap">{caption}</p><div class="scroll"><table class="matrix" style="min-width:{wide}px">{head}'
            f"<tbody>{body}</tbody></table></div>")


def _row(matrix: Matrix, number: int, row: Row, metric: str) -> str:
    name = (f'<th scope="row"><span class="{tone(number)}"><span class="swatch"></span></span>{escape(row.setup)}'
            f'<small>{escape(about(row))}</small></th>')
    cells = [matrix.cell(row.setup, level) for level in matrix.levels]
    if row.fault is not None and not any(cell is not None and cell.measurements for cell in cells):
        return (f'<tr>{name}<td class="reason bad" colspan="{len(cells)}">did not start: {escape(reason(row.fault))}'
                f'</td></tr>')
    return "<tr>" + name + "".join(
        _cell(matrix, cell, metric) for cell in cells) + "</tr>"


def about(row: Row) -> str:
    """Layout and settings of a setup in one line."""
    return ", ".join(part for part in (str(row.layout) if row.layout else "", row.settings) if part)


def reason(fault: Fault) -> str:
    """The engine's own words, and the phase they ended."""
    after = f" (during {fault.last_phase})" if fault.last_phase else ""
    return f"{fault.reason or fault.kind}{after}"


def _cell(matrix: Matrix, cell: Cell | None, metric: str) -> str:
    if cell is None:
        return '<td class="void">not run</td>'
    figure = cell.figure(metric)
    if not cell.valid:
        return f'<td class="void">{"not ranked: " if cell.repeats else ""}{escape(cell.why_not or "not run")}</td>'
    if figure is None or figure.value is None:
        why = cell.why_not or (figure.why_not if figure else "not measured")
        return f'<td class="void">{escape(why)}</td>'
    below = ""
    if metric == words.PER_USER:
        ttft = words.full_text(cell.figure(words.TTFT), spread=False)
        below = f'<span class="sub2">TTFT {_ranked(ttft, matrix, cell, words.TTFT)}</span>'
    return (f"<td>{_ranked(words.value_text(figure), matrix, cell, metric)} "
            f"<small>{words.spread_text(figure)}</small>{below}</td>")


def _ranked(text: str, matrix: Matrix, cell: Cell, metric: str) -> str:
    """The text, underlined where it is the best of its column, dotted where it cannot be told apart from the best."""
    leaders = words.leaders(matrix, cell.level, metric)
    if cell.setup not in leaders:
        return escape(text)
    return f'<span class="{"best" if len(leaders) == 1 else "tie"}">{escape(text)}</span>'


Named = tuple[tuple[str, ...], Sequence[Measurement]]


def figures(columns: Sequence[str], rows: Sequence[Named]) -> str:
    """Every latency quantile in ms, a line for each of `rows`; below it why a figure is missing, and cautions."""
    kinds = words.kinds(one for _, found in rows for one in found)
    if not kinds:
        return ""
    top = "".join(f'<th class="l" rowspan="2">{escape(column)}</th>' for column in columns) + "".join(
        f'<th colspan="3" class="mid">{words.NAMES[kind]}</th>' for kind in kinds)
    under = "".join(f"<th>{quantile}</th>" for _ in kinds for quantile in words.QUANTILES)
    missing: list[str] = []
    body = []
    for names, measurements in rows:
        by_name = {one.metric: one for one in measurements}
        cells = "".join(_noted(by_name.get(words.latency(kind, quantile)), missing)
                        for kind in kinds for quantile in words.QUANTILES)
        body.append("<tr>" + "".join(f'<td class="l">{escape(name)}</td>' for name in names) + cells + "</tr>")
    notes = [f"<sup>{number}</sup> {escape(text)}" for number, text in enumerate(missing, 1)]
    for names, measurements in rows:
        said = words.cautions(measurements)
        if said:
            notes.append(f"{escape(', '.join(names))}: {escape('; '.join(said))}")
    return (f'<div class="scroll"><table class="dense"><thead><tr>{top}</tr><tr>{under}</tr></thead>'
            f'<tbody>{"".join(body)}</tbody></table></div>'
            + "".join(f'<p class="note tight">{note}</p>' for note in notes))


def _noted(one: Measurement | None, missing: list[str]) -> str:
    """A figure's cell in ms; where there is none, `-` with the number of its note, a new one for a new reason."""
    if one is None or one.value is not None or not one.why_not:
        return _number(one, 1e3)
    if one.why_not not in missing:
        missing.append(one.why_not)
    return f"<td>-<sup>{missing.index(one.why_not) + 1}</sup></td>"


def summary(runs: Sequence[LevelRun]) -> str:
    """A bench run in one table: a line a level, and what failed."""
    body, faults = [], []
    for run in runs:
        cells = "".join(_number(run.figures.get(key), scale) for key, scale in (
            (words.THROUGHPUT, 1.0), (words.BUSY, 1.0), (words.PER_USER, 1.0), (words.TTFT, 1e3)))
        failed = run.failures.total()
        body.append(f'<tr><th scope="row">{escape(run.name)}</th>{cells}'
                    f"<td{' class=bad' if failed else ''}>{failed} of {run.requests}</td></tr>")
        faults += [f"{run.name}: {reason(trial.fault)}" for trial in run.trials if trial.fault is not None]
        for kind, count in run.failures.items():
            example = run.example(kind)
            faults.append(f"{run.name}: {count} x {kind} {example.detail if example else ''}".strip())
    head = ("tokens/s, total", "tokens/s, all busy", "tokens/s per user", "TTFT p50, ms", "failed requests")
    items = "".join(f"<li>{escape(text)}</li>" for text in faults)
    return (f'<div class="scroll"><table><thead><tr><th>Load</th>{"".join(f"<th>{text}</th>" for text in head)}</tr>'
            f'</thead><tbody>{"".join(body)}</tbody></table></div>'
            + (f'<ul class="plain bad">{items}</ul>' if items else ""))


def _number(one: Measurement | None, scale: float) -> str:
    return f"<td>{words.value_text(one, scale)} <small>{words.spread_text(one, scale)}</small></td>"


def failures(matrix: Matrix) -> str:
    """Setups that did not run as asked: reason, remedy, proof; "" where all did."""
    parts = []
    for row in matrix.rows:
        lines = []
        if row.fault is not None:
            at = f", log line {row.fault.line}" if row.fault.line else ""
            lines.append(f"<dt>Reason</dt><dd>{escape(reason(row.fault))} [{escape(row.fault.kind)}{at}]</dd>")
            if row.fault.remedy:
                lines.append(f"<dt>What to do</dt><dd>{escape(row.fault.remedy)}</dd>")
            if row.log:
                lines.append(f"<dt>Log</dt><dd>{escape(row.log)}</dd>")
        for claim in row.broken:
            proof = f" ({claim.proof.source}:{claim.proof.line} {claim.proof.text})" if claim.proof else ""
            lines.append(f"<dt>Claim broken</dt><dd>{escape(claim.fact)}: asked {escape(str(claim.asked))}, the engine "
                         f"runs {escape(str(claim.found))}{escape(proof)}</dd>")
        if row.same_text is False:
            lines.append("<dt>Answers differ</dt><dd>Its greedy replies are not those of the first setup: "
                         "check that it computes the same model.</dd>")
        if lines:
            parts.append(f"<h3>{escape(row.setup)}</h3><dl>{''.join(lines)}</dl>")
    return f'<h2>What did not run as asked</h2>{"".join(parts)}' if parts else ""


def commands(rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The commands of each setup, to repeat them by hand."""
    return "".join(f"<h3>{escape(name)}</h3><pre>{escape(chr(10).join(lines))}</pre>" for name, lines in rows if lines)


def pairs(lines: Iterable[tuple[str, str]]) -> str:
    """(name, value) lines."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in lines) + "</dl>"


def definitions() -> str:
    """Each metric in one line."""
    return f"<h2>What the figures mean</h2>{pairs(words.DEFINITIONS)}"


def took(seconds: float) -> str:
    """`, took 2 min 5 s`; "" where it is not known."""
    return f", took {units.seconds(seconds)}" if seconds else ""
