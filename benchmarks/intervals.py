"""Do the 90 % intervals hold the truth in 90 % of repeats?  Simulated processes with known answers.

Run: python benchmarks/intervals.py [--repeats 2000] [--seed 1] [--only NAME]
"""

import argparse
import dataclasses
import heapq
import math
import time

import numpy as np
from processes import Process, processes

from rooftop.domain.finding import Measurement
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.trial import Reply, Trial
from rooftop.domain.workload import Arrivals, Workload
from rooftop.stats import intervals
from rooftop.stats.compare import best
from rooftop.stats.intervals import across
from rooftop.stats.summary import measure, summarise, window_of

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def row(process: Process, n: int, repeats: int, rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
    """By figure: share of shown intervals that hold the truth, their median half width, share of repeats refused."""
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in ("mean", *SHARES)}
    truth = {"mean": process.mean, **{name: process.quantile(share) for name, share in SHARES.items()}}
    for _ in range(repeats):
        values, rounds = process.draw(rng, n), process.rounds
        ordered = np.sort(values)
        made = {"mean": intervals.mean(values, rounds=rounds)}
        for name, share in SHARES.items():
            made[name] = intervals.quantile(values, share, rounds=rounds, ordered=ordered)
        for name, one in made.items():
            if one.interval is not None:
                inside = one.interval.low <= truth[name] <= one.interval.high
                found[name].append((inside, (one.interval.high - one.interval.low) / 2))
    return {name: (float(np.mean([inside for inside, _ in some])) if some else math.nan,
                   float(np.median([half for _, half in some])) if some else math.nan, 1 - len(some) / repeats)
            for name, some in found.items()}


