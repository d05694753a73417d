"""Progress as a live line on a terminal, as plain lines elsewhere; always on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO
from unicodedata import category

from rooftop import units
from rooftop.domain.progress import Progress, Tell

PLAIN_EVERY_S = 10.0
_HIDDEN = ("Cc", "Cf", "Cs")


@contextmanager
def listening(as_json: bool = False) -> Iterator[Tell]:
    """A listener for a workflow's progress while the block runs; nothing of it goes to stdout.

    A terminal gets one live line; a pipe or file gets a line for each new stage and at most one in 10 s besides;
    with `as_json` scripts read stdout and people read nothing, so there is no progress unless stderr is a terminal.
    """
    if sys.stderr.isatty():
        with _live() as tell:
            yield tell
    elif as_json:
        yield lambda _: None
    else:
        yield plain_lines(sys.stderr)


def visible(text: str) -> str:
    """Words from outside as a terminal may show them: control and direction characters are replaced, line ends stay.

    A server's words, an engine's log or a study's title could otherwise move the cursor, set the window's title or
    turn the text around.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" or category(one) not in _HIDDEN else "\ufffd"
                   for one in text)


def sentence(step: Progress) -> str:
    """One step in words: `level: 8 users, 3 of 9, about 40.0 s left`."""
    parts = [f"{step.stage}: {step.detail}" if step.detail else step.stage]
    if step.total:
        parts.append(f"{step.done} of {step.total}")
    if step.left_s is not None and not step.last:
        parts.append(f"about {units.seconds(step.left_s)} left")
    return ", ".join(parts) + (", done" if step.last else "")


def plain_lines(out: TextIO) -> Tell:
    """A listener that writes lines without control codes: new stages at once, other news rarely."""
    stage, at = "", 0.0

    def tell(step: Progress) -> None:
        nonlocal stage, at
        now = time.monotonic()
        if step.stage == stage and not step.last and now - at < PLAIN_EVERY_S:
            return
        stage, at = step.stage, now
        out.write(visible(sentence(step)) + "\n")
        out.flush()

    return tell


@contextmanager
def _live() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    bars = Bars(SpinnerColumn("line"), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20),
                TextColumn("{task.fields[count]}", markup=False), TimeElapsedColumn(), console=console, transient=True)
    with bars:
        task = bars.add_task("starting", total=None, count="")

        def tell(step: Progress) -> None:
            words = f"{step.stage}: {step.detail}" if step.detail else step.stage
            count = f"{step.done} of {step.total}" if step.total else ""
            if step.left_s is not None and not step.last:
                count += f"  {units.seconds(step.left_s)} left"
            bars.update(task, description=_short(visible(words), console.width - 50), total=step.total or None,
                        completed=step.done, count=count.strip())
            if step.last:
                console.print(Text(visible(sentence(step)), "dim"))

        yield tell


def _short(text: str, most: int) -> str:
    most = max(most, 12)
    return text if len(text) <= most else text[: most - 1] + "…"
