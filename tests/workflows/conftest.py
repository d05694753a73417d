"""The fake engine, once for all tests."""

from pathlib import Path

import pytest

from tests.workflows import fakes


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.program(tmp_path_factory.mktemp("engine"))
