"""Words and numbers of a study that no run could take are refused with their place in the file."""

from pathlib import Path

import pytest

from rooftop.errors import BadInput
from rooftop.workflows.steps import read_study

FILE = """name = {name}
engine = "llamacpp"
model = "smollm2-135m"
{top}
[load]
concurrency = {users}
{load}
[order]
{order}
[[setup]]
title = {title}
{setup}
"""
SOUND = {"name": '"s"', "top": "", "users": "[1, 4]", "load": "", "order": "", "title": '"a"', "setup": ""}


@pytest.mark.parametrize(("changed", "place"), [
    ({"name": '""'}, "name must not be empty"),
    ({"name": '"\\u001b[31mred"'}, r"name holds a character that cannot be printed: '\x1b"),
    ({"title": '"a\\nrm -r x"'}, r"setup[0].title holds a character that cannot be printed: 'a\n"),
    ({"title": '"\\u202eevil"'}, "setup[0].title holds"),
    ({"title": f'"{"x" * 201}"'}, "setup[0].title must have at most 200"),
    ({"users": "[99999999999999999999]"}, "load.concurrency must be from 1 to 10000"),
    ({"load": f"input_tokens = {10**30}"}, "load.input_tokens must be from 1"),
    ({"load": f"output_tokens = {10**30}"}, "load.output_tokens must be from 1"),
    ({"load": "output_tokens = 0"}, "load.output_tokens must be at least 1, not 0"),
    ({"load": "shared_prefix_tokens = -1"}, "load.shared_prefix_tokens must be from 0"),
    ({"load": "shared_prefix_tokens = 1000"}, "load.shared_prefix_tokens must be from 0 to 128"),
    ({"load": "least_requests = -5"}, "load.least_requests must be at least 1, not -5"),
    ({"load": "seconds = nan"}, "load.seconds must be from"),
    ({"load": "seconds = inf"}, "load.seconds must be from"),
    ({"load": "seconds = 1e300"}, "load.seconds must be from"),
    ({"order": "repeats = 1000000000000"}, "order.repeats must be from 1 to 10000"),
    ({"order": "rounds = 1000000000"}, "order.rounds must be from 1 to 10000"),
    ({"order": "repeats = 10000\nrounds = 10000"}, "200000000 load levels"),
    ({"top": "start_timeout_s = nan"}, "start_timeout_s must be from"),
    ({"top": "start_timeout_s = -1"}, "start_timeout_s must be above 0, not -1"),
    ({"setup": "layout = { dp = 99999999999999999999 }"}, "setup[0].layout.dp must be from 1 to 4096"),
    ({"setup": "environment = { 'A=B' = 'x' }"}, "setup[0].environment has a key that cannot be a name: 'A=B'"),
    ({"setup": "settings = { '' = 1 }"}, "setup[0].settings has a key"),
    ({"setup": "settings = { x = inf }"}, "setup[0].settings.x must be a number that ends"),
    ({"top": 'environment = { A = "x\\u0000y" }'}, "environment.A holds"),
])
def test_what_no_run_could_take_is_refused_with_its_place(tmp_path: Path, changed: dict[str, str], place: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(FILE.format(**{**SOUND, **changed}), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read_study(str(file))
    assert place in caught.value.what
    assert caught.value.where == str(file)


def test_what_is_unusual_but_can_run_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(FILE.format(**{**SOUND, "title": '"größer <b> 😀"', "top": 'environment = { A = "two\\nlines" }',
                                   "load": "seconds = 0.5\nseed = -3", "setup": "settings = { x = -1 }"}),
                    encoding="utf-8")
    assert read_study(str(file)).setup[0].title == "größer <b> 😀"
