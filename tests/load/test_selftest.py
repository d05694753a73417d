from rooftop.load.selftest import self_test


def test_the_self_test_knows_its_own_error() -> None:
    result = self_test(users=4, tokens=8)
    figures = {figure.metric: figure for figure in result.figures}
    assert set(figures) == {"ttft_error_p50", "ttft_error_p99", "itl_error_p50", "itl_error_p99",
                            "client_tokens_per_s", "flood_tokens_per_s"}
    assert figures["ttft_error_p50"].count == 8
    assert figures["itl_error_p50"].count == 56
    assert all(figure.value is not None and figure.value >= 0 for figure in result.figures)
    assert figures["itl_error_p50"].value is not None
    assert figures["itl_error_p50"].value < 0.02
    assert result.stamps == "kernel"
