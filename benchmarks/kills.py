"""Kill -9 at random moments of a study: is a finished level lost, a server left, a level run twice?

    python benchmarks/kills.py --kills 20

Each run of `rooftop study` is killed after a random time and started again on the same store; a study that ends before
its kill is checked, and the next begins.  After the last kill the study runs to its end.  The engine is the real server
of the xllamacpp wheel where the weights of smollm2-135m are fetched, else (or with --fake) the tests' fake one.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.workflows import fakes  # noqa: E402

from rooftop.domain.study import Study  # noqa: E402
from rooftop.errors import BadInput, MissingPart, StoreFailed  # noqa: E402
from rooftop.store import Store  # noqa: E402
from rooftop.workflows.fetch import find  # noqa: E402
from rooftop.workflows.steps import read_study  # noqa: E402

GONE_S = 30.0


@dataclass
class Kill:
    """One kill: when, what ran then, what was stored before and is missing after, how long processes stayed."""

    at_s: float
    doing: str
    stored: int
    lost: int
    processes: int
    gone_s: float | None


def write_study(folder: Path, fake: bool) -> Path:
    """Two setups at two loads, twice: eight levels of a second or two."""
    if fake:
        engine = fakes.program(folder)
        model, binary, script = engine.with_name("tiny.gguf"), str(engine), "SCRIPT = '{\"itl_s\": 0.02}'"
    else:
        model, binary, script = Path("smollm2-135m"), "xllamacpp", 'OMP_WAIT_POLICY = "passive"'
    file = folder / "study.toml"
    file.write_text(f"""schema = 1
name = "kills"
engine = "llamacpp"
model = "{model}"
binary = "{binary}"
[load]
concurrency = [1, 2]
input_tokens = 16
output_tokens = 8
requests_per_user = 2
least_requests = 4
[order]
repeats = 2
[environment]
{script}
[[setup]]
title = "one server"
settings = {{ parallel = 2, threads = 2, ctx-size = 512 }}
[[setup]]
title = "two replicas"
layout = {{ dp = 2 }}
settings = {{ parallel = 1, threads = 1, ctx-size = 512 }}
""", encoding="utf-8")
    return file


def stored(store: Path) -> dict[str, tuple[str, str, int, bool]]:
    """What the store holds: (setup, level, repeat, unfinished) by trial."""
    try:
        with Store.open(store, read_only=True) as opened:
            return {trial.id: (trial.plan.title, trial.workload.level, trial.repeat, trial.unfinished)
                    for trial in opened.trials()}
    except (BadInput, StoreFailed):
        return {}


def covered_once(study: Study, store: Path) -> list[str]:
    """What is wrong with the levels of a study that ended."""
    have = Counter(key[:3] for key in stored(store).values() if not key[3])
    want = {(setup.title, str(users), repeat) for setup in study.setup for users in study.load.concurrency
            for repeat in range(study.order.repeats)}
    return [f"{key}: {have[key]} times" for key in sorted(want | set(have)) if have[key] != 1 or key not in want]


def begin(file: Path, store: Path) -> "subprocess.Popen[bytes]":
    log = (file.parent / "rooftop.log").open("ab")
    with log:
        return subprocess.Popen((sys.executable, "-m", "rooftop", "study", str(file), "--store", str(store)),
                                cwd=file.parent, stdout=log, stderr=log)


def kill(process: "subprocess.Popen[bytes]", store: Path, at_s: float) -> Kill:
    """Kill it now; see what it leaves."""
    family = psutil.Process(process.pid).children(recursive=True)
    spools = list(store.with_name(store.name + "-spool").glob("*/trial.json"))
    doing = "level" if spools else "start or end" if family else "before the start"
    before = stored(store)
    process.kill()
    process.wait()
    began = time.monotonic()
    while (left := [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]):
        if time.monotonic() - began > GONE_S:
            break
        time.sleep(0.02)
    after = stored(store)
    lost = sum(one not in after for one in before)
    return Kill(at_s, doing, len(before), lost, len(family), None if left else time.monotonic() - began)


def run(kills: int, fake: bool, seed: int, folder: Path) -> tuple[list[Kill], list[str]]:
    """All kills, and what was wrong with the studies that ended."""
    chance, wrong, done = random.Random(seed), [], []
    file = write_study(folder, fake)
    study, number = read_study(str(file)), 0
    began = time.monotonic()
    if begin(file, folder / "whole.sqlite").wait() != 0:
        raise SystemExit(f"the study does not run: see {folder / 'rooftop.log'}")
    whole_s = time.monotonic() - began
    wrong += covered_once(study, folder / "whole.sqlite")
    print(f"an undisturbed study takes {whole_s:.1f} s; {'fake' if fake else 'real'} engine, seed {seed}\n")
    print("kill  after s  during            levels stored  lost  processes  all gone after s", flush=True)
    while len(done) < kills:
        store = folder / f"{number}.sqlite"
        process, wait_s = begin(file, store), chance.uniform(0, whole_s)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            one = kill(process, store, wait_s)
            done.append(one)
            gone = "NEVER" if one.gone_s is None else f"{one.gone_s:.2f}"
            print(f"{len(done):4}  {one.at_s:7.1f}  {one.doing:16}  {one.stored:13}  {one.lost:4}  {one.processes:9}  "
                  f"{gone:>16}", flush=True)
        else:
            wrong += covered_once(study, store)
            number += 1
    begin(file, folder / f"{number}.sqlite").wait()
    wrong += covered_once(study, folder / f"{number}.sqlite")
    print(f"\n{number + 1} studies ran to their end; levels not covered once: {len(wrong)}")
    return done, wrong


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=20)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--fake", action="store_true", help="use the fake engine even where the real one is here")
    given = words.parse_args()
    fake = given.fake
    try:
        find("smollm2-135m")
    except MissingPart:
        fake = True
    with tempfile.TemporaryDirectory(prefix="rooftop-kills-", ignore_cleanup_errors=True) as folder:
        done, wrong = run(given.kills, fake, given.seed, Path(folder))
        for line in wrong:
            print(line)
        bad = [one for one in done if one.lost or one.gone_s is None]
        print("passed" if not (wrong or bad) else "FAILED")
    return int(bool(wrong or bad))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    sys.exit(main())
