"""``interlane share bench`` and ``interlane share profile``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit, grid
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.device.bench.figures import BenchFigure

MISSED = 1


def bench(
    rounds: Annotated[
        int, typer.Option(min=1, help="How often everything is measured, in turn.")
    ] = 5,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Measure hand-overs, preemption, makespan and starts on this machine.

    Real daemons and real processes on a CPU device; each median is printed beside its bound.
    Exit code 1 if a bound is missed.
    """
    from interlane.device.bench.figures import Bench
    from interlane.device.bench.stage import staged

    measured = Bench()
    with progress("measuring", rounds, "rounds") as tell, staged() as stage:
        measured.run(stage, rounds, tell)
    rows = [_row(figure) for figure in measured.figures]
    answer = {figure.name: _told(figure) for figure in measured.figures}
    emit(answer, output, grid(("figure", "bound", "median", "best", "samples", ""), rows))
    return 0 if all(figure.holds for figure in measured.figures) else MISSED


def _row(figure: "BenchFigure") -> tuple[str, ...]:
    sign = ">=" if figure.is_least else "<="
    bound = "-" if figure.bound is None else f"{sign} {figure.bound:,g} {figure.unit}"
    held = "-" if figure.bound is None else "holds" if figure.holds else "missed"
    return (
        figure.name,
        bound,
        f"{figure.median:,.3g} {figure.unit}",
        f"{figure.best:,.3g} {figure.unit}",
        str(len(figure.samples)),
        held,
    )


def _told(figure: "BenchFigure") -> dict[str, object]:
    return {
        "unit": figure.unit,
        "bound": figure.bound,
        "median": figure.median,
        "best": figure.best,
        "samples": len(figure.samples),
        "holds": figure.holds,
    }


def profile(
    builder: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function that makes model, optimizer and batch, and returns a function of no "
            "arguments that runs one iteration.",
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compute what a training step will need, without allocating anything.

    Tensors are counted, not the workspaces of libraries: for convolutions add a fifth.
    """
    from interlane.device.memory import with_margin
    from interlane.device.profile import builder_of
    from interlane.device.profile import profile as profiled
    from interlane.model.amounts import written

    told = profiled(builder_of(builder, Path.cwd()))
    needs, asked = told.demand, with_margin(told.demand)
    mib = [-(-amount // 2**20) for amount in (asked.persistent_bytes, asked.ephemeral_bytes)]
    option = f"--memory {mib[0]}MiB+{mib[1]}MiB"
    table = [
        f"stays   {written(needs.persistent_bytes)}",
        f"passes  {written(needs.ephemeral_bytes)}",
        f"peak    {written(needs.peak_bytes)}",
        *(f"  {kind:<12}{written(size)}" for kind, size in told.at_peak.items() if size),
        f"with a margin: interlane share run {option}",
    ]
    answer = {
        "persistent_bytes": needs.persistent_bytes,
        "ephemeral_bytes": needs.ephemeral_bytes,
        "peak_bytes": needs.peak_bytes,
        "at_peak": told.at_peak,
        "option": option,
    }
    emit(answer, output, "\n".join(table))
