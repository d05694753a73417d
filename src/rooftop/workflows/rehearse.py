"""What a study would do: its commands and its estimated time, nothing started."""

from dataclasses import dataclass

from rooftop.domain.engine import Command, Engine, Seat
from rooftop.domain.launch import Fault
from rooftop.domain.plan import Plan
from rooftop.domain.study import Study
from rooftop.domain.workload import Workload
from rooftop.hardware.local import this_machine
from rooftop.store import Store
from rooftop.workflows.ask import refusals
from rooftop.workflows.program import replicas, resolve
from rooftop.workflows.steps import check_files, launcher_of, plans, remaining, rounds, steps, workloads

START_S = 10.0
TOKEN_S = 0.02
FIRST_TOKEN_S = 0.3
EXAMPLE_PORT = 8000


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a study would do: for each setup its title, commands (one a server) or the reason that refuses it.

    `levels` counts the load levels of all starts; `estimate_s` is None where nothing is known; `basis` says what
    the estimate rests on.
    """

    setups: tuple[tuple[str, tuple[str, ...]], ...]
    levels: int
    starts: int
    estimate_s: float | None
    basis: str


def rehearse(study: Study, engine: Engine, store: Store | None) -> Rehearsal:
    """The commands and the estimated time of what remains of a study, without starting anything.

    The estimate takes the mean time of the levels and starts that the store has, else an assumption that `basis` names.
    """
    all_plans = plans(study, this_machine())
    check_files(study)
    if store is None:
        todo = {(number, plan.key): steps(study, plan, number) for number, plan in rounds(study, all_plans)}
    else:
        todo = remaining(study, all_plans, store)
    levels = sum(map(len, todo.values()))
    starts = sum(bool(one) for one in todo.values())
    seen = [trial.measured_s for trial in store.trial_heads(study=study.name) if not trial.unfinished] if store else []
    began = [one.startup_s for one in store.launches(study=study.name) if one.startup_s is not None] if store else []
    if seen and began:
        seconds = levels * sum(seen) / len(seen) + starts * sum(began) / len(began)
        basis = f"levels and starts as long as the {len(seen)} and {len(began)} measured so far; no interval"
    else:
        seconds = starts * START_S + sum(map(_level_s, workloads(study))) * levels / max(1, len(workloads(study)))
        basis = (f"nothing measured yet: assumed {START_S:.0f} s a start, {FIRST_TOKEN_S} s to a first token and "
                 f"{TOKEN_S} s a token at every load; no interval")
    refused = refusals(all_plans, engine) if study.ask_parser else {}
    setups = tuple((plan.title, _commands(plan, engine, refused.get(plan.key))) for plan in all_plans)
    return Rehearsal(setups, levels, starts, seconds, basis)


def _level_s(workload: Workload) -> float:
    reply_s = FIRST_TOKEN_S + TOKEN_S * workload.output_tokens
    users = workload.arrivals.concurrency
    if workload.stop.requests is not None:
        return reply_s * (workload.stop.requests + workload.warmup) / users
    return (workload.stop.seconds or 0.0) + reply_s


def _commands(plan: Plan, engine: Engine, refused: Fault | None) -> tuple[str, ...]:
    """One line a server, or what refuses the plan; ports are examples, free ones are taken at the start."""
    if refused is not None:
        return (f"refused ({refused.kind}): {refused.reason}; {refused.remedy}",)
    refusal = engine.refuses(plan)
    if refusal is not None:
        return (f"refused ({refusal.rule}): {refusal.reason}",)
    launcher = launcher_of(plan)
    program = resolve(plan, engine, here=launcher.here)
    lines = []
    for one in replicas(plan, engine):
        seat = Seat(program, EXAMPLE_PORT + one.number, replica=one.number, cores=one.cores)
        command = engine.command(one.plan, seat)
        lines.append(launcher.line(Command(command.argv, (*one.environment, *command.environment)), seat))
    return tuple(lines)
