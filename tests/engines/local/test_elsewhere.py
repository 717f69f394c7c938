"""An attempt that runs in another place than it is asked for: an old copy was put back."""

from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

from interlane.live.files.job import read_spec
from interlane.live.port import Begun, Ended, Launch, Report
from interlane.model import Placement, Spot
from interlane.testing.live import launch_of, make_engine, this_machine

DOCUMENT: dict[str, Any] = {"name": "long", "run": "sleep 600", "resources": {"gpu": 1}}


def asked(folder: Path, launch: Launch) -> Report:
    """Ask a new engine on a folder for an attempt; return the first that it says of it."""
    told: Queue[Report] = Queue()
    engine = make_engine(folder)
    engine.start(told.put)
    try:
        engine.begin(launch)
        while True:
            report = told.get(timeout=120)
            if getattr(report, "attempt", None) == launch.attempt:
                return report
    finally:
        engine.close()


def test_what_runs_elsewhere_is_stopped_and_what_runs_there_goes_on(tmp_path: Path) -> None:
    machine = this_machine(2).machines[0]
    first = launch_of(read_spec(DOCUMENT), Placement((Spot(machine.id, (0,)),)), machine)
    other = replace(first, placement=Placement((Spot(machine.id, (1,)),)))

    assert asked(tmp_path, first) == Begun(first.attempt)
    assert asked(tmp_path, first) == Begun(first.attempt)
    ended = asked(tmp_path, other)

    assert isinstance(ended, Ended)
    assert ended.was_stopped
