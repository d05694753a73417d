"""Studies of the fake engine: its program, a study of it, the processes it leaves."""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from rooftop.domain.layout import Layout
from rooftop.domain.plan import Setting
from rooftop.domain.study import Load, Order, Setup, Study


def program(folder: Path) -> Path:
    """The fake engine as a program of its own, and the weights that it does not read."""
    path = folder / "fake-llama-server"
    source = Path(__file__).with_name("fake_engine.py").read_text(encoding="utf-8")
    path.write_text(f"#!{sys.executable} -P\n{source}", encoding="utf-8")
    path.chmod(0o755)
    (folder / "tiny.gguf").write_bytes(b"GGUF")
    return path


def setup(title: str, mode: str = "", layout: Layout | None = None, slots: int = 2, context: int = 4096,
          **script: object) -> Setup:
    environment = [Setting("FAKE", mode)] if mode else []
    environment += [Setting("SCRIPT", json.dumps(script))] if script else []
    settings = Setting("parallel", slots), Setting("ctx-size", context)
    return Setup(title, layout or Layout(), settings, tuple(environment))


def study(engine: Path, *setups: Setup, users: Sequence[int] = (1,), repeats: int = 1, rounds: int = 1,
          shuffled: bool = False, name: str = "fakes", requests: int = 4, tokens: int = 3,
          start_timeout_s: float = 30.0) -> Study:
    return Study(name, "llamacpp", str(engine.with_name("tiny.gguf")), setups, binary=str(engine),
                 load=Load(tuple(users), 16, tokens, requests_per_user=1, least_requests=requests),
                 order=Order(repeats, rounds, "shuffled" if shuffled else "written"), start_timeout_s=start_timeout_s)


def write_study(folder: Path, engine: Path, tokens: int = 3, mode: str = "", **script: object) -> Path:
    """A study of one setup at one and two users, as its file."""
    file = folder / "study.toml"
    file.write_text(f"""schema = 1
name = "fakes"
engine = "llamacpp"
model = "{engine.with_name('tiny.gguf')}"
binary = "{engine}"

[load]
concurrency = [1, 2]
input_tokens = 16
output_tokens = {tokens}
least_requests = 2
requests_per_user = 1

[order]
repeats = 1

[[setup]]
title = "a"
settings = {{ parallel = 2 }}
environment = {{ FAKE = "{mode}", SCRIPT = '{json.dumps(script)}' }}
""", encoding="utf-8")
    return file


def kill_load_process() -> bool:
    """Kill the load process below this one; whether there was one."""
    found = False
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "rooftop.load" in child.cmdline():
                child.kill()
                found = True
    return found


def servers(engine: Path) -> list[int]:
    """The processes of the fake engine that live."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(engine) in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
