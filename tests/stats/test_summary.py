"""Measurements of hand-made levels against numbers made by hand."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.finding import Measurement
from rooftop.domain.trial import Trial
from rooftop.domain.workload import Arrivals, Slo
from rooftop.errors import BadInput
from rooftop.stats.summary import METRICS, measure, summarise, window_of

from .levels import closed_loop, reply, trial


def by_name(one: Trial, **options: object) -> dict[str, Measurement]:
    return {figure.metric: figure for figure in summarise(one, **options)}  # type: ignore[arg-type]


@pytest.fixture
def six() -> Trial:
    """One user, six requests end to end: TTFT 100 ms, 5 tokens 20 ms apart, last byte 20 ms after the last token."""
    return trial([reply(n, 200 * n, [200 * n + 100 + 20 * k for k in range(5)], output=5, end_ms=200 * n + 200,
                        prompt=30, asked=6) for n in range(6)])


def test_figures_of_six_equal_requests(six: Trial) -> None:
    figures = by_name(six)
    for name, value in {
            "ttft_mean": 0.1, "ttft_p50": 0.1, "tpot_mean": 0.02, "tpot_p50": 0.02, "itl_p50": 0.02,
            "chunk_gap_p50": 0.02, "e2e_mean": 0.2, "tokens_per_s_per_user": 50.0, "output_tokens_per_s": 25.0,
            "output_tokens_per_s_busy": 25.0, "input_tokens_per_s": 150.0, "requests_per_s": 5.0, "requests_ok": 6,
            "requests_failed": 0, "requests_stopped": 0, "ramp_share": 0.0, "tail_share": 0.0, "output_tokens": 30,
            "output_tokens_asked_share": 5 / 6}.items():
        assert figures[name].value == pytest.approx(value), name
    assert figures["ttft_p90"].value is None
    assert figures["ttft_p90"].why_not == "needs at least 29 requests, there are 6"
    assert figures["itl_mean"].count == 24
    interval = figures["output_tokens_per_s"].interval
    assert interval is not None
    assert interval.high - interval.low == pytest.approx(0.0, abs=1e-9)


def test_every_metric_has_a_name_and_a_unit(six: Trial) -> None:
    one = dataclasses.replace(six, workload=dataclasses.replace(six.workload, slo=Slo(ttft_s=1.0)))
    figures = summarise(one)
    assert [figure.metric for figure in figures] == list(METRICS)
    assert all(figure.unit for figure in figures)
    assert all(figure.value is not None or figure.why_not for figure in figures)


def test_several_tokens_a_chunk_bias_nothing() -> None:
    """Tokens 20 ms apart from 200 ms on, four a chunk: TPOT and ITL are 20 ms, the gap between chunks 80."""
    replies = [reply(n, 0, [260 + 80 * k for k in range(16)], tokens=[4] * 16, output=64) for n in range(8)]
    figures = by_name(trial(replies, 8))
    assert figures["tpot_p50"].value == pytest.approx(0.020)
    assert figures["itl_p50"].value == pytest.approx(0.020)
    assert figures["chunk_gap_p50"].value == pytest.approx(0.080)
    assert figures["output_tokens"].value == 8 * 64


def test_without_counts_there_are_no_rates_in_tokens() -> None:
    figures = by_name(trial([reply(n, 200 * n, [200 * n + 100, 200 * n + 200], prompt=None) for n in range(6)]))
    for name in ("output_tokens_per_s", "output_tokens_per_s_busy", "input_tokens_per_s", "tokens_per_s_per_user",
                 "tpot_p50", "itl_p50", "output_tokens", "output_tokens_asked_share"):
        assert figures[name].value is None, name
        assert figures[name].why_not, name
    assert figures["output_tokens_per_s"].why_not == "6 of 6 replies do not say how many output tokens they have"
    assert figures["chunk_gap_p50"].value == pytest.approx(0.1)
    assert figures["requests_per_s"].value == pytest.approx(5.0)


def test_only_the_sum_of_tokens_gives_rates_but_no_itl() -> None:
    figures = by_name(trial([reply(n, 200 * n, [200 * n + 100 + 25 * k for k in range(5)], output=20)
                             for n in range(6)]))
    assert figures["output_tokens_per_s"].value == pytest.approx(100.0)
    assert figures["tpot_p50"].value == pytest.approx(0.1 / 16)
    assert "tell only their sum" in figures["tpot_p50"].why_not
    assert figures["itl_p50"].value is None
    assert "see chunk_gap" in figures["itl_p50"].why_not


def test_the_busy_rate_counts_tokens_by_their_stamps() -> None:
    """Two users; the window lasts from 50 to 350 ms and sees 5 of the tokens."""
    replies = [reply(0, 0, [40, 100], output=2), reply(1, 50, [120, 200], output=2),
               reply(2, 100, [300, 350], output=2), reply(3, 200, [250, 400], output=2)]
    one = trial(replies, 2)
    window = window_of(one)
    assert (window.begin_s, window.end_s) == pytest.approx((0.05, 0.35))
    figures = by_name(one)
    assert figures["output_tokens_per_s_busy"].value == pytest.approx(5 / 0.3)
    assert figures["output_tokens_per_s"].value == pytest.approx(8 / 0.4)
    assert figures["tail_share"].value == pytest.approx(0.125)


def test_failures_are_counted_by_kind_and_have_no_latency() -> None:
    replies = [reply(n, 200 * n, [200 * n + 100, 200 * n + 200], output=2) for n in range(10)]
    replies[2] = reply(2, 400, [], error="http 503", end_ms=401, prompt=None)
    replies[5] = reply(5, 1000, [1001], error="cut", end_ms=1100, prompt=None)
    replies[9] = reply(9, 1800, [1900], error="stopped", end_ms=1950, prompt=None)
    figures = by_name(trial(replies))
    assert figures["requests_ok"].value == 7
    assert figures["requests_failed"].value == 2
    assert figures["requests_failed: http 503"].value == 1
    assert figures["requests_failed: cut"].value == 1
    assert figures["requests_stopped"].value == 1
    assert figures["ttft_mean"].value == pytest.approx(0.1)
    assert figures["output_tokens_per_s"].value == pytest.approx((14 + 1) / 1.95)


def test_nothing_came_whole() -> None:
    figures = by_name(trial([reply(n, 10 * n, [], error="reset", end_ms=10 * n + 10) for n in range(5)]))
    assert figures["requests_failed: reset"].value == 5
    assert figures["ttft_p50"].value is None
    assert figures["output_tokens_per_s"].why_not == "no request came whole"
    assert all(figure.why_not for figure in summarise(trial([])) if figure.value is None)


def test_goodput_holds_every_limit() -> None:
    replies = [reply(n, 200 * n, [200 * n + (50 if n % 2 else 150), 200 * n + 160, 200 * n + 190], output=3,
                     end_ms=200 * n + 200) for n in range(10)]
    replies[3] = reply(3, 600, [], error="timeout", end_ms=800)
    replies[5] = reply(5, 1000, [1050, 1100], error="cut", end_ms=1200)
    one = trial(replies, slo=Slo(ttft_s=0.1, e2e_s=0.3))
    figures = by_name(one)
    assert figures["goodput_requests_per_s"].value == pytest.approx(3 / 2.0)
    assert figures["goodput_share"].value == pytest.approx(0.3)
    assert measure(trial(replies, slo=Slo(tpot_s=0.06)), "goodput_share").value == pytest.approx(0.5)
    assert "goodput_share" not in by_name(trial(replies))
    unknown = measure(trial([reply(0, 0, [5, 9])], slo=Slo(tpot_s=1.0)), "goodput_share")
    assert unknown.value is None
    assert "have no TPOT" in unknown.why_not


def test_latencies_are_of_the_steady_window_unless_the_whole_run_is_asked() -> None:
    one = trial(closed_loop(8, 40, np.random.default_rng(3), slow_start_ms=2500), 8)
    steady, whole = measure(one, "ttft_mean"), by_name(one, span="whole")["ttft_mean"]
    assert steady.value == pytest.approx(0.050, rel=0.02)
    assert whole.value is not None
    assert whole.value > 0.052
    assert whole.count == 320 > steady.count


def test_without_steady_window_the_figures_are_of_all_and_say_so() -> None:
    figures = by_name(trial(closed_loop(8, 1, np.random.default_rng(3)), 8))
    assert figures["ttft_p50"].value is not None
    assert figures["ttft_p50"].interval is None
    assert "no steady window" in figures["ttft_p50"].why_not
    assert figures["output_tokens_per_s_busy"].value is None


def test_one_figure_is_that_of_the_summary_and_unknown_names_are_refused(six: Trial) -> None:
    assert measure(six, "tpot_p50") == by_name(six)["tpot_p50"]
    assert measure(six, "goodput_share").why_not
    with pytest.raises(BadInput, match="no metric 'speed'"):
        measure(six, "speed")


def test_an_imported_trial_gives_what_it_reported(six: Trial) -> None:
    reported = (Measurement("ttft_p50", "s", 0.2),)
    assert summarise(dataclasses.replace(six, replies=(), reported=reported)) == reported


def test_open_loop_rates_are_those_of_the_arrivals() -> None:
    replies = [reply(n, 100 * n, [100 * n + 50, 100 * n + 250], output=2) for n in range(200)]
    figures = by_name(trial(replies, arrivals=Arrivals("constant", rate_per_s=10)))
    interval = figures["requests_per_s"].interval
    assert figures["output_tokens_per_s_busy"].value == pytest.approx(20.0, rel=0.01)
    assert interval is not None
    assert interval.low <= 10.0 <= interval.high + 0.15


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 10), st.integers(0, 2 ** 32 - 1))
def test_the_order_of_replies_does_not_matter(users: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    replies = closed_loop(users, rounds, rng, tokens=5)
    shuffled = [replies[place] for place in rng.permutation(len(replies))]
    assert summarise(trial(replies, users)) == summarise(trial(shuffled, users))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(2, 10), st.integers(0, 2 ** 32 - 1))
def test_quantiles_are_in_order_and_inside_their_intervals(users: int, rounds: int, seed: int) -> None:
    figures = by_name(trial(closed_loop(users, rounds, np.random.default_rng(seed), jitter=0.5), users))
    for kind in ("ttft", "tpot", "itl", "e2e"):
        values = [value for name in ("p50", "p90", "p99") if (value := figures[f"{kind}_{name}"].value) is not None]
        assert values == sorted(values)
    for figure in figures.values():
        if figure.interval is not None and figure.value is not None:
            assert figure.interval.low <= figure.value <= figure.interval.high
