"""Real vLLM on CPUs: only with `-m vllm`; each layout is started once, by a study whose store all tests read."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rooftop.domain.launch import Launch
from rooftop.domain.plan import Setting
from rooftop.domain.progress import silent
from rooftop.domain.study import Study
from rooftop.domain.trial import Trial
from rooftop.store import Store
from rooftop.workflows.steps import read_study
from rooftop.workflows.study import run_study
from tests.vllm import environment, models

HERE = Path(__file__).parent
REQUIRED = os.environ.get("ROOFTOP_REQUIRE_VLLM") == "1"


def home() -> Path:
    """Where the environment (`env`) and the models (`models`) are: `ROOFTOP_VLLM_HOME`."""
    return Path(os.environ.get("ROOFTOP_VLLM_HOME") or Path.home() / ".cache" / "rooftop" / "vllm").absolute()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "vllm" in config.getoption("markexpr"):
        return
    mine = [item for item in items if HERE in item.path.parents]
    config.hook.pytest_deselected(items=mine)
    items[:] = [item for item in items if HERE not in item.path.parents]


def missing() -> str:
    """What is not there yet, and how to make it; "" where all is."""
    env, made = home() / "env", home() / "models"
    if not environment.is_ready(env):
        return f"there is no vLLM environment: run `python tests/vllm/environment.py {env}`"
    if not models.is_ready(made):
        return (f"there are no test models: run `rooftop fetch smollm2-135m`, then "
                f"`{env}/bin/python tests/vllm/models.py GGUF {made}`")
    return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one setup of a study came to: its start, its levels and its server's log."""

    launch: Launch
    trials: tuple[Trial, ...]
    log: str


Run = Callable[[str, str], Outcome]


@pytest.fixture(scope="session")
def vllm_home() -> Path:
    why = missing()
    if why and REQUIRED:
        pytest.fail(why)
    if why:
        pytest.skip(why)
    return home()


@pytest.fixture(scope="session")
def store(vllm_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("vllm") / "vllm.sqlite") as opened:
        yield opened


def study(file: str, where: Path) -> Study:
    """A study of this folder, with its model and program where they are here."""
    read = read_study(str(HERE / f"{file}.toml"))
    cache = Setting("VLLM_CACHE_ROOT", str(where / "cache"))
    return replace(read, model=str(where / "models" / read.model), binary=str(where / "env" / "bin" / "vllm"),
                   environment=(*read.environment, cache))


def sweep(log: str) -> None:
    """Remove the sockets that a server leaves behind, named in its log; its shared memory must be gone already."""
    for name in set(re.findall(r"vllm_dist_[0-9a-f]{32}", log)):
        assert not [*Path("/dev/shm").glob(f"{name}*")]
        for left in Path(tempfile.gettempdir()).glob(f"{name}*"):
            left.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def run(vllm_home: Path, store: Store) -> Iterator[Run]:
    """Run one setup of a study by its title, or read what it came to before: a study never runs a level twice."""

    def once(file: str, title: str) -> Outcome:
        whole = study(file, vllm_home)
        one = tuple(setup for setup in whole.setup if setup.title == title)
        assert len(one) == 1, f"{file}.toml has no setup {title!r}"
        run_study(replace(whole, setup=one), store=store, tell=silent)
        launch = next(launch for launch in store.launches(study=whole.name) if launch.plan.title == title)
        trials = tuple(trial for trial in store.trials(study=whole.name) if trial.launch_id == launch.id)
        return Outcome(launch, trials, store.log(launch.id) if launch.servers else "")

    yield once
    for launch in store.launches():
        if launch.servers:
            sweep(store.log(launch.id))
