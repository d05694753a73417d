"""One self-contained HTML file from a study's matrix or from a bench run."""

from collections.abc import Iterable, Sequence
from html import escape

from rooftop import units
from rooftop.domain.finding import Measurement
from rooftop.domain.machine import Machine
from rooftop.domain.matrix import Cell, Matrix, Row
from rooftop.domain.trial import Trial
from rooftop.report import curves, sections, words
from rooftop.report.levels import by_level
from rooftop.report.style import CSS

Pairs = tuple[tuple[str, str], ...]


def page(matrix: Matrix, trials: Sequence[Trial] = ()) -> str:
    """A study's report.  `trials` add telemetry, the client's proof and their notes; the rest comes of the matrix."""
    about = ", ".join(part for part in (matrix.engine, words.machine_name(matrix.machine), matrix.load) if part)
    when = f"{words.moment(matrix.started_at)}{sections.took(matrix.took_s)}".strip(", ")
    rows = [((cell.setup, words.level_name(cell.level)), cell.measurements)
            for cell in matrix.cells if cell.measurements]
    return _document(f"{matrix.study} - rooftop report", [
        f"<h1>Which setup serves {escape(matrix.model)} fastest?</h1>",
        f'<p class="sub">Study {escape(matrix.study)}: {escape(about)}<br>{escape(when)}</p>',
        sections.answers(matrix, words.scope(matrix, trials)),
        sections.warnings((*words.client_warnings(trials), *matrix.warnings, *_notes(trials))),
        "<h2>Setups and load levels</h2>",
        sections.matrix_tables(matrix),
        sections.failures(matrix),
        curves.scaling(matrix),
        curves.telemetry(_named(matrix, trials)),
        curves.start_up(matrix.rows),
        _latencies(("Setup", "Load"), rows),
        "<h2>Conditions</h2>",
        sections.pairs((*_machine(matrix.machine), *matrix.conditions, *_proofs(trials))),
        sections.commands((row.setup, row.commands) for row in matrix.rows),
        sections.definitions(),
    ])


def bench_page(trials: Sequence[Trial], measurements: Sequence[Sequence[Measurement]]) -> str:
    """The report of a bench run: one endpoint, a trial a level, with each trial's measurements in the same order.

    There must be at least one trial.
    """
    first = trials[0]
    model = first.plan.model
    machine = first.surroundings.machine if first.surroundings else Machine("", "", 0, 0)
    runs = by_level(trials, measurements)
    cells = tuple(Cell(model.name, run.level, tuple(run.figures.values()), len(run.trials)) for run in runs)
    matrix = Matrix(study="bench", model=model.name, engine=first.plan.engine or "", machine=machine,
                    levels=tuple(cell.level for cell in cells), cells=cells, rows=(Row(model.name),))
    about = ", ".join(part for part in (first.plan.engine, model.path, first.workload.shape) if part)
    return _document(f"{model.name} - rooftop bench", [
        f"<h1>How fast is {escape(model.name)} served?</h1>",
        f'<p class="sub">{escape(about)}<br>{escape(words.moment(first.started_at))}</p>',
        f'<p class="lede">{escape(words.bench_answer(cells))}</p>',
        sections.summary(runs),
        sections.warnings((*words.client_warnings(trials), *_notes(trials))),
        curves.scaling(matrix),
        curves.telemetry([(model.name, trial) for trial in trials]),
        _latencies(("Load",), [((run.name,), tuple(run.figures.values())) for run in runs]),
        "<h2>Conditions</h2>",
        sections.pairs((*(_machine(machine) if first.surroundings else ()), *_proofs(trials))),
        sections.definitions(),
    ])


def _named(matrix: Matrix, trials: Sequence[Trial]) -> list[tuple[str, Trial]]:
    """Each trial with the setup whose launch it ran on, in the order of the matrix."""
    order = {level: number for number, level in enumerate(matrix.levels)}
    named = [(row.setup, trial) for row in matrix.rows for trial in trials
             if trial.launch_id in row.launches or (not trial.launch_id and trial.plan.title == row.setup)]
    rank = {row.setup: number for number, row in enumerate(matrix.rows)}
    return sorted(named, key=lambda pair: (rank[pair[0]], order.get(pair[1].workload.level, 0), pair[1].repeat))


def _notes(trials: Iterable[Trial]) -> tuple[str, ...]:
    return tuple(note for trial in trials for note in trial.notes)


def _latencies(columns: Sequence[str], rows: Sequence[sections.Named]) -> str:
    table = sections.figures(columns, rows)
    opened = " open" if len(rows) <= 6 else ""
    return f"<h2>Every latency</h2><details{opened}><summary>TTFT, TPOT, ITL and E2E in ms</summary>{table}</details>" \
        if table else ""


def _machine(machine: Machine) -> Pairs:
    gpus = words.machine_name(machine) if machine.gpus else "none"
    cores = f", {machine.cores} cores usable" if machine.cores else ""
    lines = (("Machine", machine.name), ("CPU", f"{machine.cpu or 'unknown'}{cores}"), ("GPUs", gpus),
             ("Memory", units.size(machine.memory_bytes) if machine.memory_bytes else "unknown"),
             ("System", machine.system))
    return tuple((name, value) for name, value in lines if value)


def _proofs(trials: Sequence[Trial]) -> Pairs:
    """The load client's own account: the worst of all trials."""
    worst = words.worst_client(trials)
    if worst is None:
        return ()
    return (("Load client, at its worst", words.client_proof(worst) or ""),)


def _document(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(part for part in parts if part)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n{body}\n'
            f"<footer>Made by rooftop. One file, nothing loaded from elsewhere. "
            f"Every figure is computed from the stored token times.</footer>\n</main></body></html>\n")
