"""What holds for all nouns: frozen, slotted, hashable, of the standard library alone."""

import ast
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from rooftop import domain
from tests.domain import nouns

FILES = sorted(Path(domain.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_domain_imports_the_standard_library_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [
            alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            inside = name.startswith(("rooftop.domain.", "rooftop.errors", "rooftop.units")) or name == "rooftop.domain"
            assert inside or name.partition(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize("kind", nouns.KINDS, ids=lambda kind: kind.__name__)
def test_a_noun_is_frozen_slotted_and_hashable(kind: type) -> None:
    noun = nouns.least(kind)
    assert not hasattr(noun, "__dict__")
    hash(noun)
    name = fields(kind)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(noun, name, getattr(noun, name))


@pytest.mark.parametrize("kind", nouns.KINDS, ids=lambda kind: kind.__name__)
def test_a_noun_says_what_it_is(kind: type) -> None:
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")
