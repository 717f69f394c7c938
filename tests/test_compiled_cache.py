"""Compiled code is kept under a name that changes with its sources."""

import re
from pathlib import Path

import interlane
from interlane._compiled_cache import COMPILED_MODULES

PACKAGE = Path(interlane.__file__).parent


def test_every_module_with_compiled_code_takes_part_in_the_name() -> None:
    decorated = re.compile(r"^@(compiled|inlined|njit)\b", re.MULTILINE)
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if decorated.search(path.read_text())
    }

    assert found | {"compiling.py"} == set(COMPILED_MODULES)
