"""``interlane compare``: play one trace under several policies, on all cores."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.live_trace import DaysOption, FromLiveOption, MaybeTrace, played
from interlane.cli.options import (
    ProcessesOption,
    RunOptions,
    experiments_in,
    takes,
    words_in,
)
from interlane.cli.output import Output, OutputOption, emit, grid, strong
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.sim.experiment import Experiment

DEFAULT_POLICIES: Final = (
    "order=fifo,queue=strict",
    "order=fifo,queue=skip",
    "order=fifo,queue=easy",
    "order=sjf",
    "order=srtf",
    "order=las",
)
"""What is compared when nobody names policies: from plain to clever."""

COLUMNS: Final = {
    "mean_jct_s": "mean JCT s",
    "p50_jct_s": "p50 JCT",
    "p99_jct_s": "p99 JCT",
    "mean_wait_s": "mean wait s",
    "p99_wait_s": "p99 wait",
    "makespan_s": "makespan s",
    "gpu_allocated_ratio": "GPU allocated",
    "fragmentation_ratio": "fragmented",
    "preemptions": "preemptions",
    "refused": "refused",
    "cpu_s": "CPU s",
}


@takes(RunOptions)
def compare(
    trace: MaybeTrace = None,
    *,
    from_live: FromLiveOption = False,
    days: DaysOption = 7.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTS",
            help="A policy, as in 'order=sjf,placer=fgd,queue=easy,guess=group_dur' or "
            "'order=fifo,elastic=0.5'; parts left out come from --order, --placer and so on; "
            "repeatable.",
            show_default="six from plain to clever",
        ),
    ] = None,
    options: RunOptions,
    processes: ProcessesOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play a trace under several policies and mark the best of each figure."""
    from interlane.wiring import policy_words

    base = words_in(options)
    wanted = [policy_words(text, base) for text in policy or DEFAULT_POLICIES]
    with played(trace, options, from_live=from_live, days=days) as (path, settings):
        experiments = experiments_in(settings, path, wanted)
    show(experiments, processes, output)


def show(
    experiments: "Sequence[Experiment]", processes: int | None, output: Output
) -> list[dict[str, object]]:
    """Run experiments, print them side by side, and return their summaries."""
    from interlane.sim.compare import best
    from interlane.sim.compare import compare as run_all

    ended = [0] * len(experiments)
    jobs = sum(experiment.jobs for experiment in experiments)
    with progress(f"{len(experiments)} policies", jobs) as tell:

        def note(number: int, count: int) -> None:
            ended[number] = count
            tell(sum(ended))

        runs = run_all(experiments, processes or cores(), note)
    winners = best(runs)
    names = {
        figure: [runs[number]["policy"] for number in numbers]
        for figure, numbers in winners.items()
    }
    answer = {
        **{key: runs[0][key] for key in ("trace", "cluster", "weight", "seed")},
        "best": names,
        "runs": runs,
    }
    emit(answer, output, _table(runs, winners))
    return runs


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _table(runs: Sequence[dict[str, object]], winners: dict[str, list[int]]) -> str:
    head = ["policy", *COLUMNS.values()]
    rows = []
    for number, run in enumerate(runs):
        cells = [
            _cell(figure, run[figure], is_best=number in winners.get(figure, ()))
            for figure in COLUMNS
        ]
        rows.append([str(run["policy"]), *cells])
    return grid(head, rows) + "\n* best of its column"


def _cell(figure: str, value: object, *, is_best: bool) -> str:
    if not isinstance(value, int | float):
        text = "-"
    elif figure.endswith("_ratio"):
        text = f"{100 * value:.1f} %"
    elif figure == "cpu_s":
        text = f"{value:.2f}"
    else:
        text = f"{value:,.0f}"
    return strong(f"*{text}") if is_best else text
