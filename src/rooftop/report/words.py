"""Figures and answers in words, the same in terminal and report."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from rooftop import units
from rooftop.domain.finding import Measurement
from rooftop.domain.machine import Machine
from rooftop.domain.matrix import Best, Cell, Matrix
from rooftop.domain.trial import Trial

THROUGHPUT = "output_tokens_per_s"
BUSY = "output_tokens_per_s_busy"
PER_USER = "tokens_per_s_per_user"
TTFT = "ttft_p50"
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "chunk_gap": "chunk gap", "e2e": "E2E"}
QUANTILES = ("p50", "p90", "p99")

DEFINITIONS = (
    ("TTFT", "time to first token: from when the request was due until its first token came, waiting included"),
    ("TPOT", "time per output token: the time from the first to the last token over the tokens after the first; "
             "one value a request"),
    ("ITL", "inter-token latency: each single gap between tokens of one reply, over all replies"),
    ("E2E", "end to end: from when the request was due until its last byte came"),
    ("tokens/s, total", "output tokens of all users over the time of the whole run, ramp and tail included"),
    ("tokens/s, all busy", "the same over only the time in which every user had a request open"),
    ("tokens/s per user", "the speed at which one user sees a reply grow, at the median"),
    ("p50, p90, p99", "half, 90 % and 99 % of the values are at most this"),
    ("±", "half the width of the 90 % interval; from the spread of the repeats where there are several"),
)


def latency(kind: str, quantile: str) -> str:
    """The metric name of a latency's quantile."""
    return f"{kind}_{quantile}"


def kinds(figures: Iterable[Measurement]) -> tuple[str, ...]:
    """The latencies to show of those there are; gaps between chunks only where gaps between tokens are not known."""
    known = {one.metric: one.value is not None for one in figures}
    return tuple(kind for kind in NAMES if latency(kind, "p50") in known
                 and (kind != "chunk_gap" or not known.get(latency("itl", "p50"))))


def decimals(value: float) -> int:
    """Decimal places that leave three significant digits (0 from 100 on)."""
    text = units.number(abs(value))
    return len(text.partition(".")[2])


def plain(value: float) -> str:
    """A count or a round number without idle zeros: `50`, `0.5`, `12 000`."""
    return units.number(value) if abs(value) >= 1000 else f"{value:.4g}"


def value_text(figure: Measurement | None, scale: float = 1.0) -> str:
    """The bare number, three significant digits, `-` where there is none."""
    return "-" if figure is None or figure.value is None else units.number(figure.value * scale)


def spread_text(figure: Measurement | None, scale: float = 1.0) -> str:
    """`±` and the larger half width of the interval, as exact as the value itself; "" without interval."""
    if figure is None or figure.value is None or figure.interval is None:
        return ""
    half = max(figure.value - figure.interval.low, figure.interval.high - figure.value, 0.0) * scale
    places = decimals(figure.value * scale)
    if half > 0 and round(half, places) == 0:
        return f"±{half:.1g}" if half >= 1e-3 else "±0"
    return f"±{units.number(half)}" if half >= 1000 else f"±{half:.{places}f}"


def full_text(figure: Measurement | None, *, spread: bool = True) -> str:
    """Number, spread (unless not wanted) and unit: `212 ±3 ms`, `389 ±4 tokens/s`, `12 %`."""
    if figure is None or figure.value is None:
        return "-"
    scale, unit = _shown_in(figure.unit, figure.value)
    half = spread_text(figure, scale) if spread else ""
    return " ".join(part for part in (value_text(figure, scale), half, unit) if part)


def range_text(figure: Measurement) -> str:
    """The ends of the interval in the unit in which `full_text` shows the value: `209 to 215`; "" without interval."""
    if figure.value is None or figure.interval is None:
        return ""
    scale, _ = _shown_in(figure.unit, figure.value)
    return f"{units.number(figure.interval.low * scale)} to {units.number(figure.interval.high * scale)}"


