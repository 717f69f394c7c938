"""Play many scripts of faults, on all cores; a script that fails prints how to play it again.

    python -m interlane.testing.faults [--seeds N] [--first SEED] [--events N]

Each script is a life of the live half in one process: the real driver, scheduler and store, a
world that is simulated, and a random generator that decides what goes wrong (see ``engines``).
What must hold is checked after every event.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from interlane.testing.engines import check_engine
from interlane.testing.worlds import pretended

EVENTS: Final = 2_000
EVENTS_A_STEP: Final = 2.5
"""A move, and half of the time each of three things that may follow."""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What became of a script."""

    seed: int
    events: int
    broken: str | None = None
    """The clause that was broken, and how."""


def played(seed: int, events: int = EVENTS) -> ScriptResult:
    """Play one script."""
    try:
        return ScriptResult(seed, check_engine(pretended, seed, round(events / EVENTS_A_STEP)))
    except Exception as error:
        return ScriptResult(seed, 0, f"{type(error).__name__}: {error}")


def play_all(seeds: range, events: int) -> Iterator[ScriptResult]:
    """Play scripts on all cores, and yield them as they end."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in as_completed([pool.submit(played, seed, events) for seed in seeds]):
            yield done.result()


def main() -> int:
    """Play what the command line asks for; 1 if anything was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=500, help="how many scripts")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--events", type=int, default=EVENTS, help="events in each, about")
    asked = parser.parse_args()
    begin_s, events, broken, done = time.monotonic(), 0, 0, 0
    for result in play_all(range(asked.first, asked.first + asked.seeds), asked.events):
        done, events = done + 1, events + result.events
        if result.broken is not None:
            broken += 1
            again = f"--first {result.seed} --seeds 1 --events {asked.events}"
            print(f"Seed {result.seed}: {result.broken}")
            print(f"  again with: python -m interlane.testing.faults {again}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done} of {asked.seeds} scripts", end="", file=sys.stderr)
    took_s = time.monotonic() - begin_s
    print(f"{asked.seeds} scripts, {events:,} events in {took_s:.0f} s; {broken} broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
