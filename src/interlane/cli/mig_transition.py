"""``interlane mig transition`` and ``interlane mig apply``: from one plan to the next."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, printed
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.mig_transition import AppliedTransition, MigTransition

CRASHED: Final = 70
"""Exit code of a run that was told to crash."""


class Method(StrEnum):
    """How the new plan and the way to it are found."""

    JOINT = "joint"
    EXCHANGE = "exchange-and-compact"


class Executes(StrEnum):
    """Who carries steps out."""

    SIMULATED = "simulated"
    NVIDIA_SMI = "nvidia-smi"
    EMULATED = "emulated"
    MIG_PARTED = "mig-parted"


TimesOption = Annotated[
    str,
    typer.Option(metavar="STEP=S,...", help="Seconds of steps: make, start, drain, destroy."),
]
EmulatedOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="emulated: the --state of the server whose GPUs are cut.",
        show_default=False,
    ),
]
DEFAULT_TIMES: Final = "make=1,start=30,drain=10,destroy=1"


def transition(
    source: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="What runs now (JSON).")
    ],
    services: Annotated[
        str, typer.Option("--to", metavar="FILE|-", help="Services file of the new demand.")
    ],
    old_demand: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Services file of the old demand, for its rates.",
            show_default="what runs now gives",
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(help="Service that runs now and is asked for no more; repeatable."),
    ] = None,
    slack: Annotated[
        int, typer.Option(min=0, help="GPUs above the fewest, to leave more in place.")
    ] = 1,
    method: Annotated[
        Method, typer.Option(help="exchange-and-compact is the published baseline.")
    ] = Method.JOINT,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Performance table (CSV).", show_default="the file's"),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds for the best so far.")
    ] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of the search for an order.")] = 0,
    times: TimesOption = DEFAULT_TIMES,
    shown: Annotated[int, typer.Option(min=0, help="Actions to list; 0 for all.")] = 20,
    save: Annotated[
        Path | None, typer.Option(help="Write the transition here, for `mig apply`.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Plan the way from what runs now to a new demand, interrupting nobody."""
    from interlane.usecases import mig_transition
    from interlane.usecases.documents import from_file
    from interlane.usecases.mig import MigDemand

    found = mig_transition.transition(
        MigDemand(from_file(services), None if table is None else from_file(table)),
        from_file(source),
        old_demand=None if old_demand is None else from_file(old_demand),
        retire=retire or (),
        slack=slack,
        method=method.value,
        limit_s=time_limit,
        seed=seed,
        times=times,
        reporter=TERMINAL,
    )
    text = "\n".join([*_plan_lines(found), *_way_lines(found), "", _listing(found, shown)])
    if save is not None:
        save.write_text(printed(found.document, OutputFormat.JSON) + "\n", encoding="utf-8")
    emit(found.document, output, text)


def _plan_lines(found: "MigTransition") -> Iterator[str]:
    way, proven = found.way, found.found
    kept = (
        f"{way.kept} of {way.running} running instances stay where they are "
        f"({found.kept_share:.1%})"
    )
    if proven is None:
        yield f"{kept}, on {found.gpus} GPUs."
        return
    proof = (
        "no plan keeps more"
        if proven.kept >= proven.most_kept
        else f"no plan keeps more than {proven.most_kept}"
    )
    yield f"{kept}; {proof}."
    yield f"{found.gpus} GPUs at the end, {found.fewest_gpus} would be the fewest."


def _way_lines(found: "MigTransition") -> Iterator[str]:
    way = found.way
    counts = ", ".join(f"{count} {kind}" for kind, count in way.counts().items() if count)
    rounds = len(found.waves)
    yield f"{len(way.actions)} actions in {rounds} waves: {counts or 'nothing to do'}."
    at_once_s, in_turn_s = found.at_once_s, found.one_by_one_s
    yield f"{at_once_s:,.0f} s if actions overlap as they may, {in_turn_s:,.0f} s one by one."
    if way.extra_gpus:
        plural = "GPU is" if way.extra_gpus == 1 else "GPUs are"
        yield f"{way.extra_gpus} {plural} borrowed on the way: {way.peak_gpus} at the most."
    else:
        yield "No GPU is borrowed on the way."