def _shown_in(unit: str, value: float) -> tuple[float, str]:
    if unit == "s" and 0 < abs(value) < 1e-4:
        return 1e6, "us"
    if unit == "s" and abs(value) < 10:
        return 1e3, "ms"
    if unit in ("ratio", "share"):
        return 100.0, "%"
    return 1.0, unit


def level_name(level: str) -> str:
    """A load level in words: `1 user`, `8 users`, `3/s`."""
    if level == "1":
        return "1 user"
    return f"{level} users" if level.isdigit() else level


def bench_answer(cells: Sequence[Cell]) -> str:
    """A bench run in a sentence: its highest throughput, and what each user sees there."""
    found = [(figure.value, cell) for cell in cells
             if (figure := cell.figure(THROUGHPUT)) is not None and figure.value is not None]
    if not found:
        return "Nothing was measured: no request came whole."
    most = max(found, key=lambda pair: pair[0])[1]
    top = "" if len(found) == 1 else "At most "
    each, ttft = most.figure(PER_USER), most.figure(TTFT)
    parts = [f"{top}{full_text(most.figure(THROUGHPUT))} in total with {level_name(most.level)}"]
    if each is not None and each.value is not None:
        parts.append(f"{full_text(each)} for each of them" if most.level != "1" else f"{full_text(each)} for that user")
    if ttft is not None and ttft.value is not None:
        parts.append(f"first token after {full_text(ttft)} at the median")
    return "; ".join(parts) + "."


def level_names(levels: Sequence[str]) -> str:
    """Several load levels in words: `4, 8 users`, `1 user`, `2/s, 4/s`."""
    if len(levels) > 1 and all(level.isdigit() for level in levels):
        return f"{', '.join(levels)} users"
    return ", ".join(map(level_name, levels))


def machine_name(machine: Machine) -> str:
    """What a ranking is bound to: GPUs where there are any, else the CPU and its cores."""
    if machine.gpus:
        kinds = dict.fromkeys(gpu.name for gpu in machine.gpus)
        return " + ".join(f"{sum(gpu.name == kind for gpu in machine.gpus)} x {kind}" for kind in kinds)
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    return f"{machine.cpu or 'unknown CPU'}, {cores}, no GPU"


def leaders(matrix: Matrix, level: str, metric: str) -> tuple[str, ...]:
    """The setup with the best valid figure at a level (least TTFT, else most), and all whose intervals reach its own.

    One name: it leads.  Several: they cannot be told apart.  None where fewer than two setups can be compared.
    """
    sign = -1.0 if metric == TTFT else 1.0
    found = []
    for cell in matrix.cells:
        one = cell.figure(metric) if cell.level == level and cell.valid else None
        if one is not None and one.value is not None:
            ends = (one.interval.low, one.interval.high) if one.interval else (one.value, one.value)
            low, high = sorted(sign * end for end in ends)
            found.append((sign * one.value, low, high, cell.setup))
    if len(found) < 2:
        return ()
    floor = max(found)[1]
    return tuple(setup for _, _, high, setup in found if high >= floor)


def _better(margin: Measurement) -> str:
    """`23 % (19 to 27 %)` for a ratio of 1.23."""
    text = f"{100 * ((margin.value or 1.0) - 1):.0f} %"
    if margin.interval is None:
        return text
    low, high = (f"{100 * (end - 1):.0f}" for end in (margin.interval.low, margin.interval.high))
    return f"{text} ({low} to {high} %)"


