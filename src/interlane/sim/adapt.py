"""Make the requests of a trace fit for a cluster that counts otherwise than the trace did.

Three rules, none of which changes how much GPU share a job asks for in total (but for the
first, whose point that is):

* On a cluster that *clips* (``pool:G``), an instance that asks for more than the whole
  cluster is cut down to it, as the published simulator does, and GPU types do not count.
* On a cluster that tells GPUs apart, a job that the trace gives as one total of several pods
  becomes that many instances, where the GPUs divide evenly among them: if the pods share GPUs
  (five pods, 2.5 GPUs), or if no machine could host the total.
* There, an instance with more GPUs than the widest machine that may host it becomes
  instances of that machine's width, and a role of its own for the remainder: Philly and
  Helios give a job's GPUs, not how they lie on machines.

CPU and memory are divided in proportion, rounded up.

Apart from that, ``let_start_with`` asks what would be if gangs were elastic.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil

from interlane.model import MILLI, Cluster, Demand, InvalidField, Machine, Request, Task

Adapt = Callable[[Request, int], Request]
"""Takes a request and how many pods the trace counted."""

REST = "-rest"
"""Added to the role of the remainder."""


def adaptation(cluster: Cluster) -> Adapt | None:
    """Return how requests must change for the cluster; None if they need not."""
    if cluster.clips_requests:
        return lambda request, pods: _clipped(request, cluster)
    if all(machine.pooled for machine in cluster):
        return None
    return lambda request, pods: _narrowed(_per_pod(request, pods, cluster), cluster)


def let_start_with(ratio: float, adapt: Adapt | None = None) -> Adapt:
    """Return how gangs become elastic: they start with a share of their instances.

    A task that names a least number itself, or must stay on one machine, is left as it is.
    """
    if not 0 < ratio <= 1:
        raise InvalidField("elastic", ratio, "it must be above 0 and at most 1")

    def adapted(request: Request, pods: int) -> Request:
        full = request if adapt is None else adapt(request, pods)
        return _with_tasks(full, (_elastic(task, ratio) for task in full.tasks))

    return adapted


def _with_tasks(request: Request, tasks: Iterable[Task]) -> Request:
    """Return a request of other tasks that want to be as close as before."""
    return Request(tuple(tasks), request.closeness)


def _elastic(task: Task, ratio: float) -> Task:
    if task.same_machine or task.instances_min is not None:
        return task
    # A little less, or rounding would make four of a tenth of thirty.
    return replace(task, instances_min=ceil(task.instances * ratio - 1e-9))


def _clipped(request: Request, cluster: Cluster) -> Request:
    return _with_tasks(
        request,
        (replace(task, demand=_clipped_demand(task.demand, cluster)) for task in request.tasks),
    )


def _clipped_demand(demand: Demand, cluster: Cluster) -> Demand:
    cpu_milli = min(demand.cpu_milli, cluster.cpu_milli)
    if demand.gpu_milli_total > cluster.gpus * MILLI:
        demand = replace(demand, gpus=cluster.gpus, gpu_milli=MILLI)
    return replace(demand, cpu_milli=cpu_milli, gpu_types=frozenset())


def _per_pod(request: Request, pods: int, cluster: Cluster) -> Request:
    """Split a total of several pods into its pods, where it cannot mean one instance."""
    if request.instances != 1 or pods <= 1:
        return request
    task = request.tasks[0]
    demand = task.demand
    is_shared = demand.gpus > 1 and demand.gpu_milli < MILLI
    if demand.gpus % pods or not (is_shared or _too_large(demand, cluster)):
        return request
    one = _part(demand, 1, of=pods)
    pod = replace(task, demand=one, instances=pods, instances_min=None)
    return _with_tasks(request, (pod,))


def _too_large(demand: Demand, cluster: Cluster) -> bool:
    """Tell whether no machine could host the demand even when idle."""
    return not any(
        _width(machine, demand) >= demand.gpus
        and machine.cpu_milli >= demand.cpu_milli
        and machine.memory_mib >= demand.memory_mib
        for machine in cluster
    )


def _narrowed(request: Request, cluster: Cluster) -> Request:
    """Split instances that are wider than any machine that may host them."""
    if all(_fits(task, cluster) for task in request.tasks):
        return request
    return _with_tasks(
        request, (part for task in request.tasks for part in _split(task, cluster))
    )


def _fits(task: Task, cluster: Cluster) -> bool:
    return task.same_machine or not 0 < _widest(cluster, task.demand) < task.demand.gpus


def _widest(cluster: Cluster, demand: Demand) -> int:
    """Return the most GPUs of the demanded types that one machine has."""
    return max(_width(machine, demand) for machine in cluster)


def _width(machine: Machine, demand: Demand) -> int:
    """Return how many GPUs of the demanded types a machine has."""
    types = demand.gpu_types
    if not types:
        return machine.gpus
    if machine.devices:
        return sum(device.type in types for device in machine.devices)
    return machine.gpus if machine.gpu_type in types else 0


def _split(task: Task, cluster: Cluster) -> list[Task]:
    if _fits(task, cluster):
        return [task]
    demand, width = task.demand, _widest(cluster, task.demand)
    full, rest = divmod(demand.gpus, width)
    least = None if task.instances_min is None else task.instances_min * full
    wide = replace(
        task,
        demand=_part(demand, width, of=demand.gpus),
        instances=task.instances * full,
        instances_min=least,
    )
    if not rest:
        return [wide]
    return [
        wide,
        replace(task, demand=_part(demand, rest, of=demand.gpus), role=task.role + REST),
    ]


def _part(demand: Demand, parts: int, *, of: int) -> Demand:
    """Return so many parts of a demand that is divided into ``of`` equal ones."""
    return replace(
        demand,
        gpus=demand.gpus * parts // of,
        cpu_milli=-(-demand.cpu_milli * parts // of),
        memory_mib=-(-demand.memory_mib * parts // of),
    )
