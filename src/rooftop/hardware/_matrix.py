"""Who reaches whom and how: GPU matrices of vendors' tools, and groups made of pairs."""

import re
from dataclasses import dataclass
from itertools import combinations

from rooftop.domain.machine import DISTANCE, Group, Link

Pair = tuple[int, int]

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLUMNS = re.compile(r"GPU\d+|NIC\d+|[^\s]+?(?=GPU\d|NIC\d|\s|$)")


@dataclass(frozen=True, slots=True)
class Matrix:
    """A GPU x GPU table: one word a pair, and what is said of each GPU's processors and NUMA node."""

    words: dict[Pair, str]
    cpus: dict[int, str]
    numa: dict[int, int]


def read_matrix(text: str) -> Matrix:
    """Any matrix of `nvidia-smi topo`: old and new headings, NIC rows, tabs or blanks, colours; empty if there is none.

    Names of two columns that ran into each other are taken apart.  Affinities count only where their columns are there.
    """
    columns: list[str] = []
    extra: list[str] = []
    words: dict[Pair, str] = {}
    cpus: dict[int, str] = {}
    numa: dict[int, int] = {}
    for line in _ESCAPES.sub("", text).splitlines():
        names, *titles = re.split(r"(?=CPU Affinity|NUMA Affinity|GPU NUMA ID)", line)
        found = _COLUMNS.findall(names)
        if not columns and len(found) >= 1 and found[0] == "GPU0" and "X" not in names.split()[1:]:
            columns, extra = found, [title.split()[0] for title in titles]
            continue
        row = re.match(r"\s*GPU(\d+)\s", line)
        if not columns or not row:
            continue
        number, cells = int(row[1]), line.split()[1:]
        for name, word in zip(columns, cells, strict=False):
            other = re.fullmatch(r"GPU(\d+)", name)
            if other and int(other[1]) != number:
                words[number, int(other[1])] = word
        cpu, node = _affinity(line, len(columns), extra)
        cpus |= {number: cpu} if cpu else {}
        numa |= {number: node} if node is not None else {}
    return Matrix(words, cpus, numa)


def _affinity(line: str, columns: int, extra: list[str]) -> tuple[str, int | None]:
    """Processors and NUMA node behind the last matrix cell; a container may leave either column empty."""
    if "\t" in line:
        cells = [cell.strip() for cell in line.split("\t")][columns + 1:]
    else:
        cells = line.split()[columns + 1:]
        if len(cells) < len(extra):
            cells = [""] * len(extra)
    said = dict(zip(extra, cells, strict=False))
    cpu, node = said.get("CPU", ""), said.get("NUMA", "")
    return cpu if re.fullmatch(r"[\d,-]*\d", cpu) else "", int(node) if node.isdigit() else None


def group(links: dict[Pair, Link]) -> tuple[Group, ...]:
    """The fewest groups that say the same as the pairs: from near to far where the links nest, else pair by pair."""
    pairs = {(min(pair), max(pair)): link for pair, link in sorted(links.items(), reverse=True)}
    groups: list[Group] = []
    part = {gpu: frozenset({gpu}) for pair in pairs for gpu in pair}
    for level in sorted(set(pairs.values()), key=_nearness):
        for one, other in (pair for pair, link in pairs.items() if link == level):
            joined = part[one] | part[other]
            part |= dict.fromkeys(joined, joined)
        groups += [Group(tuple(sorted(members)), level)
                   for members in sorted({part[gpu] for pair, link in pairs.items() if link == level for gpu in pair},
                                         key=sorted)]
    if _say(groups, pairs):
        return tuple(groups)
    return tuple(Group(pair, link) for pair, link in sorted(pairs.items()))


_WORDS = ("PIX", "PXB", "PHB", "NODE")


def _nearness(link: Link) -> tuple[int, int, float, str]:
    word = _WORDS.index(link.word) if link.word in _WORDS else 0
    return DISTANCE[link.kind], word, -(link.bytes_per_s or 0.0), repr(link)


def _say(groups: list[Group], pairs: dict[Pair, Link]) -> bool:
    """Whether the smallest group of each two GPUs has just that pair's link, and no group adds a pair."""
    members = sorted({gpu for pair in pairs for gpu in pair})
    for pair in combinations(members, 2):
        holding = [group for group in groups if set(pair) <= set(group.gpus)]
        said = min(holding, key=lambda group: len(group.gpus)).link if holding else None
        if said != pairs.get(pair):
            return False
    return True
