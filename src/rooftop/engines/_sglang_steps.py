"""SGLang's batch lines: what runs now, whether it used a graph, what the prefix cache gave (0.4 to 0.5.23)."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rooftop.engines._lines import Line, Notes

_BATCH = re.compile(r"(?P<kind>Decode|Prefill) batch(?: ?\[\d+\])?[.,] ")
_FIELD = re.compile(r"#(?P<name>[\w -]+?): (?P<value>\d+)(?=[,.\s]|$)")
_USAGE = re.compile(r"(?<!swa )(?<!gpu )(?<!cpu )(?:\bfull )?token usage: (?:full=)?(?P<share>\d+(?:\.\d+)?)")
_GRAPH = re.compile(r"(?P<device>cuda|npu|cpu|musa|xpu|hip|\w+) graph: (?P<used>True|False)")
_RATE = re.compile(r"(?P<kind>gen|input) throughput \(token/s\): (?P<rate>\d+(?:\.\d+)?)")
_ACCEPTED = re.compile(r"(?<!block )accept len: (?P<length>\d+(?:\.\d+)?)")
_SPECULATES = re.compile(r"(?<!block )accept (?:len|rate): \d")

# The dummy and warm-up batches of a start have no share in what a user's traffic shows, but no line tells them apart.


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch line: the rank and moment, and what it states; None for what it does not."""

    line: Line
    decode: bool
    running: int | None = None
    queued: int | None = None
    usage: float | None = None
    graph: bool | None = None
    rate: float | None = None
    accepted: float | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    on_gpu: bool = True
    speculates: bool = False


def read_batch(line: Line) -> Batch | None:
    """The batch that a line states; None for all other lines."""
    found = _BATCH.search(line.body)
    if not found:
        return None
    body = line.body[found.end():]
    numbers = {match["name"]: int(match["value"]) for match in _FIELD.finditer(body)}
    usage, graph, rate, accepted = (pattern.search(body) for pattern in (_USAGE, _GRAPH, _RATE, _ACCEPTED))
    return Batch(line, found["kind"] == "Decode", numbers.get("running-req"), numbers.get("queue-req"),
                 float(usage["share"]) if usage else None, graph["used"] == "True" if graph else None,
                 float(rate["rate"]) if rate else None, float(accepted["length"]) if accepted else None,
                 numbers.get("new-token"), numbers.get("cached-token"), not graph or graph["device"] != "cpu",
                 bool(_SPECULATES.search(body)))


class Steps:
    """The batches of a log: of each rank its last sample, of several ranks the largest figure."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.batches: list[Batch] = []

    def read(self, line: Line) -> bool:
        """Read one line; whether it states a batch."""
        batch = read_batch(line)
        if batch:
            self.batches.append(batch)
        return batch is not None

    def close(self) -> None:
        """Note what the batches show together."""
        decode = [batch for batch in self.batches if batch.decode]
        prefill = [batch for batch in self.batches if not batch.decode]
        self._last(decode, "live.running", lambda batch: batch.running)
        self._last(self.batches, "live.queued", lambda batch: batch.queued)
        self._last(self.batches, "live.kv_usage", lambda batch: batch.usage)
        self._last(decode, "live.gen_tok_s", lambda batch: batch.rate)
        self._last(prefill, "live.prompt_tok_s", lambda batch: batch.rate)
        self._last(decode, "spec.accept_length", lambda batch: batch.accepted)
        judged = [batch for batch in decode if batch.graph is not None]
        if judged:
            share = sum(batch.graph is True for batch in judged) / len(judged)
            self._notes.add("graphs.decode.used_share", round(share, 4), "used", judged[-1].line)
        accepted = [batch for batch in decode if batch.speculates]
        if accepted:
            self._notes.add("spec.enabled", True, "used", accepted[-1].line)
        self._note_prefixes(prefill)

    def _note_prefixes(self, prefill: list[Batch]) -> None:
        counted = [(batch.line, batch.new_tokens, batch.cached_tokens) for batch in prefill]
        told = [(line, new, cached) for line, new, cached in counted if new is not None and cached is not None]
        total = sum(new + cached for _, new, cached in told)
        if total:
            self._notes.add("prefix_cache.hit_rate", round(sum(cached for _, _, cached in told) / total, 6), "used",
                            told[-1][0])
        hit = next((line for line, _, cached in told if cached), None)
        if hit:
            self._notes.add("prefix_cache.enabled", True, "used", hit)

    def _last(self, batches: Iterable[Batch], fact: str, figure: Callable[[Batch], float | None]) -> None:
        last: dict[str, tuple[float, Line]] = defaultdict()
        for batch in batches:
            value = figure(batch)
            if value is not None:
                last[batch.line.process] = (value, batch.line)
        if last:
            value, line = max(last.values(), key=lambda item: item[0])
            self._notes.add(fact, value, "used", line)
