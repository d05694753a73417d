"""A dry run: commands, counts and times; nothing started."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.layout import Layout
from rooftop.domain.plan import Setting
from rooftop.domain.study import Load, Order, Setup, Study
from rooftop.engines.llamacpp import ENGINE
from rooftop.errors import MissingPart
from rooftop.hardware.local import this_machine
from rooftop.store import Store
from rooftop.workflows import rehearse as room
from rooftop.workflows.rehearse import rehearse
from rooftop.workflows.steps import plans, steps
from tests import stored


@pytest.fixture
def asked(tmp_path: Path) -> Study:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    setups = (Setup("one", settings=(Setting("parallel", 2),), environment=(Setting("OMP", "a b"),)),
              Setup("two", Layout(dp=2)), Setup("split", Layout(tp=2, pp=2)))
    return Study("s", "llamacpp", str(tmp_path / "tiny.gguf"), setups, Load((1, 2), 8, 10, least_requests=2),
                 Order(repeats=2), binary=sys.executable)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def test_commands_as_they_would_be_started(asked: Study) -> None:
    found = rehearse(asked, ENGINE, None)
    commands = dict(found.setups)
    (one,) = commands["one"]
    words = shlex.split(one)
    assert words[0] == "OMP=a b"
    assert words[1] == sys.executable
    assert words[words.index("--model") + 1] == asked.model
    assert words[words.index("--port") + 1] == "8000"
    assert words[words.index("--parallel") + 1] == "2"
    assert ["--port 8000" in line or "--port 8001" in line for line in commands["two"]] == [True, True]
    assert commands["split"] == (
        "refused (one llama-server splits a model one way): tp 2 and pp 2 are two",)


def test_an_estimate_without_measurements(asked: Study) -> None:
    found = rehearse(asked, ENGINE, None)
    assert (found.starts, found.levels) == (3, 12)
    reply_s = room.FIRST_TOKEN_S + 10 * room.TOKEN_S
    each = [reply_s * (4 + 1) / 1, reply_s * (8 + 2) / 2]
    assert found.estimate_s == pytest.approx(3 * room.START_S + 3 * 2 * sum(each))
    assert "nothing measured yet" in found.basis


def test_an_estimate_of_levels_by_time(asked: Study) -> None:
    found = rehearse(replace(asked, load=Load((4,), 8, 10, seconds=30.0)), ENGINE, None)
    assert found.estimate_s == pytest.approx(3 * room.START_S + 6 * (30 + room.FIRST_TOKEN_S + 10 * room.TOKEN_S))


def test_an_estimate_from_what_was_measured(asked: Study, store: Store) -> None:
    plan = plans(asked, this_machine())[0]
    store.add_launch(replace(stored.launch(), plan=plan, startup_s=3.0))
    for number, step in enumerate(steps(asked, plan, 0)[:3]):
        store.add_trial(stored.trial(str(number), plan=plan, workload=step.workload, repeat=step.repeat,
                                     measured_s=float(number)))
    found = rehearse(asked, ENGINE, store)
    assert (found.starts, found.levels) == (3, 9)
    assert found.estimate_s == pytest.approx(9 * 1.0 + 3 * 3.0)
    assert "3 and 1 measured so far" in found.basis


def test_a_finished_study_has_nothing_left(asked: Study, store: Store) -> None:
    for number, plan in enumerate(plans(asked, this_machine())):
        for place, step in enumerate(steps(asked, plan, 0)):
            store.add_trial(stored.trial(f"{number}-{place}", plan=plan, workload=step.workload, repeat=step.repeat))
    found = rehearse(asked, ENGINE, store)
    assert (found.starts, found.levels, found.estimate_s) == (0, 0, 0.0)


def test_a_program_that_is_not_here(asked: Study) -> None:
    with pytest.raises(MissingPart, match="no program"):
        rehearse(replace(asked, binary="/nowhere"), ENGINE, None)
