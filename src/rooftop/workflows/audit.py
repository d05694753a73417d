"""Hold a log or a running server against what was asked of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rooftop import registry
from rooftop.domain import codec
from rooftop.domain.engine import Engine
from rooftop.domain.launch import Claim, Evidence, Fact, Fault
from rooftop.domain.plan import Plan
from rooftop.domain.vocabulary import strongest
from rooftop.errors import BadInput, RooftopError, ServerUnreachable
from rooftop.load.http import fetch
from rooftop.workflows.verify import check

PAGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Audit:
    """What an engine said of itself, and what follows for what was asked.

    `facts` has one piece of evidence a fact, of the highest level; `fault` is what stopped the engine or holds it
    back; `claims` are of the plan, or where there was none, of what the engine itself says it was asked.
    """

    engine: str
    source: str
    facts: tuple[Evidence, ...]
    claims: tuple[Claim, ...]
    fault: Fault | None

    @property
    def broken(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.holds is False)


def audit_log(path: Path, *, engine: str = "", plan: Plan | None = None) -> Audit:
    """What the log in a file proves.

    The engine is the one that is named, or that the plan names, or whose witness finds the most in the log.
    Raises BadInput where the file cannot be read, or the engine finds nothing of its own in it.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise BadInput(f"the log cannot be read: {error.strerror}", where=str(path)) from error
    found = {one.name: (one, one.witness.read_log(lines)) for one in _engines(engine or (plan and plan.engine) or "")}
    text = "\n".join(lines).lower()
    name = _fullest({key: (len(strongest(evidence)) + _known(one, lines), text.count(key.removesuffix("cpp")))
                     for key, (one, evidence) in found.items()}, str(path),
                    "give the engine's own log, from its start")
    chosen, evidence = found[name]
    return _audit(chosen, str(path), evidence, chosen.witness.fault(lines, None), plan)


def audit_server(url: str, *, engine: str = "", plan: Plan | None = None) -> Audit:
    """What the pages of a running server prove.

    Raises ServerUnreachable where nothing answers, BadInput where no engine finds anything in its pages.
    """
    base = url.rstrip("/").removesuffix("/v1")
    engines = {one.name: one for one in _engines(engine or (plan and plan.engine) or "")}
    fetch(base + "/v1/models", timeout_s=PAGE_S)
    found = {name: tuple(_read_pages(one, base)) for name, one in engines.items()}
    name = _fullest({key: (len(strongest(evidence)), 0) for key, evidence in found.items()}, base,
                    "give the URL of the engine itself, not of a proxy")
    return _audit(engines[name], base, found[name], None, plan)


def read_plan(path: Path) -> Plan:
    """A plan in TOML or JSON.  Raises BadInput that names the path inside the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the plan cannot be read: {error}", where=str(path)) from error
    read = codec.from_json if path.suffix == ".json" else codec.from_toml
    return read(Plan, text, where=str(path))


def _engines(name: str) -> Iterator[Engine]:
    for one in (name,) if name else registry.names("engines"):
        engine: Engine = registry.load("engines", one)  # type: ignore[assignment]  # its last line is the check
        yield engine


def _known(engine: Engine, lines: Sequence[str]) -> int:
    """1 where the engine's fault, or a phase of its start, is in the log."""
    return int(engine.witness.fault(lines, None) is not None or any(map(engine.phase, lines)))


def _fullest(counts: dict[str, tuple[int, int]], where: str, remedy: str) -> str:
    """The engine with the most facts (a known fault counts as one); of equals, the one that is named most often.

    Raises BadInput where none has any, also where it is the only one that was asked for.
    """
    best = max(counts, key=lambda name: counts[name])
    if not counts[best][0]:
        what = f"nothing here is of {best}" if len(counts) == 1 else "no engine that rooftop knows says anything here"
        engines = ", ".join(registry.names("engines"))
        raise BadInput(what, where=where, remedy=f"{remedy}; --engine is one of: {engines}")
    return best


def _read_pages(engine: Engine, base: str) -> Iterator[Evidence]:
    for page in dict.fromkeys((*engine.pages.info, engine.pages.version)):
        if not page:
            continue
        try:
            answer = fetch(base + page, timeout_s=PAGE_S)
        except ServerUnreachable:
            raise
        except RooftopError:
            continue
        if answer.status == 200:
            yield from engine.witness.read_info(page, answer.text)


def _audit(engine: Engine, source: str, evidence: tuple[Evidence, ...], fault: Fault | None,
           plan: Plan | None) -> Audit:
    best = strongest(evidence)
    asks = engine.asks(plan) if plan is not None else _asked(evidence)
    return Audit(engine.name, source, tuple(best[name] for name in sorted(best)), check(asks, evidence), fault)


def _asked(evidence: Sequence[Evidence]) -> tuple[tuple[str, Fact], ...]:
    """What the engine itself says was asked of it: the last of each fact."""
    return tuple({one.fact: one.value for one in evidence if one.level == "asked"}.items())
