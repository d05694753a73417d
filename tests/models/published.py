"""The recorded configurations and what their publishers say of them."""

import json
import tomllib
from pathlib import Path
from typing import Any

from rooftop.domain.architecture import Architecture
from rooftop.models.fields import Fields
from rooftop.models.read import read_config, read_model

CASES = Path(__file__).parent.parent / "cases" / "configs"
PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads((CASES / "published.toml").read_text(encoding="utf-8"))
NAMES = sorted(path.parent.name for path in CASES.glob("*/config.json"))
REFUSED = {"Step-3.7-Flash"}


def architecture(name: str) -> Architecture:
    return read_model(str(CASES / name / "config.json"))


def config(name: str) -> dict[str, Any]:
    return json.loads((CASES / name / "config.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def read(data: dict[str, Any]) -> Architecture:
    return read_config(Fields(data, "config.json"))


def vocabulary(model: Architecture) -> int:
    """Weights of one table of the vocabulary."""
    return model.vocab * model.hidden
