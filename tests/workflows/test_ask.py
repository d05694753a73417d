"""The installed engine's own parser is asked: stand-ins for the programs of vLLM and SGLang, and the wheel's own."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.progress import silent
from rooftop.domain.study import Load, Order, Setup, Study
from rooftop.engines.llamacpp import ENGINE as LLAMACPP
from rooftop.engines.sglang import ENGINE as SGLANG
from rooftop.engines.vllm import ENGINE as VLLM
from rooftop.store import Store
from rooftop.workflows import ask
from rooftop.workflows.ask import refusals
from rooftop.workflows.rehearse import rehearse
from rooftop.workflows.study import run_study

# As vLLM's: a parser of its own kind, subcommands, checks after it, and a server that must never start.
VLLM_LIKE = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from vllm.main import main
main()
"""
VLLM_MAIN = """
import argparse
import os
import pathlib

HERE = pathlib.Path(__file__).parent
(HERE / "imports").open("a").write("x")

class Parser(argparse.ArgumentParser):
    def parse_args(self, args=None, namespace=None):
        return super().parse_args(args, namespace)

def serve(args):
    (HERE / "served").write_text("yes")

def main():
    parser = Parser(prog="vllm")
    below = parser.add_subparsers(dest="subparser").add_parser("serve")
    below.add_argument("model_tag", nargs="?")
    for name in ("host", "served-model-name", "tool-call-parser"):
        below.add_argument("--" + name)
    for name in ("port", "max-num-seqs", "tensor-parallel-size"):
        below.add_argument("--" + name, type=int)
    below.add_argument("--dtype", choices=["auto", "half"])
    below.add_argument("--enable-auto-tool-choice", action="store_true")
    below.set_defaults(dispatch_function=serve)
    args = parser.parse_args()
    if "REFUSE" in os.environ:
        parser.error("as asked")
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    args.dispatch_function(args)
"""
SGLANG_MAIN = """
import argparse
import pathlib
import sys

parser = argparse.ArgumentParser(prog="launch_server.py")
parser.add_argument("--enable-metrics", action="store_true")
for name in ("model-path", "served-model-name", "host", "port", "tp-size"):
    parser.add_argument("--" + name)
raw = parser.parse_args(sys.argv[1:])
pathlib.Path(__file__).with_name("served").write_text("yes")
"""
LLAMA = """#!/bin/sh
case "$*" in
  --help) echo "usage"; echo "-m,    --model FNAME"; echo "-np,   --parallel N"; exit 0;;
  *--paralel*--help) echo "error: invalid argument: --paralel" >&2; exit 1;;
  *--help) echo "usage"; exit 0;;
esac
echo served > {folder}/served
"""


def plan(binary: str, engine: str = "vllm", **settings: SettingValue) -> Plan:
    made = tuple(Setting(name.replace("_", "-"), value) for name, value in settings.items())
    return Plan(Model("tiny", "/m/tiny"), engine, Layout(), made, binary=binary)


