"""Trials and launches to store, of any size."""

from array import array
from dataclasses import replace

from rooftop.domain.launch import Launch, Server
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.trial import Reply, Sample, Trial
from rooftop.domain.workload import Arrivals, Workload

PLAN = Plan(Model("m"), engine="llamacpp")


def reply(number: int, tokens: int = 40) -> Reply:
    stamps = array("q", (number * 1000 + i for i in range(tokens)))
    return Reply(number, number, number + 1, number + 2, number + 9, chunk_ns=stamps.tobytes(),
                 chunk_tokens=array("I", [1] * tokens).tobytes(), output_tokens=tokens, text="word " * tokens)


def trial(name: str = "t", replies: int = 3, study: str = "s", **other: object) -> Trial:
    samples = tuple(Sample(i / 2, series, float(i), i % 2) for i in range(4) for series in ("running", "waiting"))
    return replace(Trial(name, "measured", PLAN, Workload(Arrivals(concurrency=8)), "2026-01-01T00:00:00Z", study=study,
                         replies=tuple(map(reply, range(replies))), samples=samples), **other)  # type: ignore[arg-type]


def launch(name: str = "l", study: str = "s", started_at: str = "2026-01-01T00:00:00Z") -> Launch:
    return Launch(name, PLAN, (Server(0, ("llama-server", "-m", "m.gguf"), (), "http://127.0.0.1:1"),), started_at,
                  study=study)
