"""From one MIG plan to the next: find a way, have it verified, carry it out.

Every transition passes the checker (is the target a plan?) and the verifier (replay every
moment: does each service keep its floor, is each step possible, is the target reached?), which
share no code with what makes transitions.  One that either rejects is never returned.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from interlane.mig import draw
from interlane.mig.check import faults
from interlane.mig.demand import Problem, Service
from interlane.mig.documents import plan_document
from interlane.mig.optimise import optimise
from interlane.mig.parted import parted_stages
from interlane.mig.plan import Effort, GpuPlan, PartitionPlan
from interlane.mig.transition import nvidia, replay
from interlane.mig.transition.documents import read_transition, transition_document
from interlane.mig.transition.exchange import exchange_and_compact
from interlane.mig.transition.joint import Joint, joint_plan
from interlane.mig.transition.journal import resumed
from interlane.mig.transition.order import ordered
from interlane.mig.transition.present import floors_of, present
from interlane.mig.transition.run import RunEnd, RunEnded, TransitionRun
from interlane.mig.transition.simulated import SimulatedGpus
from interlane.mig.transition.steps import (
    StepKind,
    StepTimes,
    Transition,
    TransitionStep,
    Verb,
    after_step,
    makespan_s,
    one_by_one_s,
    waves,
)
from interlane.migctl.at_once import AtOnce
from interlane.migctl.host_lock import host_locked
from interlane.migctl.journal_file import JournalFile, StateFile
from interlane.migctl.served_gpus import ServedGpus
from interlane.model import InvalidField, InvalidInput, UnknownName
from interlane.usecases.documents import Document, json_in
from interlane.usecases.mig import LIMIT_S, MigDemand, ParsedDemand, asked_in, must_hold, wanted
from interlane.usecases.mig_gpus import NVIDIA, gpus_of
from interlane.usecases.reporter import SILENT, Reporter

JOINT: Final = "joint"
EXCHANGE: Final = "exchange-and-compact"
SLACK: Final = 1
"""GPUs above the fewest, to leave more in place."""
TIMES: Final = "make=1,start=30,drain=10,destroy=1"
"""Seconds of steps unless the caller says otherwise."""

Made = tuple[Transition, Joint | None]
Maker = Callable[[Problem, PartitionPlan, Mapping[str, float], int, Effort], Made]
"""Makes a transition of the problem, what runs now, floors, slack and effort."""


def _joint(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    found = joint_plan(problem, there, slack=slack, effort=effort)
    return ordered(there, found.plan, floors, problem, seed=effort.seed), found


def _exchange(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    plan = optimise(problem, effort=effort).plan
    return exchange_and_compact(there, plan, floors, problem), None


METHODS: Final[dict[str, Maker]] = {JOINT: _joint, EXCHANGE: _exchange}
"""How the new plan and the way to it are found."""


# -- finding a way --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigTransition:
    """A way from what runs now to a new plan, with which the verifier found no fault."""

    services: tuple[Service, ...]
    way: Transition
    found: Joint | None
    """What is proven of the new plan; None of the baseline's."""
    times: StepTimes
    transition: dict[str, Any]
    """The transition, complete: whoever carries it out needs nothing else."""

    @property
    def gpus(self) -> int:
        """GPUs that hold something at the end."""
        return _busy(self.way.target)

    @property
    def fewest_gpus(self) -> int | None:
        """The fewest that would do, if known."""
        return None if self.found is None else _busy(self.found.optimum.plan)

    @property
    def kept_share(self) -> float:
        """Of what runs now, how much stays where it is."""
        return self.way.kept / self.way.running if self.way.running else 1.0

    @property
    def at_once_s(self) -> float:
        """Seconds if actions overlap as they may."""
        return makespan_s(self.way.actions, self.times)

    @property
    def one_by_one_s(self) -> float:
        """Seconds if they do not."""
        return one_by_one_s(self.way.actions, self.times)

    @property
    def waves(self) -> list[list[int]]:
        """The numbers of the actions that can be carried out at a time."""
        return waves(self.way.actions)

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """What every service asks for and gets at the end: head and rows."""
        return draw.service_table(self.services, self.way.target)

    @property
    def document(self) -> dict[str, Any]:
        """The transition with its figures, which are not part of its id; for JSON."""
        return {**self.transition, "figures": self._figures()}

    def _figures(self) -> dict[str, Any]:
        return {
            "kept_share": self.kept_share,
            "most_kept": None if self.found is None else self.found.most_kept,
            "fewest_gpus": self.fewest_gpus,
            "gpus": self.gpus,
            "peak_gpus": self.way.peak_gpus,
            "borrowed_gpus": self.way.extra_gpus,
            "at_once_s": self.at_once_s,
            "one_by_one_s": self.one_by_one_s,
            **self.way.counts(),
        }


