"""Studies in containers and units, against stand-ins for docker, systemd-run and systemctl that run the fake engine.

No container and no unit is started: the stand-in keeps each server apart from the client that started it, as a daemon
would, so that what ends it is what rooftop says to the daemon.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.engine import Engine, Seat
from rooftop.domain.launch import Launch
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.progress import silent
from rooftop.domain.study import Setup, Study
from rooftop.domain.trial import Trial
from rooftop.engines.llamacpp import ENGINE
from rooftop.engines.sglang import ENGINE as SGLANG
from rooftop.engines.vllm import ENGINE as VLLM
from rooftop.errors import BadInput
from rooftop.store import Store
from rooftop.workflows.program import resolve
from rooftop.workflows.rehearse import rehearse
from rooftop.workflows.steps import launcher_of, plans
from rooftop.workflows.study import run_study
from tests.workflows import fakes
from tests.workflows.test_study import in_second_level, spools, wait_until

STUB = Path(__file__).parent.parent / "launchers" / "stub.py"
IMAGE = "example/image:1"
PLACES: dict[str, dict[str, Any]] = {"docker": {"launcher": "docker", "image": IMAGE},
                                     "systemd": {"launcher": "systemd"}}
MACHINE = Machine("m", "c", 2, 1)


@pytest.fixture(autouse=True)
def _nothing_left(engine: Path) -> Iterator[None]:
    yield
    assert fakes.servers(engine) == []


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins, first on the path; the folder where they note what they are told."""
    (folder := tmp_path / "daemon").mkdir()
    (programs := tmp_path / "programs").mkdir()
    for name in ("docker", "systemd-run", "systemctl"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P {STUB} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("ROOFTOP_STUB", str(folder))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return folder


def calls(daemon: Path) -> list[list[str]]:
    return [json.loads(line) for line in (daemon / "calls").read_text().splitlines()]


def run(study: Study, folder: Path) -> tuple[list[Trial], list[Launch], str]:
    with Store.open(folder / "s.sqlite") as store:
        run_study(study, store=store, tell=silent)
        launches = list(store.launches(study=study.name))
        return list(store.trials()), launches, store.log(launches[0].id)


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_study_runs_there(place: str, engine: Path, daemon: Path, tmp_path: Path) -> None:
    two = fakes.setup("two", layout=Layout(dp=2), slots=1)
    asked = replace(fakes.study(engine, fakes.setup("a"), two, users=(1, 2)), **PLACES[place])
    trials, launches, log = run(asked, tmp_path)
    assert [trial.valid for trial in trials] == [True] * 4
    assert all(reply.ok for trial in trials for reply in trial.replies)
    assert {trial.plan.launcher for trial in trials} == {place}
    assert {trial.plan.image for trial in trials} == {PLACES[place].get("image", "")}
    assert all({claim.holds for claim in launch.claims} == {True} for launch in launches)
    assert "listening on" in log
    told = calls(daemon)
    begun = {words[words.index(flag) + 1] for words in told for flag in ("--name", "--unit") if flag in words}
    assert len(begun) == 3
    assert {words[-1] for words in told if "stop" in words} == begun


def test_a_start_that_fails_there_is_kept_with_the_logs_reason(engine: Path, daemon: Path, tmp_path: Path) -> None:
    asked = replace(fakes.study(engine, fakes.setup("a", "does not start")), **PLACES["docker"])
    trials, (launch,), _ = run(asked, tmp_path)
    assert trials == []
    assert launch.fault is not None
    assert launch.fault.kind == "oom_kv"


@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(place: str, number: signal.Signals, engine: Path, daemon: Path, tmp_path: Path) -> None:
    file = fakes.write_study(tmp_path, engine, mode="stalls at two users")
    keys = "".join(f'{key} = "{value}"\n' for key, value in PLACES[place].items())
    file.write_text(file.read_text().replace('name = "fakes"\n', f'name = "fakes"\n{keys}'))
    command = (sys.executable, "-m", "rooftop", "study", str(file), "--store", "s.sqlite")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rooftop:
        wait_until(lambda: any((spool / "reads.bin").exists() and in_second_level(spool) for spool in spools(tmp_path)))
        assert fakes.servers(engine) != []
        rooftop.send_signal(number)
        code = rooftop.wait(60)
    wait_until(lambda: not fakes.servers(engine))
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)


def lines(study: Study, engine: Path) -> list[str]:
    return shlex.split(dict(rehearse(study, ENGINE, None).setups)["a"][0])


