"""Play many scripts of faults, on all cores; a script that fails prints how to play it again.

    python -m interlane.testing.faults [--seeds N] [--first SEED] [--events N] [--part PART]

Each seed is a life of the live half in one process, in parts that share the events:

* ``cluster``: the real driver, scheduler and store over machines that only pretend;
* ``shims``: the same over the real engine of one machine, with shims and their watchers;
* ``device``: the real device daemon and the real clients of jobs;
* ``functions``: the real gateway.

What is simulated are the clock, the disk, processes, sockets, and what goes wrong with them;
see ``engines`` and ``simulated``.  What must hold is checked after every event.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from interlane.testing.engines import check_engine
from interlane.testing.simulated.functions import check_functions
from interlane.testing.simulated.sharing import check_sharing
from interlane.testing.simulated.shims import ShimWorld
from interlane.testing.worlds import pretended

GARBAGE: Final = 20_000
"""Objects that are made between two looks for garbage."""
EVENTS: Final = 2_000
"""Of all parts of a script together."""
EVENTS_A_STEP: Final = 2.5
"""A move, and half of the time each of three things that may follow."""
EVENTS_A_SHIM_STEP: Final = 5.3
"""The same with about six turns of threads among them."""


def _cluster(seed: int, events: int) -> int:
    return check_engine(pretended, seed, round(events / EVENTS_A_STEP))


def _shims(seed: int, events: int) -> int:
    return check_engine(ShimWorld, seed, round(events / EVENTS_A_SHIM_STEP))


PARTS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "cluster": _cluster,
    "shims": _shims,
    "device": check_sharing,
    "functions": check_functions,
}
"""What plays each part: from a seed and events to how many there were."""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What became of a part of a script."""

    seed: int
    part: str
    events: int
    broken: str | None = None
    """The clause that was broken, and how."""

    def again(self, events: int) -> str:
        """Return the command that plays it again."""
        options = f"--first {self.seed} --seeds 1 --events {events} --part {self.part}"
        return f"python -m interlane.testing.faults {options}"


def played(seed: int, part: str, events: int = EVENTS) -> ScriptResult:
    """Play one part of a script, which has its share of the events."""
    try:
        done = PARTS[part](seed, events // len(PARTS))
    except Exception as error:
        return ScriptResult(seed, part, 0, f"{type(error).__name__}: {error}")
    return ScriptResult(seed, part, done)


def _prepared() -> None:
    """Look no more for garbage among what all libraries have made: that stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def play_all(seeds: range, parts: tuple[str, ...], events: int) -> Iterator[ScriptResult]:
    """Play scripts on all cores, and yield their parts as they end."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=_prepared) as pool:
        asked = [pool.submit(played, seed, part, events) for seed in seeds for part in parts]
        for done in as_completed(asked):
            yield done.result()


def main() -> int:
    """Play what the command line asks for; 1 if anything was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=500, help="how many scripts")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--events", type=int, default=EVENTS, help="events in each, about")
    parser.add_argument("--part", choices=PARTS, action="append", help="all, unless given")
    asked = parser.parse_args()
    parts = tuple(asked.part or PARTS)
    begin_s, events, broken, done = time.monotonic(), 0, 0, 0
    for result in play_all(range(asked.first, asked.first + asked.seeds), parts, asked.events):
        done, events = done + 1, events + result.events
        if result.broken is not None:
            broken += 1
            print(f"Seed {result.seed}, {result.part}: {result.broken}")
            print(f"  again with: {result.again(asked.events)}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done} of {asked.seeds * len(parts)} parts", end="", file=sys.stderr)
    took_s = time.monotonic() - begin_s
    print(f"{asked.seeds} scripts, {events:,} events in {took_s:.0f} s; {broken} broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
