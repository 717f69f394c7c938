"""Plant known bugs, one at a time, and tell which of them the tests notice: all of them.

    python -m interlane.testing.planted [--only WORD] [--jobs N] [--list]

Each bug is a small change of meaning in one module: a text that occurs there once, and what is
put in its place.  It names the invariant that dies of it and who notices: tests, or the scripts
of a part of the fault simulation, which are played until one is broken.

Bugs are planted as those of ``mutate`` are: in a process of its own that is forked from one in
which all libraries are loaded, so that nothing on disk changes.  Nothing is compiled.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from interlane.testing.mutate import Target, dependents, forked, load, run_with, targets_of
from interlane.testing.planted_bug import PlantedBug, Scripts
from interlane.testing.planted_bugs import PLANTED

PATIENCE_S: Final = 1_200.0
"""For which the tests of a bug may run on a machine that others load; then nothing is known."""
NOTICED: Final = 1
"""With which tests end of which one failed, and scripts of which one was broken."""
LOADED: Final = ("pytest", "hypothesis", "polars", "interlane.testing.faults")


@dataclass(frozen=True, slots=True)
class PlantedResult:
    """What became of a bug."""

    bug: PlantedBug
    code: int | None
    """With which those ended who should notice; None if they were killed, or took too long."""
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether a test failed, or a script was broken."""
        return self.code == NOTICED

    @property
    def is_known(self) -> bool:
        """Whether tests or scripts came to an end: else nothing was shown."""
        return self.code in (0, NOTICED)

    @property
    def said(self) -> str:
        """What became of it, in words."""
        if not self.is_known:
            return "NOT RUN" if self.code is not None else "NOT ENDED"
        return "caught" if self.is_caught else "NOT caught"


def changed(bug: PlantedBug) -> tuple[Target, str]:
    """Return the module of a bug, and its text with the bug in it."""
    (target,) = targets_of(bug.module)
    text = target.path.read_text()
    times = text.count(bug.old)
    if times != 1:
        raise SystemExit(
            f"{bug.module} has {bug.old!r} {times} times; a planted bug names a text that is "
            "there once."
        )
    return target, text.replace(bug.old, bug.new)


def prepare() -> None:
    """Load what all children need; what a bug is in, they load anew, and compile nothing."""
    load(LOADED, uncompiled=True)


def tried(
    bugs: Iterable[PlantedBug], *, with_bug: bool = True, jobs: int = 1
) -> Iterator[PlantedResult]:
    """Plant bugs, each alone, run who should notice, and yield whether they did.

    Without the bug, those must notice nothing: else they prove nothing either.
    """
    running: dict[int, tuple[PlantedBug, float]] = {}
    for bug in bugs:
        while len(running) >= jobs:
            yield _awaited(running)
        running[_begun(bug, with_bug=with_bug)] = bug, time.monotonic()
    while running:
        yield _awaited(running)


def _begun(bug: PlantedBug, *, with_bug: bool) -> int:
    """Run who should notice a bug in a process in which it is planted; return that."""
    target, text = changed(bug)
    code = compile(text if with_bug else target.path.read_text(), str(target.path), "exec")
    by = bug.noticed_by
    run, tests = (_played(by), ()) if isinstance(by, Scripts) else (None, by)
    stale = dependents(target)
    return forked(run_with(target, code, tests, stale, uncompiled=True, instead=run))


def controls(bugs: Iterable[PlantedBug]) -> list[PlantedBug]:
    """Return one bug for each who notices: without bugs, all others would run the same again.

    Of the scripts of a part, those count that are played longest.
    """
    found: dict[object, PlantedBug] = {}
    for bug in bugs:
        by = bug.noticed_by
        key = by.part if isinstance(by, Scripts) else by
        known = found.get(key)
        if known is None or _seeds(by) > _seeds(known.noticed_by):
            found[key] = bug
    return list(found.values())


def _seeds(by: tuple[str, ...] | Scripts) -> int:
    return by.seeds if isinstance(by, Scripts) else 0


def _played(scripts: Scripts) -> Callable[[], int]:
    """Return what plays scripts until one is broken, in a process where the bug is planted."""

    def run() -> int:
        from interlane.testing import faults

        for seed in range(scripts.seeds):
            found = faults.played(seed, scripts.part, scripts.events)
            if found.broken is not None:
                return 1
        return 0

    return run


def _awaited(running: dict[int, tuple[PlantedBug, float]]) -> PlantedResult:
    """Wait for one of some children, not for ever; return how it ended."""
    while True:
        for child, (bug, begin_s) in running.items():
            ended, status = os.waitpid(child, os.WNOHANG)
            took_s = time.monotonic() - begin_s
            if not ended and took_s > PATIENCE_S:
                os.killpg(child, signal.SIGKILL)
                ended, status = os.waitpid(child, 0)
            if ended:
                del running[child]
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)  # what tests have started and left
                code = os.waitstatus_to_exitcode(status)
                return PlantedResult(bug, code if code >= 0 else None, took_s)
        time.sleep(0.02)


def main() -> int:
    """Print what became of every bug; 1 if one was not caught."""
    parser = argparse.ArgumentParser(prog="planted", description="Which bugs are noticed?")
    parser.add_argument("--only", default="", help="bugs with this in module, text or finding")
    parser.add_argument("--jobs", type=int, default=1, help="bugs that are tried at once")
    parser.add_argument("--list", action="store_true", help="list them, and plant none")
    parser.add_argument(
        "--unplanted", action="store_true", help="run the same without bugs: none is noticed"
    )
    asked = parser.parse_args()
    bugs = [bug for bug in PLANTED if asked.only in f"{bug.finding} {bug.module}: {bug.what}"]
    if asked.list:
        for bug in bugs:
            print(f"{bug.module}: {bug.what}\n  {bug.breaks}")
        return 0
    if asked.unplanted:
        bugs = controls(bugs)
    prepare()
    wrong = 0
    found = tried(bugs, with_bug=not asked.unplanted, jobs=asked.jobs)
    for number, result in enumerate(found, 1):
        wrong += not result.is_known or result.is_caught is asked.unplanted
        bug = result.bug
        which = f"{bug.finding} " if bug.finding else ""
        shown = f"{number:>2} of {len(bugs)}  {result.said}  {which}{bug.module}: {bug.what}"
        print(f"{shown} ({result.seconds:.0f} s)", flush=True)
    print(f"{len(bugs) - wrong} of {len(bugs)} as they should be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
