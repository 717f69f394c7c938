"""Faults that are planted to try tests: which there are, and that a run tells them apart."""

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from interlane.testing.mutants import mutants
from interlane.testing.mutate import dependents, targets_of


def edits(source: str) -> set[str]:
    return {one.what for one in mutants(ast.parse(dedent(source)))}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x < y <= z", {"x < y <= z  ->  x <= y <= z", "x < y <= z  ->  x < y < z"}),
        ("a + b", {"a + b  ->  a - b"}),
        ("a += 1", {"a += 1  ->  a -= 1", "a += 1  ->  pass", "1  ->  2"}),
        ("x = not y", {"not y  ->  y"}),
        ("x = -y", {"-y  ->  y"}),
        ("x = a and b", {"a and b  ->  a or b"}),
        ("x = min(a, b)", {"min(a, b)  ->  max(a, b)"}),
        ("x = True", {"True  ->  False"}),
        ("x = 0.5", {"0.5  ->  1.5"}),
        ("x = 1e9", {"1000000000.0  ->  2000000000.0"}),
        ("x = 'text'", set()),
        ("x = zip(a, b, strict=True)", set()),
        ("x.y = z", {"x.y = z  ->  pass"}),
        ("f(x)", {"f(x)  ->  pass"}),
        ("if flag: pass", {"if flag:  ->  if not flag:"}),
        ("raise E(1 + 1)", {"raise E(1 + 1)  ->  pass"}),
        ("x: int = a", set()),
        ("def f(x: A | B = c) -> D | E: ...", set()),
        ("class P(Protocol):\n  x = 1", set()),
        ("'''text'''", set()),
        ("@decorated(1)\ndef f(): ...", set()),
    ],
)
def test_each_kind_of_code_has_its_faults(source: str, expected: set[str]) -> None:
    found = edits(source)
    # A statement that is only an expression may also be left out.
    assert found - {f"{source}  ->  pass"} == expected - {f"{source}  ->  pass"}


def test_a_return_gives_what_the_next_one_gives_or_nothing() -> None:
    two = """
    def f(x):
        if x:
            return a
        return b
    """
    assert {"return a  ->  return b", "return b  ->  return a"} <= edits(two)
    assert edits("def f():\n    return a") == {"return a  ->  pass"}


def test_every_fault_of_a_real_module_compiles_and_leaves_the_tree_as_it_was() -> None:
    (target,) = targets_of("interlane.policy.order")
    tree = ast.parse(target.path.read_text())
    before, lines = ast.dump(tree), target.path.read_text().count("\n")
    found = mutants(tree)
    assert len(found) > 50
    for one in found:
        one.compiled(tree, "order.py")
        assert 1 <= one.lines[0] <= one.line <= lines
    assert ast.dump(tree) == before


def test_a_module_and_whoever_imports_it_are_made_anew() -> None:
    (target,) = targets_of("interlane.policy.rows")
    found = dependents(target)
    assert {
        "interlane.policy.rows",
        "interlane.policy.scores",
        "interlane.kernel.view",
    } <= found
    assert "interlane.model.work" not in found
    names = [one.name for one in targets_of("interlane.policy.colocate")]
    assert names[0] == "interlane.policy.colocate"
    assert "interlane.policy.colocate.gpus" in names


TINY = """
def larger(a, b):
    if a > b:
        return a
    return b

def never_called(a):
    return a + 1
"""
CONFTEST = """
from hypothesis import settings
settings.register_profile("mutate", deadline=None)
"""


TESTS = """
import tiny

def test_that_is_weak():
    assert tiny.larger(2, 1) == 2

def test_that_fails_anyway():
    assert tiny.larger(1, 2) == 1
"""


def test_a_run_tells_the_faults_that_tests_notice_from_those_that_they_do_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_tiny.py").write_text(TESTS)
    command = [sys.executable, "-m", "interlane.testing.mutate", "tiny", "test_tiny.py"]

    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )

    # The weak test notices that another value is returned; what it does not reach, and what
    # only a test reaches that fails in any case, nobody notices.
    told = [line.split("/tiny.py:")[-1] for line in run.stdout.splitlines()]
    assert told == [
        "left out, it fails without a mutant: test_tiny.py::test_that_fails_anyway",
        "3: survived: a > b  ->  a >= b",
        "5: not reached: return b  ->  return a",
        "8: not reached: 1  ->  2",
        "8: not reached: a + 1  ->  a - 1",
        "8: not reached: return a + 1  ->  pass",
        *told[-2:],
    ]
    assert told[-1].split() == ["all", "1", "of", "6", "noticed"]
