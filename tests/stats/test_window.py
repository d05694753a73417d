"""Ramp, steady window and tail on levels whose answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.workload import Arrivals
from rooftop.stats.columns import columns
from rooftop.stats.window import find_window, in_flight, settled_after

from .levels import closed_loop, reply, trial


def test_streams_in_flight_are_counted_from_due_to_end() -> None:
    level = columns([reply(0, 0, [5, 10]), reply(1, 5, [8, 20]), reply(2, 10, [12, 15])])
    moments, streams = in_flight(level)
    assert moments * 1e3 == pytest.approx([0, 5, 10, 15, 20])
    assert streams.tolist() == [1, 2, 2, 1, 0]


def test_the_window_is_where_every_slot_is_busy() -> None:
    replies = [reply(0, 0, [10, 100]), reply(1, 20, [30, 110]), reply(2, 100, [110, 190]), reply(3, 110, [120, 250])]
    window = find_window(columns(replies), Arrivals("closed", 2))
    assert (window.begin_s, window.end_s) == pytest.approx((0.020, 0.190))
    assert (window.ramp_s, window.tail_s, window.whole_s) == pytest.approx((0.020, 0.060, 0.250))
    assert window.steady


def test_one_request_a_user_has_no_steady_window() -> None:
    window = find_window(columns([reply(n, 0, [10, 100 + n]) for n in range(8)]), Arrivals("closed", 8))
    assert not window.steady
    assert "send more requests a user (here 1)" in window.why


def test_fewer_streams_than_slots_are_no_steady_window() -> None:
    window = find_window(columns([reply(n, 0, [10, 100]) for n in range(3)]), Arrivals("closed", 8))
    assert not window.steady
    assert "never more than 3 of 8 slots" in window.why


def test_no_request_at_all() -> None:
    assert not find_window(columns([]), Arrivals("closed", 8), 5.0).steady


@pytest.mark.parametrize("slow_ms", [1000, 2500, 4000])
def test_a_slow_start_is_cut_off(slow_ms: float) -> None:
    replies = closed_loop(8, 40, np.random.default_rng(3), slow_start_ms=slow_ms)
    window = find_window(columns(replies), Arrivals("closed", 8))
    last_slow = max(one.end_ns for one in replies if one.due_ns < slow_ms * 1e6) / 1e9
    assert slow_ms / 1e3 - 0.5 < window.begin_s < last_slow + 2.5
    assert "settled after" in window.why


def test_a_level_that_is_steady_from_the_first_is_not_cut() -> None:
    cut = [find_window(columns(closed_loop(4, 12, np.random.default_rng(seed))), Arrivals("closed", 4)).ramp_s
           for seed in range(40)]
    assert np.mean(np.array(cut) > 0) < 0.1


def test_requests_in_lockstep_are_not_taken_for_a_ramp() -> None:
    step = [200.0, *(200.0 + 10.0 * n for n in range(1, 50))]
    replies = [reply(turn * 4 + user, turn * 690, [turn * 690 + at for at in step]) for turn in range(10)
               for user in range(4)]
    window = find_window(columns(replies), Arrivals("closed", 4))
    assert window.begin_s == 0.0
    assert window.end_s == pytest.approx(6.9)


def test_a_rate_that_keeps_falling_is_said() -> None:
    now, replies = 0.0, []
    for number in range(40):
        replies.append(reply(number, now, [now + 50 + 10 * (1 + number / 20) * n for n in range(20)]))
        now = replies[-1].end_ns / 1e6
    assert "still moves" in find_window(columns(replies), Arrivals("closed", 1)).why


def test_open_loop_lasts_from_the_ramp_of_the_rate_to_the_last_arrival() -> None:
    replies = [reply(n, 100 * n, [100 * n + 50, 100 * n + 400]) for n in range(100)]
    window = find_window(columns(replies), Arrivals("poisson", rate_per_s=10, ramp_s=2.0))
    assert window.begin_s == pytest.approx(2.0)
    assert window.end_s == pytest.approx(9.9)
    assert window.tail_s == pytest.approx(0.4)


def test_open_loop_without_answers_in_time_says_that_streams_pile_up() -> None:
    replies = [reply(n, 100 * n, [100 * n + 50, 100 * n + 200 + 60 * n]) for n in range(200)]
    assert "requests pile up" in find_window(columns(replies), Arrivals("constant", rate_per_s=10)).why
    calm = [reply(n, 100 * n, [100 * n + 50, 100 * n + 800]) for n in range(200)]
    assert "pile up" not in find_window(columns(calm), Arrivals("constant", rate_per_s=10)).why


def test_settling_ignores_noise_and_finds_steps() -> None:
    noise = np.random.default_rng(1).normal(100, 5, 60)
    assert settled_after(noise) == 0
    noise[:12] *= 0.5
    assert settled_after(noise) == 12


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 2 ** 32 - 1))
def test_parts_add_up_and_order_does_not_matter(users: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    replies = closed_loop(users, rounds, rng, tokens=4)
    shuffled = [replies[place] for place in rng.permutation(len(replies))]
    window = find_window(columns(replies), Arrivals("closed", users))
    assert window == find_window(columns(shuffled), Arrivals("closed", users))
    if window.steady:
        assert window.ramp_s + window.length_s + window.tail_s == pytest.approx(window.whole_s)
    assert trial(replies, users).valid