def _listing(found: "MigTransition", shown: int = 0) -> str:
    wave_of = {number: at for at, wave in enumerate(found.waves) for number in wave}
    rows = [
        [
            str(number),
            str(wave_of[number]),
            str(action),
            " ".join(map(str, action.after)) or "-",
        ]
        for number, action in enumerate(found.way.actions)
    ]
    listed = rows[:shown] if shown else rows
    text = grid(["no", "wave", "action", "after"], listed, left=4)
    left = len(rows) - len(listed)
    return f"{text}\n... and {left} more; --shown 0 lists all." if left else text


# -- carrying out ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """How simulated GPUs behave."""

    state: Annotated[
        Path | None,
        typer.Option(help="simulated: file of what is there.", show_default="beside"),
    ] = None
    fail_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="simulated: share of steps that fail.")
    ] = 0.0
    broken: Annotated[
        list[str] | None, typer.Option(help="simulated: GPU that never obeys; repeatable.")
    ] = None
    seed: Annotated[int, typer.Option(help="simulated: seed of failures and times.")] = 0
    times: TimesOption = DEFAULT_TIMES
    crash_after: Annotated[
        int | None,
        typer.Option(metavar="STEPS", min=1, help="simulated: drop dead after some steps."),
    ] = None


@takes(SimulatedOptions)
def apply(
    file: Annotated[
        Path, typer.Argument(metavar="TRANSITION", help="From `mig transition --save`.")
    ],
    executor: Annotated[Executes, typer.Option(help="Who carries steps out.")] = (
        Executes.SIMULATED
    ),
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps and change nothing.")
    ] = False,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Go back to what ran before.")
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="Journal to write, and to go on from.", show_default="beside"),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="Tries of a failed step before planning around it.")
    ] = 2,
    service_command: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="nvidia-smi, emulated: starts and drains services, as CMD start|drain SERVICE "
            "GPU PROFILE START BATCH PROCESSES.",
        ),
    ] = None,
    gpus: EmulatedOption = None,
    options: SimulatedOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Carry a transition out, or go on with one that was interrupted."""
    from interlane.usecases import mig_transition
    from interlane.usecases.documents import from_file

    simulated = mig_transition.SimulatedHardware(
        options.state or file.with_name(f"{file.name}.state"),
        options.fail_rate,
        options.broken or (),
        options.seed,
        mig_transition.times_of(options.times),
        _crashing(options.crash_after),
    )
    document = from_file(file)
    if executor is Executes.MIG_PARTED:
        typer.echo(printed(mig_transition.parted(document), OutputFormat.YAML))
        return 0
    is_simulated = executor is Executes.SIMULATED
    if dry_run:
        steps = mig_transition.dry_run(document, service_command, shell=not is_simulated)
        answer = {"actions": steps.actions, "lines": list(steps.lines)}
        emit(answer, output, "\n".join(steps.lines) or "Nothing to do.")
        return 0
    real = mig_transition.real_gpus(
        service_command, gpus, is_emulated=executor is Executes.EMULATED
    )
    applied = mig_transition.apply(
        document,
        journal or file.with_name(f"{file.name}.journal"),
        simulated if is_simulated else real,
        roll_back=roll_back,
        retries=retries,
        reporter=TERMINAL,
    )
    emit(applied.document, output, _applied_told(applied))
    return 1 if applied.gave_up else 0


def _crashing(steps: int | None) -> Callable[[], None]:
    """Return what ends the process after some calls, as if by a power cut."""
    over = 0

    def step() -> None:
        nonlocal over
        over += 1
        if over == steps:
            os._exit(CRASHED)

    return step


def _applied_told(applied: "AppliedTransition") -> str:
    ended, elapsed_s = applied.ended, applied.elapsed_s
    text = f"{ended.end.value}: {ended.steps} steps carried out, {ended.retries} failed"
    text += f", {ended.replans} times planned anew"
    text += "" if elapsed_s is None else f"; {elapsed_s:,.0f} simulated seconds"
    if ended.why:
        text += f"\n{ended.why}; go on with the same command, or --roll-back."
    return text
