"""Generic resources as Slurm writes them: ``gpu:a100.0:1(IDX:0),shard:a100.1:300``."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

GPU: Final = "gpu"
SHARD: Final = "shard"
PINNED: Final = re.compile(r"(?P<model>.+)\.(?P<index>\d{1,2})")
"""The type of a GPU that can be asked for by itself: its model, and its number on the node."""
_ENTRY: Final = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_]\w*)(?::(?P<type>\d*[A-Za-z_.+-][\w.+-]*))?"
    r"(?:[:=](?P<count>\d{1,12})(?P<unit>[KMG]?))?(?:\((?P<more>[^()]*)\))?"
)
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_INDEXES: Final = re.compile(r"IDX:(?P<list>[\d,-]*)")
COUNT_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Gres:
    """So much of one resource."""

    name: str
    type: str
    """Empty if none is named."""
    count: int
    indexes: tuple[int, ...] = ()
    """Numbers of the GPUs, where Slurm tells."""


def read_gres(text: str) -> list[Gres]:
    """Return what a string of Slurm's says; ``ValueError`` if it cannot be read."""
    if text in ("", "(null)", "N/A"):
        return []
    return [_entry(part) for part in _parts(text)]


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside of parentheses."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _entry(part: str) -> Gres:
    found = _ENTRY.fullmatch(part.strip())
    if found is None:
        raise ValueError(f"{part!r} is no resource as Slurm writes them")
    count = int(found["count"] or 1) * _UNITS[found["unit"] or ""]
    listed = _INDEXES.search(found["more"] or "")
    indexes = tuple(_numbers(listed["list"])) if listed else ()
    return Gres(found["name"], found["type"] or "", count, indexes)


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of ``0-2,5``."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < COUNT_MAX:
            raise ValueError(f"{part!r} is no range of GPUs")
        yield from range(low, high + 1)


def asked(entries: Iterable[Gres], name: str) -> int:
    """Return how much of a resource there is in all."""
    return sum(one.count for one in entries if one.name == name)


def hostnames(text: str) -> list[str]:
    """Return the nodes of ``n[0-2,7],login``; ``ValueError`` if it cannot be read."""
    found: list[str] = []
    for part in _outside_brackets(text):
        found += _expanded(part)
        if len(found) > 100_000:
            raise ValueError("a list of nodes is too long")
    return found


def _outside_brackets(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    if text[begin:]:
        yield text[begin:]


def _expanded(part: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, closed, after = rest.partition("]")
    if not closed:
        raise ValueError(f"{part!r} is no list of nodes")
    tails = _expanded(after)
    return [f"{before}{number}{tail}" for number in _padded(inside) for tail in tails]


def _padded(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high or high - low > 100_000:
            raise ValueError(f"{part!r} is no range of nodes")
        yield from (f"{number:0{len(first)}d}" for number in range(low, high + 1))
