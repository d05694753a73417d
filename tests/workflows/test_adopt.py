"""A deployment taken in, put into a study, and handed back with the plan that won."""

import difflib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain import codec
from rooftop.domain.engine import Command, Seat
from rooftop.domain.form import Deployment
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.study import Study
from rooftop.errors import BadInput, NoLayout
from rooftop.workflows import steps
from rooftop.workflows.adopt import adopt, as_study, cautions, chosen, hand_over, refuses
from tests.forms.cases import FACTS, FOLDER, SECRETS, text


def taken(name: str) -> Deployment:
    return adopt(FOLDER / name)


def difference(deployment: Deployment, plan: Plan) -> list[str]:
    lines = difflib.unified_diff(deployment.text.splitlines(), hand_over(deployment, plan).splitlines(), n=0,
                                 lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def varied(plan: Plan, layout: Layout | None = None, **settings: str | int | float | bool | None) -> Plan:
    told = {one.name: one.value for one in plan.settings}
    changed = {**told, **{name.replace("_", "-"): value for name, value in settings.items()}}
    kept = tuple(Setting(name, value) for name, value in changed.items() if value is not None)
    return replace(plan, layout=layout or plan.layout, settings=kept)


@pytest.mark.parametrize("name", sorted(FACTS))
def test_nothing_changed_is_the_same_text(name: str) -> None:
    deployment = taken(name)
    assert deployment.form == FACTS[name]["form"]
    if refuses(deployment) is None:
        assert hand_over(deployment, deployment.plan) == text(name)


@pytest.mark.parametrize("name", sorted(FACTS))
def test_its_study_says_the_same_and_no_secret(name: str) -> None:
    deployment = taken(name)
    written = as_study(deployment)
    assert not any(secret in written for secret in SECRETS)
    study = codec.from_toml(Study, written, where=name)
    (setup,) = study.setup
    assert study.engine == deployment.plan.engine
    assert deployment.plan.layout in (setup.layout, None)
    told = {one.name: one.value for one in deployment.plan.settings if "$" not in str(one.value)}
    assert {one.name: one.value for one in study.settings} == told
    if refuses(deployment) is None:
        chosen = replace(deployment.plan, settings=study.settings, environment=study.environment, layout=setup.layout)
        if deployment.plan.layout is not None:
            assert hand_over(deployment, chosen) == text(name)


def test_a_model_in_a_container_is_found_outside() -> None:
    assert 'model = "/srv/models/Instruct-8B"' in as_study(taken("sglang.k8s.yaml"))
    assert 'model = "/srv/models/Example-30B-A3B"' in as_study(taken("vllm.compose.yaml"))
    assert 'model = "./models/example-3B-Q6_K.gguf"' in as_study(taken("llama.compose.yaml"))


@pytest.mark.parametrize(("name", "layout", "settings", "wanted"), [
    ("vllm-key.service", Layout(tp=1, pp=2), {}, ["-    -tp 2 \\", "-    --api-key sk-not-a-real-key-0123456789",
                                                "+    --api-key sk-not-a-real-key-0123456789 \\",
                                                "+    --pipeline-parallel-size 2"]),
    ("vllm-flags.sh", Layout(tp=8, ep=8), {}, None),
    ("sglang-run.docker.sh", Layout(tp=4, dp=2), {"max_running_requests": 256},
     ["-    --dp-size 4 \\", "-    --tp 2 \\", "+    --dp-size 2 \\", "+    --tp 4 \\",
      "-    --max-running-requests 64 \\", "+    --max-running-requests 256 \\"]),
    ("sglang-run.docker.sh", Layout(tp=8), {"trust_remote_code": None},
     ["-    --trust-remote-code \\", "-    --dp-size 4 \\", "-    --tp 2 \\", "+    --tp 8 \\"]),
    ("llama-flags.sh", Layout(pp=2), {"cache_type_k": "q8_0"},
     ["-  -ngl 29 -sm tensor --device CUDA0,CUDA1 \\", "+  -ngl 29 -sm layer --device CUDA0,CUDA1 \\",
      "-  --jinja", "+  --jinja \\", "+  --cache-type-k q8_0"]),
    ("vllm.compose.yaml", Layout(tp=2), {}, ["-      --enable-expert-parallel"]),
    ("vllm.compose.yaml", Layout(tp=1, dp=2, ep=2), {},
     ["-      --tensor_parallel_size ${TP:-2}", "+      --data-parallel-size 2"]),
    ("sglang.k8s.yaml", Layout(tp=2, attention_dp=2), {},
     ['-          args: ["--model-path", "/models/Instruct-8B", "--tp", "2", "--host", "0.0.0.0", "--port", "30000"]',
      '+          args: ["--model-path", "/models/Instruct-8B", "--tp", "2", "--host", "0.0.0.0", "--port", "30000", '
      '"--dp-size", "2", "--enable-dp-attention"]']),
], ids=str)
def test_a_changed_plan_changes_its_words_only(name: str, layout: Layout, settings: dict[str, str | int | None],
                                               wanted: list[str] | None) -> None:
    deployment = taken(name)
    plan = varied(deployment.plan, layout, **settings)
    told = difference(deployment, plan)
    if wanted is not None:
        assert sorted(told) == sorted(wanted)
    assert deployment.plan.layout != layout


def test_what_was_handed_over_is_the_plan(tmp_path: Path) -> None:
    for name, layout in (("vllm-flags.sh", Layout(tp=8, ep=8)), ("sglang-run.docker.sh", Layout(tp=8, ep=8)),
                         ("sglang-leader.k8s.yaml", Layout(tp=4, pp=2)), ("vllm-leader.k8s.yaml", Layout(tp=16))):
        deployment = taken(name)
        option = "json-model-override-args" if deployment.plan.engine == "sglang" else "hf-overrides"
        plan = varied(deployment.plan, layout, **{option: "x y"})
        plan = replace(plan, environment=(*plan.environment, Setting("NCCL_ALGO", "Ring")))
        file = tmp_path / name
        file.write_text(hand_over(deployment, plan), encoding="utf-8")
        again = adopt(file)
        assert again.plan.layout == layout
        assert again.plan.setting(option) == "x y"
        assert Setting("NCCL_ALGO", "Ring") in again.environment


def test_a_setup_of_the_study_is_handed_over() -> None:
    deployment = taken("sglang.k8s.yaml")
    more = '\n[[setup]]\ntitle = "more"\nlayout = { tp = 1, dp = 2 }\nsettings = { max-running-requests = 64 }\n'
    study = codec.from_toml(Study, as_study(deployment) + more, where="study")
    assert hand_over(deployment, chosen(deployment, study, "as deployed")) == deployment.text
    assert difference(deployment, chosen(deployment, study, "more"))[1].endswith(
        '"--host", "0.0.0.0", "--port", "30000", "--max-running-requests", "64", "--dp-size", "2"]')
    with pytest.raises(BadInput, match="has no setup 'less'") as caught:
        chosen(deployment, study, "less")
    assert caught.value.remedy == "name one of: 'as deployed', 'more'"


def studied(name: str) -> Study:
    return codec.from_toml(Study, as_study(taken(name)), where=name)


def test_it_runs_where_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert studied("vllm-flags.sh").launcher == "local"
    box = studied("vllm-docker.service")
    assert (box.launcher, box.image) == ("docker", "vllm/vllm-openai:v0.10.2")
    assert box.launcher_options == ("--gpus", "all", "--ipc", "host", "--volume", "/data/hf:/root/.cache/huggingface",
                                    "--env", "VLLM_API_KEY")
    assert studied("vllm-run.docker.sh").launcher_options[4:6] == (
        "--volume", "/home/me/.cache/huggingface:/root/.cache/huggingface")
    unit = studied("sglang-limits.service")
    assert (unit.launcher, unit.binary) == ("systemd", "/home/serve/llm/.venv/bin/python")
    assert unit.launcher_options == ("LimitNOFILE=65536", "OOMScoreAdjust=-999")


@pytest.mark.parametrize("name", sorted(FACTS))
def test_its_study_has_a_launcher_that_takes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "find", lambda path: Model(path, path))
    study = studied(name)
    (plan,) = steps.plans(study, Machine("m", "c", 2, 1))
    launcher = steps.launcher_of(plan)
    assert launcher.name == study.launcher
    assert plan.image == taken(name).image
    line = launcher.line(Command(("engine", "--flag")), Seat((), 1))
    assert plan.image in line
    assert line.startswith({"docker": "docker run ", "systemd": "systemd-run ", "local": "engine"}[study.launcher])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("name", sorted(name for name in FACTS if name.endswith(".service")))
