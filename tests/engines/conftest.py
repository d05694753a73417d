import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "evidence.py"


@pytest.fixture(scope="session")
def benchmark() -> ModuleType:
    """The script that scores logs, as a module."""
    spec = importlib.util.spec_from_file_location("evidence_benchmark", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
