"""A configuration's fields, each checked as it is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rooftop.errors import BadInput

MOST = 2**40
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one configuration; `where` names its file in every error."""

    data: Mapping[str, Any]
    where: str

    def __contains__(self, name: str) -> bool:
        return self.data.get(name) is not None

    def need(self, *names: str) -> None:
        """Raises BadInput that names every one of `names` that is absent; `a|b` is met by either."""
        missing = [name for name in names if not any(part in self for part in name.split("|"))]
        if missing:
            family = self.data.get("model_type")
            of = f" of model_type {family!r}" if isinstance(family, str) else ""
            listed = ", ".join(name.replace("|", " or ") for name in missing)
            raise BadInput(f"the configuration{of} lacks {listed}", where=self.where,
                           remedy="take the whole config.json of the model")

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """The first of `names` that is there, a whole number from `least` to `most`.  Raises BadInput."""
        for name in names:
            value = self.data.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                    wanted = f"a whole number of at least {least}"
                    wanted = wanted if not isinstance(value, int) or value < least else f"at most {most}"
                    raise self.wrong(name, wanted, value)
                return value
        if default is None:
            self.need("|".join(names))
            raise self.wrong(names[0], "a number", None)
        return default

    def maybe(self, *names: str) -> int | None:
        """The same, None where none of `names` is there."""
        return self.whole(*names) if any(name in self for name in names) else None

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def word(self, *names: str, default: str = "") -> str:
        """A string; the first of `names` that is there."""
        for name in names:
            value = self.data.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise self.wrong(name, "a word in quotes", value)
                return value
        return default

    def table(self, name: str) -> "Fields | None":
        """A table inside, None where it is absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "a table", value)
        return Fields(value, self.where)

    def words(self, name: str, count: int | None = None) -> tuple[str, ...] | None:
        """A list of strings, at least `count` long (what follows belongs to MTP layers); None where it is absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of words", value)
        self._long_enough(name, len(value), count)
        return tuple(value)

    def wholes(self, name: str, count: int | None = None) -> tuple[int, ...] | None:
        """A list of whole numbers from 0, at least `count` long; None where it is absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST
                                                  for n in value):
            raise self.wrong(name, "a list of whole numbers", value)
        self._long_enough(name, len(value), count)
        return tuple(value)

    def wrong(self, name: str, wanted: str, value: Any) -> BadInput:
        """The error for a field that is not what it must be."""
        try:
            shown = json.dumps(value, default=str)
        except ValueError:  # a whole number of more digits than Python writes
            shown = "this number"
        return BadInput(f"{name} must be {wanted}, not {shown[:60]}", where=self.where)

    def _long_enough(self, name: str, found: int, count: int | None) -> None:
        if count is not None and found < count:
            raise BadInput(f"{name} has {found} entries for {count} layers", where=self.where,
                           remedy="take the whole config.json of the model")
