"""From the stored trials of a study to its answer: setups against levels, the best."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rooftop.domain.launch import Launch
from rooftop.domain.machine import Machine
from rooftop.domain.matrix import Best, Cell, Matrix, Question, Row
from rooftop.domain.plan import Plan
from rooftop.domain.trial import Trial
from rooftop.errors import BadInput
from rooftop.stats import compare
from rooftop.stats.intervals import across
from rooftop.stats.summary import summarise
from rooftop.store import Store
from rooftop.workflows.launch import LOGS
from rooftop.workflows.verify import NEAR_TIE, split

Groups = Mapping[tuple[str, str], Sequence[Trial]]
METRICS: dict[Question, str] = {"one user": "tokens_per_s_per_user", "throughput": "output_tokens_per_s"}


def matrix(store: Store, study: str) -> tuple[Matrix, tuple[Trial, ...]]:
    """The answer of a study and the trials that it rests on.

    Levels of one name that were asked for otherwise (a study file that was changed since) are left out, with a warning.
    Raises BadInput where the store knows no such study.
    """
    launches = tuple(store.launches(study=study))
    found = tuple(trial for trial in store.trials(study=study) if not trial.unfinished)
    trials = _latest(found)
    if not study or (not launches and not trials):
        known = ", ".join(store.studies()) or "none"
        raise BadInput(f"the store holds no study {study!r}", where=str(store.path), remedy=f"it holds: {known}")
    plans = _plans(launches, trials)
    levels = tuple(dict.fromkeys(trial.workload.level for trial in sorted(trials, key=_users)))
    logs = store.path.parent / LOGS
    rows = tuple(replace(_row(title, plan, own := [one for one in launches if one.plan.key == plan.key], launches),
                         log=str(logs / own[0].id) if own else "") for title, plan in plans.items())
    groups = {(title, level): [trial for trial in trials
                               if trial.plan.key == plan.key and trial.workload.level == level]
              for title, plan in plans.items() for level in levels}
    some = next(iter(plans.values()))
    machine = some.machine or Machine("unknown machine", "", 0, 0)
    answer = Matrix(study=study, model=some.model.name, engine=some.engine or "", machine=machine, levels=levels,
                    rows=rows, cells=tuple(_cell(title, level, group) for (title, level), group in groups.items()),
                    best=_answers(groups), load=trials[0].workload.shape if trials else "",
                    conditions=_conditions(launches, trials),
                    warnings=(*_left_out(found, trials), *_warnings(trials, rows)),
                    started_at=min(_starts(launches, trials)), took_s=_took_s(launches, trials))
    return answer, trials


def _latest(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials whose prompts, replies and stop rule are those of the last one at their level, and overall."""
    if not trials:
        return ()
    last = trials[-1].workload
    by_level = {trial.workload.level: trial.workload for trial in trials}
    return tuple(trial for trial in trials if trial.workload == by_level[trial.workload.level]
                 and replace(trial.workload, arrivals=last.arrivals, stop=last.stop, warmup=last.warmup) == last)


def _left_out(found: Sequence[Trial], kept: Sequence[Trial]) -> tuple[str, ...]:
    count = len(found) - len(kept)
    return (f"{count} older levels of this study, asked for with another load, are left out",) if count else ()


def _users(trial: Trial) -> tuple[float, float]:
    return trial.workload.arrivals.concurrency, trial.workload.arrivals.rate_per_s


def _plans(launches: Sequence[Launch], trials: Sequence[Trial]) -> dict[str, Plan]:
    """One plan a key in the order in which they were first started, under titles that differ."""
    by_key = {plan.key: plan for plan in [one.plan for one in launches] + [one.plan for one in trials]}
    titles: dict[str, Plan] = {}
    for plan in by_key.values():
        title = plan.title or str(plan.layout or "unknown layout")
        titles[title if title not in titles else f"{title} ({plan.key[:6]})"] = plan
    return titles


def _row(title: str, plan: Plan, own: Sequence[Launch], launches: Sequence[Launch]) -> Row:
    first = next((one for one in own if one.ready), own[0] if own else None)
    if first is None:
        return Row(setup=title, layout=plan.layout, settings=_settings(plan))
    reference = next((one for one in launches if one.ready and one.greedy), first)
    apart = split(reference, first)
    return Row(setup=title, layout=plan.layout, settings=_settings(plan), launches=tuple(one.id for one in own),
               commands=tuple(shlex.join(server.command) for server in first.servers), startup_s=first.startup_s,
               phases=first.phases, caches=first.caches,
               broken=tuple(claim for one in own for claim in one.claims if claim.holds is False),
               fault=first.fault, same_text=None if apart is None else apart < NEAR_TIE)


