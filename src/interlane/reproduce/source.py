"""What of the source an entry's rows are made by, as a fingerprint.

A stored run is worth what the code is worth that made it.  The fingerprint covers the entry and
every definition of this package that it leads to; comments, layout and docstrings are no part
of it, nor is the scheduler below, which has tests of its own.
"""

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from interlane.reproduce.catalogue import where

PACKAGE: Final = "interlane.reproduce"
FRAME: Final = frozenset({"base", "catalogue", "page", "result", "source", "stored"})
"""Modules that are the same for all entries and make no number."""
DIGITS: Final = 16
SKIPPED: Final = frozenset({"ctx", "kind", "type_ignores", "type_comment", "type_params"})
"""Fields that say nothing, or that only some versions of Python have."""

Definition = tuple[str, str]
"""Module of this package and a name in it."""


def fingerprint(entry: str) -> str:
    """Return what tells the code of an entry from other code."""
    module, name = where(entry)
    found = sha256()
    for one in sorted(_reached((module.rpartition(".")[2], name))):
        found.update(f"{one} {_words(_definitions(one[0])[one[1]])}\n".encode())
    return found.hexdigest()[:DIGITS]


def _reached(first: Definition) -> set[Definition]:
    """Return a definition and all that it leads to in this package."""
    reached, left = set[Definition](), [first]
    while left:
        module, name = left.pop()
        if (module, name) in reached:
            continue
        if name in _definitions(module):
            reached.add((module, name))
            left += [(module, used) for used in _names(_definitions(module)[name])]
        left += [(other, told) for other, told in _imported(module).get(name, ())]
    return reached


@cache
def _tree(module: str) -> ast.Module:
    path = Path(__file__).parent / f"{module}.py"
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return name -> where a module defines it."""
    return dict(_defined(_tree(module)))


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for one in tree.body:
        match one:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, one
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, one
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from ((each, one) for each in _names(target))
            case _:
                pass  # imports, and what runs when the module is read


@cache
def _imported(module: str) -> dict[str, tuple[Definition, ...]]:
    """Return name -> what it is in another module of this package, wherever it is imported."""
    return {
        alias.asname or alias.name: ((other, alias.name),)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.")
        for other in [(node.module or "").rpartition(".")[2]]
        if other not in FRAME
        for alias in node.names
    }


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _words(node: ast.AST) -> str:
    """Return what a piece of code says, without where it stands and how it is laid out."""
    fields = [
        f"{name}={_value(value, is_body=name == 'body')}"
        for name, value in ast.iter_fields(node)
        if name not in SKIPPED and value is not None and value != []
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def _value(value: object, *, is_body: bool) -> str:
    if isinstance(value, ast.AST):
        return _words(value)
    if isinstance(value, list):
        said = [one for one in value if not (is_body and _is_text(one))]
        return "[" + ",".join(_value(one, is_body=False) for one in said) + "]"
    return repr(value)


def _is_text(node: object) -> bool:
    """Tell a docstring, or a text that stands alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
