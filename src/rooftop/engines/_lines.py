"""Log lines as engines read them: shapes that say facts, and the notes kept of them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rooftop.domain.launch import Evidence, Fact, Level
from rooftop.domain.vocabulary import state

Convert = Callable[[str], Fact | None]

# One fact said by several ranks or samples: which of the figures counts.  All other facts keep every distinct value,
# so that a contradiction stays visible.
_LARGEST = frozenset((
    "kv.tokens", "kv.gib_per_gpu", "kv.full_requests", "graphs.memory_gib", "memory.weights_gib",
    "memory.kv_needed_gib", "startup.load_s", "startup.compile_s", "startup.graphs_s", "startup.draft_graphs_s",
    "startup.total_s", "nccl.channels", "error.gpu"))
_SMALLEST = frozenset(("memory.free_gib", "memory.kv_budget_gib", "limits.fitting_tokens"))
_LAST = frozenset((
    "live.running", "live.queued", "live.kv_usage", "live.gen_tok_s", "live.prompt_tok_s", "prefix_cache.hit_rate",
    "spec.accept_length", "graphs.decode.used_share"))

PROOF_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Line:
    """A log line: its number from 1, its text, its message without prefixes, the processes and source file it names.

    `at_s` is its clock time in seconds within the year where it bears one.
    """

    number: int
    text: str
    body: str
    process: str = ""
    source: str = ""
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """What a shape says: the fact, how far it is proven, and how `group` of the match becomes its value."""

    fact: str
    level: Level
    group: str | int
    convert: Convert


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern of a line and all that it says; `supersedes`: it corrects what the engine said at that level before."""

    pattern: re.Pattern[str]
    says: tuple[Say, ...]
    supersedes: bool = False


def shape(pattern: str, *says: Say, supersedes: bool = False) -> Shape:
    """A shape from the text of its pattern."""
    return Shape(re.compile(pattern), says, supersedes)


class Notes:
    """Facts as they are found in one source; `evidence` settles which figure of several counts."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: dict[tuple[str, Level], list[Evidence]] = {}

    def add(self, fact: str, value: Fact | None, level: Level, line: Line, *, supersedes: bool = False) -> None:
        """Note a fact; None is no fact.  Raises ValueError for what is not in the vocabulary."""
        if value is None:
            return
        said = state(fact, value, level, self._source, line.number, line.text.strip()[:PROOF_LENGTH])
        kept = self._kept.setdefault((fact, level), [])
        if supersedes:
            kept.clear()
        if fact in _LARGEST or fact in _SMALLEST or fact in _LAST:
            if not kept or _wins(fact, said, kept[0]):
                kept[:] = [said]
        elif all(known.value != said.value for known in kept):
            kept.append(said)

    def read(self, line: Line, shapes: Iterable[Shape]) -> None:
        """Note all that the shapes find in one line."""
        for known in shapes:
            match = known.pattern.search(line.body)
            if match:
                for say in known.says:
                    found = match.group(say.group)
                    if found is not None:
                        self.add(say.fact, say.convert(found), say.level, line, supersedes=known.supersedes)

    def take(self, page: "Notes", lines: Sequence[Line]) -> None:
        """Note all that was noted of a page that stands in these lines: its first line is the first of them."""
        for said in page.evidence():
            self.add(said.fact, said.value, said.level, lines[max(said.line - 1, 0)])

    def values(self, fact: str, level: Level) -> list[Fact]:
        """The values noted so far for one fact at one level, in order."""
        return [said.value for said in self._kept.get((fact, level), [])]

    def evidence(self) -> tuple[Evidence, ...]:
        """All that was noted, in the order of the lines."""
        return tuple(sorted((said for kept in self._kept.values() for said in kept), key=lambda said: said.line))


def _wins(fact: str, said: Evidence, known: Evidence) -> bool:
    if fact in _LAST:
        return True
    return float(said.value) > float(known.value) if fact in _LARGEST else float(said.value) < float(known.value)


def whole(text: str) -> int | None:
    """A whole number with or without thousands marks; None for anything else."""
    plain = text.strip().strip("'\"").replace(",", "")
    return int(plain) if re.fullmatch(r"-?\d+", plain) else None


def number(text: str) -> float | None:
    """A decimal number with or without thousands marks; None for anything else."""
    plain = text.strip().strip("'\"").replace(",", "")
    return float(plain) if re.fullmatch(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", plain) else None


def per_cent(text: str) -> float | None:
    """Per cent as a share of one."""
    value = number(text)
    return None if value is None else round(value / 100, 6)


def word(text: str) -> str:
    """An engine's own word, lower case, blanks as underscores."""
    return re.sub(r"\s+", "_", text.strip().strip("'\"`").lower())


def size_bytes(text: str) -> float | None:
    """A size such as `2.00 GiB` in bytes (GB and MB count as binary units, as PyTorch prints them)."""
    match = re.fullmatch(r"([\d.,]+)\s*([KMGT]?)i?[Bb](?:ytes)?", text.strip())
    if not match:
        return None
    value = number(match.group(1))
    return None if value is None else value * 1024 ** "_KMGT".index(match.group(2) or "_")


def constant(value: Fact) -> Convert:
    """A converter that says one value whatever it reads."""
    return lambda _: value


def groups(pattern: str, lines: Sequence[Line]) -> list[tuple[Line, re.Match[str]]]:
    """All matches of one pattern, with their lines."""
    compiled = re.compile(pattern)
    return [(line, match) for line in lines for match in compiled.finditer(line.body)]


def by_signal(signal: int, *, ready: bool) -> tuple[str, str, str]:
    """Error kind, reason and remedy of an engine that a signal ended; `ready`: it had said that it can serve."""
    if signal == 11:
        kind = "segfault_first_token" if ready else "worker_died"
        return kind, "ended by signal 11 (segmentation fault)", "use another layout or backend"
    hint = ": most often the host ran out of memory" if signal == 9 else ""
    return "worker_died", f"ended by signal {signal}{hint}", "start it again with less memory"
