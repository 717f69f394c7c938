"""Whether jobs start when ``eta`` says, on the live machine: a real queue of real processes.

Programs with lengths of their own come faster than they end.  Nothing is known of them at the
start: estimates are learned from runs that have ended, bands from starts that were told.  Every
second job that must wait is asked about when it comes in, as ``interlane eta`` would ask.
Bands are judged once the server is not young any more, as it says itself.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from interlane.model import Machine, MachineId
from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked, claim, figure
from interlane.reproduce.live_machine import driving

if TYPE_CHECKING:
    from interlane.live.driver import Driver
    from interlane.live.files.job import JobSpec
    from interlane.live.questions.etas import Etas
    from interlane.live.store.record import JobRecord

JOBS: Final = 300
DEVICES: Final = 4
PROGRAMS: Final = 12
MEDIAN_S: Final = (0.8, 5.0)
"""Shortest and longest median of a program."""
SPREAD: Final = 0.25
"""Of the logarithm of a program's lengths."""
LOAD: Final = 1.2
"""Work that comes over what devices can do: the queue grows until the last has come."""
LEAST_WAITING: Final = 6
"""While fewer wait, the next job comes at once: on a slow machine, too, there is a queue."""
ASKED_ONE_IN: Final = 2
LEAST, MOST = 0.80, 0.95
"""Share of jobs that must start inside the band that they were told."""
WIDE: Final = 4.0
"""Upper over lower end of a band where nothing is known, at least."""
WIDE_ELSE: Final = 2.0
"""The same for a program that was never seen, where others are known."""
END_S: Final = 600.0
BAND: Final = ("low_s", "p50_s", "p90_s", "high_s")


@dataclass(frozen=True, slots=True)
class ToldBand:
    """What ``eta`` said of a job when it came in."""

    low_s: float
    p50_s: float
    p90_s: float
    high_s: float
    is_young: bool
    """Whether too few starts had been compared for bands to be this machine's own."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What came of a queue."""

    told: dict[str, ToldBand]
    started_s: dict[str, float]
    young: dict[str, Any]
    """Estimate of the first job, before anything was known."""
    strange: dict[str, Any]
    """Estimate of a program that was never seen, after all have run."""
    because: str
    """What the first answer said that it rests on."""


def _live_eta(setting: Setting) -> list[Row]:
    from interlane import wiring
    from interlane.live.questions.etas import Etas

    machine = Machine(MachineId("here"), "EMULATED", DEVICES, 64_000, 65_536, 16_384)
    with (
        tempfile.TemporaryDirectory(prefix="interlane-") as name,
        driving(Path(name), machine) as (driver, _),
    ):
        etas = Etas(driver.snapshot, driver.store, wiring.played_starts)
        etas.start()
        try:
            found = _queue(driver, etas, setting)
        finally:
            etas.close()
    return rows_of(found)


def _queue(driver: "Driver", etas: "Etas", setting: Setting) -> QueueOutcome:
    """Submit jobs as they come, ask about those that wait, and see when they start."""
    rng = Random(setting.seed)
    low_s, high_s = MEDIAN_S
    medians_s = [low_s * (high_s / low_s) ** (n / (PROGRAMS - 1)) for n in range(PROGRAMS)]
    every_s = sum(medians_s) / PROGRAMS / (DEVICES * LOAD)
    told: dict[str, ToldBand] = {}
    ids: list[str] = []
    first: dict[str, Any] = {}
    because = ""
    next_s = time.monotonic()
    for number in range(JOBS):
        program = rng.randrange(PROGRAMS)
        length_s = medians_s[program] * rng.lognormvariate(0.0, SPREAD)
        record = driver.submit(_spec(f"p{program}", length_s), "reproduce").result()
        ids.append(record.id)
        first = first or _estimate(record)
        if number % ASKED_ONE_IN == 0:
            said = etas.document(record)
            if said["low_s"] is not None:
                is_young = "wide" in said["because"].rpartition(";")[2]
                low_s, p50_s, p90_s, high_s = (said[key] for key in BAND)
                told[record.id] = ToldBand(low_s, p50_s, p90_s, high_s, is_young)
                because = because or said["because"]
        setting.progress(number, JOBS, "jobs")
        next_s += rng.expovariate(1 / every_s)
        if len(driver.open_records()) >= DEVICES + LEAST_WAITING:
            time.sleep(max(0.0, next_s - time.monotonic()))
    _await(driver)
    strange = _estimate(driver.submit(_spec("never-seen", 0.1), "reproduce").result())
    _await(driver)
    started_s = {one: _started_s(driver, one) for one in ids}
    return QueueOutcome(told, started_s, first, strange, because)


