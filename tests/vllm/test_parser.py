"""The real vLLM's own parser is asked before anything is started."""

from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.plan import Setting
from rooftop.domain.study import Setup
from rooftop.hardware.local import this_machine
from rooftop.workflows.ask import refusals
from rooftop.workflows.steps import engine_of, plans
from tests.vllm.conftest import study

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

WRONG = {
    "unknown": (Setting("max-num-sequences", 4), "unrecognized arguments: --max-num-sequences", "--max-num-seqs"),
    "choice": (Setting("kv-cache-dtype", "fp9"), "invalid choice: 'fp9'", "--kv-cache-dtype"),
    "number": (Setting("max-model-len", "many"), "'many'", "--max-model-len"),
    "json": (Setting("compilation-config", '{"mode": 3'), "Invalid JSON", ""),
    "alone": (Setting("enable-auto-tool-choice", True), "requires --tool-call-parser", ""),
}


def test_every_layout_is_taken_and_every_wrong_setting_refused(vllm_home: Path) -> None:
    asked = study("layouts", vllm_home)
    wrong = tuple(Setup(title, settings=(setting,)) for title, (setting, _, _) in WRONG.items())
    every = plans(replace(asked, setup=(*asked.setup, *wrong)), this_machine())
    found = refusals(every, engine_of(asked))
    told = {plan.title: found.get(plan.key) for plan in every}
    assert {title for title, fault in told.items() if fault} == set(WRONG)
    for title, (_, reason, remedy) in WRONG.items():
        fault = told[title]
        assert fault is not None
        assert reason in fault.reason
        assert remedy in fault.remedy