def test_systemd_takes_a_unit_that_was_handed_back(name: str, tmp_path: Path) -> None:
    """Only programs that are not on this machine may be complained about."""
    deployment = taken(name)
    (file := tmp_path / name).write_text(hand_over(deployment, replace(
        deployment.plan, environment=(*deployment.plan.environment, Setting("LIST", "a b")))))
    done = subprocess.run(("systemd-analyze", "verify", "--man=no", str(file)), capture_output=True, text=True,
                          check=False, timeout=60)
    wrong = [line for line in done.stderr.splitlines() if name in line]
    assert all("is not executable" in line or "docker.service not found" in line for line in wrong), wrong


def test_secrets_come_back_where_they_stood() -> None:
    deployment = taken("vllm-key.service")
    written = hand_over(deployment, varied(deployment.plan, max_num_seqs=8))
    assert all(secret in written for secret in SECRETS)


def test_a_setting_in_another_spelling_is_the_same_setting() -> None:
    deployment = taken("llama-flags.sh")
    plan = varied(deployment.plan, ctx_size=None)
    told = difference(deployment, replace(plan, settings=(*plan.settings, Setting("c", 8192))))
    assert told == ["-  -c 4096 \\", "+  -c 8192 \\"]


def test_an_option_of_the_installed_version_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("sglang serve --model-path /m --disable-cuda-graph --tp 2\n")
    deployment = adopt(file)
    told = hand_over(deployment, varied(deployment.plan, disable_cuda_graph=None))
    assert told == "sglang serve --model-path /m --tp 2\n"


