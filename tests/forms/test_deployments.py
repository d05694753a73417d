"""Public deployments, in neutral words: what they mean, the same text back, one change one difference."""

import difflib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.form import Deployment
from rooftop.domain.plan import Setting, SettingValue
from rooftop.errors import BadInput, MissingPart
from tests.forms.cases import FACTS, FOLDER, FORMS, SECRETS, form, text

CASES = sorted(FACTS)


def table(settings: tuple[Setting, ...]) -> dict[str, SettingValue]:
    return {one.name: one.value for one in settings}


def changed(deployment: Deployment, settings: dict[str, SettingValue | None]) -> Deployment:
    told = {name: value for name, value in {**table(deployment.flags), **settings}.items() if value is not None}
    return replace(deployment, flags=tuple(Setting(*pair) for pair in told.items()))


def difference(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def test_every_case_is_told() -> None:
    assert set(CASES) == {path.name for path in FOLDER.iterdir()} - {"facts.toml", "README.md"}


@pytest.mark.parametrize("name", CASES)
def test_one_form_reads_it(name: str) -> None:
    assert [form for form in FORMS if FORMS[form].reads(text(name))] == [FACTS[name]["form"]]


@pytest.mark.parametrize("name", CASES)
def test_it_means_what_it_says(name: str) -> None:
    facts, deployment = FACTS[name], form(name).read(text(name))
    plan = deployment.plan
    assert (plan.engine, plan.engine_version) == (facts["engine"], facts.get("version", ""))
    assert str(plan.layout or "unknown") == facts["layout"]
    assert (plan.model.path, plan.binary) == (facts["model"], facts.get("binary", ""))
    assert plan.model.name == facts.get("name", facts["model"].rsplit("/", 1)[-1])
    assert table(plan.settings) == facts.get("settings", {})
    assert table(plan.environment) == table(deployment.environment) == facts.get("environment", {})
    assert (deployment.image, deployment.port) == (facts.get("image", ""), facts["port"])
    assert set(deployment.secrets) == set(facts.get("secrets", ()))
    assert deployment.gpus == facts.get("gpus", deployment.gpus)


@pytest.mark.parametrize("name", CASES)
def test_no_secret_leaves_the_text(name: str) -> None:
    shown = repr(form(name).read(text(name)))
    assert not any(secret in shown for secret in SECRETS)


@pytest.mark.parametrize("name", CASES)
def test_the_same_text_comes_back(name: str) -> None:
    deployment = form(name).read(text(name))
    assert form(name).write(deployment) == text(name)


@pytest.mark.parametrize("name", CASES)
def test_one_change_is_one_difference(name: str) -> None:
    facts, deployment = FACTS[name], form(name).read(text(name))
    written = form(name).write(changed(deployment, facts["change"]))
    assert difference(text(name), written) == facts["diff"]
    after = form(name).read(written)
    assert table(after.flags) == {**table(deployment.flags), **facts["change"]}
    assert (after.environment, after.secrets, after.kept) == (deployment.environment, deployment.secrets,
                                                               deployment.kept)


@pytest.mark.parametrize("name", CASES)
def test_each_flag_can_be_changed_and_changed_back(name: str) -> None:
    deployment = form(name).read(text(name))
    for flag in deployment.flags:
        other: SettingValue = not flag.value if isinstance(flag.value, bool) else 7 if flag.value != 7 else 8
        written = form(name).write(changed(deployment, {flag.name: other}))
        after = form(name).read(written)
        if other is not False:
            assert str(table(after.flags)[flag.name]) == str(other)
        assert {**table(after.flags), flag.name: flag.value} == table(deployment.flags)


@pytest.mark.parametrize("name", CASES)
def test_each_flag_can_be_removed(name: str) -> None:
    deployment = form(name).read(text(name))
    for flag in deployment.flags:
        if flag.name == "model" and deployment.plan.engine == "vllm":
            continue
        written = form(name).write(changed(deployment, {flag.name: None}))
        after = form(name).read(written)
        assert table(after.flags) == {key: value for key, value in table(deployment.flags).items() if key != flag.name}
        assert len(written) < len(text(name))


@pytest.mark.parametrize("name", CASES)
def test_variables_come_and_go(name: str) -> None:
    deployment = form(name).read(text(name))
    more = replace(deployment, environment=(*deployment.environment, Setting("NCCL_ALGO", "Ring, Tree"),
                                            Setting("OMP_PLACES", 2)))
    written = form(name).write(more)
    after = form(name).read(written)
    assert table(after.environment) == {**table(deployment.environment), "NCCL_ALGO": "Ring, Tree", "OMP_PLACES": "2"}
    assert after.flags == deployment.flags
    back = form(name).write(replace(after, environment=deployment.environment))
    assert table(form(name).read(back).environment) == table(deployment.environment)
    for one in deployment.environment:
        less = replace(deployment, environment=tuple(other for other in deployment.environment if other != one))
        if f"${{{one.name}}}" in text(name):
            with pytest.raises(BadInput, match="cannot be made to say threads"):  # which takes its value from it
                form(name).write(less)
            continue
        assert table(form(name).read(form(name).write(less)).environment) == table(less.environment)


def test_what_no_form_reads(tmp_path: Path) -> None:
    for nothing in ("", "echo vllm serve\n", "pip install vllm\n", "docker run ubuntu bash\n", "a: b\n", "[Service]\n"):
        assert not [name for name in FORMS if FORMS[name].reads(nothing)], nothing
    with pytest.raises(BadInput, match="no service in it runs"):
        FORMS["compose"].read("services:\n  web:\n    image: nginx\n")


def test_one_of_several_is_named() -> None:
    both = text("vllm-flags.sh") + "\nvllm serve /models/other --port 9004\n"
    with pytest.raises(BadInput, match="several engines run in it: 1, 3"):
        FORMS["command"].read(both)
    other = FORMS["command"].read(both, "3")
    assert (other.plan.model.path, other.port) == ("/models/other", 9004)
    written = FORMS["command"].write(changed(other, {"max-num-seqs": 8}))
    assert difference(both, written) == ["-vllm serve /models/other --port 9004",
                                         "+vllm serve /models/other --port 9004 --max-num-seqs 8"]


def test_yaml_needs_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPart, match="needs PyYAML"):
        FORMS["compose"].read(text("vllm.compose.yaml"))