def test_a_dry_run_says_what_docker_is_told(engine: Path, daemon: Path) -> None:
    asked = replace(fakes.study(engine, fakes.setup("a", "x")), launcher_options=("--gpus", "all", "--volume", "/a:/b"),
                    **PLACES["docker"])
    words = lines(asked, engine)
    assert words[:6] == ["docker", "run", "--name", "rooftop-example", "--rm", "--network"]
    assert words[words.index("--entrypoint") + 1:][:2] == [str(engine), IMAGE]
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "--volume"]
    assert volumes == ["/a:/b", f"{engine.parent}:{engine.parent}:ro"]
    assert "FAKE=x" in words
    assert words[words.index(IMAGE) + 1:][:2] == ["--model", str(engine.with_name("tiny.gguf"))]
    assert not (daemon / "calls").exists()


def test_a_dry_run_says_what_systemd_is_told(engine: Path, daemon: Path) -> None:
    asked = replace(fakes.study(engine, fakes.setup("a")), launcher="systemd", launcher_options=("MemoryMax=60%",))
    words = lines(asked, engine)
    assert words[0] == "systemd-run"
    assert ("--user" in words) is (os.geteuid() != 0)
    assert words[words.index("MemoryMax=60%") - 1] == "--property"
    assert words[words.index("--") + 1] == str(engine)
    assert not (daemon / "calls").exists()


Change = dict[str, Any]


@pytest.mark.parametrize(("change", "words"), [
    ({"launcher": "docker"}, "needs an image"),
    ({"launcher": "dokcer"}, "no launcher named 'dokcer'"),
    ({"image": IMAGE}, "neither image nor launcher_options"),
    ({"launcher": "systemd", "image": IMAGE}, "a unit has no image"),
    ({"launcher": "systemd", "launcher_options": ("--gpus",)}, "is no property"),
    ({"launcher": "docker", "image": IMAGE, "launcher_options": ("-p", "1:1")}, "sets -p of a container itself"),
    ({"launcher": "docker", "image": IMAGE, "launcher_options": ("--name=x",)}, "sets --name of a container itself"),
    ({"launcher": "docker", "image": IMAGE, "model": "/inside/only.gguf"}, "no model"),
    ({"model": "Example/Hub-7B"}, "no model"),
])
def test_places_that_cannot_be(change: Change, words: str, engine: Path) -> None:
    with pytest.raises(BadInput, match=words) as wrong:
        plans(replace(fakes.study(engine, fakes.setup("a")), **change), MACHINE)
    assert wrong.value.remedy


@pytest.mark.parametrize(("model", "path", "name"), [
    ("Example/Hub-7B", "Example/Hub-7B", "Example/Hub-7B"),
    ("/models/inside-7B", "/models/inside-7B", "inside-7B"),
])
def test_a_model_that_only_the_container_sees(model: str, path: str, name: str, engine: Path) -> None:
    asked = replace(fakes.study(engine, fakes.setup("a")), model=model, launcher_options=("-v", "store:/models"),
                    **PLACES["docker"])
    (plan,) = plans(asked, MACHINE)
    assert (plan.model.path, plan.model.name) == (path, name)


def test_a_setup_may_have_an_image_of_its_own(engine: Path) -> None:
    asked = replace(fakes.study(engine, fakes.setup("old"), replace(fakes.setup("new"), image="example/image:2")),
                    **PLACES["docker"])
    old, new = plans(asked, MACHINE)
    assert (old.image, new.image) == (IMAGE, "example/image:2")
    assert old.key != new.key


def test_links_of_a_hubs_cache_are_seen_inside(tmp_path: Path, engine: Path) -> None:
    for folder in ("blobs", "snapshots/1"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "blobs" / "abc").write_bytes(b"w")
    (tmp_path / "snapshots" / "1" / "model.safetensors").symlink_to("../../blobs/abc")
    asked = replace(fakes.study(engine, fakes.setup("a")), engine="vllm", model=str(tmp_path / "snapshots" / "1"),
                    **PLACES["docker"])
    (plan,) = plans(asked, MACHINE)
    line = launcher_of(plan).line(VLLM.command(plan, _seat(resolve(plan, VLLM, here=False))), _seat(("vllm",)))
    for folder in ("blobs", "snapshots/1"):
        assert f"--volume {tmp_path / folder}:{tmp_path / folder}:ro" in line


def _seat(program: tuple[str, ...]) -> Seat:
    return Seat(program, 8000)


@pytest.mark.parametrize(("kind", "program"), [
    (VLLM, ("vllm",)), (SGLANG, ("python3", "-m", "sglang.launch_server")), (ENGINE, ("/app/llama-server",))])
def test_the_program_of_an_image_is_not_looked_for_here(kind: Engine, program: tuple[str, ...],
                                                        engine: Path) -> None:
    (plan,) = plans(replace(fakes.study(engine, Setup("a")), binary="", **PLACES["docker"]), MACHINE)
    assert resolve(plan, kind, here=False) == program
    assert resolve(replace(plan, binary="/opt/x"), kind, here=False) == ("/opt/x",)
