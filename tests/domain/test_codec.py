import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.domain import codec
from rooftop.domain.launch import Launch
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.study import Load, Order, Setup, Study
from rooftop.domain.trial import Reply, Trial
from rooftop.domain.workload import Workload
from rooftop.errors import BadInput
from tests.domain import nouns

STUDY = """
name = "layouts"
engine = "llamacpp"
model = "m.gguf"
settings = { ctx-size = 2048, flash-attn = true }

[[setup]]
title = "one slot"
settings = { parallel = 1 }

[[setup]]
layout = { dp = 2 }

[load]
concurrency = [1, 8]
seconds = 5

[order]
repeats = 2
"""


def test_every_noun_is_seen() -> None:
    assert {"Trial", "Launch", "Study", "Plan", "Machine", "Measurement", "Matrix"} <= {k.__name__ for k in nouns.KINDS}


@pytest.mark.parametrize("kind", nouns.KINDS, ids=lambda kind: kind.__name__)
def test_json_round_trip(kind: type) -> None:
    @settings(max_examples=15, deadline=None, database=None, derandomize=True)
    @given(nouns.of(kind), st.sampled_from([None, 2]))
    def check(noun: Any, indent: int | None) -> None:
        text = codec.to_json(noun, indent=indent)
        text.encode()
        assert codec.from_json(kind, text) == noun
        assert json.loads(text)["schema"] == codec.SCHEMA

    check()


def test_types_survive() -> None:
    plan = Plan(Model("m"), settings=(Setting("a", 1), Setting("b", 1.0), Setting("c", True), Setting("d", "1")))
    back = codec.from_json(Plan, codec.to_json(plan))
    assert [type(setting.value) for setting in back.settings] == [int, float, bool, str]


def test_a_flag_given_twice_is_kept_twice() -> None:
    plan = Plan(Model("m"), settings=(Setting("lora", "a"), Setting("lora", "b")))
    assert codec.from_json(Plan, codec.to_json(plan)) == plan


def test_a_lone_surrogate_is_kept_and_can_be_written() -> None:
    reply = Reply(0, 0, 0, 0, 0, text="cut \ud83d here")
    text = codec.to_json(reply)
    assert codec.from_json(Reply, text.encode().decode()) == reply


def test_other_alphabets_stay_readable() -> None:
    assert "größe 大" in codec.to_json(Model("größe 大"))


def test_nan_is_kept() -> None:
    back = codec.from_json(Setting, codec.to_json(Setting("x", math.nan)))
    assert isinstance(back.value, float)
    assert math.isnan(back.value)


def test_a_study_as_its_user_writes_it() -> None:
    assert codec.from_toml(Study, STUDY, where="study.toml") == Study(
        name="layouts", engine="llamacpp", model="m.gguf",
        settings=(Setting("ctx-size", 2048), Setting("flash-attn", True)),
        setup=(Setup(title="one slot", settings=(Setting("parallel", 1),)), Setup(layout=Layout(dp=2))),
        load=Load(concurrency=(1, 8), seconds=5.0), order=Order(repeats=2))


def paths(data: Any, path: str = "") -> list[str]:
    """Every key of plain data that is a field of a noun (settings are the user's own)."""
    found = []
    for key, value in data.items():
        here = f"{path}.{key}" if path else key
        found.append(here)
        if key in ("settings", "environment"):
            continue
        if isinstance(value, dict):
            found += paths(value, here)
        elif isinstance(value, list):
            tables = [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]
            found += [inner for i, item in tables for inner in paths(item, f"{here}[{i}]")]
    return found


def rename(data: Any, path: str, new: str) -> None:
    *folders, key = path.replace("[", ".[").split(".")
    for folder in folders:
        data = data[int(folder[1:-1])] if folder.startswith("[") else data[folder]
    data[new] = data.pop(key)


WHOLE_STUDY = codec.to_plain(codec.from_toml(Study, STUDY, where=""))


def typos() -> list[tuple[str, str, str]]:
    """(path, its key, a slip of the pen); the short degrees are as near to each other as to a slip, but for one."""
    found = []
    for path in paths(WHOLE_STUDY):
        key = path.rpartition(".")[2]
        found.append((path, key, key[:1] + key))
        if len(key) > 3:
            found += [(path, key, key[:-1]), (path, key, key[1:2] + key[:1] + key[2:])]
    return found


