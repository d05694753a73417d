"""Any noun of the domain, drawn from its type hints."""

import importlib
import pkgutil
import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rooftop import domain
from rooftop.domain.layout import Layout

WORDS = st.text(max_size=8)
SCALARS: dict[type, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=16),
}


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, pp, dp = (draw(st.integers(1, 16)) for _ in range(3))
    divisors = [n for n in range(1, tp + 1) if tp % n == 0]
    ep = draw(st.sampled_from([n for n in range(1, tp * dp + 1) if tp * dp % n == 0]))
    return Layout(tp, pp, dp, ep, draw(st.sampled_from(divisors)), draw(st.sampled_from(divisors)))


@cache
def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type: every optional part is sometimes there, every tuple has 0 to 2 items."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Layout:
        return layouts()
    if is_dataclass(kind):
        build: Any = kind
        return st.builds(build, **{name: of(hint) for name, hint in get_type_hints(kind).items()})
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if part is type(None) else of(part) for part in inner])
    if origin is tuple and inner[1:] == (Ellipsis,):
        return st.lists(of(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, inner))
    return SCALARS[kind]


def least(kind: Any) -> Any:
    """The plainest value of a type: empty, zero, absent."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Layout:
        return Layout()
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        build: Any = kind
        return build(*(least(hints[field.name]) for field in fields(kind)))
    if origin is Literal:
        return inner[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in inner else least(inner[0])
    if origin is tuple:
        return () if inner[1:] == (Ellipsis,) else tuple(map(least, inner))
    return kind()


def _kinds() -> tuple[type, ...]:
    names = [module.name for module in pkgutil.iter_modules(domain.__path__) if module.name not in LAWFUL]
    modules = [importlib.import_module(f"rooftop.domain.{name}") for name in names]
    found = {kind for module in modules for kind in vars(module).values()
             if isinstance(kind, type) and kind.__module__ == module.__name__ and is_dataclass(kind)
             and Protocol not in kind.__mro__}
    return tuple(sorted(found, key=lambda kind: kind.__name__))


# Nouns that few random values would satisfy; their own tests make them from real models.
LAWFUL = ("architecture", "stepcost")
KINDS = _kinds()
