from math import isclose

import pytest

from rooftop.domain.architecture import Architecture
from tests.models.published import NAMES, PUBLISHED, REFUSED, architecture, vocabulary

TOTAL, ACTIVE = 0.005, 0.02


def total(model: Architecture, counts: str) -> float:
    if counts == "mtp without vocabulary":
        return model.parameters + model.mtp_parameters - 2 * vocabulary(model)
    return model.parameters


def active(model: Architecture, basis: str) -> float:
    return {"embedding": model.active_with_embedding, "head": model.active,
            "none": model.active - vocabulary(model)}[basis]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_every_recorded_configuration_is_read(name: str) -> None:
    model = architecture(name)
    assert model.parameters > 1e8
    assert 0 < model.bytes <= 2.01 * model.parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_another_implementation_to_the_last(name: str) -> None:
    assert architecture(name).parameters == PUBLISHED[name]["exact"]


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if "total" in row])
def test_parameters_are_the_published_ones(name: str) -> None:
    """Within 0.5 % or half a unit of the last digit that was published."""
    row = PUBLISHED[name]
    found = total(architecture(name), row.get("counts", "served")) + row.get("vision", 0)
    assert abs(found - row["total"]) <= max(TOTAL * row["total"], row["digit"] / 2)


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if "active" in row])
def test_active_parameters_are_the_published_ones(name: str) -> None:
    """Within 2 % or half a unit of the last digit that was published."""
    row = PUBLISHED[name]
    found = active(architecture(name), row["basis"])
    assert abs(found - row["active"]) <= max(ACTIVE * row["active"], row["active_digit"] / 2)


def test_at_least_fifteen_models_agree_without_help_from_rounding() -> None:
    """Total within 0.5 % and, where there are experts, active within 2 %; a dense model's weights are all active."""
    agree = set()
    for name, row in PUBLISHED.items():
        model = architecture(name)
        if "total" in row and isclose(total(model, row.get("counts", "served")), row["total"], rel_tol=TOTAL) and (
                isclose(active(model, row["basis"]), row["active"], rel_tol=ACTIVE) if "active" in row
                else model.experts is None):
            agree.add(name)
    assert len(agree) >= 20
    assert len({name for name in agree if "active" in PUBLISHED[name]}) >= 13
    assert {"DeepSeek-V3", "Kimi-K2.6"} <= agree


def test_the_mtp_layer_of_deepseek_v3_is_as_large_as_published() -> None:
    row = PUBLISHED["DeepSeek-V3"]
    assert isclose(architecture("DeepSeek-V3").mtp_parameters, row["mtp"], rel_tol=0.01)


@pytest.mark.parametrize(("name", "gigabytes", "tolerance"), [
    ("gpt-oss-120b", 60.8 * 1.073741824, 0.005),  # model card, arXiv 2508.10925: checkpoints of 60.8 and 12.8 GiB
    ("gpt-oss-20b", 12.8 * 1.073741824, 0.005),
    ("DeepSeek-V4-Pro", 865, 0.005),  # download sizes listed at the release
    ("DeepSeek-V4-Flash", 160, 0.01),
])
def test_bytes_are_those_of_the_published_files(name: str, gigabytes: float, tolerance: float) -> None:
    model = architecture(name)
    assert isclose((model.bytes + model.mtp_bytes) / 1e9, gigabytes, rel_tol=tolerance)