def _spec(program: str, length_s: float) -> "JobSpec":
    from interlane.live.files.job import read_spec

    return read_spec(
        {
            "name": program,
            "group": program,
            "run": f"sleep {length_s:.3f}",
            "resources": {"gpu": {"count": 1}},
        }
    )


def _estimate(record: "JobRecord") -> dict[str, Any]:
    return {"low_s": record.low_s, "high_s": record.high_s, "basis": record.basis}


def _await(driver: "Driver") -> None:
    from interlane.model import InterlaneError

    until_s = time.monotonic() + END_S
    while driver.open_records():
        if time.monotonic() > until_s:
            raise InterlaneError("The live queue did not come to an end.")
        time.sleep(0.2)


def _started_s(driver: "Driver", job_id: str) -> float:
    from interlane.model import JobId

    record = driver.store.job(JobId(job_id))
    assert record is not None
    assert record.started_s is not None, record
    return record.started_s


# -- rows -----------------------------------------------------------------------------


def rows_of(found: QueueOutcome) -> list[Row]:
    """Return how often what was told held, and what was told when nothing was known."""
    at_s = found.started_s
    judged = {job: one for job, one in found.told.items() if not one.is_young}
    asked, young = len(judged), len(found.told) - len(judged)
    inside = sum(one.low_s <= at_s[job] <= one.high_s for job, one in judged.items())
    by_p90 = sum(at_s[job] <= one.p90_s for job, one in judged.items())
    by_p50 = sum(at_s[job] <= one.p50_s for job, one in judged.items())
    share = inside / asked if asked else 0.0
    return [
        figure("real jobs that were submitted", len(at_s)),
        checked(
            "jobs asked about that had to wait, once 20 starts had been compared",
            asked,
            f"at least {JOBS // ASKED_ONE_IN // 3}",
            asked >= JOBS // ASKED_ONE_IN // 3,
            "Too few would wait for anything to be shown.",
        ),
        figure("jobs asked about before, while the server was young", young),
        checked(
            "started within the band",
            f"{share:.1%}",
            f"{LEAST:.0%} to {MOST:.0%}",
            LEAST <= share <= MOST,
            "Bands of the live machine would promise more, or less, than they hold.",
        ),
        figure("started by P90", f"{by_p90 / max(asked, 1):.1%}"),
        figure("started by P50", f"{by_p50 / max(asked, 1):.1%}"),
        figure("run time of the first job, told before anything was known", _band(found.young)),
        claim(
            "a young server gives a wide band, and says why",
            found.young["high_s"] >= WIDE * found.young["low_s"]
            and "wide" in found.young["basis"]
            and "wide" in found.because,
            "A server that knows nothing would promise to the second.",
        ),
        figure("run time of a program never seen, told after 300 runs", _band(found.strange)),
        claim(
            "so does a server that knows others, for a program that it has never seen",
            found.strange["high_s"] >= WIDE_ELSE * found.strange["low_s"],
            "What other programs took would be promised of this one.",
        ),
    ]


def _band(estimate: dict[str, Any]) -> str:
    return f"{estimate['low_s']:.2f} to {estimate['high_s']:.2f} s ({estimate['basis']})"


ETA: Final = Reproduction(
    name="live-eta",
    claim="On the live machine, 300 real processes queue for 4 devices; those that are asked "
    "about start within the band that they were told, 80 to 95 of 100.",
    if_not="Bands of start times promise more, or less, than they hold.",
    run=_live_eta,
    needs_data=False,
    basis=Basis.MACHINE,
)
