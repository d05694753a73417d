"""The answer of a study from its stored trials."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.launch import Claim, Evidence, Fault, Launch, Phase
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.trial import Reply, Trial
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import BadInput
from rooftop.store import Store
from rooftop.workflows.matrix import matrix
from tests import stored

MS = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def plan(title: str, slots: int = 1) -> Plan:
    return Plan(Model("m", "m.gguf", sha256="f00"), "llamacpp", Layout(), (Setting("parallel", slots),), title=title)


def reply(number: int, users: int, gap_ms: float) -> Reply:
    """Ten tokens with `gap_ms` between them; the users' requests follow each other without a pause."""
    start = round(number // users * 10 * gap_ms * MS)
    stamps = array("q", [start + round((token + 1) * gap_ms * MS) for token in range(10)])
    return Reply(number, start, start, start + 1, stamps[-1], stamps.tobytes(), array("I", [1] * 10).tobytes(), 8, 10,
                 count_source="usage", asked_output_tokens=10, finish="length")


def add(store: Store, of: Plan, users: int, gaps_ms: Sequence[float], **other: object) -> list[Trial]:
    """A trial a gap: its repeats."""
    load = Workload(Arrivals(concurrency=users), 8, 10, stop=Stop(requests=8 * users), warmup=users)
    made = []
    for repeat, gap in enumerate(gaps_ms):
        replies = tuple(reply(number, users, gap) for number in range(8 * users))
        trial = Trial(f"{of.title}-{users}-{repeat}-{gap}", "measured", of, load, f"2026-01-01T00:00:0{repeat}Z",
                      launch_id=f"launch-{of.title}", study="s", repeat=repeat, replies=replies,
                      measured_s=replies[-1].end_ns * 1e-9)
        made.append(replace(trial, **other))  # type: ignore[arg-type]
        store.add_trial(made[-1])
    return made


def start(store: Store, of: Plan, name: str = "", **other: object) -> Launch:
    made = replace(stored.launch(name or f"launch-{of.title}"), plan=of, startup_s=2.0,
                   phases=(Phase("load", 0.0, 2.0),), engine_version="v7", greedy=("Paris",), caches="warm", **other)
    store.add_launch(made)
    return made


def test_the_fastest_is_named_where_the_spread_allows_it(store: Store) -> None:
    fast, slow = plan("fast", 1), plan("slow", 2)
    for one, gap in ((slow, 20.0), (fast, 10.0)):
        start(store, one)
        add(store, one, 1, [gap, gap * 1.01, gap * 0.99])
        add(store, one, 4, [gap * 2, gap * 2.02, gap * 1.98])
    answer, trials = matrix(store, "s")
    assert len(trials) == 12
    assert answer.levels == ("1", "4")
    assert [row.setup for row in answer.rows] == ["slow", "fast"]
    assert len(answer.cells) == 4
    assert all(cell.valid and cell.repeats == 3 for cell in answer.cells)
    one, most = answer.answer("one user"), answer.answer("throughput")
    assert one is not None
    assert (one.winner, one.level, one.runner_up, one.sure) == ("fast", "1", "slow", True)
    assert one.value.value == pytest.approx(100, rel=0.02)
    assert one.margin is not None
    assert one.margin.value == pytest.approx(2, rel=0.02)
    assert most is not None
    assert (most.winner, most.level, most.runner_up_level, most.sure) == ("fast", "4", "4", True)
    assert most.value.value == pytest.approx(4 * 50, rel=0.05)
    assert answer.load == trials[0].workload.shape
    assert dict(answer.conditions) | {"engine version": "v7", "trials": "12, on 2 starts"} == dict(answer.conditions)
    assert answer.took_s == pytest.approx(sum(trial.measured_s for trial in trials) + 4.0)


def test_no_winner_where_the_spread_does_not_allow_it(store: Store) -> None:
    for title, slots, gaps in (("a", 1, [10.0, 14.0, 12.0]), ("b", 2, [11.0, 15.0, 13.0])):
        add(store, plan(title, slots), 1, gaps)
    answer, _ = matrix(store, "s")
    best = answer.answer("one user")
    assert best is not None
    assert not best.sure
    assert "does not allow" in best.why


def test_what_is_not_valid_is_neither_shown_nor_ranked(store: Store) -> None:
    good, died, liar, absent = plan("good", 1), plan("died", 2), plan("liar", 3), plan("absent", 4)
    proof = Evidence("limits.max_running", 1, "used", "log", 7, "n_slots = 1")
    broken = Claim("limits.max_running", 3, 1, False, proof)
    for one, claims in ((good, ()), (died, ()), (liar, (broken,))):
        start(store, one, claims=claims)
    start(store, absent, fault=Fault("oom_kv", "no memory", "less context"))
    add(store, good, 1, [30.0, 31.0])
    add(store, died, 1, [1.0, 1.0], fault=Fault("unknown", "GGML_ASSERT"))
    add(store, liar, 1, [1.0, 1.0], claims=(broken,))
    add(store, liar, 4, [1.0], fault=Fault("stopped", "Ctrl-C"))
    answer, trials = matrix(store, "s")
    assert len(trials) == 6
    assert answer.levels == ("1",)
    told = {row.setup: cell.why_not for row in answer.rows if (cell := answer.cell(row.setup, "1")) is not None}
    assert told == {"good": "", "died": "GGML_ASSERT", "absent": "not run",
                    "liar": "asked limits.max_running 3, the engine says 1"}
    assert {best.winner for best in answer.best} == {"good"}
    rows = {row.setup: row for row in answer.rows}
    assert rows["liar"].broken == (broken,)
    assert rows["absent"].fault == Fault("oom_kv", "no memory", "less context")
    assert rows["absent"].log.endswith("rooftop-logs/launch-absent")


def test_one_valid_repeat_of_two_is_shown_alone(store: Store) -> None:
    add(store, plan("a"), 1, [10.0])
    add(store, plan("a"), 1, [99.0], fault=Fault("unknown", "died"), id="x")
    answer, _ = matrix(store, "s")
    cell = answer.cell("a", "1")
    assert cell is not None
    assert (cell.valid, cell.repeats) == (True, 1)
    figure = cell.figure("tpot_p50")
    assert figure is not None
    assert figure.value == pytest.approx(0.01)


def test_levels_of_an_older_load_are_left_out(store: Store) -> None:
    old = add(store, plan("a"), 1, [10.0, 10.0])
    other = replace(old[0].workload, output_tokens=99)
    add(store, plan("a"), 4, [10.0], workload=replace(other, arrivals=Arrivals(concurrency=4)))
    new = add(store, plan("a"), 1, [20.0], workload=other, id="new")
    answer, trials = matrix(store, "s")
    assert [trial.id for trial in trials] == ["a-4-0-10.0", "new"]
    assert answer.levels == ("1", "4")
    assert answer.load == new[0].workload.shape or "99" in answer.load
    cell = answer.cell("a", "1")
    assert cell is not None
    assert cell.repeats == 1
    assert answer.warnings[0] == "2 older levels of this study, asked for with another load, are left out"


def test_a_start_that_succeeded_is_the_one_shown(store: Store) -> None:
    of = plan("a")
    start(store, of, "first", fault=Fault("oom_kv", "no memory"))
    start(store, of, "second")
    (row,) = matrix(store, "s")[0].rows
    assert (row.fault, row.startup_s, row.launches) == (None, 2.0, ("first", "second"))


def test_a_setup_that_answers_otherwise_is_told(store: Store) -> None:
    start(store, plan("a", 1))
    store.add_launch(replace(stored.launch("b"), plan=plan("b", 2), startup_s=1.0, greedy=("Rome",)))
    answer, _ = matrix(store, "s")
    assert [row.same_text for row in answer.rows] == [True, False]
    assert any("b answers the fixed prompts with another text" in text for text in answer.warnings)


def test_titles_that_two_plans_share(store: Store) -> None:
    for slots in (1, 2):
        start(store, plan("same", slots), str(slots))
    titles = [row.setup for row in matrix(store, "s")[0].rows]
    assert titles == ["same", f"same ({plan('same', 2).key[:6]})"]


@pytest.mark.parametrize("name", ["", "none"])
def test_a_study_that_is_not_here(store: Store, name: str) -> None:
    add(store, plan("a"), 1, [10.0], study="")
    add(store, plan("a"), 1, [10.0], study="known", id="x")
    with pytest.raises(BadInput, match="no study") as wrong:
        matrix(store, name)
    assert wrong.value.remedy == "it holds: known"
