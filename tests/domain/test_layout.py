import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.layout import Layout
from tests.domain import nouns

DEGREES = st.integers(-1, 12)


@given(DEGREES, DEGREES, DEGREES, DEGREES, DEGREES, DEGREES)
def test_a_layout_is_born_exactly_if_the_laws_hold(tp: int, pp: int, dp: int, ep: int, attention_dp: int,
                                                   dcp: int) -> None:
    lawful = min(tp, pp, dp, ep, attention_dp, dcp) >= 1 and (
        tp * dp % ep == 0 and tp % attention_dp == 0 and tp % dcp == 0)
    if lawful:
        assert Layout(tp, pp, dp, ep, attention_dp, dcp).ranks == tp * pp * dp
    else:
        with pytest.raises(ValueError, match="must"):
            Layout(tp, pp, dp, ep, attention_dp, dcp)


@pytest.mark.parametrize("degree", [True, 1.0, "1", None])
def test_a_degree_is_a_whole_number(degree: object) -> None:
    with pytest.raises(ValueError, match="pp must be a whole number"):
        Layout(pp=degree)  # type: ignore[arg-type]


@given(nouns.layouts())
def test_words_name_every_degree_above_one_in_order(layout: Layout) -> None:
    words = str(layout).split(" x ")
    named = [word.rsplit(" ", 1) for word in words]
    order = ["tp", "pp", "dp", "ep", "attention-dp", "dcp"]
    assert [name for name, _ in named] == [name for name in order if name in dict(named)]
    read = Layout(**{name.replace("-", "_"): int(degree) for name, degree in named})
    assert read == layout


def test_words() -> None:
    assert str(Layout()) == "tp 1"
    assert str(Layout(tp=8, pp=2, attention_dp=4)) == "tp 8 x pp 2 x attention-dp 4"
    assert len({str(Layout(tp=tp, pp=pp, dp=dp)) for tp, pp, dp in itertools.product((1, 2, 4), repeat=3)}) == 27
