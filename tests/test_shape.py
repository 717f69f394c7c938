"""The shape of the source: small classes, small functions, few arguments, no import cycles."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import interlane

METHODS_MAX = 40
LINES_MAX = 70
ARGUMENTS_MAX = 10
NAMES_OF_LIVE_MAX = 19
"""What pages may know of the live half, besides what they ask its view."""

SOURCE = Path(interlane.__file__).parent


def test_no_class_has_more_methods_than_a_reader_can_hold() -> None:
    offenders = [
        f"{where(module, node)} {node.name}: {count} methods"
        for module, node in nodes(ast.ClassDef)
        if (count := sum(isinstance(one, FUNCTION) for one in node.body)) > METHODS_MAX
    ]
    assert not offenders, "\n".join(offenders)


def test_every_function_fits_on_a_page() -> None:
    offenders = [
        f"{where(module, node)} {node.name}: {lines} lines"
        for module, node in nodes(*FUNCTION)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES_MAX
    ]
    assert not offenders, "\n".join(offenders)


def test_no_call_has_a_long_row_of_positional_arguments() -> None:
    offenders = [
        f"{where(module, node)} {ast.unparse(node.func)}: {len(node.args)} arguments"
        for module, node in nodes(ast.Call)
        if len(node.args) > ARGUMENTS_MAX
    ]
    assert not offenders, "\n".join(offenders)


def test_no_module_imports_itself_by_way_of_others() -> None:
    cycles = [sorted(group) for group in knots(imports()) if len(group) > 1]
    assert not cycles, "\n".join(" - ".join(names) for names in sorted(cycles))


def test_pages_know_few_names_of_the_live_half() -> None:
    known = names_of("interlane.live", among="interlane.pages")
    assert len(known) <= NAMES_OF_LIVE_MAX, ", ".join(sorted(known))


def test_the_checks_see_what_they_look_for() -> None:
    assert "interlane.live.view.View" in names_of("interlane.live", among="interlane.pages")
    assert knots({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}, {"d"}]
    assert "interlane.kernel.ledger" in imports()["interlane.kernel.view"]
    assert any(node.name == "Scheduler" for _, node in nodes(ast.ClassDef))


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module's tree, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield all nodes of some kinds, each with the module that it is in."""
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield name, node


def where(module: str, node: ast.stmt | ast.expr) -> str:
    return f"{module}:{node.lineno}"


def imports() -> dict[str, set[str]]:
    """Return which modules each one names, those for type checkers and in functions too."""
    known = set(modules())
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, node in nodes(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            graph[name] |= known & {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{name} imports relatively"
            assert node.module is not None
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            graph[name] |= known & named
            if named - known and node.module in known:
                graph[name].add(node.module)
    return graph


def names_of(package: str, *, among: str) -> set[str]:
    """Return the names of a package that the modules of another import."""
    return {
        f"{node.module}.{alias.name}"
        for name, node in nodes(ast.ImportFrom)
        if f"{name}.".startswith(f"{among}.") and f"{node.module}.".startswith(f"{package}.")
        for alias in node.names
    }


def knots(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected parts of a graph (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found
