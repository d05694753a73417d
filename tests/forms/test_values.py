"""Any value that is written is the value that is read, in every form, or it is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.errors import BadInput
from rooftop.forms._flags import typed
from tests.forms.cases import FACTS, form, text
from tests.forms.test_deployments import changed, table

VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=10)
NEW = st.sampled_from(["max-num-seqs", "json-model-override-args"])


@pytest.mark.parametrize("name", sorted(FACTS))
@settings(max_examples=12)
@given(flag=NEW, value=VALUES | st.sampled_from(['{"a": "b c"}', "'", '"', "a b", "x: y", "$HOME", "%h", "#", "-1"]))
def test_any_value(name: str, flag: str, value: str) -> None:
    deployment = form(name).read(text(name))
    try:
        written = form(name).write(changed(deployment, {flag: value}))
    except BadInput:
        return
    assert typed(str(table(form(name).read(written).flags)[flag])) == typed(value)


@pytest.mark.parametrize("name", sorted(FACTS))
@pytest.mark.parametrize("value", ["7", "0.5", "name", '{"a":1}', "a,b"])
def test_common_values_are_never_refused(name: str, value: str) -> None:
    deployment = form(name).read(text(name))
    written = form(name).write(changed(deployment, {"new-flag": value}))
    assert table(form(name).read(written).flags)["new-flag"] == typed(value)


@pytest.mark.parametrize(("name", "value"), [("vllm.compose.yaml", "$HOME"), ("sglang.k8s.yaml", "$(HOME)")])
def test_a_value_that_would_become_a_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadInput, match="would be read as a variable"):
        form(name).write(changed(form(name).read(text(name)), {"max-num-seqs": value}))
