"""GPU data sheets of the catalog: every number with its source."""

import re
import tomllib
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Literal

from rooftop.domain import codec
from rooftop.domain.machine import Gpu, Slot
from rooftop.errors import BadInput

TABLE = "gpus.toml"
Figure = tuple[float, str]
"""A number and where it is from."""

_FORMATS = {"bf16": "bf16_tflops", "fp16": "fp16_tflops", "fp8": "fp8_tflops", "fp4": "fp4_tflops", "int8": "int8_tops"}
_SILENT = re.compile(
    r"nvidia|geforce|tesla|quadro|amd|instinct|radeon|intel|habana|rtx|rx|gpus?|cards?|[hd]gx|tensor|core|oam|vf|ac|x"
    r"|blackwell|hopper|ampere|lovelace|generation|edition|superchip|memory|hbm\de?|gddr\dx?|nvlink|nvl\d+")
"""Words of a GPU's name that do not tell it from another."""
_QUALIFIERS = {"ws": "workstation", "wks": "workstation", "se": "server"} | {word: word for word in (
    "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "pcie", "nvl", "maxq", "server", "workstation")}
_MAKERS = re.compile(r"nvidia|geforce|tesla|amd|instinct|generation|edition|[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Sheet:
    """One GPU's data sheet.  Units and words are those of the table; None = no figure known."""

    name: str
    vendor: str
    fabric: Literal["nvswitch", "mesh", "bridge", ""]
    nominal_gb: Figure
    memory_gb_per_s: Figure
    pcie_generation: Figure
    pcie_lanes: Figure
    tdp_w: Figure
    aliases: tuple[str, ...] = ()
    sm: str = ""
    reported_mib: Figure | None = None
    bf16_tflops: Figure | None = None
    fp16_tflops: Figure | None = None
    fp8_tflops: Figure | None = None
    fp4_tflops: Figure | None = None
    int8_tops: Figure | None = None
    fabric_gb_per_s: Figure | None = None
    fabric_links: Figure | None = None

    def __post_init__(self) -> None:
        for name, (number, source) in self.figures:
            if not 0 < number < 1e9:
                raise ValueError(f"{name} must be above 0, not {number:g}")
            if not source.strip():
                raise ValueError(f"{name} needs its source beside it")
        if bool(self.fabric) != (self.fabric_gb_per_s is not None):
            raise ValueError("fabric and fabric_gb_per_s go together: both, or neither")

    @property
    def figures(self) -> tuple[tuple[str, Figure], ...]:
        """(name, (number, source)) of every number that is known."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return tuple((name, value) for name, value in values if isinstance(value, tuple) and name != "aliases")

    def fabric_bytes_per_s(self, links: int | None = None) -> float | None:
        """Bytes a second, one direction, of that many of its NVLinks or xGMI links; of all where `links` is None."""
        if self.fabric_gb_per_s is None or (links is not None and self.fabric_links is None):
            return None
        share = 1.0 if links is None or self.fabric_links is None else links / self.fabric_links[0]
        return self.fabric_gb_per_s[0] * 1e9 * min(1.0, share)

    @property
    def gpu(self) -> Gpu:
        """The noun that the head calculates with."""
        generation, width = int(self.pcie_generation[0]), int(self.pcie_lanes[0])
        flops = ((name, getattr(self, key)) for name, key in _FORMATS.items())
        return Gpu(self.aliases[0] if self.aliases else self.name,
                   int(self.reported_mib[0]) << 20 if self.reported_mib else None, self.memory_gb_per_s[0] * 1e9,
                   self.name, self.vendor, self.sm, round(self.nominal_gb[0] * 1e9),
                   tuple((name, figure[0] * 1e12) for name, figure in flops if figure),
                   self.fabric_bytes_per_s() or 0.0, self.tdp_w[0],
                   Slot(generation, width))


def read(text: str, where: str = TABLE) -> tuple[Sheet, ...]:
    """All sheets of a table.  Raises BadInput that names the GPU and the key of whatever is wrong or missing."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        raise BadInput(f"not valid TOML: {error}", where=where) from error
    sheets = []
    for name, table in data.items():
        if not isinstance(table, dict):
            raise BadInput(f"{name} must be a table", where=where)
        sheets.append(codec.from_plain(Sheet, {"name": name, **table}, where=where, path=name))
    return tuple(sheets)


@cache
def known() -> tuple[Sheet, ...]:
    """Every GPU of the catalog, in its order."""
    return read(resources.files("rooftop.catalog").joinpath(TABLE).read_text(encoding="utf-8"))


def find(name: str) -> Sheet | None:
    """The sheet of a GPU as people or drivers write it (`RTX 4090`, `NVIDIA GeForce RTX 4090`, `H100-PCIE-80GB`).

    None where no sheet or more than one is meant.
    """
    wanted = plain(name)
    exact = (sheet for sheet in known() if wanted in {plain(word) for word in (sheet.name, *sheet.aliases)})
    found = next(exact, None)
    if found is not None:
        return found
    all_meant = meant(name)
    return all_meant[0] if len(all_meant) == 1 else None


def meant(name: str) -> tuple[Sheet, ...]:
    """Every sheet that the words of a name leave open, the most usual first: most power, then bandwidth, then memory.

    A word that is no sheet's own, no qualifier (SXM, PCIe, 80GB) and says nothing (maker, `8x`) rules all out.
    """
    said, qualifiers, sizes = _words(name)
    found = []
    for one in known():
        names = [_words(word) for word in (one.name, *one.aliases)]
        own = frozenset().union(*(words for words, _, _ in names))
        kinds = frozenset().union(*(kinds for _, kinds, _ in names))
        held = {one.nominal_gb[0], *(size for _, _, named in names for size in named)}
        if (said <= own and any(words and words <= said for words, _, _ in names)
                and all(_is_of(kind, kinds) for kind in qualifiers)
                and all(any(abs(size / other - 1) < 0.07 for other in held) for size in sizes)):
            found.append(one)
    return tuple(sorted(found, key=lambda one: (-one.tdp_w[0], -one.memory_gb_per_s[0], -one.nominal_gb[0])))


def _is_of(kind: str, kinds: frozenset[str]) -> bool:
    """Whether a qualifier is among a sheet's: SXM means any SXM, and where a sheet says only SXM, SXM4 means it too."""
    return kind in kinds or (kind.startswith("sxm") and "sxm" in kinds) or (
        kind == "sxm" and any(one.startswith("sxm") for one in kinds))


def _words(name: str) -> tuple[frozenset[str], frozenset[str], frozenset[float]]:
    """(words that name the chip, qualifiers, sizes of memory in GB) of a name."""
    text = re.sub(r"max[- ]q", "maxq", name.lower())
    text = re.sub(r"(\d+) ?gi?b?\b", r" \1gb ", text)
    text = re.sub(r"\b(rtx|rx|pro)(?=\d)", r"\1 ", text)
    text = re.sub(r"(?<=\d)x(?=\d+\b)|\b\d+x\b|x\d+\b(?!gb)", " ", text)
    words = [word for word in re.findall(r"[a-z0-9]+", text) if not _SILENT.fullmatch(word)]
    sizes = {float(word[:-2]) for word in words if re.fullmatch(r"\d{1,6}gb", word)}
    kinds = {_QUALIFIERS[word] for word in words if word in _QUALIFIERS}
    rest = {word for word in words if word not in _QUALIFIERS and not re.fullmatch(r"\d{1,6}gb", word)}
    return frozenset(rest), frozenset(kinds), frozenset(sizes)


def sheet(name: str) -> Sheet:
    """As `find`.  Raises BadInput that names the nearest GPUs."""
    found = find(name)
    if found is None:
        raise BadInput(f"there is no GPU named {name.strip()!r} in the catalog", remedy=nearest(name))
    return found


def nearest(name: str) -> str:
    """A sentence for a name that is not there: the GPUs that are written most like it, or all of them."""
    words = {plain(word): sheet.name for sheet in known() for word in (sheet.name, *sheet.aliases)}
    near = get_close_matches(plain(name), words, n=4, cutoff=0.5)
    names = list(dict.fromkeys(words[word] for word in near)) or [sheet.name for sheet in known()]
    return f"nearest: {', '.join(names)}" if near else f"known: {', '.join(names)}"


def plain(name: str) -> str:
    """Letters and digits in lower case, makers' and brands' names taken off."""
    return _MAKERS.sub("", name.lower()) or re.sub(r"[^a-z0-9]", "", name.lower())
