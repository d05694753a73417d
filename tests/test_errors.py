import inspect
import re

import pytest

from rooftop import errors

KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.RooftopError)]
LEAVES = [kind for kind in KINDS if not kind.__subclasses__()]
DRAWN = {name: int(code) for name, code in re.findall(r"─ (\w+) +(\d+) ", errors.__doc__ or "")}


def test_the_tree_is_drawn_as_it_is() -> None:
    assert {kind.__name__: kind.exit_code for kind in LEAVES} == DRAWN


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_an_error_says_what_where_and_what_to_do(kind: type[errors.RooftopError]) -> None:
    error = kind("it broke", where="here", remedy="mend it")
    assert (str(error), error.what, error.where, error.remedy) == ("it broke", "it broke", "here", "mend it")
    assert error.kind == kind.__name__
    assert error.exit_code > 1
    assert kind("it broke").where == kind("it broke").remedy == ""


def test_outcomes_are_apart_from_failures() -> None:
    for kind in LEAVES:
        assert issubclass(kind, errors.Expected) != issubclass(kind, errors.Failure)


def test_a_failed_launch_carries_the_end_of_its_log() -> None:
    assert errors.LaunchFailed("no", tail="last words").tail == "last words"