def transition(
    demand: MigDemand,
    current: Document,
    *,
    old_demand: Document | None = None,
    retire: Sequence[str] = (),
    slack: int = SLACK,
    method: str = JOINT,
    limit_s: float = LIMIT_S,
    seed: int = 0,
    times: str = TIMES,
    reporter: Reporter = SILENT,
) -> MigTransition:
    """Plan the way from what runs now to a new demand, interrupting nobody."""
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    how_long = times_of(times)
    want = wanted(demand)
    there = present(want.read_plan(current), want.problem, retire)
    floors = floors_of(there, want.problem, _old_rates(old_demand))
    effort = Effort(limit_s, seed, time.monotonic)
    with reporter.busy(f"Looking for the best way, for at most {limit_s:g} s..."):
        way, found = METHODS[method](want.problem, there, floors, slack, effort)
    document = transition_document(way, want.problem)
    must_hold("The transition", _faults(way, document, there, floors, want))
    return MigTransition(want.asked.services, way, found, how_long, document)


def _faults(
    way: Transition,
    document: Mapping[str, Any],
    there: PartitionPlan,
    floors: Mapping[str, float],
    want: ParsedDemand,
) -> list[str]:
    """Return what checker and verifier say against a transition.

    Where it begins and what services must keep is taken from what was asked for, not from
    what the maker says of them.
    """
    seen = replay.faults_in_order(there, replay.actions_of(document), floors)
    wrong = [*faults(way.target, want.terms), *seen.faults]
    if not wrong and seen.end != _held(way.target):
        wrong.append("Its actions do not lead to its target.")
    return wrong


def _held(plan: PartitionPlan) -> frozenset[tuple[str, str, int, str]]:
    return frozenset(
        (gpu.id, one.profile, one.start, one.service) for gpu, one in plan.instances
    )


def _old_rates(old_demand: Document | None) -> dict[str, float] | None:
    if old_demand is None:
        return None
    services = asked_in(old_demand).services
    return {service.name: service.rate_per_s for service in services}


def _busy(plan: PartitionPlan) -> int:
    """Count GPUs that hold something; spare ones do not."""
    return sum(not gpu.is_spare for gpu in plan.gpus)


def times_of(text: str) -> StepTimes:
    """Return the seconds of steps, as in ``make=1,start=30``."""
    found = {}
    known = [verb.value for verb in Verb]
    for part in text.split(","):
        name, _, amount = part.partition("=")
        try:
            seconds = float(amount)
        except ValueError:
            seconds = -1.0
        if name.strip() not in known or not 0 <= seconds < 1e9:
            raise InvalidField(
                "--times", part, f"it must be STEP=SECONDS, a step of {', '.join(known)}"
            )
        found[f"{name.strip()}_s"] = seconds
    return StepTimes(**found)


# -- reading one that was saved -------------------------------------------------------


