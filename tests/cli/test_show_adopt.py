"""What of a deployment is shown: all of its plan, nothing of its secrets."""

import json

import pytest

from rooftop.cli.show_adopt import show_deployment
from rooftop.domain.engine import Refusal
from tests.forms.cases import FACTS, SECRETS, form, text


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_plan_is_shown_and_no_secret(name: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = form(name).read(text(name))
    show_deployment(deployment, Refusal("a rule", "a reason", "a remedy"), as_json)
    shown = capsys.readouterr().out
    assert not any(secret in shown for secret in SECRETS)
    assert all(word in shown for word in (*deployment.secrets, "a rule", "a remedy"))
    if as_json:
        told = json.loads(shown)
        assert told["plan"]["settings"] == ({one.name: one.value for one in deployment.plan.settings} or [])
        assert told["refusal"]["reason"] == "a reason"
    else:
        flat = "".join(shown.split())
        assert all(f"{one.name}{one.value}".replace(" ", "") in flat for one in deployment.plan.settings)
