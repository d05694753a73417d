"""SGLang's options by version: which it knows, what became of the others (0.4 to 0.5.23)."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

NEWEST = "0.5.23"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one version: how it is given (`value`, `values`, `switch`, `pair`) and whether it is deprecated."""

    name: str
    kind: str
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What one version's parser knows.

    Names are without dashes; the beginning of a name serves where it is unique, as in argparse.
    """

    version: str
    known: tuple[Option, ...]

    def find(self, name: str) -> Option | None:
        """The option of that name, or the only one that begins so; None for none or several."""
        exact = next((option for option in self.known if option.name == name), None)
        begun = self.candidates(name)
        return exact or (begun[0] if len(begun) == 1 else None)

    def candidates(self, name: str) -> tuple[Option, ...]:
        """All options that begin with `name`."""
        return tuple(option for option in self.known if option.name.startswith(name))

    def has(self, name: str) -> bool:
        """Whether there is an option of exactly that name."""
        return any(option.name == name for option in self.known)

    def instead(self, name: str) -> str:
        """What this version has in place of an option that it lacks; "" where nothing is near."""
        tables = _changes()
        for old, new in tables["renamed"].items():
            if name in (old, new):
                other = new if name == old else old
                if self.has(other):
                    return f"use {other}"
        if name in tables["replaced"]:
            return f"use {tables['replaced'][name]}"
        near = get_close_matches(name, [option.name for option in self.known], n=1, cutoff=0.6)
        return f"the nearest that it has is {near[0]}" if near else ""

    def unread(self, name: str) -> str:
        """What to do instead of an option that the parser takes and nothing reads; "" for all others."""
        since, instead = _changes()["unread"].get(name, ("", ""))
        return str(instead) if since and number(self.version) >= number(since) else ""


def number(version: str) -> tuple[int, ...]:
    """A version as numbers that compare: `0.5.3.post1` -> (0, 5, 3, 1); a development suffix is left out."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+]|\.?dev|rc|[ab]\d", version)[0]))


@cache
def for_version(version: str = "") -> Options:
    """What is known of a version's parser, of the newest for "".

    Versions between two sampled ones have what either neighbour has, later ones what the newest has: an option is only
    called unknown where both neighbours lack it.
    """
    table = _read("_sglang_options.toml")
    sampled: list[str] = table["versions"]
    wanted = number(version or NEWEST)
    before = max((one for one in sampled if number(one) <= wanted), key=number, default=sampled[0])
    after = min((one for one in sampled if number(one) >= wanted), key=number, default=sampled[-1])
    options: dict[str, Option] = {"help": Option("help", "switch")}
    for name, (kind, since, until, deprecated) in table["options"].items():
        if any(_within(one, since, until) for one in (before, after)):
            old = bool(deprecated) and number(deprecated) <= number(before)
            options[name] = Option(name, kind, old)
            if kind == "pair":
                options[f"no-{name}"] = Option(f"no-{name}", "switch", old)
    return Options(version or NEWEST, tuple(options.values()))


def names(options: Iterable[Option]) -> str:
    """Options in a sentence."""
    return ", ".join(option.name for option in options)


def _within(version: str, since: str, until: str) -> bool:
    return number(since) <= number(version) and (not until or number(version) <= number(until))


@cache
def _changes() -> dict[str, Any]:
    return _read("_sglang_changes.toml")


def _read(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("rooftop.engines").joinpath(file).read_text(encoding="utf-8"))
