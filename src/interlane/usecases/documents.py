"""Documents as people give them: files, standard input, or text pasted into a page."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from interlane.model import InvalidFile


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
        return Document(name, sys.stdin.read(), Path())
    try:
        return Document(name, Path(name).read_text(encoding="utf-8"), Path(name).parent)
    except UnicodeDecodeError:
        raise InvalidFile(name, "this is not text in UTF-8; convert it.") from None


def yaml_in(document: Document) -> object:
    """Read YAML."""
    try:
        return yaml.safe_load(document.text)
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
