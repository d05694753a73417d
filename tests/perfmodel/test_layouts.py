"""The layouts there are, and the nearest legal one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain.engine import Refusal
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan
from rooftop.perfmodel.case import case_of
from rooftop.perfmodel.layouts import candidates, nearest, sort_out
from rooftop.perfmodel.rules import refuses
from tests.perfmodel.bench import model, plan


def test_every_layout_is_looked_at_once_and_sorted_out() -> None:
    for name in ("Qwen3-30B-A3B-FP8", "Qwen3-8B"):
        for engine in ("sglang", "vllm", "llamacpp"):
            found = list(candidates(model(name), engine, 8))
            assert len(found) == len(set(found))
            assert all(layout.ranks <= 8 for layout in found)
            sorted_out = sort_out(plan(model(name), engine, Layout()), model(name), found)
            assert {*sorted_out.legal, *(layout for layout, _ in sorted_out.refused)} == set(found)


def test_engines_have_words_of_their_own() -> None:
    moe = model("Qwen3-30B-A3B")
    assert {layout.ep for layout in candidates(moe, "sglang", 8)} == {1, 2, 3, 4, 5, 6, 7, 8}
    assert all(layout.ep in (1, layout.tp * layout.dp) for layout in candidates(moe, "vllm", 8))
    assert all(layout.attention_dp == 1 for layout in candidates(moe, "vllm", 8))
    assert all(layout.tp == 1 or layout.pp == 1 for layout in candidates(moe, "llamacpp", 8))
    assert all(layout.ep == 1 for layout in candidates(model("Qwen3-8B"), "sglang", 8))
    assert list(candidates(moe, "llamacpp", 0)) == [Layout()]


def test_replicas_fill_what_is_left() -> None:
    found = set(candidates(model("Qwen3-8B"), "vllm", 6))
    assert {Layout(4), Layout(2, dp=3), Layout(dp=6), Layout(2, 3), Layout(3, dp=2)} <= found
    assert Layout(2, dp=2) not in found


def test_a_refusal_names_the_nearest_legal_layout() -> None:
    name = "Qwen3-30B-A3B-FP8"
    found = sort_out(plan(model(name), "sglang", Layout()), model(name), candidates(model(name), "sglang", 8))
    reasons = dict(found.refused)
    assert reasons[Layout(8)].remedy == "use tp 8 x ep 4"
    assert reasons[Layout(3, dp=2)].remedy == "use pp 3 x dp 2"
    for refusal in reasons.values():
        assert refusal.remedy


def test_the_engines_own_rules_come_first_and_see_no_machine() -> None:
    seen = []

    def own(asked: Plan) -> Refusal | None:
        seen.append(asked.machine)
        return Refusal("own", "no", "do this")
    found = sort_out(plan(model("Qwen3-8B"), "vllm", Layout()), model("Qwen3-8B"), [Layout(2)], own)
    assert found.refused == ((Layout(2), Refusal("own", "no", "do this")),)
    assert seen == [None]


def test_nearest_keeps_the_gpus_before_it_keeps_degrees() -> None:
    assert nearest(Layout(3), [Layout(2), Layout(1, 3), Layout(4)]) == Layout(1, 3)
    assert nearest(Layout(8), [Layout(8, ep=2), Layout(8, ep=8)]) == Layout(8, ep=2)
    assert nearest(Layout(8), []) is None
    assert nearest(Layout(8), [Layout(8)]) is None


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(("Qwen3-30B-A3B-FP8", "DeepSeek-V3", "Qwen3-8B")), st.sampled_from(("sglang", "vllm")),
       st.integers(1, 12))
def test_what_is_named_legal_is_legal(name: str, engine: str, gpus: int) -> None:
    asked = plan(model(name), engine, Layout())
    for layout in sort_out(asked, model(name), candidates(model(name), engine, gpus)).legal:
        assert refuses(case_of(plan(model(name), engine, layout), model(name))) is None
