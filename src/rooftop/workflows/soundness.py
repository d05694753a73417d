"""What is wrong with a study's words and numbers, before anything is started."""

import math
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rooftop.errors import BadInput

if TYPE_CHECKING:
    from rooftop.domain.plan import Setting
    from rooftop.domain.study import Study

MOST_LEVELS = 100_000
DAY_S = 86_400.0
LONGEST_WORD = 200

Bound = tuple[str, float | None, float, float]


def check_study(study: "Study", where: str) -> None:
    """Refuse what no run could take: numbers out of any reason, and words that no command or terminal can hold.

    `where` is the file, for the message.  Raises BadInput for the first thing that is wrong.
    """
    for what in (*_numbers(study), *_words(study)):
        raise BadInput(what, where=where)


def check_bounds(bounds: Iterable[Bound]) -> None:
    """Refuse the first (name, value, least, most) whose value is outside, or no number at all; None is inside.

    Raises BadInput.
    """
    for what in filter(None, (_outside(*bound) for bound in bounds)):
        raise BadInput(what)


def _numbers(study: "Study") -> Iterator[str]:
    load, order = study.load, study.order
    yield from (text for users in load.concurrency if (text := _outside("load.concurrency", users, 1, 10_000)))
    bounds: tuple[Bound, ...] = (
        ("load.input_tokens", load.input_tokens, 1, 10_000_000),
        ("load.output_tokens", load.output_tokens, 1, 10_000_000),
        ("load.shared_prefix_tokens", load.shared_prefix_tokens, 0, load.input_tokens),
        ("load.requests_per_user", load.requests_per_user, 1, 1_000_000),
        ("load.least_requests", load.least_requests, 1, 1_000_000),
        ("load.seed", load.seed, -sys.maxsize, sys.maxsize),
        ("order.repeats", order.repeats, 1, 10_000),
        ("order.rounds", order.rounds, 1, 10_000),
        ("load.seconds", load.seconds, 1e-3, 30 * DAY_S),
        ("start_timeout_s", study.start_timeout_s, 1e-3, 7 * DAY_S),
        *((f"setup[{i}].layout.{name}", getattr(setup.layout, name), 1, 4096)
          for i, setup in enumerate(study.setup) for name in ("tp", "pp", "dp", "ep", "attention_dp", "dcp")),
    )
    yield from (text for bound in bounds if (text := _outside(*bound)))
    levels = len(study.setup) * len(load.concurrency) * order.repeats * order.rounds
    if levels > MOST_LEVELS:
        yield f"the study asks for {levels} load levels; {MOST_LEVELS} is the most"


def _outside(name: str, value: float | None, least: float, most: float) -> str:
    """What to say of a number outside its bounds; "" inside.  A value that is not a number is outside."""
    if value is None or least <= value <= most:
        return ""
    if -math.inf < value <= 0 < least:
        return f"{name} must be {'at least 1' if least == 1 else 'above 0'}, not {value:g}"
    return f"{name} must be from {least:.15g} to {most:.15g}, not {value:g}"


def _words(study: "Study") -> Iterator[str]:
    if not study.name.strip():
        yield "name must not be empty"
    if not study.model.strip():
        yield "model must not be empty"
    named = (*((key, getattr(study, key)) for key in ("name", "model", "binary", "tokenizer", "launcher", "image")),
             *(("launcher_options", option) for option in study.launcher_options),
             *((f"setup[{i}].{key}", getattr(setup, key))
               for i, setup in enumerate(study.setup) for key in ("title", "binary", "image")))
    for key, word in named:
        if not word.isprintable():
            yield f"{key} holds a character that cannot be printed: {word[:60]!r}"
        if key.rpartition(".")[2] in ("name", "title") and len(word) > LONGEST_WORD:
            yield f"{key} must have at most {LONGEST_WORD} characters, not {len(word)}"
    groups = (("", study.settings, study.environment),
              *((f"setup[{i}].", setup.settings, setup.environment) for i, setup in enumerate(study.setup)))
    for place, settings, environment in groups:
        yield from _settings(f"{place}settings", settings)
        yield from _settings(f"{place}environment", environment)


def _settings(place: str, settings: "tuple[Setting, ...]") -> Iterator[str]:
    for one in settings:
        if not one.name or not one.name.isprintable() or any(letter in one.name for letter in " ="):
            yield f"{place} has a key that cannot be a name: {one.name[:60]!r}"
        elif isinstance(one.value, float) and not math.isfinite(one.value):
            yield f"{place}.{one.name} must be a number that ends, not {one.value}"
        elif isinstance(one.value, str) and not all(letter.isprintable() or letter in "\n\t" for letter in one.value):
            yield f"{place}.{one.name} holds a character that cannot be printed: {one.value[:60]!r}"