def parted(file: Document) -> dict[str, Any]:
    """Return the cuts of all GPUs after every wave that changes one, and before the first."""
    way, _, _ = read_transition(json_in(file), file.name)
    names = {gpu.id: gpu.model for gpu in (*way.current.gpus, *way.target.gpus)}
    names |= {step.gpu: step.model for _, step in way.steps}
    there = {gpu.id: gpu for gpu in way.current.gpus}
    state = PartitionPlan(tuple(there.get(name, GpuPlan(name, names[name])) for name in names))
    stages = [("now", state)]
    for number, wave in enumerate(waves(way.actions)):
        for at in wave:
            for step in way.actions[at].steps:
                state = after_step(state, step)
        if any(way.actions[at].kind is StepKind.REPARTITION for at in wave):
            stages.append((f"wave-{number}", state))
    return parted_stages(stages)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What carrying a transition out would do."""

    actions: int
    lines: tuple[str, ...]


def dry_run(file: Document, service_command: str | None = None, *, shell: bool) -> DryRun:
    """List the steps of a transition, as commands of ``nvidia-smi`` if for a shell."""
    way, _, _ = read_transition(json_in(file), file.name)
    program = shlex.split(service_command or "service-command")
    lines = []
    for number, action in enumerate(way.actions):
        lines.append(f"# {number}: {action}")
        for step in action.steps:
            lines += _commands(step, program) if shell else [f"  {step}"]
    return DryRun(len(way.actions), tuple(lines))


def _commands(step: TransitionStep, program: list[str]) -> list[str]:
    commands = nvidia.commands(step)
    needs_id = any(nvidia.ID in command for command in commands)
    said = f"# $GI: the instance at {step.instance.slot}, as -lgi lists it"
    listed = commands or [nvidia.service_command(step, program)]
    return [*([said] if needs_id else []), *(" ".join(one) for one in listed)]


# -- carrying out ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SimulatedHardware:
    """GPUs that are not there, and how they behave."""

    state: Path
    """File of what they hold, kept from run to run."""
    fail_rate: float = 0.0
    """Share of steps that fail."""
    broken: Sequence[str] = ()
    """GPUs that never obey."""
    seed: int = 0
    times: StepTimes = field(default_factory=lambda: times_of(TIMES))
    after_step: Callable[[], None] | None = None
    """Called when a step is over and on disk."""


@dataclass(frozen=True, slots=True)
class Real:
    """The GPUs of this machine, or those that a server emulates on it."""

    service_command: str | None = None
    """Starts and drains services, which whoever cuts GPUs cannot."""
    gpus: str = NVIDIA
    """As ``mig_gpus.gpus_of`` reads it."""


def real_gpus(service_command: str | None, folder: str | None, *, is_emulated: bool) -> Real:
    """Return the GPUs that are there: this host's, or those of a server, which is named."""
    if not is_emulated:
        return Real(service_command)
    if folder is None:
        raise InvalidInput(
            "--executor is 'emulated', but nobody says whose GPUs are meant; name the --state "
            "folder of their server with --gpus."
        )
    return Real(service_command, folder)


@dataclass(frozen=True, slots=True)
class AppliedTransition:
    """How carrying a transition out ended."""

    ended: RunEnded
    elapsed_s: float | None
    """Of simulated time; None on real GPUs."""

    @property
    def gave_up(self) -> bool:
        """Whether neither the new plan nor the old one was reached."""
        return self.ended.end is RunEnd.GAVE_UP

    @property
    def document(self) -> dict[str, Any]:
        """How it ended, and what is there now."""
        return {
            "end": self.ended.end.value,
            "why": self.ended.why,
            "steps": self.ended.steps,
            "failed": self.ended.retries,
            "planned_anew": self.ended.replans,
            "elapsed_s": self.elapsed_s,
            "gpus": plan_document(self.ended.state),
        }


def apply(
    file: Document,
    journal: Path,
    gpus: SimulatedHardware | Real,
    *,
    roll_back: bool = False,
    retries: int = 2,
    reporter: Reporter = SILENT,
) -> AppliedTransition:
    """Carry a transition out, or go on with one that was interrupted, as the journal says."""
    way, problem, name = read_transition(json_in(file), file.name)
    is_nvidia = isinstance(gpus, Real) and gpus.gpus == NVIDIA
    alone = host_locked() if is_nvidia else nullcontext()
    with JournalFile(journal) as book, alone:
        records = book.read.records
        progress = resumed(way, problem, name, records, "the journal")
        executor = _executor(way, gpus, len(records))
        run = TransitionRun(progress, executor, book.write, tell=reporter.note, retries=retries)
        ended = run.back() if roll_back else run.forward()
    if isinstance(executor, SimulatedGpus):
        return AppliedTransition(ended, round(executor.elapsed_s, 1))
    return AppliedTransition(ended, None)


def _executor(
    way: Transition, gpus: SimulatedHardware | Real, records: int
) -> SimulatedGpus | AtOnce:
    if isinstance(gpus, Real):
        return _real(way, gpus)
    kept = StateFile(gpus.state)
    return SimulatedGpus(
        kept.read(way.current),
        # Another run of the same journal draws other numbers.
        rng=Random(f"{gpus.seed}/{records}"),
        fail_rate=gpus.fail_rate,
        times=gpus.times,
        broken=gpus.broken,
        keep=_keeping(kept, gpus.after_step),
    )


def _keeping(
    kept: StateFile, after_step: Callable[[], None] | None
) -> Callable[[PartitionPlan], None]:
    def keep(plan: PartitionPlan) -> None:
        kept.write(plan)
        if after_step is not None:
            after_step()

    return keep


def _real(way: Transition, gpus: Real) -> AtOnce:
    needs = any(step.verb in (Verb.START, Verb.DRAIN) for _, step in way.steps)
    if needs and not gpus.service_command:
        raise InvalidInput(
            "Who cuts GPUs can neither start nor drain services; name a command that does, "
            "with --service-command."
        )
    program = shlex.split(gpus.service_command or "")
    return AtOnce(ServedGpus(gpus_of(gpus.gpus), program))
