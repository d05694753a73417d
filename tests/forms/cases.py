"""The deployments under tests/cases, each with what it says."""

import tomllib
from pathlib import Path
from typing import Any, cast

from rooftop import registry
from rooftop.domain.form import Form

FOLDER = Path(__file__).parent.parent / "cases" / "deployments"
FACTS: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "facts.toml").read_text(encoding="utf-8"))
FORMS = {name: cast(Form, registry.load("forms", name)) for name in registry.names("forms")}
SECRETS = ("hf_0123456789abcdefABCDEF", "sk-not-a-real-key-0123456789")


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def form(name: str) -> Form:
    return FORMS[FACTS[name]["form"]]
