"""`rooftop plan`, from names to proposal and table."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rooftop.catalog import kernel_tables
from rooftop.cli.show_plan import plan_parts, plan_table
from rooftop.domain.fit import Proposal
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Setting
from rooftop.domain.stepcost import Grid, Shape
from rooftop.errors import BadInput, DoesNotFit, NoLayout, RooftopError
from rooftop.workflows.plan import plan
from rooftop.workflows.speed import Aim, tables_used

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
KIMI = str(CONFIGS / "Kimi-K2.6")
BOX = "8x-rtx-pro-6000-switches"


@pytest.fixture(scope="module")
def proposal() -> Proposal:
    return plan(KIMI, BOX, input_tokens=60, output_tokens=1575)


def test_options_fit_and_those_with_most_users_come_first(proposal: Proposal) -> None:
    assert {option.plan.engine for option in proposal.options} == {"sglang", "vllm"}
    users = [option.fit.users for option in proposal.options]
    assert users == sorted(users, reverse=True)
    assert min(users) >= 1
    assert all(option.fit.fits and option.plan.layout == option.fit.layout for option in proposal.options)


def test_every_option_has_the_command_of_its_layout(proposal: Proposal) -> None:
    for option in proposal.options:
        words = option.command.argv
        if option.fit.layout.tp > 1:
            flag = "--tp-size" if option.plan.engine == "sglang" else "--tensor-parallel-size"
            assert words[words.index(flag) + 1] == str(option.fit.layout.tp)
        for setting in option.plan.settings:
            assert f"--{setting.name}" in words
        assert not any("{" in word for word in words)


def test_a_flag_that_stands_between_a_layout_and_its_fit_is_set_and_told(proposal: Proposal) -> None:
    deep = next(option for option in proposal.options
                if option.plan.engine == "sglang" and option.fit.layout == Layout(8, attention_dp=8))
    assert [setting.name for setting in deep.plan.settings] == ["mem-fraction-static"]
    assert deep.fit.notes[0].startswith("does not fit with the engine's defaults: --mem-fraction-static")


def test_refusals_are_grouped_by_rule(proposal: Proposal) -> None:
    rules = [(refused.engine, refused.refusal.rule) for refused in proposal.refused]
    assert len(rules) == len(set(rules))
    heads = next(refused for refused in proposal.refused if "heads" in refused.refusal.rule)
    assert any(layout.tp == 3 for layout in heads.layouts)
    memory = next(refused for refused in proposal.refused if "must fit" in refused.refusal.rule)
    assert memory.refusal.remedy.startswith("use ")
    fitting = {str(option.fit.layout) for option in proposal.options if option.plan.engine == memory.engine}
    assert memory.refusal.remedy.removeprefix("use ") in fitting


WRONG: list[tuple[dict[str, object], type[RooftopError], str, str]] = [
    ({"model": str(CONFIGS / "DeepSeek-V4-Pro"), "machine": "1x RTX 4090"}, DoesNotFit, "does not fit", "such GPUs"),
    ({"gpus": 0}, BadInput, "0 GPUs were asked", "1 to 8"), ({"gpus": 9}, BadInput, "has 8", "1 to 8"),
    ({"gpus": -1}, BadInput, "-1 GPUs", "1 to 8"), ({"input_tokens": 0}, BadInput, "no request", "at least 1"),
    ({"input_tokens": 300_000}, DoesNotFit, "exceeds the 262144", "at most 262144"),
    ({"machine": "8x RTX 4099"}, BadInput, "RTX 4099", ""), ({"model": "no-such-model"}, BadInput, "no-such-model", ""),
    ({"engines": ("tensorrt",)}, BadInput, "tensorrt", "vllm"),
    ({"engines": ("llamacpp",)}, NoLayout, "no GGUF file", "another --engine"),
]


@pytest.mark.parametrize(("words", "kind", "what", "remedy"), WRONG)
def test_bad_input_is_one_clear_message(words: dict[str, object], kind: type[RooftopError], what: str, remedy: str
                                        ) -> None:
    with pytest.raises(kind) as raised:
        plan(**{"model": KIMI, "machine": BOX, **words})  # type: ignore[arg-type]
    assert type(raised.value) is kind
    assert what in raised.value.what
    assert remedy in raised.value.remedy


def test_a_machine_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from rooftop.domain.machine import Machine
    monkeypatch.setattr("rooftop.workflows.plan.look_at_machine", lambda name: Machine("laptop", "cpu", 8, 16 << 30))
    with pytest.raises(NoLayout) as raised:
        plan(str(CONFIGS / "Qwen3-8B"))
    assert "laptop has no GPUs" in raised.value.what
    assert "--machine" in raised.value.remedy


def test_three_gpus_take_no_tp_3() -> None:
    found = plan(str(CONFIGS / "Qwen3-8B"), "8x RTX 4090", gpus=3, engines=("vllm",))
    assert found.options[0].fit.layout == Layout(1, 3)
    refused = next(one for one in found.refused if Layout(3) in one.layouts)
    assert "32 attention heads" in refused.refusal.reason
    assert refused.refusal.remedy == "use dp 3"


def test_settings_of_the_user_hold() -> None:
    found = plan(str(CONFIGS / "Qwen3-8B"), "1x RTX 4090", engines=("vllm",), settings=(Setting("max-num-seqs", 4),))
    assert found.options[0].fit.users == 4
    assert found.options[0].fit.bound == "max-num-seqs 4"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table(proposal: Proposal, width: int) -> None:
    out = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    for part in plan_parts(proposal, rows=5):
        out.print(part)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "60 + 1575 tokens" in text.replace("\n", " ")
    assert "…" not in text
    assert str(proposal.options[0].fit.users) in text
    assert f"{len(proposal.options) - 5} more fit" in text
    assert "vllm serve" in text
    assert "64 attention heads (query) do not divide" in text.replace("\n", " ")


def test_the_json_has_everything(proposal: Proposal) -> None:
    table = json.loads(json.dumps(plan_table(proposal)))
    assert len(table["options"]) == len(proposal.options)
    first = table["options"][0]
    assert first["fit"]["fits"] is True
    assert first["command_line"].startswith("vllm serve")
    assert first["fit"]["stages"][0]["uses"][0]["purpose"] == "weights"
    assert table["refused"][0]["layouts"]


def test_planning_takes_no_engine_and_no_server() -> None:
    code = ("import sys; from rooftop.workflows.plan import plan; import rooftop.cli.show_plan; "
            "print([name for name in ('httptools', 'numpy', 'rich', 'asyncio') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "rich" not in done.stdout


def test_speed_is_predicted_for_every_option(proposal: Proposal) -> None:
    for option in proposal.options:
        assert option.one is not None
        assert option.many is not None
        assert option.one.interval is not None
        assert 0 < option.one.interval.low < option.one.value < option.one.interval.high
        assert 0 < option.one.share <= 1
        assert option.one.constants
        assert option.within is None


def test_goals_order_the_options() -> None:
    def planned(aim: Aim) -> Proposal:
        return plan(KIMI, BOX, input_tokens=60, output_tokens=1575, aim=aim)
    one = [option.one.value for option in planned(Aim("one")).options if option.one]
    assert one == sorted(one, reverse=True)
    many = [option.many.value / option.fit.layout.ranks for option in planned(Aim("many")).options if option.many]
    assert many == sorted(many, reverse=True)
    strict, loose = (planned(Aim("slo", tpot_ms=limit)).options for limit in (30, 200))
    within = [option.within for option in strict]
    assert within == sorted(within, key=lambda count: -(count or 0))
    assert (strict[0].within or 0) < (loose[0].within or 0)
    assert all((option.within or 0) <= option.fit.users for option in loose)


@pytest.mark.parametrize("bad", [{"goal": "fast"}, {"goal": "slo"}])
def test_a_goal_that_means_nothing_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="goal"):
        Aim(**bad)


def test_settings_that_move_the_speed_are_told(proposal: Proposal) -> None:
    found = plan(KIMI, BOX, input_tokens=60, output_tokens=1575, aim=Aim("one"))
    direct = next(one for one in found.gains if "PCIE_IPC" in one.remedy)
    assert "for one user" in direct.gain
    assert not any("PCIE_IPC" in one.remedy for one in plan(KIMI, "8x H200 SXM", input_tokens=60,
                                                              output_tokens=1575, aim=Aim("one")).gains)


def test_a_table_of_measured_kernels_is_used_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Shape("moe", "int4", (7168, 2048, 384, 8, 8, 1))
    table = Grid("RTX PRO 6000 Blackwell Server", "sglang", asked, ((1, 0, 1e-4),), "table: made for a test")
    monkeypatch.setattr(kernel_tables, "folder", lambda: Path())
    monkeypatch.setattr(kernel_tables, "grids", lambda data, gpu, engine, shapes:
                        (table,) if asked in shapes and engine == "sglang" else ())
    found = plan(KIMI, BOX, engines=("sglang",), input_tokens=60, output_tokens=1575, aim=Aim("one"))
    option = next(one for one in found.options if one.fit.layout.tp == 8 and one.fit.layout.ep == 1)
    assert tables_used(option) == ("kernels as timed: moe int4 7168x2048x384x8x8x1 (made for a test)",)
    assert set(found.notes) >= set(tables_used(found.options[0]))
