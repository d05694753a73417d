"""A study's matrix as terminal tables and plain sentences."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rooftop.cli.show_bench import lines
from rooftop.domain.matrix import Matrix, Row
from rooftop.report import sections, words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MARKS = {"best": "*", "tie": "~", "": " "}
STYLES = {"best": "bold green", "tie": "bold", "": ""}


def matrix_parts(matrix: Matrix, width: int) -> Iterator["RenderableType"]:
    """Two tables, what was not ranked, the answers, what they are bound to; tables are cut to fit `width`."""
    from rich.text import Text

    title = ", ".join(part for part in (matrix.model, matrix.engine, matrix.load) if part)
    yield Text.assemble((f"\n{matrix.study}: ", "bold"), title)
    yield lines([(f"  {row.setup}:", sections.about(row), "dim") for row in matrix.rows if sections.about(row)])
    for caption, metric in (("All users together, output tokens/s", words.THROUGHPUT),
                            ("Each user, tokens/s while a reply streams", words.PER_USER),
                            ("Time to first token (TTFT), p50 in ms", words.TTFT)):
        yield Text(f"\n{caption}", "bold")
        yield from _tables(matrix, metric, width)
    marks = "* the best of its column   ~ not to be told apart from the best" if len(matrix.rows) > 1 else ""
    yield Text(f"{marks}{words.spread_note(matrix)}".strip(), "dim")
    yield from _not_ranked(matrix)
    yield from _answers(matrix)
    yield Text(f"\n{words.scope(matrix)}")
    yield lines([("note:", warning, "yellow") for warning in words.distinct(matrix.warnings)])


def measured(matrix: Matrix, row: Row) -> bool:
    """Any level of this setup has figures."""
    return any(cell.setup == row.setup and cell.measurements for cell in matrix.cells)


def _tables(matrix: Matrix, metric: str, width: int) -> Iterator["RenderableType"]:
    """One table, or several below one another where the levels do not fit side by side."""
    from rich import box
    from rich.table import Table

    columns = [(words.level_name(level), [_cell(matrix, row, level, metric) for row in matrix.rows])
               for level in matrix.levels]
    most = max((len(text) for title, cells in columns for text in (title, *map(str, cells))), default=1)
    names = min(max((len(row.setup) for row in matrix.rows), default=5), 28)
    fit = max(1, (width - names - 3) // (most + 2))
    for start in range(0, len(columns), fit):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
        table.add_column("setup", width=names, overflow="fold")
        for title, _ in columns[start:start + fit]:
            table.add_column(title, justify="right", no_wrap=True)
        for number, row in enumerate(matrix.rows):
            style = "red" if row.fault is not None and not measured(matrix, row) else None
            table.add_row(row.setup, *(cells[number] for _, cells in columns[start:start + fit]), style=style)
        yield table


def _cell(matrix: Matrix, row: Row, level: str, metric: str) -> "Text":
    from rich.text import Text

    cell = matrix.cell(row.setup, level)
    if cell is None or not cell.valid:
        return Text("-", "dim")
    leaders = words.leaders(matrix, level, metric)
    rank = "" if row.setup not in leaders else "best" if len(leaders) == 1 else "tie"
    figure, scale = cell.figure(metric), 1e3 if metric == words.TTFT else 1.0
    text = Text.assemble((MARKS[rank] + words.value_text(figure, scale), STYLES[rank]))
    spread = words.spread_text(figure, scale)
    return text.append(f" {spread}", "dim") if spread else text


def _not_ranked(matrix: Matrix) -> Iterator["RenderableType"]:
    from rich.table import Table
    from rich.text import Text

    rows = [*_failed(matrix), *_void(matrix)]
    if not rows:
        return
    yield Text("\nNot ranked", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=30)
    grid.add_column(overflow="fold")
    for name, text, style in rows:
        grid.add_row(name, Text(text, style))
    yield grid


def _failed(matrix: Matrix) -> Iterator[tuple[str, str, str]]:
    for row in matrix.rows:
        if row.fault is not None:
            how = "failed" if measured(matrix, row) else "did not start"
            yield row.setup, f"{how}: {sections.reason(row.fault)}", "red"
            if row.fault.remedy:
                yield "", f"do: {row.fault.remedy}", ""
            if row.log:
                yield "", f"log: {row.log}", "dim"
        for claim in row.broken:
            yield row.setup, f"asked {claim.fact} = {claim.asked}, the engine runs {claim.found}", "red"
            if claim.proof is not None:
                yield "", f"{claim.proof.source}:{claim.proof.line}  {claim.proof.text}", "dim"
        if row.same_text is False:
            yield row.setup, "answers the fixed prompts otherwise than the first setup does", "red"


def _void(matrix: Matrix) -> Iterator[tuple[str, str, str]]:
    """Cells that must not be ranked, the levels of one setup and one reason together."""
    for row in matrix.rows:
        if row.fault is not None and not measured(matrix, row):
            continue
        levels: dict[str, list[str]] = {}
        for cell in matrix.cells:
            if cell.setup == row.setup and not cell.valid:
                levels.setdefault(cell.why_not, []).append(cell.level)
        for why, names in levels.items():
            yield f"{row.setup}, {words.level_names(names)}", why, "yellow"


def _answers(matrix: Matrix) -> Iterator["RenderableType"]:
    from rich.padding import Padding
    from rich.text import Text

    if not matrix.best:
        yield Text("\nNo valid figure was measured; the reasons stand above.", "bold red")
    for best in matrix.best:
        question, winner, figure, sure = words.answer(best)
        yield Text.assemble(f"\n{question}: ", (winner, "bold green" if best.sure else "bold"), f", {figure}.")
        yield Padding(Text(sure), (0, 0, 0, 2))
