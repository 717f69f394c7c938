"""One name, one idea: what a class is called means the same in the whole project."""

import ast
from collections import defaultdict
from pathlib import Path

import interlane

SOURCE = Path(interlane.__file__).parent
OLD_WORDS = (
    "fact", "facts", "wish", "wishes", "guess", "guesses", "dice", "heir", "deed", "toll",
    "zygote", "keeper", "nursery", "degradation", "harvest", "lender",
)  # fmt: skip


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_or_function_is_named_by_a_word_that_the_field_does_not_use() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in (path.stem, *_functions(path))
        if set(name.strip("_").split("_")) & set(OLD_WORDS)
    ]
    assert found == []


def _functions(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
