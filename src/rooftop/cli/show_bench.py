"""A bench run as terminal tables: a block a level, then all levels at a glance."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rooftop import units
from rooftop.domain.finding import Measurement
from rooftop.domain.trial import Trial
from rooftop.report import sections, series, words
from rooftop.report.levels import LevelRun, by_level

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rooftop.load.selftest import SelfTest

RATES = ((words.THROUGHPUT, "output tokens/s over the whole run"),
         (words.BUSY, "output tokens/s while all slots were busy"),
         (words.PER_USER, "tokens/s for each user while a reply streams"),
         ("goodput_requests_per_s", "requests/s within the objective"))


def bench_parts(trials: Sequence[Trial], measurements: Sequence[Sequence[Measurement]]) -> Iterator["RenderableType"]:
    """Each level's latencies, rates, failures, notes and client's proof; with several levels a last table of all."""
    from rich.text import Text

    runs = by_level(trials, measurements)
    for run in runs:
        notes: list[str] = []
        yield Text(f"\n{_head(run)}", "bold")
        yield _latencies(run, notes)
        yield _rates(run, notes)
        yield _remarks(run, notes)
    if len(runs) > 1:
        yield Text("\nAll levels", "bold")
        yield _overview(runs)
    texts = dict.fromkeys(note for trial in trials for note in trial.notes)
    if texts:
        yield Text("")
        yield lines(("note:", text, "yellow") for text in texts)


def self_test_parts(test: "SelfTest") -> Iterator["RenderableType"]:
    """What this client can measure on this machine."""
    from rich.table import Table
    from rich.text import Text

    figures = {one.metric: one for one in test.figures}
    yield Text(f"\nThis client on this machine, {words.STAMPS[test.stamps]} stamps", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, metric in (("TTFT error", "ttft_error"), ("ITL error", "itl_error")):
        middle, high = (figures.get(f"{metric}_{quantile}") for quantile in ("p50", "p99"))
        grid.add_row(name, f"{words.full_text(middle)} at p50, {words.full_text(high)} at p99")
    for metric, of in (("client_tokens_per_s", "taken in by one core of the client, at one chunk a token"),
                       ("flood_tokens_per_s", "taken in from a server that holds nothing back, on the same machine")):
        grid.add_row("limit", f"{words.full_text(figures.get(metric))} {of}")
    yield grid
    yield lines(("client:", text, "yellow") for text in test.warnings)


def lines(rows: Iterable[tuple[str, str, str]]) -> "RenderableType":
    """(mark, text, style) with the text's own left edge."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, text, style in rows:
        grid.add_row(Text(mark, style), Text(text, style))
    return grid


def _head(run: LevelRun) -> str:
    repeats = f", {len(run.trials)} repeats" if len(run.trials) > 1 else ""
    took = units.seconds(sum(trial.measured_s for trial in run.trials))
    return f"{run.name}{repeats}: {run.requests} requests in {took}, {run.failures.total() or 'none'} failed"


def _marked(one: Measurement | None, text: str, notes: list[str]) -> "RenderableType":
    """The text; where the figure is missing its footnote's letter, a new one for a new reason."""
    from rich.text import Text

    if one is None or one.value is not None or not one.why_not:
        return Text(text)
    if one.why_not not in notes:
        notes.append(one.why_not)
    return Text.assemble(text, (f" {_letter(notes.index(one.why_not))}", "dim"))


def _letter(number: int) -> str:
    return chr(ord("a") + number % 26)


def _latencies(run: LevelRun, notes: list[str]) -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("", min_width=9)
    for quantile in words.QUANTILES:
        table.add_column(quantile, justify="right", no_wrap=True, min_width=15)
    for kind in words.kinds(run.figures.values()):
        row = [run.figures.get(words.latency(kind, quantile)) for quantile in words.QUANTILES]
        table.add_row(words.NAMES[kind], *(_marked(one, words.full_text(one), notes) for one in row))
    return table


def _rates(run: LevelRun, notes: list[str]) -> "RenderableType":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True, min_width=12)
    grid.add_column(overflow="fold")
    for metric, title in RATES:
        one = run.figures.get(metric)
        if one is None or (metric.startswith("goodput") and one.value is None):
            continue
        grid.add_row(f"{words.value_text(one)} {words.spread_text(one)}".strip(), _marked(one, title, notes))
    busy, ramp, tail = (run.figures.get(name) for name in (words.BUSY, "ramp_share", "tail_share"))
    if busy and ramp and tail and busy.value is not None and ramp.value is not None and tail.value is not None:
        grid.add_row(units.share(ramp.value + tail.value),
                     f"of the run was ramp ({units.share(ramp.value)}) and tail ({units.share(tail.value)})")
    return grid


def _remarks(run: LevelRun, notes: Sequence[str]) -> "RenderableType":
    cautions = [text for text in words.cautions(run.figures.values()) if text not in notes]
    return lines([*((_letter(number), text, "dim") for number, text in enumerate(notes)), *_failed(run),
                  *(("caution:", text, "yellow") for text in cautions),
                  *(("queue:", text, "yellow") for text in series.waited([("the server", one) for one in run.trials])),
                  *_client(run)])


def _failed(run: LevelRun) -> Iterator[tuple[str, str, str]]:
    for trial in run.trials:
        if trial.fault is not None:
            yield "failed:", sections.reason(trial.fault), "red"
    for kind, count in run.failures.items():
        example = run.example(kind)
        detail = f" ({example.detail[:100]})" if example is not None and example.detail else ""
        yield "failed:", f"{count} x {kind}{detail}", "red"


def _client(run: LevelRun) -> Iterator[tuple[str, str, str]]:
    worst = words.worst_client(run.trials)
    proof = words.client_proof(worst) if worst is not None else None
    if proof is not None:
        yield "client:", proof, "dim"
    for warning in words.client_warnings(run.trials):
        yield "client:", warning, "yellow"


def _overview(runs: Sequence[LevelRun]) -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("load", no_wrap=True)
    for title in ("tokens/s\ntotal", "tokens/s\nall busy", "tokens/s\nper user", "TTFT\np50", "TPOT\np50", "failed"):
        table.add_column(title, justify="right", no_wrap=True)
    for run in runs:
        total = run.figures.get(words.THROUGHPUT)
        rates = [f"{words.value_text(total)} {words.spread_text(total)}".strip(),
                 *(words.value_text(run.figures.get(key)) for key in (words.BUSY, words.PER_USER))]
        times = [words.full_text(run.figures.get(key), spread=False)
                 for key in (words.TTFT, words.latency("tpot", "p50"))]
        table.add_row(run.name, *rates, *times, f"{run.failures.total()}/{run.requests}",
                      style="red" if run.failures else None)
    return table