def closed_loop(kind: str, users: int, rounds: int, rng: np.random.Generator) -> Trial:
    """A level of `users` x `rounds` requests whose steps differ by chance, TTFT 50 ms, 10 ms a token.

    fixed: 32 tokens each, every reply with a speed of its own.  natural: lengths of a lognormal, too.
    together: all users in lockstep, the steps of the engine are common to them.
    """
    replies, common = [], rng.gamma(25, 1 / 25, users * rounds)
    free = [(0.0, user) for user in range(users)]
    for number in range(users * rounds):
        now, user = heapq.heappop(free)
        tokens = int(np.clip(rng.lognormal(3.2, 0.6), 2, 200)) if kind == "natural" else 32
        speed = common[number // users] if kind == "together" else common[number]
        stamps = now + speed * np.concatenate([[0.05], np.full(tokens - 1, 0.01)]).cumsum() + 1e-6 * user
        whole = (stamps * 1e9).astype(np.int64)
        replies.append(Reply(number, round(now * 1e9), round(now * 1e9), int(whole[0]), int(whole[-1]),
                             whole.tobytes(), output_tokens=tokens))
        heapq.heappush(free, (float(stamps[-1]), user))
    workload = Workload(arrivals=Arrivals("closed", users))
    return Trial("t", "simulated", Plan(Model("m")), workload, "", replies=tuple(replies))


def levels(repeats: int, seed: int) -> None:
    """Does the busy rate of a level hold the long-run rate?  It is users x mean tokens / mean time of a request."""
    many = np.clip(np.random.default_rng(0).lognormal(3.2, 0.6, 2_000_000), 2, 200).astype(int).mean()
    print(f"\nLevels, {repeats} each: output tokens/s while all slots are busy\n"
          "| requests | users | a user | hold the truth | error of the value, median | half width, median | refused | "
          "taken for ramp |\n|" + "---|" * 8)
    for kind in ("fixed", "natural", "together"):
        tokens = many if kind == "natural" else 32
        for users, rounds in ((1, 30), (8, 4), (8, 10), (8, 30), (32, 6), (32, 20)):
            rng = np.random.default_rng([seed, users, rounds])
            truth = users * tokens / (0.05 + 0.01 * (tokens - 1))
            held, errors, halves, ramps = [], [], [], []
            for _ in range(repeats):
                trial = closed_loop(kind, users, rounds, rng)
                one, window = measure(trial, "output_tokens_per_s_busy"), window_of(trial)
                ramps.append(window.ramp_s / window.whole_s)
                if one.value is not None and one.interval is not None:
                    held.append(one.interval.low <= truth <= one.interval.high)
                    errors.append(abs(one.value / truth - 1))
                    halves.append((one.interval.high - one.interval.low) / 2 / truth)
            print(f"| {kind} | {users} | {rounds} | {np.mean(held):.1%} | {np.median(errors):.1%} | "
                  f"±{np.median(halves):.1%} | {1 - len(held) / repeats:.0%} | {np.mean(ramps):.1%} |", flush=True)


def claims(repeats: int, seed: int) -> None:
    """How often is a winner called sure among setups that are equal, and among two that differ by three spreads?"""
    print(f"\nClaims, {repeats} each; repeats of one setup spread by 2 %\n"
          "| setups | repeats | across: hold the truth | sure though all are equal | sure where one is 6 % better |\n|"
          + "---|" * 5)
    rng = np.random.default_rng([seed, 7])
    for setups, count in ((2, 2), (2, 3), (2, 5), (6, 2), (6, 3), (6, 5)):
        wrong = right = held = 0
        for _ in range(repeats):
            values = rng.normal(100.0, 2.0, (setups, count))
            equal = {str(name): [reported(value) for value in row] for name, row in enumerate(values)}
            one = across([trial.reported[0] for trial in equal["0"]]).interval
            held += one is not None and one.low <= 100.0 <= one.high
            wrong += best(equal, "output_tokens_per_s", higher_is_better=True).sure
            equal["0"] = [reported(value + 6.0) for value in values[0]]
            found = best(equal, "output_tokens_per_s", higher_is_better=True)
            right += found.sure and found.winner == "0"
        print(f"| {setups} | {count} | {held / repeats:.1%} | {wrong / repeats:.1%} | {right / repeats:.1%} |",
              flush=True)


def reported(value: float) -> Trial:
    """A trial that says its own throughput."""
    figure = Measurement("output_tokens_per_s", "tokens/s", float(value))
    return Trial("t", "imported", Plan(Model("m")), Workload(), "", reported=(figure,))


def cost() -> None:
    trial = closed_loop("fixed", 64, 8000 // 64, np.random.default_rng(1))
    million = dataclasses.replace(trial, replies=tuple(
        dataclasses.replace(one, output_tokens=128, chunk_ns=np.linspace(one.due_ns + 1e7, one.end_ns, 128)
                            .astype(np.int64).tobytes()) for one in trial.replies))
    begin = time.perf_counter()
    summarise(million)
    print(f"\nSummary of {len(million.replies) * 127:,} ITLs: {time.perf_counter() - begin:.2f} s")


def main() -> None:
    options = argparse.ArgumentParser(description="Coverage and width of the intervals of rooftop.stats")
    options.add_argument("--repeats", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="only the processes whose name holds this, and nothing else")
    given = options.parse_args()
    coverage(given.repeats, given.seed, given.only)
    if given.only:
        return
    levels(max(1, given.repeats // 5), given.seed)
    claims(given.repeats, given.seed)
    cost()


def coverage(repeats: int, seed: int, only: str) -> None:
    print(f"Processes, {repeats} repeats each; per figure: per cent of the 90 % intervals that hold the truth, "
          "median half width, per cent refused\n| process | n | "
          + " | ".join(("mean", *SHARES)) + " |\n|" + "---|" * 6)
    for number, process in enumerate(processes()):
        for n in process.sizes if only in process.name else ():
            found = row(process, n, repeats, np.random.default_rng([seed, number, n]))
            cells = [f"{held:.1%} ±{half:.3g}" + (f" ({refused:.0%} refused)" if refused > 0.005 else "")
                     if refused < 0.98 else "refused" for held, half, refused in found.values()]
            print(f"| {process.name} | {n} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