def test_what_cannot_be_handed_over() -> None:
    deployment = taken("vllm-flags.sh")
    with pytest.raises(BadInput, match="runs vllm"):
        hand_over(deployment, replace(deployment.plan, engine="sglang"))
    with pytest.raises(BadInput, match="serves another"):
        hand_over(deployment, replace(deployment.plan, model=replace(deployment.plan.model, name="another", path="x")))
    with pytest.raises(NoLayout, match="no attention replicas"):
        hand_over(deployment, varied(deployment.plan, Layout(tp=4, attention_dp=4)))
    llama = taken("llama-flags.sh")
    with pytest.raises(BadInput, match="one llamacpp server is one replica"):
        hand_over(llama, varied(llama.plan, Layout(dp=2)))


def test_more_gpus_than_the_text_gives_are_told() -> None:
    deployment = taken("sglang.k8s.yaml")
    assert cautions(deployment, deployment.plan) == ()
    assert cautions(deployment, varied(deployment.plan, Layout(tp=8))) == (
        "tp 8 needs 8 GPUs, the text gives it 2",)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        adopt(tmp_path / "nothing")
    (tmp_path / "notes").write_text("some words\n")
    with pytest.raises(BadInput, match="no vLLM, SGLang or llama-server"):
        adopt(tmp_path / "notes")
    (tmp_path / "helm.yaml").write_text("apiVersion: v1\nkind: Pod\n{{- if .Values.spec }}\nspec: 1\n")
    with pytest.raises(BadInput, match="not valid YAML") as caught:
        adopt(tmp_path / "helm.yaml")
    assert "helm template" in caught.value.remedy
    assert str(tmp_path) in caught.value.where


def test_a_study_needs_model_and_layout(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("vllm serve $MODEL\n")
    with pytest.raises(BadInput, match="needs a model"):
        as_study(adopt(tmp_path / "run.sh"))
    (tmp_path / "run.sh").write_text("vllm serve /m --tensor-parallel-size $TP\n")
    with pytest.raises(BadInput, match="needs a layout"):
        as_study(adopt(tmp_path / "run.sh"))
