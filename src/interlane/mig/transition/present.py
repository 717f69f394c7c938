"""What runs now, with figures, and what every service must have while things change."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from interlane.mig.covering import instance_of
from interlane.mig.demand import Problem
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.model import InvalidInput, UnknownName

Floors = Mapping[str, float]
"""Service -> requests a second that it must have at every moment."""


def present(
    current: PartitionPlan, problem: Problem, retired: Collection[str] = ()
) -> PartitionPlan:
    """Return what runs now, each instance with what it gives.

    A listing of instances knows no throughput.  An instance without one is taken to run as the
    plan would run it, at the best batch size of its profile.
    """
    known = {service.name for service in problem.services}
    running = {one.service for _, one in current.instances if one.service}
    for name in retired:
        if name not in running | known:
            raise UnknownName("service to retire", name, running)
        if name in known:
            raise InvalidInput(
                f"Service {name} is to retire, but the demand asks for it; take it out of one."
            )
    _check_pins(current, problem)
    return PartitionPlan(
        tuple(_present_gpu(gpu, problem, known, {*retired}) for gpu in current.gpus)
    )


def _check_pins(current: PartitionPlan, problem: Problem) -> None:
    """Refuse pins of what is not there: nothing can be told to stay where it never was."""
    there = {(gpu.id, one.slot) for gpu, one in current.instances}
    for gpu, one in PartitionPlan(problem.pinned).instances:
        if (gpu.id, one.slot) not in there:
            raise InvalidInput(
                f"The demand pins {one.slot} on {gpu.id}, which is not there now; take the pin "
                "out, or name a slot that is."
            )


def _present_gpu(gpu: GpuPlan, problem: Problem, known: set[str], retired: set[str]) -> GpuPlan:
    if gpu.members:
        raise InvalidInput(
            f"{gpu.id} is shared whole by {', '.join(one.service for one in gpu.members)}; "
            "transitions move MIG instances only, so empty it first."
        )
    if gpu.model not in problem.prices:
        raise InvalidInput(
            f"{gpu.id} is a {gpu.model}, which the demand does not offer; add the model under "
            "gpus, or leave the GPU out of what runs now."
        )
    for one in gpu.instances:
        if one.service and one.service not in known | retired:
            raise InvalidInput(
                f"{gpu.id} serves {one.service!r} in {one.slot}, which the demand does not "
                f"know; add the service to the demand, or let it go with --retire "
                f"{one.service}."
            )
    return replace(gpu, instances=tuple(_figured(one, gpu, problem) for one in gpu.instances))


def _figured(one: Instance, gpu: GpuPlan, problem: Problem) -> Instance:
    if not one.service or one.throughput_per_s:
        return one
    if (one.service, gpu.model, one.profile) not in problem.serving:
        # It runs, but whatever it gives is too slow to count.
        return one
    return instance_of(problem, one.service, gpu.model, one.profile, one.start)


def may_stay(one: Instance, gpu: GpuPlan, problem: Problem) -> bool:
    """Tell whether an instance serves as well as one that a plan would put there."""
    best = problem.serving.get((one.service, gpu.model, one.profile))
    return best is not None and (one.batch, one.processes, one.throughput_per_s) == (
        best.batch,
        best.processes,
        best.throughput_per_s,
    )


def floors_of(
    current: PartitionPlan, problem: Problem, old_rates: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the floor of each service: the lesser of what was and what will be required.

    Where the old rates are not known, what runs now stands for them; it is no less.
    """
    given = current.throughputs()
    floors = {}
    for service in problem.services:
        name = service.name
        had = given.get(name, 0.0)
        was = had if old_rates is None else min(old_rates.get(name, 0.0), had)
        floors[name] = min(was, service.rate_per_s)
    return floors
