from dataclasses import replace

import pytest

from rooftop.domain.trial import Sample
from rooftop.report import series
from tests.report import sample


def trial(*samples, seconds=10.0):
    return replace(sample.trials()[3], samples=tuple(Sample(*one) for one in samples), measured_s=seconds)


def test_servers_add_up_from_when_all_have_spoken():
    one = trial((0.0, "running", 1.0, 0), (0.1, "running", 2.0, 1), (0.5, "running", 3.0, 0), (0.5, "running", 4.0, 1))
    assert series.steps(one, "running") == ((0.1, 3.0), (0.5, 7.0))


def test_shares_are_averaged_over_servers():
    one = trial((0.0, "kv_usage", 0.2, 0), (0.0, "kv_usage", 0.6, 1))
    assert series.steps(one, "kv_usage", mean=True) == ((0.0, pytest.approx(0.4)),)


@pytest.mark.parametrize(("samples", "most", "share"), [
    (((0, "waiting", 0), (5, "waiting", 3), (7.5, "waiting", 0)), 3, 0.25),
    (((0, "waiting", 0), (5, "waiting", 0)), 0, 0.0), (((0, "waiting", 2),), 2, 1.0)])
def test_queue_is_weighed_by_time(samples, most, share):
    seen = series.queue(trial(*samples))
    assert (seen.most, seen.share) == (most, pytest.approx(share))


def test_no_samples_is_unknown_not_empty():
    assert series.queue(trial()) is None
    assert series.panel(trial()) is None


def test_the_worst_level_of_a_setup_is_told():
    named = [(sample.ONE, one) for one in sample.trials(sample.ONE)] + [("quiet", trial((0, "waiting", 0)))]
    told = series.waited(named)
    assert len(told) == 1
    assert told[0].startswith("Requests waited in one slot: at 8 users up to 7 stood")
