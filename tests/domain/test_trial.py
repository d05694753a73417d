from array import array
from dataclasses import replace

import pytest

from rooftop.domain.launch import Claim, Fault, Launch
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.domain.trial import Reply, Trial
from rooftop.domain.workload import Arrivals, Workload

PLAN = Plan(Model("m"))
TRIAL = Trial("t", "measured", PLAN, Workload(), "2026-01-01T00:00:00Z")


def claim(holds: bool | None) -> Claim:
    return Claim("layout.tp", 2, None if holds is None else 2 if holds else 1, holds)


@pytest.mark.parametrize(("trial", "valid"), [
    (TRIAL, True),
    (replace(TRIAL, claims=(claim(True), claim(None))), True),
    (replace(TRIAL, claims=(claim(True), claim(False))), False),
    (replace(TRIAL, fault=Fault("unknown", "died")), False),
])
def test_valid_means_no_fault_and_no_broken_claim(trial: Trial, valid: bool) -> None:
    assert trial.valid is valid


@pytest.mark.parametrize(("startup_s", "fault", "ready"), [
    (1.0, None, True), (None, None, False), (1.0, Fault("unknown", "no token"), False)])
def test_ready_means_a_token_and_no_fault(startup_s: float | None, fault: Fault | None, ready: bool) -> None:
    assert Launch("l", PLAN, (), "", startup_s=startup_s, fault=fault).ready is ready


def test_a_reply_unpacks_its_stamps() -> None:
    reply = Reply(0, 0, 0, 0, 9, chunk_ns=array("q", [1, 2**62]).tobytes(),
                  chunk_tokens=array("I", [5, 2**32 - 1]).tobytes())
    assert list(reply.times_ns()) == [1, 2**62]
    assert list(reply.tokens_per_chunk()) == [5, 2**32 - 1]
    assert reply.ok
    assert not replace(reply, error="cut").ok
    assert list(Reply(0, 0, 0, 0, 0).times_ns()) == []


@pytest.mark.parametrize(("arrivals", "level"), [
    (Arrivals(concurrency=8), "8"), (Arrivals("poisson", rate_per_s=2.5), "2.5/s"),
    (Arrivals("constant", rate_per_s=4), "4/s")])
def test_a_level_is_named_by_its_users_or_its_rate(arrivals: Arrivals, level: str) -> None:
    assert Workload(arrivals).level == level
