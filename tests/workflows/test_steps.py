"""What a study asks for: plans, levels, order, what remains; what is wrong with a study file."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain.launch import Fault
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.plan import Setting
from rooftop.domain.study import Load, Order, Setup, Study
from rooftop.domain.workload import Stop
from rooftop.errors import BadInput
from rooftop.store import Store
from rooftop.workflows.steps import (
    check_files,
    failed_plans,
    model_of,
    plans,
    read_study,
    remaining,
    rounds,
    steps,
    workloads,
)
from tests import stored

MACHINE = Machine("m", "c", 2, 1)
A, B = Setup("a", settings=(Setting("parallel", 1),)), Setup("b", settings=(Setting("parallel", 2),))
HEAD = 'schema = 1\nname = "s"\nengine = "llamacpp"\nmodel = "smollm2-135m"\n'
SETUP = "[[setup]]\ntitle = 'a'\nsettings = { parallel = 1 }\n"


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def study(weights: str, *setups: Setup, **other: object) -> Study:
    return replace(Study("s", "llamacpp", weights, setups or (A, B)), **other)  # type: ignore[arg-type]


def test_a_plan_is_the_studys_own_settings_under_the_setups(weights: str) -> None:
    common = Setting("parallel", 9), Setting("ctx-size", 64)
    asked = study(weights, A, Setup(layout=Layout(dp=2), binary="/own"), Setup(settings=(Setting("fit", "on"),)),
                  settings=common, environment=(Setting("A", "1"),), binary="xllamacpp")
    own, second, third = plans(asked, MACHINE)
    assert own.settings == (Setting("parallel", 1), Setting("ctx-size", 64))
    assert (second.settings, second.binary, second.layout) == (common, "/own", Layout(dp=2))
    assert (own.binary, own.environment, own.machine) == ("xllamacpp", (Setting("A", "1"),), MACHINE)
    assert (own.title, second.title, third.title) == ("a", str(Layout(dp=2)), "fit on")


@pytest.mark.parametrize(("change", "words"), [
    ({"setup": ()}, "no [[setup]]"),
    ({"setup": (A, replace(B, title="a"))}, "two setups are titled 'a'"),
    ({"setup": (A, replace(A, title="c"))}, "setups 'a' and 'c' ask for the same thing"),
    ({"order": Order(repeats=0)}, "order.repeats must be at least 1"),
    ({"order": Order(rounds=-1)}, "order.rounds must be at least 1"),
    ({"model": "smollm"}, "no such file"),
])
def test_studies_that_cannot_be(weights: str, change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as wrong:
        plans(study(weights, **change), MACHINE)
    assert words in wrong.value.what
    assert wrong.value.remedy or "order" in words


@pytest.mark.parametrize("load", [
    Load(concurrency=()), Load(concurrency=(0,)), Load(concurrency=(1, 1)), Load(input_tokens=0),
    Load(output_tokens=-1), Load(requests_per_user=0), Load(seconds=0.0),
])
def test_loads_that_cannot_be(weights: str, load: Load) -> None:
    with pytest.raises(BadInput, match="load"):
        workloads(study(weights, load=load))


@pytest.mark.parametrize(("load", "stops"), [
    (Load((1, 8)), [Stop(requests=6), Stop(requests=32)]),
    (Load((1, 8), requests_per_user=2), [Stop(requests=6), Stop(requests=16)]),
    (Load((1, 8), requests_per_user=2, least_requests=1), [Stop(requests=2), Stop(requests=16)]),
    (Load((1, 8), seconds=5.0), [Stop(seconds=5.0)] * 2),
    (Load((1,), requests_per_user=9, seconds=5.0), [Stop(requests=9, seconds=5.0)]),
])
def test_how_levels_end(weights: str, load: Load, stops: list[Stop]) -> None:
    made = workloads(study(weights, load=load))
    assert [one.stop for one in made] == stops
    assert [one.warmup for one in made] == [one.arrivals.concurrency for one in made] == list(load.concurrency)


def test_repeats_interleave_the_levels(weights: str) -> None:
    asked = study(weights, load=Load((1, 4)), order=Order(repeats=2, rounds=2))
    (first, _) = plans(asked, MACHINE)
    assert [(one.workload.level, one.repeat) for one in steps(asked, first, 1)] == [
        ("1", 2), ("4", 2), ("1", 3), ("4", 3)]


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99), st.sampled_from(["written", "shuffled"]))
def test_each_round_starts_each_setup_once(setups: int, count: int, seed: int, order: str) -> None:
    made = tuple(Setup(str(number), settings=(Setting("parallel", number),)) for number in range(setups))
    asked = Study("s", "llamacpp", __file__, made, Load(seed=seed),
                  Order(rounds=count, setups=order))  # type: ignore[arg-type]
    found = plans(asked, MACHINE)
    started = list(rounds(asked, found))
    assert started == list(rounds(asked, found))
    for number in range(count):
        own = [plan for at, plan in started if at == number]
        assert sorted(own, key=lambda plan: plan.title) == list(found)
        assert order == "shuffled" or own == list(found)
    assert all(before[0] <= after[0] for before, after in pairwise(started))


def test_shuffled_rounds_differ(weights: str) -> None:
    made = tuple(Setup(str(number), settings=(Setting("parallel", number),)) for number in range(5))
    asked = study(weights, *made, order=Order(rounds=4, setups="shuffled"))
    started = list(rounds(asked, plans(asked, MACHINE)))
    orders = {tuple(plan.title for at, plan in started if at == number) for number in range(4)}
    assert len(orders) > 1


def test_what_remains(weights: str, store: Store) -> None:
    asked = study(weights, load=Load((1, 4)), order=Order(repeats=2))
    first, second = plans(asked, MACHINE)
    todo = steps(asked, first, 0)
    faults = (None, Fault("stopped", "x"), Fault("killed", "x"), Fault("oom_kv", "x"))
    for number, (step, fault) in enumerate(zip(todo, faults, strict=True)):
        store.add_trial(stored.trial(str(number), plan=first, workload=step.workload, repeat=step.repeat, fault=fault))
    store.add_trial(stored.trial("other", study="other", plan=second, workload=todo[0].workload, repeat=0))
    left = remaining(asked, (first, second), store)
    assert left == {(0, first.key): (todo[1], todo[2]), (0, second.key): steps(asked, second, 0)}


def test_a_changed_load_is_measured_anew(weights: str, store: Store) -> None:
    asked = study(weights, A, load=Load((1,)), order=Order(repeats=1))
    (plan,) = plans(asked, MACHINE)
    (step,) = steps(asked, plan, 0)
    store.add_trial(stored.trial("t", plan=plan, workload=step.workload, repeat=0))
    assert remaining(asked, (plan,), store) == {(0, plan.key): ()}
    longer = replace(asked, load=replace(asked.load, output_tokens=9))
    assert remaining(longer, (plan,), store) == {(0, plan.key): steps(longer, plan, 0)}


def test_the_latest_start_says_whether_a_plan_failed(weights: str, store: Store) -> None:
    asked = study(weights)
    first, second = plans(asked, MACHINE)
    fault = Fault("oom_kv", "x")
    for name, plan, failed in (("1", first, fault), ("2", second, None), ("3", first, None), ("4", second, fault)):
        store.add_launch(replace(stored.launch(name), plan=plan, fault=failed))
    assert failed_plans(asked, store) == {second.key}


@pytest.mark.parametrize(("text", "words"), [
    (HEAD + "[[setup]]\ntitel = 'a'\n", "setup[0].titel|title"),
    (HEAD + "[laod]\n" + SETUP, "laod|load"),
    (HEAD + "[order]\nsetups = 'random'\n" + SETUP, "order.setups|shuffled"),
    (HEAD + "[load]\nconcurrency = ['a']\n" + SETUP, "load.concurrency|"),
    (HEAD + "[[setup]]\nlayout = { tp = 0 }\n", "tp must be a whole number|layout"),
    (HEAD + "[[setup]]\nlayout = { ep = 3 }\n", "ep 3 must divide|layout"),
    (HEAD.replace("schema = 1", "schema = 2") + SETUP, "schema 2|"),
    ("schema = 1\nname = 's'\n" + SETUP, "engine|"),
    (HEAD + "[[setup]\n", "not valid TOML|line 5"),
    ("\x00", "not valid TOML|"),
])
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as wrong:
        read_study(str(file))
    told = f"{wrong.value.what} {wrong.value.where} {wrong.value.remedy}"
    assert all(word in told for word in words.split("|")), told
    assert str(file) in told


@pytest.mark.parametrize(("engine", "model", "tokenizer", "words"), [
    ("llamacpp", "folder", "", "this is a folder|name a file in it: a.gguf, b.gguf"),
    ("llamacpp", "text", "", "this is none|.gguf"),
    ("vllm", "empty", "", "no config.json|config.json"),
    ("sglang", "empty", "", "no config.json|config.json"),
    ("llamacpp", "folder/a.gguf", "nowhere", "nowhere|"),
    ("llamacpp", "folder/a.gguf", "empty", "tokenizer|"),
    ("llamacpp", "folder/a.gguf", "text", "tokenizer|"),
])
def test_files_that_are_no_model_or_tokenizer(tmp_path: Path, engine: str, model: str, tokenizer: str,
                                              words: str) -> None:
    for name in ("folder", "empty"):
        (tmp_path / name).mkdir()
    for name in ("folder/a.gguf", "folder/b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "text").write_text("version https://git-lfs.github.com/spec/v1")
    path = str(tmp_path / tokenizer) if tokenizer else ""
    asked = replace(Study("s", engine, str(tmp_path / model), (A,)), tokenizer=path)
    with pytest.raises(BadInput) as wrong:
        check_files(asked)
    told = f"{wrong.value.what} {wrong.value.where} {wrong.value.remedy}"
    assert all(word in told for word in words.split("|")), told


def test_files_that_are_what_they_should_be(weights: str, tmp_path: Path) -> None:
    check_files(study(weights))
    (tmp_path / "config.json").write_text("{}")
    for engine in ("vllm", "sglang"):
        check_files(study(str(tmp_path), engine=engine))
    check_files(study("Example/Hub-7B", launcher="docker", image="a/b:1"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no study of that name") as wrong:
        read_study("smollm")
    assert "smollm2-cpu" in wrong.value.remedy
    with pytest.raises(BadInput, match="cannot be read"):
        read_study(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    with pytest.raises(BadInput, match="cannot be read"):
        read_study(str(tmp_path / "latin.toml"))


def test_the_studies_that_rooftop_brings_along() -> None:
    asked = read_study("smollm2-cpu")
    assert asked.name == "smollm2-cpu"
    assert len(asked.setup) >= 3
    assert {setup.layout.dp for setup in asked.setup} == {1, 2}
    assert workloads(asked)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_gets_a_hubs_model_itself(engine: str) -> None:
    asked = Study("s", engine, "Qwen/Qwen3-8B", (Setup("a"),), Load())
    assert model_of(asked).path == "Qwen/Qwen3-8B"
    check_files(asked)


@pytest.mark.parametrize(("engine", "model"), [("llamacpp", "Qwen/Qwen3-8B"), ("vllm", "src/Qwen3-8B"),
                                               ("vllm", "a/b/c"), ("vllm", "qwen")])
def test_what_is_no_name_of_a_hub(engine: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    with pytest.raises(BadInput, match="no model"):
        model_of(Study("s", engine, model, (Setup("a"),), Load()))
