"""Values of the model as what JSON knows, and back: the one way in which they are written.

A value is an object of its fields, without those that have their default.  What a field holds
is known from its type, so that nothing but the kind of an entry has to be named.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, NewType, Union, get_args, get_origin, get_type_hints

from interlane.model.errors import InvalidInput
from interlane.model.log import LogEntry, Logged
from interlane.model.work import ANYWHERE, Closeness, Request, Task

KINDS: Final[Mapping[str, type[Logged]]] = MappingProxyType(
    {kind.__name__: kind for kind in get_args(Logged)}
)
"""Events and actions by name."""


def plain(value: object) -> Any:  # noqa: ANN401 - whatever JSON knows
    """Return a value of the model as what JSON knows."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, Request):
        return _plain_request(value)
    kind: Any = type(value)
    return {
        name: plain(held)
        for name, default in _defaults(kind)
        if (held := getattr(value, name)) is not default and held != default
    }


def logged(kind: str, said: Mapping[str, Any]) -> Logged:
    """Return the event or action of a kind from what was written of it."""
    hint: Any = KINDS[kind]
    found: Logged = _reader(hint)(said)
    return found


def entry_row(entry: LogEntry) -> dict[str, Any]:
    """Return an entry as a row of a table: of a database, or of a file."""
    return {
        "seq": entry.seq,
        "at_s": entry.at_s,
        "kind": entry.kind,
        "job_id": entry.job_id,
        "what": _dumped(plain(entry.what)),
        "detail": _dumped(entry.detail),
        "cycle": entry.cycle,
    }


def row_entry(row: Mapping[str, Any]) -> LogEntry:
    """Return the entry of a row; ``ValueError`` says what cannot be understood of it."""
    try:
        what = logged(row["kind"], json.loads(row["what"]))
        return LogEntry(row["seq"], row["at_s"], what, json.loads(row["detail"]), row["cycle"])
    except (KeyError, TypeError, AttributeError, InvalidInput) as error:
        raise ValueError(f"entry {row.get('seq')}: {error!r}") from None


def _dumped(said: Mapping[str, Any]) -> str:
    return json.dumps(said, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _plain_request(request: Request) -> dict[str, Any]:
    """Return a request; most jobs ask alike, so that it is made once for all of them."""
    said = {"tasks": plain(request.tasks)}
    if request.closeness != ANYWHERE:
        said["closeness"] = plain(request.closeness)
    return said


def _request(said: Mapping[str, Any]) -> Request:
    tasks = _reader(tuple[Task, ...])(said["tasks"])
    closeness = said.get("closeness")
    return Request(tasks, ANYWHERE if closeness is None else _reader(Closeness)(closeness))


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """Return the names of a type's fields with what each holds unless it is said."""
    assert is_dataclass(kind), f"{kind} is not of the model"
    return tuple((each.name, each.default) for each in fields(kind))


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - types have no type
    """Return what reads values of a type."""
    if isinstance(hint, NewType):
        return _reader(hint.__supertype__)
    if hint is Request:
        return _request
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        (some,) = (_reader(one) for one in inner if one is not NoneType)
        return lambda said: None if said is None else some(said)
    if origin is tuple and inner[-1] is ...:
        item = _reader(inner[0])
        return lambda said: tuple(map(item, said))
    if origin is tuple:
        items = tuple(map(_reader, inner))
        return lambda said: tuple(read(one) for read, one in zip(items, said, strict=True))
    if origin is frozenset:
        item = _reader(inner[0])
        return lambda said: frozenset(map(item, said))
    if is_dataclass(hint):
        return _fields_reader(hint)
    return hint if issubclass(hint, Enum) else _as_it_is


def _fields_reader(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - types have no type
    hints = get_type_hints(kind)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    needed = [each.name for each in fields(kind) if each.default is MISSING]

    def read(said: Mapping[str, Any]) -> object:
        for name in needed:
            said[name]
        return kind(**{name: readers[name](held) for name, held in said.items()})

    return read


def _as_it_is(said: object) -> object:
    return said
