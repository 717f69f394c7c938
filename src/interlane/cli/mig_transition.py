"""``interlane mig transition`` and ``interlane mig apply``: from one plan to the next."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from interlane.cli.mig import (
    asked_in,
    json_in,
    measured_for,
    problem_of,
    read_plan,
    yaml_in,
)
from interlane.cli.options import takes
from interlane.cli.output import Output, OutputOption, emit, grid, printed, say
from interlane.cli.progress import saying_if_slow

if TYPE_CHECKING:
    from interlane.mig.check import Terms
    from interlane.mig.demand import Problem
    from interlane.mig.plan import Plan
    from interlane.mig.transition.joint import Joint
    from interlane.mig.transition.run import Ended, Executor
    from interlane.mig.transition.simulated import SimulatedGpus
    from interlane.mig.transition.steps import Times, Transition

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
    MIG_PARTED = "mig-parted"


TimesOption = Annotated[
    str,
    typer.Option(metavar="STEP=S,...", help="Seconds of steps: make, start, drain, destroy."),
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Plan the way from what runs now to a new demand, interrupting nobody."""
    from interlane.mig.transition.documents import transition_document
    from interlane.mig.transition.standing import floors_of, standing

    how_long = _times(times)
    asked = asked_in(services, None, None, forbid_4g3g=False)
    problem, terms = problem_of(asked, measured_for(asked, table, services))
    there = standing(read_plan(source, asked.offers[0].model), problem, retire or ())
    floors = floors_of(there, problem, _old_rates(old_demand))
    with saying_if_slow(f"Looking for the best way, for at most {time_limit:g} s..."):
        way, found = _way(method, problem, there, floors, slack, time_limit, seed)
    document = transition_document(way, problem)
    _insist(way, document, terms)
    lines = [*_found_lines(found, way), *_way_lines(way, how_long)]
    text = "\n".join([*lines, "", _listing(way, shown)])
    answer = {**document, **_figures(found, way, how_long)}
    if save is not None:
        save.write_text(printed(answer, Output.JSON) + "\n", encoding="utf-8")
    emit(answer, output, text)


def _old_rates(old_demand: str | None) -> dict[str, float] | None:
    from interlane.mig.services_file import read_services

    if old_demand is None:
        return None
    asked = read_services(yaml_in(old_demand), old_demand)
    return {service.name: service.rate_per_s for service in asked.services}


def _way(
    method: Method,
    problem: "Problem",
    there: "Plan",
    floors: dict[str, float],
    slack: int,
    time_limit_s: float,
    seed: int,
) -> "tuple[Transition, Joint | None]":
    import time

    from interlane.mig.optimise import optimise
    from interlane.mig.plan import Effort
    from interlane.mig.transition.exchange import exchange_and_compact
    from interlane.mig.transition.joint import joint_plan
    from interlane.mig.transition.order import ordered

    effort = Effort(time_limit_s, seed, time.monotonic)
    if method is Method.EXCHANGE:
        plan = optimise(problem, effort=effort).plan
        return exchange_and_compact(there, plan, floors, problem), None
    found = joint_plan(problem, there, slack=slack, effort=effort)
    return ordered(there, found.plan, floors, problem, seed=seed), found


def _insist(way: "Transition", document: dict[str, Any], terms: "Terms") -> None:
    """Let checker and witness look; no transition leaves here with a fault."""
    from interlane.mig.check import faults
    from interlane.mig.transition import replay
    from interlane.model import InterlaneError

    deeds = replay.deeds_of(document)
    wrong = [
        *faults(way.target, terms),
        *replay.faults_in_order(way.current, deeds, way.floors).faults,
    ]
    if wrong:
        raise InterlaneError(
            f"The transition does not hold: {wrong[0]} This is a fault of interlane; please "
            "report it."
        )


# -- words ----------------------------------------------------------------------------


def _found_lines(found: "Joint | None", way: "Transition") -> Iterator[str]:
    share = way.kept / way.running if way.running else 1.0
    kept = f"{way.kept} of {way.running} running instances stay where they are ({share:.1%})"
    gpus = _busy(way.target)
    if found is None:
        yield f"{kept}, on {gpus} GPUs."
        return
    proof = (
        "no plan keeps more"
        if found.kept >= found.most_kept
        else (f"no plan keeps more than {found.most_kept}")
    )
    yield f"{kept}; {proof}."
    yield f"{gpus} GPUs at the end, {_busy(found.optimum.plan)} would be the fewest."


