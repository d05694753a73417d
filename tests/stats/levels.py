"""Made-up levels with known answers."""

from collections.abc import Sequence

import numpy as np

from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.trial import CountSource, Reply, Trial
from rooftop.domain.workload import Arrivals, Slo, Workload

MS = 1_000_000


def reply(number: int, due_ms: float, chunks_ms: Sequence[float], *, tokens: Sequence[int] = (),
          output: int | None = None, end_ms: float | None = None, prompt: int | None = 10, finish: str = "length",
          error: str | None = None, source: CountSource = "usage", asked: int = 0) -> Reply:
    """A reply by its chunk stamps in milliseconds; `tokens` a chunk where the server tells them."""
    end = end_ms if end_ms is not None else max([due_ms, *chunks_ms])
    return Reply(
        number, round(due_ms * MS), round(due_ms * MS), round((chunks_ms[0] if len(chunks_ms) else end) * MS),
        round(end * MS), np.array([round(at * MS) for at in chunks_ms], dtype=np.int64).tobytes(),
        np.array(tokens, dtype=np.uint32).tobytes(), prompt_tokens=prompt, output_tokens=output, count_source=source,
        asked_output_tokens=asked, finish=finish, error=error)


def trial(replies: Sequence[Reply], users: int = 1, *, arrivals: Arrivals | None = None, slo: Slo | None = None,
          identity: str = "t", launch: str = "l") -> Trial:
    """A measured trial of these replies."""
    workload = Workload(arrivals=arrivals or Arrivals("closed", users), slo=slo or Slo())
    return Trial(identity, "measured", Plan(Model("m")), workload, "2026-01-01T00:00:00Z", replies=tuple(replies),
                 launch_id=launch)


def closed_loop(users: int, rounds: int, rng: np.random.Generator, *, tokens: int = 32, ttft_ms: float = 50.0,
                itl_ms: float = 10.0, jitter: float = 0.05, slow_start_ms: float = 0.0) -> list[Reply]:
    """`users` that each send `rounds` requests one after the other; before `slow_start_ms` all takes twice as long."""
    made = []
    for user in range(users):
        now = 0.0
        for turn in range(rounds):
            slow = 2.0 if now < slow_start_ms else 1.0
            gaps = slow * np.concatenate([[ttft_ms], np.full(tokens - 1, itl_ms)]) * rng.gamma(
                1 / jitter ** 2, jitter ** 2, tokens)
            stamps = now + np.cumsum(gaps)
            made.append(reply(user * rounds + turn, now, list(stamps), output=tokens, asked=tokens))
            now = float(stamps[-1])
    return made
