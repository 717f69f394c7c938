"""Plant small faults in a module, one at a time, and tell which of them no test notices.

    python -m interlane.testing.mutate interlane.policy.order tests/policy

runs the tests once to see which of them reach which line, and then, for each mutant (see
``mutants``), those that reach its line, in a process of its own that is forked from one in
which all libraries are loaded.  A mutant that no test notices *survives* and is printed: there
a test is missing, or the code does nothing.  Some survivors mean the same as the original.

Compiled modules are run uncompiled, so that a mutant costs no compilation.  Programs that tests
start run the original.
"""

import argparse
import ast
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Final

from interlane._compiled_cache import COMPILED_MODULES
from interlane.testing.mutants import Mutant, mutants

if TYPE_CHECKING:
    import pytest

LEAST_S: Final = 20.0
"""Seconds that the tests of a mutant may take in any case; imports count."""
SLOWER: Final = 5.0
"""How many times as long as without a mutant they may take; then it counts as noticed."""
MEMORY_BYTES: Final = 6 << 30
SOURCE: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Target:
    """A module in which faults are planted."""

    name: str
    path: Path

    @property
    def is_compiled(self) -> bool:
        """Whether numba compiles it."""
        return self.shown in COMPILED_MODULES

    @property
    def shown(self) -> str:
        """Its path, from the package on."""
        inside = self.path.is_relative_to(SOURCE)
        return str(self.path.relative_to(SOURCE) if inside else self.path)


@dataclass
class Baseline:
    """What the tests do without a mutant."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Test -> how long it takes; those that fail are left out."""
    reached: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """File and line -> tests that come there; "" while modules are imported."""
    failed: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    """All that are loaded in the end."""

    def tests_of(self, path: Path, lines: range | None = None) -> list[str]:
        """Return the tests that come to these lines of a file, or to any; fastest first."""
        here = {at: by for (file, at), by in self.reached.items() if file == str(path)}
        found: set[str] = set().union(*(here.get(at, ()) for at in lines or here))
        if "" in found:
            found |= set().union(*here.values())
        return sorted(found & self.seconds.keys(), key=self.seconds.__getitem__)


Tracer = Callable[[FrameType, str, object], "Tracer | None"]


class _Recorder:
    """A pytest plugin that notes which test comes to which line of some files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.found = Baseline()
        self._paths = frozenset(map(str, paths))
        self._test = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._test = ""

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        if report.outcome == "failed":
            self.found.failed.append(report.nodeid)
        elif report.when == "call" and report.outcome == "passed":
            self.found.seconds[report.nodeid] = report.duration

    def trace(self, frame: FrameType, event: str, arg: object) -> "Tracer | None":
        """Follow calls into the files; see ``sys.settrace``."""
        return self._line if frame.f_code.co_filename in self._paths else None

    def _line(self, frame: FrameType, event: str, arg: object) -> "Tracer | None":
        if event == "line":
            self.found.reached[frame.f_code.co_filename, frame.f_lineno].add(self._test)
        return self._line


class _Overlay:
    """Finds one module, and gives it the code of a mutant."""

    def __init__(self, target: Target, code: CodeType) -> None:
        self._target = target
        self._loader = _Mutated(target.name, str(target.path))
        self._loader.code = code

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._target.name:
            return None
        return spec_from_file_location(name, self._target.path, loader=self._loader)


class _Mutated(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


# -- processes ------------------------------------------------------------------------


def forked(work: Callable[[], int]) -> int:
    """Do something in a child that is quiet and leads a group of its own; return its id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        os._exit(work())
    finally:
        os._exit(70)


def _run_tests(
    tests: Sequence[str], *, uncompiled: bool, plugins: Sequence[object] = ()
) -> int:
    """Run tests in this process; return pytest's exit code."""
    import pytest

    # Other plugins take seconds to load, and the tests of algorithms need none of them.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    options += ["-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutate"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries are loaded
    if uncompiled:
        options += ["-W", "ignore::RuntimeWarning"]  # of numbers that wrap, as they should
    return int(pytest.main([*options, *tests], plugins=plugins))


def observe(tests: Sequence[str], targets: Sequence[Target], *, uncompiled: bool) -> Baseline:
    """Run the tests without a mutant and return what they reach."""
    with tempfile.NamedTemporaryFile() as file:

        def work() -> int:
            _forget(_ours())
            recorder = _Recorder(target.path for target in targets)
            sys.settrace(recorder.trace)
            _run_tests(tests, uncompiled=uncompiled, plugins=[recorder])
            sys.settrace(None)
            recorder.found.modules = list(sys.modules)
            Path(file.name).write_bytes(pickle.dumps(vars(recorder.found)))
            return 0

        os.waitpid(forked(work), 0)
        found = Path(file.name).read_bytes()
    if not found:
        raise SystemExit("The tests ended without a report; run them alone to see why.")
    return Baseline(**pickle.loads(found))


# -- modules --------------------------------------------------------------------------


def _ours() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "interlane"]


def _forget(modules: Iterable[str]) -> None:
    for name in modules:
        sys.modules.pop(name, None)
        package, _, last = name.rpartition(".")
        if package in sys.modules and hasattr(sys.modules[package], last):
            delattr(sys.modules[package], last)  # or importing from the package would find it


def load(modules: Iterable[str], *, uncompiled: bool) -> None:
    """Import what all children need, once; of interlane, all of it anew."""
    import numba

    numba.config.DISABLE_JIT = uncompiled
    _forget(_ours())
    for name in modules:
        if not name.startswith(("tests", "test_", "conftest", "__main__")):
            with suppress(Exception):
                import_module(name)


