"""Each layout of vLLM is proven by its own words, serves, and answers with the same text."""

from pathlib import Path

import pytest

from rooftop.domain.launch import Claim
from rooftop.report import series
from rooftop.store import Store
from rooftop.workflows.audit import audit_log
from rooftop.workflows.matrix import matrix
from tests.vllm.conftest import Run

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

DEGREES = {
    "tp 1": (1, 1, 1),
    "tp 2": (2, 1, 1),
    "pp 2": (1, 2, 1),
    "dp 2": (1, 1, 2),
    "tp 2 x pp 2": (2, 2, 1),
}
titles = pytest.mark.parametrize("title", DEGREES)


def of(claims: tuple[Claim, ...], fact: str) -> Claim:
    return next(claim for claim in claims if claim.fact == fact)


@titles
def test_it_serves(title: str, run: Run) -> None:
    launch = run("layouts", title).launch
    assert launch.fault is None
    assert launch.ready
    assert launch.engine_version.startswith("0.32.0")


@titles
def test_the_layout_is_proven_by_the_engines_own_words(title: str, run: Run) -> None:
    outcome = run("layouts", title)
    for fact, degree in zip(("layout.tp", "layout.pp", "layout.dp"), DEGREES[title], strict=True):
        claim = of(outcome.launch.claims, fact)
        assert (claim.asked, claim.found, claim.holds) == (degree, degree, True)
        assert claim.proof is not None
        assert claim.proof.level == "built"
        assert claim.proof.text.strip() in outcome.log


@titles
def test_all_that_was_asked_holds_at_the_start_and_under_load(title: str, run: Run) -> None:
    outcome = run("layouts", title)
    (trial,) = outcome.trials
    for claims in (outcome.launch.claims, trial.claims):
        assert {"layout.tp", "limits.max_running", "limits.max_model_len"} <= {claim.fact for claim in claims}
        assert [claim for claim in claims if not claim.holds] == []
    assert trial.valid


@titles
def test_the_level_ran_whole_and_its_queue_was_seen(title: str, run: Run) -> None:
    (trial,) = run("layouts", title).trials
    assert len(trial.replies) == 8
    assert all(reply.ok for reply in trial.replies)
    queue = series.queue(trial)
    assert queue is not None
    assert queue.most >= 1
    (said,) = series.waited([(title, trial)])
    assert said.startswith(f"Requests waited in {title}")


@titles
def test_it_gives_the_same_text_as_one_process(title: str, run: Run) -> None:
    alone, launch = run("layouts", "tp 1").launch, run("layouts", title).launch
    assert alone.greedy
    assert all(text.strip() for text in alone.greedy)
    assert launch.greedy == alone.greedy


@titles
def test_its_log_alone_tells_the_layout(title: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(run("layouts", title).log, encoding="utf-8")
    audit = audit_log(log)
    facts = {evidence.fact: (evidence.value, evidence.level) for evidence in audit.facts}
    assert audit.engine == "vllm"
    assert audit.broken == ()
    assert [facts[f"layout.{axis}"] for axis in ("tp", "pp", "dp")] == [(n, "built") for n in DEGREES[title]]


def test_the_study_ranks_what_served_and_keeps_what_failed(store: Store, run: Run) -> None:
    for title in (*DEGREES, "pp 2, eager"):
        run("layouts", title)
    answer, _ = matrix(store, "vllm-cpu-layouts")
    rows = {row.setup: row for row in answer.rows}
    assert {title: rows[title].same_text for title in DEGREES} == dict.fromkeys(DEGREES, True)
    assert rows["pp 2, eager"].fault is not None
    assert {cell.setup for cell in answer.cells if cell.valid} == set(DEGREES)