@pytest.fixture
def vllm(tmp_path: Path) -> str:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    (tmp_path / "vllm" / "main.py").write_text(VLLM_MAIN)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text(VLLM_LIKE.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    return str(program)


def test_what_the_parser_refuses_in_its_words(vllm: str, tmp_path: Path) -> None:
    good, typo, choice, pair = (plan(vllm, max_num_seqs=4), plan(vllm, max_num_sequences=4), plan(vllm, dtype="half16"),
                                plan(vllm, enable_auto_tool_choice=True))
    found = refusals((good, typo, choice, pair), VLLM)
    assert set(found) == {typo.key, choice.key, pair.key}
    assert found[typo.key].kind == "unknown_flag"
    assert "unrecognized arguments: --max-num-sequences 4" in found[typo.key].reason
    assert found[typo.key].remedy == "did you mean --max-num-seqs?"
    assert "invalid choice: 'half16'" in found[choice.key].reason
    assert "requires --tool-call-parser" in found[pair.key].reason
    assert all(fault.last_phase == "arguments" and fault.remedy for fault in found.values())
    assert not (tmp_path / "vllm" / "served").exists()
    assert (tmp_path / "vllm" / "imports").read_text() == "x"


def test_each_command_has_its_own_variables(vllm: str) -> None:
    picky = replace(plan(vllm), environment=(Setting("REFUSE", "1"),))
    assert set(refusals((plan(vllm), picky, plan(vllm, max_num_seqs=2)), VLLM)) == {picky.key}


def test_a_python_with_the_engines_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text(SGLANG_MAIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    good, wrong = plan(sys.executable, "sglang"), plan(sys.executable, "sglang", max_running_requests=1)
    found = refusals((good, wrong), SGLANG)
    assert set(found) == {wrong.key}
    assert "--max-running-requests" in found[wrong.key].reason
    assert not (tmp_path / "sglang" / "served").exists()


def test_llama_server_parses_before_it_helps(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(LLAMA.format(folder=tmp_path))
    program.chmod(0o755)
    good, wrong = plan(str(program), "llamacpp", parallel=2), plan(str(program), "llamacpp", paralel=2)
    found = refusals((good, wrong), LLAMACPP)
    assert set(found) == {wrong.key}
    assert (found[wrong.key].kind, found[wrong.key].remedy) == ("unknown_flag", "did you mean --parallel?")
    assert not (tmp_path / "served").exists()


def test_the_parser_before_the_wheel() -> None:
    pytest.importorskip("xllamacpp")
    good, wrong, value = (plan("xllamacpp", "llamacpp", parallel=2), plan("xllamacpp", "llamacpp", paralel=2),
                          plan("xllamacpp", "llamacpp", cache_type_k="q9"))
    found = refusals((good, wrong, value), LLAMACPP)
    assert set(found) == {wrong.key, value.key}
    assert found[wrong.key].remedy == "did you mean --parallel?"
    assert "q9" in found[value.key].reason


BROKEN = "#!{python}\nimport vllm_that_is_not_here\n# import vllm\n"
BINDS = ("#!{python}\nimport socket  # import vllm\ns = socket.socket()\ns.bind(('127.0.0.1', 8000))\n"
         "import pathlib\npathlib.Path(__file__).with_name('served').touch()\n")


@pytest.mark.parametrize("text", [BROKEN, BINDS, "#!{python}\n# import vllm\n", "#!/bin/sh\nexit 2\n", "ELF"])
def test_a_parser_that_is_not_reached_refuses_nothing(text: str, tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text(text.format(python=sys.executable))
    program.chmod(0o755)
    assert refusals((plan(str(program)),), VLLM) == {}
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("change", [{"launcher": "docker", "image": "a/b:1"}, {"binary": "/nowhere/vllm"}])
def test_what_cannot_be_asked_is_not(change: dict[str, object], vllm: str) -> None:
    wrong = plan(vllm, no_such_flag=1)
    assert refusals((replace(wrong, **change),), VLLM) == {}  # type: ignore[arg-type]
    assert set(refusals((wrong,), VLLM)) == {wrong.key}


def test_a_parser_that_takes_too_long_refuses_nothing(vllm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "IMPORT_S", 0.001)
    assert refusals((plan(vllm, no_such_flag=1),), VLLM) == {}


def study(vllm: str, *, asked: bool = True) -> Study:
    setup = Setup("wrong", settings=(Setting("max-num-sequences", 4),))
    (model := Path(vllm).with_name("model")).mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return Study("s", "vllm", str(model), (setup,), Load((1,)), Order(1), binary=vllm, ask_parser=asked)


def test_a_study_starts_nothing_that_the_parser_refuses(vllm: str, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite") as store:
        run_study(study(vllm), store=store, tell=silent)
        (launch,) = store.launches(study="s")
    assert launch.fault is not None
    assert (launch.fault.kind, launch.fault.remedy) == ("unknown_flag", "did you mean --max-num-seqs?")
    assert launch.servers == ()
    assert not (tmp_path / "vllm" / "served").exists()


def test_a_dry_run_says_what_the_parser_refuses(vllm: str) -> None:
    ((_, (line,)),) = rehearse(study(vllm), VLLM, None).setups
    assert line.startswith("refused (unknown_flag): vllm's own parser refuses the command: vllm: error: unrecognized")
    ((_, (line,)),) = rehearse(study(vllm, asked=False), VLLM, None).setups
    assert line.startswith("refused (vLLM ")
    assert "does not know the option max-num-sequences" in line
