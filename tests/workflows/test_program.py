"""Which program, which version, how many servers."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.study import Setup, Study
from rooftop.engines.llamacpp import ENGINE
from rooftop.errors import MissingPart
from rooftop.workflows import program
from rooftop.workflows.program import replicas, resolve, version
from rooftop.workflows.steps import plans

PLAN = Plan(Model("tiny"), "llamacpp", Layout())


def executable(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_users_own_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = executable(tmp_path / "llama-server", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve(PLAN, ENGINE) == ("llama-server",)
    assert resolve(replace(PLAN, binary=own), ENGINE) == (own,)
    wheel = (sys.executable, "-P", "-m", "rooftop.llama_server")
    assert resolve(replace(PLAN, binary="xllamacpp"), ENGINE) == wheel
    monkeypatch.setenv("PATH", "")
    assert resolve(PLAN, ENGINE) == wheel


def test_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    with pytest.raises(MissingPart, match="llama-server or xllamacpp") as missing:
        resolve(PLAN, ENGINE)
    assert "pip install 'rooftop[llamacpp]'" in missing.value.remedy
    with pytest.raises(MissingPart) as named:
        resolve(replace(PLAN, binary="xllamacpp"), ENGINE)
    assert named.value.remedy == "pip install 'rooftop[llamacpp]'"
    with pytest.raises(MissingPart, match="'no-such-program'"):
        resolve(replace(PLAN, binary="no-such-program"), ENGINE)


@pytest.mark.parametrize(("cores", "count", "shares"), [
    ({0, 1}, 1, [(0, 1)]),
    ({0, 1}, 2, [(0,), (1,)]),
    ({0, 2, 4, 6, 8}, 2, [(0, 2), (4, 6, 8)]),
    ({0, 1}, 3, [(0,), (1,), (0,)]),
])
def test_each_replica_has_its_share(monkeypatch: pytest.MonkeyPatch, cores: set[int], count: int,
                                    shares: list[tuple[int, ...]]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    made = replicas(replace(PLAN, layout=Layout(dp=count)), ENGINE)
    assert [one.cores for one in made] == shares
    assert [one.number for one in made] == list(range(count))
    assert all(one.plan.layout == Layout() for one in made)


def test_each_replica_sees_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("m", "c", 8, 1, tuple(Gpu("g") for _ in range(4)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plan = replace(PLAN, layout=Layout(tp=2, dp=2), machine=machine)
    assert [one.environment for one in replicas(plan, ENGINE)] == [
        (("CUDA_VISIBLE_DEVICES", "0,1"),), (("CUDA_VISIBLE_DEVICES", "2,3"),)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert replicas(plan, ENGINE)[1].environment == (("CUDA_VISIBLE_DEVICES", "6,7"),)
    own = replace(plan, environment=(Setting("CUDA_VISIBLE_DEVICES", "0"),))
    assert replicas(own, ENGINE)[0].environment == ()
    assert replicas(PLAN, ENGINE)[0].environment == ()


@pytest.mark.parametrize(("script", "told"), [
    ("echo 'version: 1234 (abc)' >&2", "version: 1234 (abc)"),
    ("echo hello; echo built 7", "built 7"),
    ("exit 3", ""),
    ("echo no", ""),
])
def test_version(tmp_path: Path, script: str, told: str) -> None:
    assert version(ENGINE, (executable(tmp_path / "x", script),), "") == told


@pytest.mark.parametrize(("head", "told"), [
    (f"#!{sys.executable}\nfrom vllm.main import main", "0.8.5"),
    (f"#!/bin/sh\n\'\'\'exec\' \"{sys.executable}\" \"$0\" \"$@\"\n\'\'\'\nimport vllm", "0.8.5"),
    (f"#!{sys.executable}\nimport something", ""),
    ("#!/bin/sh\nexec vllm", ""),
])
def test_the_installed_version_is_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str,
                                            told: str) -> None:
    (info := tmp_path / "vllm-0.8.5.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.8.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program._distribution.cache_clear()
    (own := tmp_path / "vllm").write_text(head + "\n")
    own.chmod(0o755)
    (model := tmp_path / "model").mkdir()
    asked = Study("s", "vllm", str(model), (Setup("a"),), binary=str(own))
    (plan,) = plans(asked, Machine("m", "c", 2, 1))
    assert plan.engine_version == told
    program._distribution.cache_clear()
    (inside,) = plans(replace(asked, launcher="docker", image="vllm/vllm-openai:v0.9.1"), Machine("m", "c", 2, 1))
    assert inside.engine_version == ""


def test_no_version_of_nothing() -> None:
    assert version(ENGINE, ("/nowhere/x",), "") == ""
