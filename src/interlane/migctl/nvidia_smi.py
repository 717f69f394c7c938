"""An executor that runs ``nvidia-smi`` on this host, and a command for its services."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interlane.mig.plan import GpuPlan, PartitionPlan
from interlane.mig.transition import nvidia
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.steps import TransitionStep, Verb
from interlane.model import InterlaneError

LIMIT_S: Final = 600.0
"""Seconds after which a command is given up."""

Runner = Callable[[Sequence[str]], str]
"""Runs a command and returns what it printed; raises ``StepFailed``."""


def run_command(command: Sequence[str]) -> str:
    """Run a command on this host."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise InterlaneError(
            f"{command[0]} is not on this host; --dry-run prints steps."
        ) from None
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(command)} took more than {LIMIT_S:g} s.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise StepFailed(f"{' '.join(command)} failed ({done.returncode}): {said[-1]}")
    return done.stdout


class NvidiaSmi:
    """Changes the GPUs of this host."""

    def __init__(self, service_program: Sequence[str], run: Runner = run_command) -> None:
        self._service_program = service_program
        self._run = run

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return the slots that the driver lists, with services as expected in them."""
        indices = [nvidia.device(gpu.id) for gpu in expected.gpus]
        if all(index.isdigit() for index in indices):
            # One listing has all GPUs, by index.
            rows = self._listed(None)
            return PartitionPlan(tuple(self._with(gpu, rows) for gpu in expected.gpus))
        return PartitionPlan(
            tuple(self._with(gpu, self._listed(gpu.id)) for gpu in expected.gpus)
        )

    def _with(self, gpu: GpuPlan, rows: Sequence[nvidia.ListedInstance]) -> GpuPlan:
        found = nvidia.observed(nvidia.device(gpu.id), rows, gpu.instances)
        return replace(gpu, instances=tuple(found))

    def _listed(self, gpu: str | None) -> list[nvidia.ListedInstance]:
        try:
            return nvidia.listed(self._run(nvidia.list_command(gpu)))
        except StepFailed as error:
            # It answers with an error when there is nothing to list.
            if not any(said in str(error) for said in nvidia.NOTHING):
                raise InterlaneError(str(error)) from None
            return []

    def perform(self, step: TransitionStep) -> None:
        """Carry a step out."""
        if step.verb in (Verb.START, Verb.DRAIN):
            self._run(nvidia.service_command(step, self._service_program))
            return
        number = self._number(step) if step.verb is Verb.DESTROY else ""
        for command in nvidia.commands(step, number):
            self._run(command)

    def _number(self, step: TransitionStep) -> str:
        index = nvidia.device(step.gpu)
        for row in self._listed(step.gpu):
            same = (row.profile, row.start) == (step.instance.profile, step.instance.start)
            if same and (not index.isdigit() or row.gpu == index):
                return row.number
        raise StepFailed(f"{step.gpu} lists no {step.instance.slot}.")