def _imports(path: Path) -> set[str]:
    """Return what a file imports of interlane, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("interlane")}


@cache
def _import_graph() -> dict[str, set[str]]:
    return {one.name: _imports(one.path) for one in targets_of("interlane")}


def dependents(target: Target) -> set[str]:
    """Return a module and all that import it, directly or not."""
    found, new = {target.name}, {target.name}
    while new:
        new = {name for name, of in _import_graph().items() if of & new} - found
        found |= new
    return found


# -- the whole ------------------------------------------------------------------------


@dataclass
class MutantResult:
    """What became of the mutants of one module."""

    target: Target
    total: int = 0
    survivors: list[tuple[Mutant, str]] = field(default_factory=list)

    @property
    def killed(self) -> int:
        """How many were noticed."""
        return self.total - len(self.survivors)


@dataclass(frozen=True)
class _Trial:
    result: MutantResult
    mutant: Mutant
    ends_s: float


def play(
    result: MutantResult,
    baseline: Baseline,
    *,
    most: int,
    seed: int,
    jobs: int,
    noticed: Callable[[MutantResult, Mutant, str], None],
) -> None:
    """Try up to so many mutants of a module, several at once."""
    target = result.target
    tree = ast.parse(target.path.read_text())
    stale = dependents(target)
    found = mutants(tree)
    if len(found) > most:
        found = sorted(random.Random(seed).sample(found, most), key=lambda one: one.line)
    result.total = len(found)
    running: dict[int, _Trial] = {}
    for mutant in found:
        tests = baseline.tests_of(target.path, mutant.lines)
        if not tests:
            noticed(result, mutant, "not reached")
            continue
        while len(running) >= jobs:
            _reap(running, noticed)
        code = mutant.compiled(tree, str(target.path))
        ends_s = time.monotonic() + LEAST_S + SLOWER * sum(map(baseline.seconds.get, tests))  # type: ignore[arg-type]
        work = run_with(target, code, tests, stale, uncompiled=target.is_compiled)
        running[forked(work)] = _Trial(result, mutant, ends_s)
    while running:
        _reap(running, noticed)


def run_with(
    target: Target,
    code: CodeType,
    tests: Sequence[str],
    stale: Iterable[str],
    *,
    uncompiled: bool,
    instead: Callable[[], int] | None = None,
) -> Callable[[], int]:
    """Return what runs the tests, or something else, with this code for the target."""

    def work() -> int:
        _forget(stale)
        sys.meta_path.insert(0, _Overlay(target, code))
        if instead is not None:
            return instead()
        return _run_tests(["-x", *tests], uncompiled=uncompiled)

    return work


def _check(target: Target, baseline: Baseline) -> None:
    """Refuse to go on if tests fail here even without a mutant: all would seem noticed."""
    code = compile(target.path.read_text(), str(target.path), "exec")
    tests = baseline.tests_of(target.path)
    stale = dependents(target)
    work = run_with(target, code, tests, stale, uncompiled=target.is_compiled)
    if tests and os.waitpid(forked(work), 0)[1] != 0:
        raise SystemExit(f"Tests of {target.name} fail without a mutant; mend them first.")


def _reap(
    running: dict[int, _Trial], noticed: Callable[[MutantResult, Mutant, str], None]
) -> None:
    """Wait a little, and take note of the trials that are over or take too long."""
    time.sleep(0.01)
    for child, trial in list(running.items()):
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() > trial.ends_s:
            os.killpg(child, signal.SIGKILL)
            ended, status = os.waitpid(child, 0)
        if ended:
            del running[child]
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what the tests have started and left
            if status == 0:
                noticed(trial.result, trial.mutant, "survived")


def targets_of(module: str) -> list[Target]:
    """Return a module, or all modules of a package."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"There is no module {module}.")
    path = Path(spec.origin)
    if path.name != "__init__.py":
        return [Target(module, path)]
    return [
        Target(_dotted(module, path.parent, file), file)
        for file in sorted(path.parent.rglob("*.py"))
    ]


def _dotted(package: str, folder: Path, file: Path) -> str:
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutate", description="Which faults does no test notice?"
    )
    parser.add_argument("module", help="a module or package, as in interlane.policy.order")
    parser.add_argument("tests", nargs="+", help="test files, folders or single tests")
    parser.add_argument(
        "--most", type=int, default=sys.maxsize, help="mutants per module, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="which are drawn")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    return parser.parse_args()


def main() -> None:
    """Print survivors as they are found, and then a line per module."""
    options = _options()
    results = []
    targets = targets_of(options.module)
    for uncompiled in (False, True):
        chosen = [one for one in targets if one.is_compiled is uncompiled]
        if not chosen:
            continue
        load(("pytest", "hypothesis", "polars"), uncompiled=uncompiled)
        baseline = observe(options.tests, chosen, uncompiled=uncompiled)
        for test in baseline.failed:
            print(f"left out, it fails without a mutant: {test}", flush=True)
        load(baseline.modules, uncompiled=uncompiled)
        for target in chosen:
            _check(target, baseline)
            results.append(MutantResult(target))
            play(
                results[-1], baseline, most=options.most, seed=options.seed,
                jobs=options.jobs, noticed=_print,
            )  # fmt: skip
    for one in results:
        print(f"{one.target.name:<45} {one.killed:>4} of {one.total:>4} noticed")
    everything = sum(one.total for one in results)
    print(f"{'all':<45} {sum(one.killed for one in results):>4} of {everything:>4} noticed")


def _print(result: MutantResult, mutant: Mutant, how: str) -> None:
    result.survivors.append((mutant, how))
    print(f"{result.target.shown}:{mutant.line}: {how}: {mutant.what}", flush=True)


if __name__ == "__main__":
    main()
