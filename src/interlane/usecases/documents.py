"""Documents as people give them: files, standard input, or text pasted into a page."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from interlane.model import InvalidFile

_MARK: Final = "\ufeff"


class _EveryKeyOnce(yaml.SafeLoader):
    """Reads plain YAML, and refuses a key that comes twice: one of the two would be lost."""

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001 - as it is called
    ) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == _MERGED:
                continue
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value} comes twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_MERGED: Final = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what errors call it."""

    name: str
    text: str
    folder: Path | None = None
    """Where files lie that it names; None if it may name none."""


def from_file(path: str | Path) -> Document:
    """Read a file, or standard input for ``-``."""
    name = str(path)
    if name == "-":
        return Document(name, sys.stdin.read().removeprefix(_MARK), Path())
    try:
        # Spreadsheets put a mark before the first letter, which this leaves out.
        return Document(name, Path(name).read_text(encoding="utf-8-sig"), Path(name).parent)
    except UnicodeDecodeError:
        raise InvalidFile(name, "this is not text in UTF-8; convert it.") from None


def yaml_in(document: Document) -> object:
    """Read YAML."""
    try:
        return yaml.load(document.text, _EveryKeyOnce)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        line = mark.line + 1 if mark else None
        what = f"this is not YAML ({problem}); mend it."
        raise InvalidFile(document.name, what, line) from None


def json_in(document: Document) -> object:
    """Read JSON."""
    try:
        return json.loads(document.text)
    except json.JSONDecodeError as error:
        what = f"this is not JSON ({error.msg})."
        raise InvalidFile(document.name, what, error.lineno) from None