def _busy(plan: "Plan") -> int:
    """Count GPUs that hold something; spare ones do not."""
    return sum(not gpu.is_spare for gpu in plan.gpus)


def _way_lines(way: "Transition", times: "Times") -> Iterator[str]:
    from interlane.mig.transition.steps import makespan_s, one_by_one_s, waves

    counts = ", ".join(f"{count} {kind}" for kind, count in way.counts().items() if count)
    rounds = len(waves(way.actions))
    yield f"{len(way.actions)} actions in {rounds} waves: {counts or 'nothing to do'}."
    at_once, one_by_one = makespan_s(way.actions, times), one_by_one_s(way.actions, times)
    yield f"{at_once:,.0f} s if actions overlap as they may, {one_by_one:,.0f} s one by one."
    if way.extra_gpus:
        plural = "GPU is" if way.extra_gpus == 1 else "GPUs are"
        yield f"{way.extra_gpus} {plural} borrowed on the way: {way.peak_gpus} at the most."
    else:
        yield "No GPU is borrowed on the way."


def _figures(found: "Joint | None", way: "Transition", times: "Times") -> dict[str, Any]:
    """Return what people want to know beside the transition itself; not part of its id."""
    from interlane.mig.transition.steps import makespan_s, one_by_one_s

    return {
        "figures": {
            "kept_share": way.kept / way.running if way.running else 1.0,
            "most_kept": None if found is None else found.most_kept,
            "fewest_gpus": None if found is None else _busy(found.optimum.plan),
            "gpus": _busy(way.target),
            "peak_gpus": way.peak_gpus,
            "borrowed_gpus": way.extra_gpus,
            "at_once_s": makespan_s(way.actions, times),
            "one_by_one_s": one_by_one_s(way.actions, times),
            **way.counts(),
        }
    }


def _listing(way: "Transition", shown: int = 0) -> str:
    from interlane.mig.transition.steps import waves

    wave_of = {number: at for at, wave in enumerate(waves(way.actions)) for number in wave}
    rows = [
        [
            str(number),
            str(wave_of[number]),
            str(action),
            " ".join(map(str, action.after)) or "-",
        ]
        for number, action in enumerate(way.actions)
    ]
    listed = rows[:shown] if shown else rows
    text = grid(["no", "wave", "action", "after"], listed, left=4)
    left = len(rows) - len(listed)
    return f"{text}\n... and {left} more; --shown 0 lists all." if left else text


def _times(text: str) -> "Times":
    from interlane.mig.transition.steps import Times, Verb
    from interlane.model import InvalidField

    found = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        known = [verb.value for verb in Verb]
        try:
            seconds = float(amount)
        except ValueError:
            seconds = -1.0
        if name.strip() not in known or not 0 <= seconds < 1e9:
            raise InvalidField(
                "--times", part, f"it must be STEP=SECONDS, a step of {', '.join(known)}"
            )
        found[f"{name.strip()}_s"] = seconds
    return Times(**found)


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
            help="nvidia-smi: starts and drains services, as CMD start|drain SERVICE GPU "
            "PROFILE START BATCH PROCESSES.",
        ),
    ] = None,
    options: SimulatedOptions,
    output: OutputOption = Output.TABLE,
) -> int:
    """Carry a transition out, or go on with one that was interrupted."""
    from interlane.mig.transition.documents import read_transition
    from interlane.mig.transition.journal import resumed
    from interlane.mig.transition.run import End, Run
    from interlane.migctl.journal_file import JournalFile

    way, problem, name = read_transition(json_in(file), str(file))
    simulate = _simulates(way, file, options)
    if executor is Executes.MIG_PARTED:
        typer.echo(printed(_parted(way), Output.YAML))
        return 0
    if dry_run:
        _dry_run(way, executor, service_command, output)
        return 0
    with JournalFile(journal or file.with_name(f"{file.name}.journal")) as book:
        records = book.read.records
        progress = resumed(way, problem, name, records, "the journal")
        simulated = simulate(len(records)) if executor is Executes.SIMULATED else None
        body: Executor = simulated or _nvidia_smi(way, service_command)
        run = Run(progress, body, book.write, tell=say, retries=retries)
        ended = run.back() if roll_back else run.forward()
    elapsed_s = None if simulated is None else round(simulated.elapsed_s, 1)
    _report(ended, elapsed_s, output)
    return 1 if ended.end is End.GAVE_UP else 0


