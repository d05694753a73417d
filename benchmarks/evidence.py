"""Scores what engines read from logs against an index of expected facts: `evidence.py INDEX [-v]`.

INDEX is a CSV file beside its logs with the columns file, engine, facts_expected (JSON: fact -> value, level),
unproven (JSON: facts that must not be reported as built or used), error_kind and error_also (JSON: kinds that count as
right too, `none` for no cause).  Exit code 0 where nothing is wrong, missed or falsely proven and every cause is right.
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rooftop import registry
from rooftop.domain.engine import Engine
from rooftop.domain.vocabulary import same, strongest
from rooftop.errors import BadInput


@dataclass(slots=True)
class Score:
    """Counts over the logs of one engine; `misses` says each in words."""

    engine: str
    logs: int = 0
    right: int = 0
    wrong: int = 0
    missed: int = 0
    false: int = 0
    extra: int = 0
    causes_right: int = 0
    causes_wrong: int = 0
    misses: list[str] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """Facts that the index expects."""
        return self.right + self.wrong + self.missed

    @property
    def share(self) -> float:
        """Share of the expected facts that are right, 1 where none is expected."""
        return self.right / self.expected if self.expected else 1.0

    @property
    def clean(self) -> bool:
        """Nothing wrong, missed or falsely proven, and every cause right."""
        return not (self.wrong or self.missed or self.false) and self.causes_right == self.logs


def score(index: Path) -> tuple[Score, ...]:
    """One score for each engine of the index that rooftop knows."""
    scores: dict[str, Score] = {}
    with index.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        name = row["engine"]
        try:
            engine = cast(Engine, registry.load("engines", name))
        except BadInput:
            continue
        tally = scores.setdefault(name, Score(name))
        lines = (index.parent / row["file"]).read_text(encoding="utf-8", errors="replace").splitlines()
        tally.logs += 1
        for kind, words in judge(engine, lines, row):
            setattr(tally, kind, getattr(tally, kind) + 1)
            if words:
                tally.misses.append(f"{row['file']}: {words}")
    return tuple(scores[name] for name in sorted(scores))


def judge(engine: Engine, lines: list[str], row: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(which count, what to say) of one log; nothing to say where it is right."""
    expected = json.loads(row["facts_expected"] or "{}")
    unproven = set(json.loads(row["unproven"] or "[]"))
    found = strongest(engine.witness.read_log(lines))
    for fact, wanted in expected.items():
        said = found.get(fact)
        if said is None:
            yield "missed", f"missed {fact} = {wanted['value']} ({wanted['level']})"
        elif same(fact, said.value, wanted["value"]) and said.level == wanted["level"]:
            yield "right", ""
        else:
            yield "wrong", f"wrong {fact}: {said.value} ({said.level}), not {wanted['value']} ({wanted['level']})"
    for fact, said in found.items():
        proven = said.level in ("built", "used")
        low = fact in expected and expected[fact]["level"] in ("asked", "resolved")
        if proven and (fact in unproven or low):
            yield "false", f"falsely proven {fact} = {said.value} ({said.level}) by {said.text!r}"
        elif fact not in expected:
            yield "extra", f"extra {fact} = {said.value} ({said.level})"
    fault = engine.witness.fault(lines, None)
    kind = fault.kind if fault else ""
    also = {"" if other == "none" else other for other in json.loads(row["error_also"] or "[]")}
    if kind == row["error_kind"] or kind in also:
        yield "causes_right", ""
    else:
        yield "causes_wrong", f"cause {kind or 'none'}, not {row['error_kind'] or 'none'}"


def main() -> int:
    """Print one line an engine, and each miss with -v."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="each miss, and the facts nobody asked for")
    options = parser.parse_args()
    begun = time.perf_counter()
    scores = score(options.index)
    for tally in scores:
        print(f"{tally.engine}: {tally.logs} logs, {tally.right} facts right ({tally.share:.1%}), {tally.wrong} wrong, "
              f"{tally.missed} missed, {tally.false} falsely proven, {tally.extra} extra; "
              f"{tally.causes_right} of {tally.logs} causes right")
        for miss in tally.misses if options.verbose else ():
            print(f"  {miss}")
    right, expected = sum(tally.right for tally in scores), sum(tally.expected for tally in scores)
    print(f"{right} of {expected} facts in {time.perf_counter() - begun:.1f} s")
    return 0 if all(tally.clean for tally in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
