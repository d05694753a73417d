"""Pages that somebody pasted into a log: samples of `/metrics`, objects of an information page."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from rooftop.engines._lines import Line, Notes


def take_samples(lines: Sequence[Line], notes: Notes, word: str, sample: re.Pattern[str],
                 read: Callable[[str, Notes], None]) -> None:
    """Note what `read` finds in the lines as a page of samples, if any of those with `word` is one."""
    if any(sample.match(line.body) for line in lines if word in line.body):
        page = Notes("log")
        read("\n".join(line.body.replace("\n", " ") for line in lines), page)
        notes.take(page, lines)


def take_objects(lines: Sequence[Line], notes: Notes, key: str, read: Callable[[dict[str, Any], Notes], None]) -> None:
    """Note what `read` finds in each line that is a JSON object with this key."""
    for line in lines:
        if line.body.startswith("{") and f'"{key}"' in line.body:
            try:
                tree = json.loads(line.body)
            except (ValueError, RecursionError):
                continue
            page = Notes("log")
            read(tree, page)
            notes.take(page, (line,))