def answer(best: Best) -> tuple[str, str, str, str]:
    """An answer in four parts: the question, the winner, its figure, how sure that is."""
    one_user = best.question == "one user"
    question = "Best for one user" if one_user else "Best for throughput"
    winner = best.winner if one_user else f"{best.winner} at {level_name(best.level)}"
    figure = f"{full_text(best.value)} {_OF.get(best.value.metric, '')}".strip()
    if not best.runner_up:
        return question, winner, figure, _sentence(best.why or "nothing else was measured to hold it against")
    rival = best.runner_up
    if best.runner_up_level and best.runner_up_level != best.level:
        rival += f" (at {level_name(best.runner_up_level)})"
    if best.margin is None or best.margin.value is None:
        margin = f"next is {rival}"
    else:
        margin = f"{_better(best.margin)} ahead of {rival}"
    sure = _sentence(margin if best.sure else f"not proven: {margin}")
    return question, winner, figure, f"{sure} {_sentence(best.why)}".strip()


_OF = {THROUGHPUT: "in total", PER_USER: "per user"}


def _sentence(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def spread_note(matrix: Matrix) -> str:
    """What ± rests on where there are repeats: `   ± 90 % interval over 3 repeats`; "" where there are none."""
    repeats = sorted({cell.repeats for cell in matrix.cells if cell.valid and cell.repeats})
    if not repeats or repeats[-1] < 2:
        return ""
    count = f"{repeats[0]} to {repeats[-1]}" if len(repeats) > 1 else f"{repeats[0]}"
    return f"   ± 90 % interval over {count} repeats"


def scope(matrix: Matrix, trials: Sequence[Trial] = ()) -> str:
    """The sentence that binds a ranking to its machine, and to how its figures came about."""
    kinds = {trial.origin for trial in trials} or {"measured"}
    no = "not all" if "measured" in kinds else "not"
    how = "" if kinds == {"measured"} else f" Figures are {' and '.join(sorted(kinds))}, {no} measured."
    return (f"This ranking is of this machine only ({machine_name(matrix.machine)}), "
            f"this model and this load.{how}")


def cautions(figures: Iterable[Measurement]) -> tuple[str, ...]:
    """What stands beside the values that there are, each text once, one that only repeats another left out."""
    texts = tuple(dict.fromkeys(one.why_not for one in figures if one.value is not None and one.why_not))
    return tuple(text for text in texts if not any(other != text and text.endswith(other) for other in texts))


def worst_client(trials: Iterable[Trial]) -> Trial | None:
    """The trial whose client sent latest at p99; None where no client kept an account."""
    late = [(trial.client.send_late_p99_s, number, trial) for number, trial in enumerate(trials) if trial.client]
    return max(late)[2] if late else None


def client_warnings(trials: Iterable[Trial]) -> tuple[str, ...]:
    """What the load clients warn of; of warnings that differ in their figures only, that of the latest sender."""
    proofs = sorted((trial.client for trial in trials if trial.client), key=lambda proof: -proof.send_late_p99_s)
    return distinct(text for proof in proofs for text in proof.warnings)


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once; of texts that differ in their figures only, the first."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(re.sub(r"\d+(\.\d+)?", "", text), text)
    return tuple(found.values())


def moment(text: str) -> str:
    """An ISO time to the minute: `2026-03-11 14:02 UTC`; other words as they are."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when:%Y-%m-%d %H:%M %Z}".strip()


def client_proof(trial: Trial) -> str | None:
    """The load client's own error in one line; None where it kept no account."""
    proof = trial.client
    if proof is None:
        return None
    parts = [f"{STAMPS[proof.stamps]} stamps", f"sent late by {units.seconds(proof.send_late_p99_s)} at p99",
             f"{units.share(proof.cpu_share)} of a core"]
    if proof.streams_open_max < proof.streams_asked:
        parts.append(f"only {proof.streams_open_max} of {proof.streams_asked} streams were open at once")
    if proof.merged_share:
        parts.append(f"{units.share(proof.merged_share)} of chunks share a stamp")
    return ", ".join(parts)


STAMPS: dict[Literal["kernel", "read", "mixed", "simulated"], str] = {
    "kernel": "kernel", "read": "user-space", "mixed": "mixed", "simulated": "simulated"}
