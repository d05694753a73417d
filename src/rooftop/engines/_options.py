"""Options of SGLang and vLLM by version: which a version knows, what became of the others."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from rooftop.domain.plan import Plan

NEWEST = {"sglang": "0.5.23", "vllm": "0.33.0"}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one version: how it is given (`value`, `values`, `switch`, `pair`) and whether it is deprecated."""

    name: str
    kind: str
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What one version's parser of an engine knows.

    Names are without dashes; the beginning of a name serves where it is unique, as in argparse.
    """

    version: str
    known: tuple[Option, ...]
    engine: str

    @property
    def ahead(self) -> bool:
        """The version is newer than the newest whose options are known: what is not known here may well be there."""
        return number(self.version) > number(NEWEST[self.engine])

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
        tables = _changes(self.engine)
        for old, new in tables["renamed"].items():
            if name in (old, new):
                other = new if name == old else old
                if self.has(other):
                    return f"use {other}"
        if name in tables["replaced"]:
            return f"use {tables['replaced'][name]}"
        near = get_close_matches(name, [option.name for option in self.known], n=1, cutoff=0.6)
        return f"the nearest that it has is {near[0]}" if near else ""

    def idle_environment(self, variable: str) -> str:
        """What to set instead of an environment variable that this version no longer reads; "" for all others."""
        until, instead = _changes(self.engine).get("environment", {}).get(variable, ("", ""))
        return str(instead) if until and number(self.version) > number(until) else ""

    def old_engine(self, name: str) -> str:
        """What to do instead of an option that only the older of this version's two engines serves; "" for others."""
        until, instead = _changes(self.engine).get("old-engine", {}).get(name, ("", ""))
        return str(instead) if until and number(self.version) <= number(until) else ""

    def unread(self, name: str) -> str:
        """What to do instead of an option that the parser takes and nothing reads; "" for all others."""
        since, instead = _changes(self.engine)["unread"].get(name, ("", ""))
        return str(instead) if since and number(self.version) >= number(since) else ""


def number(version: str) -> tuple[int, ...]:
    """A version as numbers that compare: `0.5.3.post1` -> (0, 5, 3, 1); a development suffix is left out."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+]|\.?dev|rc|[ab]\d", version)[0]))


@cache
def for_version(engine: str, version: str = "") -> Options:
    """What is known of the parser of a version of `sglang` or `vllm`, of the newest for "".

    Versions between two sampled ones have what either neighbour has, later ones what the newest has: an option is only
    called unknown where both neighbours lack it.
    """
    table = _read(f"_{engine}_options.toml")
    sampled: list[str] = table["versions"]
    wanted = number(version or NEWEST[engine])
    before = max((one for one in sampled if number(one) <= wanted), key=number, default=sampled[0])
    after = min((one for one in sampled if number(one) >= wanted), key=number, default=sampled[-1])
    options: dict[str, Option] = {"help": Option("help", "switch")}
    for name, (kind, since, until, deprecated) in table["options"].items():
        if any(_within(one, since, until) for one in (before, after)):
            old = bool(deprecated) and number(deprecated) <= number(before)
            options[name] = Option(name, kind, old)
            if kind == "pair":
                options[f"no-{name}"] = Option(f"no-{name}", "switch", old)
    return Options(version or NEWEST[engine], tuple(options.values()), engine)


def version_of(plan: Plan) -> str:
    """The engine's version that a plan names, else the one in the tag of the engine's own image; "" for none.

    A tag such as `v0.9.1`, `v0.5.4-cu129` or `0.8.5.post1` counts where the image bears the engine's name.
    """
    place, _, tag = plan.image.rsplit("/", 1)[-1].partition(":")
    found = re.match(r"v?(0\.\d+(?:\.\d+)?(?:\.post\d+)?)(?![\d.])", tag)
    return plan.engine_version or (found[1] if found and (plan.engine or "?") in plan.image.lower() and place else "")


def advise(engine: str, flag: str) -> str:
    """What the newest version has for an option that was not known: its spelling, its new name, the nearest; or ""."""
    name = flag.split("=")[0].lstrip("-")
    options, dashed = for_version(engine), name.replace("_", "-")
    if not name:
        return ""
    if options.has(dashed):
        return f"write --{dashed}" if dashed != name else f"this version is too old for --{name}: a newer one has it"
    return f"--{name}: {instead}" if (instead := options.instead(dashed)) else ""


def names(options: Iterable[Option]) -> str:
    """Options in a sentence."""
    return ", ".join(option.name for option in options)


def _within(version: str, since: str, until: str) -> bool:
    return number(since) <= number(version) and (not until or number(version) <= number(until))


@cache
def _changes(engine: str) -> dict[str, Any]:
    return _read(f"_{engine}_changes.toml")


def _read(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("rooftop.engines").joinpath(file).read_text(encoding="utf-8"))