@pytest.mark.parametrize(("path", "key", "wrong"), typos())
def test_a_typo_is_named_with_its_path_and_its_nearest_key(path: str, key: str, wrong: str) -> None:
    data = json.loads(json.dumps(WHOLE_STUDY))
    rename(data, path, wrong)
    with pytest.raises(BadInput) as caught:
        codec.from_json(Study, json.dumps(data), where="study.json")
    assert repr(path.removesuffix(key) + wrong) in caught.value.what
    assert caught.value.where == "study.json"
    assert repr(key) in caught.value.remedy


@pytest.mark.parametrize(("text", "what"), [
    ("[", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ("[]", "the file must be a table, not []"),
    ('{"schema": 9, "name": "m"}', "schema 9"),
    ("{}", "missing key 'name'"),
    ('{"name": 3}', "name must be a word in quotes, not 3"),
    ('{"name": null}', "name must be a word in quotes, not null"),
    ('{"name": "m", "bytes": 1.5}', "bytes must be a whole number, not 1.5"),
    ('{"name": "m", "bytes": true}', "bytes must be a whole number, not true"),
    ('{"name": "m", "bytes": ' + "9" * 5000 + "}", "not valid JSON"),
])
def test_a_wrong_model_is_refused(text: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        codec.from_json(Model, text, where="here")
    assert what in caught.value.what
    assert caught.value.where == "here"


@pytest.mark.parametrize(("change", "what"), [
    ({"load": {"concurrency": 8}}, "load.concurrency must be a list, not 8"),
    ({"load": {"concurrency": [1, "8"]}}, 'load.concurrency[1] must be a whole number, not "8"'),
    ({"load": {"natural": 1}}, "load.natural must be true or false, not 1"),
    ({"load": {"seconds": "5"}}, 'load.seconds must be a number, not "5"'),
    ({"load": {"seconds": 10**400}}, "load.seconds must be a number, not 1000"),
    ({"load": {"api": "grpc"}}, "load.api must be one of 'chat', 'completions', 'generate', not \"grpc\""),
    ({"load": [1]}, "load must be a table, not [1]"),
    ({"setup": [{"layout": {"tp": 0}}]}, "setup[0].layout: tp must be a whole number of at least 1, not 0"),
    ({"setup": [{"layout": {"tp": 4, "dcp": 3}}]}, "setup[0].layout: dcp 3 must divide tp 4"),
    ({"setup": [{"settings": {"parallel": [1]}}]}, "setup[0].settings.parallel must be a word, a number or true/false"),
    ({"settings": 3}, "settings must be a table, not 3"),
    ({"settings": {"a": None}}, "settings.a must be a word"),
])
def test_a_wrong_study_is_refused_with_its_path(change: dict[str, Any], what: str) -> None:
    data = {"name": "s", "engine": "e", "model": "m", "setup": [], **change}
    with pytest.raises(BadInput) as caught:
        codec.from_plain(Study, data, where="study.toml")
    assert what in caught.value.what


@pytest.mark.parametrize("text", ["name = ", "name = 1\nname = 2", "x = " + "9" * 5000, "x = " + "[" * 100_000])
def test_what_is_not_toml_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not valid TOML"):
        codec.from_toml(Study, text, where="study.toml")


@pytest.mark.parametrize("packed", ["%%%", "a", "ü"])
def test_what_is_not_base64_is_refused(packed: str) -> None:
    data = {"number": 0, "due_ns": 0, "sent_ns": 0, "headers_ns": 0, "end_ns": 0, "chunk_ns": packed}
    with pytest.raises(BadInput, match="chunk_ns must be bytes in base64"):
        codec.from_plain(Reply, data, where="")


PLAIN = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                         st.sampled_from(["plan", "workload", "model", "name", "layout", "tp", "replies", "x"]), inner,
                         max_size=4), max_leaves=12)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(PLAIN, st.sampled_from([Trial, Launch, Study, Plan, Workload]))
def test_anything_else_is_bad_input_and_no_crash(data: Any, kind: type) -> None:
    with suppress(BadInput):
        assert isinstance(codec.from_plain(kind, data, where="x"), kind)
