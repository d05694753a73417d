from dataclasses import replace

import pytest

from rooftop.report.levels import by_level
from tests.report import sample


def run(*values, broken=()):
    trial = sample.trials()[1]
    trials = [replace(trial, id=str(number), repeat=number, fault=sample.matrix().rows[3].fault
                      if number in broken else None) for number in range(len(values))]
    return by_level(trials, [[sample.figure("output_tokens_per_s", value, "tokens/s")] for value in values])


def test_repeats_of_a_level_are_pooled():
    (level,) = run(10.0, 12.0, 11.0)
    assert level.figures["output_tokens_per_s"].value == pytest.approx(11.0)
    assert level.name == "2 users"


def test_a_trial_that_failed_is_left_out_where_others_did_not():
    (level,) = run(10.0, 99.0, broken={1})
    assert level.figures["output_tokens_per_s"].value == pytest.approx(10.0)


def test_cut_off_requests_did_not_fail():
    trial = sample.trials()[0]
    replies = (replace(trial.replies[0], error="stopped"), replace(trial.replies[1], error="reset", detail="by peer"),
               trial.replies[2])
    (level,) = by_level([replace(trial, replies=replies)], [[]])
    assert level.failures == {"reset": 1}
    assert level.requests == 2
    assert level.example("reset").detail == "by peer"
    assert level.example("timeout") is None