def _simulates(
    way: "Transition", file: Path, options: SimulatedOptions
) -> "Callable[[int], SimulatedGpus]":
    """Return what makes GPUs that behave as the options say, after so many records."""
    from random import Random

    from interlane.mig.transition.simulated import SimulatedGpus
    from interlane.migctl.journal_file import StateFile

    how_long = _times(options.times)

    def make(records: int) -> SimulatedGpus:
        kept = StateFile(options.state or file.with_name(f"{file.name}.state"))
        return SimulatedGpus(
            kept.read(way.current),
            # Another run of the same journal throws other dice.
            dice=Random(f"{options.seed}/{records}"),
            fail_rate=options.fail_rate,
            times=how_long,
            broken=options.broken or (),
            keep=_crashing(kept.write, options.crash_after),
        )

    return make


def _crashing(write: "Callable[[Plan], None]", steps: int | None) -> "Callable[[Plan], None]":
    """Return a writer after some calls of which the process is gone, as if by a power cut."""
    written = 0

    def keep(plan: "Plan") -> None:
        nonlocal written
        write(plan)
        written += 1
        if written == steps:
            os._exit(CRASHED)

    return keep


def _nvidia_smi(way: "Transition", service_command: str | None) -> "Executor":
    import shlex

    from interlane.mig.transition.steps import Verb
    from interlane.migctl.at_once import AtOnce
    from interlane.migctl.nvidia_smi import NvidiaSmi
    from interlane.model import InvalidInput

    needs = any(step.verb in (Verb.START, Verb.DRAIN) for _, step in way.steps)
    if needs and not service_command:
        raise InvalidInput(
            "nvidia-smi can neither start nor drain services; name a command that does, with "
            "--service-command."
        )
    return AtOnce(NvidiaSmi(shlex.split(service_command or "")))


def _dry_run(
    way: "Transition", executor: Executes, service_command: str | None, output: Output
) -> None:
    import shlex

    from interlane.mig.transition import nvidia

    program = shlex.split(service_command or "service-command")
    lines = []
    for number, action in enumerate(way.actions):
        lines.append(f"# {number}: {action}")
        for step in action.steps:
            if executor is Executes.SIMULATED:
                lines.append(f"  {step}")
                continue
            commands = nvidia.commands(step)
            if any(nvidia.ID in command for command in commands):
                lines.append(f"# $GI: the instance at {step.instance.slot}, as -lgi lists it")
            lines += [
                " ".join(one) for one in commands or [nvidia.service_command(step, program)]
            ]
    answer = {"actions": len(way.actions), "lines": lines}
    emit(answer, output, "\n".join(lines) or "Nothing to do.")


def _parted(way: "Transition") -> dict[str, Any]:
    """Return the cuts of all GPUs after every wave that changes one, and before the first."""
    from interlane.mig.parted import parted_stages
    from interlane.mig.plan import GpuPlan, Plan
    from interlane.mig.transition.steps import Kind, after_step, waves

    names = {gpu.id: gpu.model for gpu in (*way.current.gpus, *way.target.gpus)}
    names |= {step.gpu: step.model for _, step in way.steps}
    there = {gpu.id: gpu for gpu in way.current.gpus}
    state = Plan(tuple(there.get(name, GpuPlan(name, names[name])) for name in names))
    stages = [("now", state)]
    for number, wave in enumerate(waves(way.actions)):
        for at in wave:
            for step in way.actions[at].steps:
                state = after_step(state, step)
        if any(way.actions[at].kind is Kind.REPARTITION for at in wave):
            stages.append((f"wave-{number}", state))
    return parted_stages(stages)


def _report(ended: "Ended", elapsed_s: float | None, output: Output) -> None:
    from interlane.mig.documents import plan_document

    answer = {
        "end": ended.end.value,
        "why": ended.why,
        "steps": ended.steps,
        "failed": ended.retries,
        "planned_anew": ended.replans,
        "elapsed_s": elapsed_s,
        "gpus": plan_document(ended.state),
    }
    text = f"{ended.end.value}: {ended.steps} steps carried out, {ended.retries} failed"
    text += f", {ended.replans} times planned anew"
    text += "" if elapsed_s is None else f"; {elapsed_s:,.0f} simulated seconds"
    if ended.why:
        text += f"\n{ended.why}; go on with the same command, or --roll-back."
    emit(answer, output, text)
