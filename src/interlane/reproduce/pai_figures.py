"""Every published characterisation of PAI beside that of a full-scale synthetic trace.

The seven full tables are not at hand.  So this shows two things at once: that the synthetic
trace is a fair stand-in for them, and that the report counts what the paper counted.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting

if TYPE_CHECKING:
    from interlane.traces.report.figure import Number, ReportFigure
    from interlane.traces.report.tables import TraceTables
    from interlane.traces.synth_pai import Scope

SMALL: Final = "small"
SMALL_SCALE: Final = 0.02

POINTS: Final = 2.0
"""Percentage points within which a share agrees."""
PART: Final = 0.10
"""Part of the published figure within which any other agrees."""
ALWAYS: Final = 95.0
"""Percent of the time that "nearly always" means."""

LEAST_NUMBERS: Final = 35
ENOUGH: Final = 0.9
"""Share of the numbers that must agree; of a small trace, fewer can."""
ENOUGH_SMALL: Final = 0.75

CROWDED: Final = frozenset({"machine_use", "contention", "allocation", "cpu_bottleneck"})
"""Figures of machines: gangs do not shrink with the machines, and would crowd fewer of them."""

FULL_ONLY: Final = frozenset(
    {
        *("user_skew.users", "user_skew.top_5_percent_least", "user_skew.bottom_half_most"),
        *("run_times.instances", "gangs.largest_gang"),
        *(
            f"submissions.{what}_per_hour_{end}"
            for what in ("tasks", "instances", "gpus")
            for end in ("least", "most")
        ),
        *(f"sharing.peak_{what}" for what in ("without", "with", "saved")),
    }
)
"""Counts, which a part of the trace cannot have."""

TOO_MANY_GPUS: Final = (
    "published allocation says that MISC and V100 machines alone have 2,595 GPUs allocated in "
    "the mean, which leaves no room for 2,650 at the peak on all machines; volume and run "
    "times side with allocation"
)

CANNOT: Final = {
    "gangs.share_asking_100_gpus": (
        "figure 2b has 24 % of instances in gangs of 100 instances or more, so that nearly all "
        "of them would have to ask for whole GPUs; figure 5 leaves whole GPUs to 28 % of "
        "instances, and real jobs have large gangs ask for quarters"
    ),
    "contention.busy_hosting_several": (
        "the draw knows no queue: while all machines of a kind are full, an instance goes to "
        "the emptiest card all the same, and four in five of these cards are such"
    ),
    "cpu_per_gpu.requests_2": (
        "CPUs that are asked for without a GPU have to run somewhere: with fewer of them on "
        "machines with two GPUs, these have less than the published 31 % of CPUs allocated, "
        "or MISC machines more than 77 %"
    ),
    "sharing.peak_without": TOO_MANY_GPUS,
    "sharing.peak_with": TOO_MANY_GPUS,
    "sharing.peak_saved": TOO_MANY_GPUS,
}
"""Figures that cannot be met: they contradict others that were published, or our draw."""

VOLUME: Final = {"tasks": 1_200_000, "GPUs": 6_742, "machines": 1_897}


def _reproduce(setting: Setting) -> list[Row]:
    from interlane.traces.report.report import figures
    from interlane.traces.report.tables import read_tables
    from interlane.traces.synth_pai import write_tables

    small = setting.choice == SMALL
    with TemporaryDirectory(prefix="interlane-") as folder:
        write_tables(
            _scope(setting),
            Path(folder),
            lambda done, total: setting.progress(done, total, "instances"),
        )
        tables = read_tables(Path(folder))
    rows = [] if small else list(_volume(tables))
    rows += [row for figure in figures(tables) for row in _rows(figure, small=small)]
    verdicts = [_verdict(rows, small=small)]
    if not small:
        verdicts.append(_unexplained(rows))
    return [*(replace(row, decides=False) for row in rows), *verdicts]


def _scope(setting: Setting) -> "Scope":
    from interlane.traces.synth_pai import Scope

    return Scope(scale=SMALL_SCALE if setting.choice == SMALL else 1.0, seed=setting.seed)


def _volume(tables: "TraceTables") -> Iterator[Row]:
    gpus = float(tables.machines["gpus"].sum())
    ours = {"tasks": tables.tasks.height, "GPUs": gpus, "machines": tables.machines.height}
    for what, published in VOLUME.items():
        value = float(ours[what])
        yield Row(
            f"volume: {what}", value, published, abs(value - published) <= PART * published
        )


def _rows(figure: "ReportFigure", *, small: bool) -> Iterator[Row]:
    """Yield the numbers of a figure that the paper has, too."""
    if small and figure.key in CROWDED:
        return
    for name, number in figure.numbers.items():
        key = f"{figure.key}.{name}"
        if number.paper is None or (small and key in FULL_ONLY):
            continue
        ours = "nothing" if number.value is None else round(number.value, 3)
        published = (
            f"{number.paper_says} {number.paper:g}" if _is_bound(number) else number.paper
        )
        what = f"{figure.key}: {name}, {number.unit}"
        near = agrees(number)
        yield Row(what, ours, published, near, "" if near else CANNOT.get(key, ""))


def _is_bound(number: "Number") -> bool:
    return number.paper_says.split(",")[0] in ("over", "below", "nearly always")


def agrees(number: "Number") -> bool:
    """Tell whether ours is what the paper has, as the paper words it."""
    ours, paper, says = number.value, number.paper, number.paper_says
    if ours is None or paper is None:
        return False
    if says.startswith("over"):
        return ours >= paper
    if says.startswith("below"):
        return ours <= paper
    if says.startswith("nearly always"):
        return ours >= ALWAYS
    if says.endswith("above"):
        return ours > paper
    return abs(ours - paper) <= (POINTS if "%" in number.unit else PART * paper)


def _verdict(rows: list[Row], *, small: bool) -> Row:
    """Return the claim itself: so many numbers, nine in ten of them near."""
    near = sum(row.holds for row in rows)
    least = ENOUGH_SMALL if small else ENOUGH
    holds = len(rows) >= LEAST_NUMBERS and near >= least * len(rows)
    what = f"numbers within {PART:.0%} (shares: {POINTS:g} points), of {len(rows)}"
    return Row(what, near, f"at least {least:.0%}", holds)


def _unexplained(rows: list[Row]) -> Row:
    """Return how many numbers differ without a reason that is known."""
    unknown = sum(not row.holds and not row.why_not for row in rows)
    return Row("numbers that differ for no known reason", unknown, 0, unknown == 0)


FIGURES: Final = Reproduction(
    "pai-figures",
    "What is published of the PAI trace (users, gangs, arrivals, run times, waits, requests, "
    "use, sharing, recurrence, workloads, allocation), beside a synthetic trace of its size.",
    "The synthetic trace would not stand in for the real one, or the report would count "
    "otherwise than the paper.",
    _reproduce,
    needs_data=False,
    variants=(SMALL,),
)
