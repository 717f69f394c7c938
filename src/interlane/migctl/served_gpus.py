"""An executor over GPUs that somebody can cut up, and a command for their services."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interlane.device.nvidia_gpus import Runner, run_command
from interlane.device.repartition import DrainWait, named, until_free
from interlane.mig.partition import GpuMode, GpuState, Partitioner, gpu_named
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.transition import nvidia
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.steps import TransitionStep, Verb

LEAVE_S: Final = 30.0
"""Seconds that the processes of a service have to leave its slot once it is drained."""

Held = Callable[[GpuState], tuple[int, ...]]
"""Returns the processes that must leave."""


class ServedGpus:
    """Carries steps out; see ``at_once.OneByOne``."""

    def __init__(
        self,
        gpus: Partitioner,
        service_program: Sequence[str],
        run: Runner = run_command,
        waiting: DrainWait | None = None,
    ) -> None:
        self._gpus = gpus
        self._service_program = service_program
        self._run = run
        self._waiting = DrainWait(LEAVE_S) if waiting is None else waiting

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return the slots that are there, with services as expected in them.

        A GPU that is lost holds nothing: steps on it fail, and are planned around.
        """
        there = {name: gpu for gpu in self._gpus.look() for name in (gpu.id, gpu.uuid)}
        return PartitionPlan(tuple(_with(gpu, there.get(gpu.id)) for gpu in expected.gpus))

    def perform(self, step: TransitionStep) -> None:
        """Carry a step out."""
        place = step.instance.slot
        match step.verb:
            case Verb.MAKE:
                if gpu_named(self._gpus.look(), step.gpu).mode is GpuMode.WHOLE:
                    self._free(step, lambda gpu: gpu.processes)
                    self._gpus.set_mode(step.gpu, GpuMode.SLICED)
                self._gpus.create(step.gpu, place)
            case Verb.DESTROY:
                self._free(step, lambda gpu: _holders(gpu, step))
                self._gpus.destroy(step.gpu, place)
            case Verb.START | Verb.DRAIN:
                self._run(nvidia.service_command(step, self._service_program))

    def _free(self, step: TransitionStep, held: Held) -> None:
        """Wait until processes have left; one that stays is a failure of the step."""
        gpu, left = until_free(self._gpus, step.gpu, held, self._waiting)
        if left:
            raise StepFailed(f"{gpu.id} is held by {named(left)}.")


def _holders(gpu: GpuState, step: TransitionStep) -> tuple[int, ...]:
    found = gpu.slice_at(step.instance.slot)
    return () if found is None else found.processes


def _with(gpu: GpuPlan, found: GpuState | None) -> GpuPlan:
    """Return a GPU with the slots that are there; services as expected, where these are.

    Half a slot is what a step has left that failed: one that was to be made is not there yet,
    one that was to be destroyed is there still.
    """
    known = {one.slot: one for one in gpu.instances}
    slices = () if found is None else found.slices
    slots = [one.place for one in slices if one.uuid or one.place in known]
    instances = (known.get(slot, Instance(slot.profile, slot.start)) for slot in slots)
    return replace(gpu, instances=tuple(sorted(instances, key=lambda one: one.start)))
