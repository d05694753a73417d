import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rooftop
from rooftop import registry
from rooftop.errors import BadInput, MissingPart

PLANTS = {
    "__init__.py": "",
    "oak.py": "PLANT = 'oak of the house'",
    "fir.py": "import a_package_that_is_not_there\nPLANT = 'fir'",
    "_soil.py": "",
    "oak.toml": "",
}


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A room `plants` with plug-ins, and an outsider's installed package that brings another."""
    inside, outside = tmp_path / "house" / "plants", tmp_path / "site"
    inside.mkdir(parents=True)
    for name, text in PLANTS.items():
        (inside / name).write_text(text)
    facts = outside / "garden-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: garden\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[rooftop.plants]\nelm = garden_elm:PLANT\nyew = garden_yew:PLANT\n")
    (outside / "garden_elm.py").write_text("PLANT = 'elm of an outsider'")
    monkeypatch.setattr(rooftop, "__path__", [*rooftop.__path__, str(inside.parent)])
    monkeypatch.syspath_prepend(outside)
    yield
    for name in [name for name in sys.modules if name.startswith(("rooftop.plants", "garden_"))]:
        del sys.modules[name]


def test_names_are_files_and_entry_points() -> None:
    assert registry.names("plants") == ("elm", "fir", "oak", "yew")


def test_naming_imports_no_plug_in() -> None:
    registry.names("plants")
    assert not {"rooftop.plants.oak", "rooftop.plants.fir", "garden_elm"} & set(sys.modules)


def test_a_plug_in_is_the_attribute_named_after_its_kind() -> None:
    assert registry.load("plants", "oak") == "oak of the house"
    assert registry.load("plants", "elm") == "elm of an outsider"


@pytest.mark.parametrize("name", ["ash", "_soil", "__init__", "oak.py", "../oak", ""])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        registry.load("plants", name)
    assert "no plant named" in caught.value.what
    assert caught.value.remedy == "choose one of: elm, fir, oak, yew"


@pytest.mark.parametrize("name", ["fir", "yew"])
def test_a_plug_in_that_lacks_something_says_so(name: str) -> None:
    with pytest.raises(MissingPart, match="No module named"):
        registry.load("plants", name)


def test_a_room_of_the_house_has_its_plug_ins() -> None:
    assert "local" in registry.names("launchers")