def _settings(plan: Plan) -> str:
    return ", ".join(f"{one.name} {one.value}" for one in plan.settings)


def _cell(title: str, level: str, group: Sequence[Trial]) -> Cell:
    good = [trial for trial in group if trial.valid]
    if not good:
        return Cell(title, level, valid=False, repeats=len(group), why_not=_why_not(group))
    figures = [summarise(trial) for trial in good]
    names = dict.fromkeys(one.metric for found in figures for one in found)
    merged = tuple(across([one for found in figures for one in found if one.metric == name]) for name in names)
    return Cell(title, level, merged, repeats=len(good))


def _why_not(group: Sequence[Trial]) -> str:
    for trial in group:
        if trial.fault is not None:
            return trial.fault.reason
        broken = next((claim for claim in trial.claims if claim.holds is False), None)
        if broken is not None:
            return f"asked {broken.fact} {broken.asked}, the engine says {broken.found}"
    return "not run"


def _answers(groups: Groups) -> tuple[Best, ...]:
    """Best for one user at the least load, best throughput at each setup's own best load."""
    levels = list(dict.fromkeys(level for _, level in groups))
    titles = list(dict.fromkeys(title for title, _ in groups))
    if not levels:
        return ()
    alone = dict.fromkeys(titles, levels[0])
    fullest = {title: _best_level(groups, title, levels) for title in titles}
    return tuple(answer for question, chosen in (("one user", alone), ("throughput", fullest))
                 if (answer := _answer(question, chosen, groups)) is not None)


def _best_level(groups: Groups, title: str, levels: Sequence[str]) -> str:
    own = {level: groups[title, level] for level in levels}
    return compare.best(own, METRICS["throughput"], higher_is_better=True).winner or levels[0]


def _answer(question: str, chosen: Mapping[str, str], groups: Groups) -> Best | None:
    asked: Question = "one user" if question == "one user" else "throughput"
    verdict = compare.best({title: groups[title, level] for title, level in chosen.items()}, METRICS[asked],
                           higher_is_better=True)
    if not verdict.winner:
        return None
    return Best(asked, verdict.winner, chosen[verdict.winner], verdict.value, verdict.runner_up,
                chosen.get(verdict.runner_up, ""), verdict.margin, verdict.sure, verdict.why)


def _conditions(launches: Sequence[Launch], trials: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    versions = dict.fromkeys(one.engine_version for one in launches if one.engine_version)
    around = [trial.surroundings for trial in trials if trial.surroundings]
    weights = launches[0].plan.model if launches else None
    counts = dict.fromkeys(reply.count_source for trial in trials for reply in trial.replies)
    lines = [("weights", f"{weights.path}, SHA-256 {weights.sha256 or 'not read'}" if weights else ""),
             ("engine version", ", ".join(versions) or "not told"),
             ("rooftop", ", ".join(dict.fromkeys(one.rooftop_version for one in around))),
             ("Python", ", ".join(dict.fromkeys(one.python_version for one in around)))]
    lines.append(("tokens counted by", ", ".join(counts)))
    lines.append(("trials", f"{len(trials)}, on {len(launches)} starts"))
    if around:
        lines.append(("load average before the first level", f"{around[0].load_before:.2f}"))
    return tuple((name, value) for name, value in lines if value)


def _warnings(trials: Sequence[Trial], rows: Sequence[Row]) -> tuple[str, ...]:
    notes = dict.fromkeys(note for trial in trials for note in trial.notes)
    client = dict.fromkeys(text for trial in trials if trial.client for text in trial.client.warnings)
    other = [f"{row.setup} answers the fixed prompts with another text than the first setup: check it before using it"
             for row in rows if row.same_text is False]
    return (*_failures(trials), *other, *notes, *client)


def _failures(trials: Sequence[Trial]) -> Iterator[str]:
    """A sentence for each level in which requests failed although the server went on."""
    for trial in trials:
        failed = Counter(reply.error for reply in trial.replies if reply.error not in (None, "stopped"))
        if trial.valid and failed:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in failed.items())
            yield (f"{trial.plan.title} at {trial.workload.level} users, repeat {trial.repeat + 1}: "
                   f"{failed.total()} of {len(trial.replies)} requests failed ({kinds}); its figures are of the others")


def _starts(launches: Sequence[Launch], trials: Sequence[Trial]) -> list[str]:
    return [one.started_at for one in launches] + [trial.started_at for trial in trials]


def _took_s(launches: Sequence[Launch], trials: Sequence[Trial]) -> float:
    """Seconds of measuring and starting, without the pauses of a study that was stopped and taken up again."""
    return sum(trial.measured_s for trial in trials) + sum(one.startup_s or 0.0 for one in launches)
