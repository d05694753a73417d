"""An engine newer than every table: what the tables do not know is left to its own parser."""

from typing import cast

import pytest

from rooftop import registry
from rooftop.domain.engine import Engine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting


@pytest.mark.parametrize(("name", "newest", "ahead"), [("sglang", "0.5.23", "0.6.0"), ("vllm", "0.33.0", "0.40.1")])
def test_a_newer_engine_may_have_options_that_no_table_knows(name: str, newest: str, ahead: str) -> None:
    engine = cast(Engine, registry.load("engines", name))
    asked = (Setting("an-option-of-tomorrow", 3),)
    known = engine.refuses(Plan(Model("m", "/models/m"), name, settings=asked, engine_version=newest))
    assert known is not None
    assert "does not know the option an-option-of-tomorrow" in known.rule
    assert engine.refuses(Plan(Model("m", "/models/m"), name, settings=asked, engine_version=ahead)) is None
