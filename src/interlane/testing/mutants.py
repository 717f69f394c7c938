"""Small faults that can be planted in a module: its *mutants*.

Each is one edit of the syntax tree, such as ``<`` made ``<=``, a constant one larger, or a
statement left out.  A good test of the module fails under it; ``mutate`` tells which do not.

What only people read is left alone: annotations, docstrings, messages, decorators, protocols.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Final

_COMPARED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLED: Final[Mapping[str, str]] = {"min": "max", "max": "min", "any": "all", "all": "any"}

_UNREAD: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "type_params"})
"""Fields of the tree that say nothing about what the module does."""


@dataclass(frozen=True)
class Mutant:
    """One edit: ``owner.field`` (or an item of it) becomes ``new``."""

    lines: range
    """Where the edit is, from the beginning of its statement."""
    what: str
    owner: ast.AST
    field: str
    item: int | None
    new: ast.AST

    @property
    def line(self) -> int:
        """The line that was edited."""
        return self.lines[-1]

    def compiled(self, tree: ast.Module, path: str) -> CodeType:
        """Return the module with this edit; the tree is as before afterwards."""
        old = self._put(self.new)
        try:
            return compile(tree, path, "exec")
        finally:
            self._put(old)

    def _put(self, node: ast.AST) -> ast.AST:
        if self.item is None:
            old: ast.AST = getattr(self.owner, self.field)
            setattr(self.owner, self.field, node)
        else:
            row = getattr(self.owner, self.field)
            old, row[self.item] = row[self.item], node
        return old


def mutants(tree: ast.Module) -> list[Mutant]:
    """Return all edits of a module, in the order of its lines."""
    found = _below(tree, tree, _neighbours(tree))
    return sorted(found, key=lambda one: (one.line, one.what))


def _below(
    node: ast.AST, statement: ast.AST, returned: Mapping[ast.AST, ast.expr]
) -> Iterator[Mutant]:
    for field, value in ast.iter_fields(node):
        if field in _UNREAD or (field == "keywords" and _is_zip(node)):
            continue
        for item, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _only_for_people(child):
                continue
            at = child if isinstance(child, ast.stmt) else statement
            for new in _edits(child, returned):
                yield _mutant(child, at, node, field, item, new)
            if not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from _below(child, at, returned)


def _mutant(
    old: ast.AST, at: ast.AST, owner: ast.AST, field: str, item: int | None, new: ast.AST
) -> Mutant:
    ast.copy_location(new, old)
    ast.fix_missing_locations(new)
    last = old.lineno if isinstance(old, ast.stmt) else getattr(old, "end_lineno", 0)
    what = f"{_short(old)}  ->  {_short(new)}"
    first = getattr(at, "lineno", last)
    return Mutant(range(min(first, last), last + 1), what, owner, field, item, new)


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).split("\n")[0]
    return text if len(text) <= 60 else text[:57] + "..."


def _is_zip(node: ast.AST) -> bool:
    """Tell whether this calls ``zip``, whose ``strict`` guards against our own faults only."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "zip"


def _only_for_people(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword):
        return node.arg == "repr"
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases
    )


def _edits(node: ast.AST, returned: Mapping[ast.AST, ast.expr]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return):
        yield ast.Return(returned[node]) if node in returned else ast.Pass()
    for kind, edit in _EDITS:
        if isinstance(node, kind):
            yield from edit(node)


def _comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for at, op in enumerate(node.ops):
        ops = [*node.ops[:at], _COMPARED[type(op)](), *node.ops[at + 1 :]]
        yield ast.Compare(node.left, ops, node.comparators)


def _arithmetic(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _COMPUTED and not isinstance(node.left, ast.JoinedStr):
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)


def _in_place(node: ast.AugAssign) -> Iterator[ast.AST]:
    if type(node.op) in _COMPUTED:
        yield ast.AugAssign(node.target, _COMPUTED[type(node.op)](), node.value)
    yield ast.Pass()


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield ast.Constant(node.value + max(1.0, abs(node.value)))


def _without_sign(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _and_or(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _opposite(node: ast.If | ast.IfExp | ast.While) -> Iterator[ast.AST]:
    """Negate a bare condition; those with an operator have edits of their own."""
    if isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        return
    test = ast.UnaryOp(ast.Not(), node.test)
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(test, node.body, node.orelse)
    elif isinstance(node, ast.If):
        yield ast.If(test, node.body, node.orelse)
    else:
        yield ast.While(test, node.body, node.orelse)


def _renamed(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        other = ast.Name(_CALLED[node.func.id], ast.Load())
        yield ast.Call(other, node.args, node.keywords)


def _left_out(node: ast.stmt) -> Iterator[ast.AST]:
    """Leave a statement out, where that does not merely lose a name."""
    if not isinstance(node, ast.Assign) or any(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    ):
        yield ast.Pass()


def _neighbours(tree: ast.Module) -> dict[ast.AST, ast.expr]:
    """Return, for every ``return``, what the next one of its function returns instead."""
    found: dict[ast.AST, ast.expr] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
            for one, other in zip(returns, returns[1:] + returns[:1], strict=True):
                if other.value and ast.dump(one) != ast.dump(other):
                    found[one] = other.value
    return found


_EDITS: Final[tuple[tuple[type[ast.AST], Callable[..., Iterator[ast.AST]]], ...]] = (
    (ast.Compare, _comparisons),
    (ast.BinOp, _arithmetic),
    (ast.AugAssign, _in_place),
    (ast.Constant, _constants),
    (ast.UnaryOp, _without_sign),
    (ast.BoolOp, _and_or),
    (ast.If, _opposite),
    (ast.IfExp, _opposite),
    (ast.While, _opposite),
    (ast.Call, _renamed),
    (ast.Assign, _left_out),
    (ast.Expr, _left_out),
    (ast.Raise, _left_out),
    (ast.Break, _left_out),
    (ast.Continue, _left_out),
)
