"""What must hold of every scheduler while machines come, change, drain and go.

``check_machines`` plays a list of steps and keeps a plain account of its own: which machines
there are, what others have of them, and which job holds what, as the scheduler's actions say.
It raises ``ContractBroken`` when an action contradicts that account, and decides by arithmetic
on ``naive.Host``, never with the compiled code that it judges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from interlane.kernel.rest import Decides
from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Action,
    Closeness,
    Cluster,
    Event,
    Finished,
    Grow,
    Grown,
    InvalidInput,
    Job,
    JobId,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Preempt,
    Preempted,
    Refuse,
    Request,
    Requeue,
    Spot,
    Start,
    Started,
    Submitted,
    TakenGpu,
    Wake,
)
from interlane.model.cluster import MACHINE_LEVEL
from interlane.model.lifecycle import HOLDING, JobState
from interlane.testing.contract import ContractBroken, demand
from interlane.testing.naive import Host, first_fit, give_back
from interlane.testing.strategies import LEVELS, jobs, machines

DECISIONS_MAX = 100
"""Decisions in which a scheduler must have come to rest."""

NAMES = 3
"""Machines that come and go."""


@dataclass(frozen=True, slots=True)
class EndOne:
    """One of the jobs that run ends: the one with this number, counted around."""

    number: int


Step = Event | EndOne


# -- what happens ---------------------------------------------------------------------------


@st.composite
def close_jobs(draw: st.DrawFn, number: int) -> Job:
    """Draw a job; some want to be in one domain, in few or in many."""
    level = st.sampled_from([*LEVELS, MACHINE_LEVEL])
    action = draw(
        st.one_of(
            st.just(Closeness()),
            st.builds(Closeness, same=level),
            st.builds(Closeness, pack=level),
            st.builds(Closeness, same=st.just("zone"), spread=level),
        )
    )
    drawn = draw(jobs(number))
    return replace(drawn, request=Request(drawn.request.tasks, action))


@st.composite
def _occupied(draw: st.DrawFn, name: MachineId) -> Occupied:
    milli = draw(st.sampled_from([0, 300, 1000]))
    gpus = (TakenGpu(0, milli, milli * 8),) if milli else ()
    return Occupied(name, draw(st.sampled_from([0, 1_000, 90_000])), 0, gpus)


@st.composite
def _machine_events(draw: st.DrawFn) -> list[Step]:
    """Draw an event of a machine that may be there or not, or what is seldom drawn in a row."""
    number = draw(st.integers(0, NAMES - 1))
    name = MachineId(f"m{number}")
    drawn = draw(machines(number))
    return draw(
        st.one_of(
            st.just([MachineJoined(drawn)]),
            st.just([MachineChanged(drawn)]),
            _occupied(name).map(lambda sight: [sight]),
            st.sampled_from([MachineDrained, MachineUndrained, MachineLost,
                             MachineReturned, MachineLeft]).map(lambda kind: [kind(name)]),
            st.just([MachineDrained(name), MachineLost(name), MachineReturned(name)]),
        )
    )  # fmt: skip


@st.composite
def steps(draw: st.DrawFn, *, most: int = 20) -> list[Step]:
    """Draw jobs that come and end among machines that do."""
    drawn: list[Step] = []
    for number in range(draw(st.integers(1, most))):
        drawn += draw(
            st.one_of(
                close_jobs(number).map(lambda job: [Submitted(job)]),
                _machine_events(),
                st.builds(EndOne, st.integers(0, 9)).map(lambda end: [end]),
            )
        )
    return drawn


# -- what must hold -------------------------------------------------------------------------


def check_machines(
    make: Callable[[Cluster], Scheduler],
    on: Cluster,
    happens: Sequence[Step],
    *,
    through: Callable[[Scheduler], Decides] = lambda scheduler: scheduler,
    fills: bool = False,
) -> None:
    """Check that a scheduler keeps to the machines that there are, step by step.

    Nothing starts or grows on machines that are lost, drained or gone, whose labels or taints
    forbid it, on GPUs of other types, beyond what is free beside others, or across domains
    where it must be in one.  Who ran on a machine that is gone waits again.  Events about
    unknown machines change nothing.  At the end nothing is left behind.  With ``fills``, jobs
    of one task are not left waiting where a plain first fit finds them a place.  What is
    driven is the scheduler ``through`` what wraps it.
    """
    scheduler = make(on)
    account = _Account(scheduler, through(scheduler), {machine.id: machine for machine in on})
    for moment, step in enumerate(happens):
        account.now_s = float(moment)
        account.take(step)
        account.settle()
        if fills:
            account.check_filled()
    account.end_all()


@dataclass
class _Account:
    """Machines and holdings, as events and actions say."""

    scheduler: Scheduler
    decider: Decides
    there: dict[MachineId, Machine]
    now_s: float = 0.0
    drained: set[MachineId] = field(default_factory=set)
    lost: set[MachineId] = field(default_factory=set)
    taken: dict[MachineId, Occupied] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    """Jobs that wait or run."""
    held: dict[JobId, Placement] = field(default_factory=dict)
    must_wait: set[JobId] = field(default_factory=set)
    """Jobs whose machine is gone and who were not requeued yet."""
    may_wait: set[JobId] = field(default_factory=set)
    """Jobs on a machine that changed."""

    def take(self, step: Step) -> None:
        """Let the scheduler and this account learn what happens."""
        if isinstance(step, EndOne):
            if self.held:
                self._end(sorted(self.held)[step.number % len(self.held)])
            return
        if not isinstance(step, Submitted | MachineJoined) and not self._knows(step):
            self._learn_in_vain(step)
            return
        self.decider.learn(step, self.now_s)
        if isinstance(step, Submitted):
            self.jobs[step.job.id] = step.job
        else:
            self._note(step)

    def _knows(self, event: Event) -> bool:
        if isinstance(event, MachineChanged):
            return event.machine.id in self.there
        known = getattr(event, "machine_id", None) in self.there
        if isinstance(event, Occupied) and known:
            return not event.gpus or self.there[event.machine_id].gpus > 0
        return known

    def _learn_in_vain(self, event: Event) -> None:
        before = self.scheduler.cluster
        try:
            self.decider.learn(event, self.now_s)
        except InvalidInput:
            demand(self.scheduler.cluster == before, "unknown machine", f"{event} left traces.")
            return
        raise ContractBroken("unknown machine", f"{event} was accepted.")

    def _note(self, event: Event) -> None:
        match event:
            case MachineJoined(machine):
                self._lose(machine.id)
                self.there[machine.id] = machine
                self.lost.discard(machine.id)
                self.taken.pop(machine.id, None)
            case MachineChanged(machine):
                self.may_wait |= self._on(machine.id)
                self.there[machine.id] = machine
            case MachineDrained(name):
                self.drained.add(name)
            case MachineUndrained(name):
                self.drained.discard(name)
            case MachineLost(name):
                self._lose(name)
                self.lost.add(name)
            case MachineReturned(name):
                self.lost.discard(name)
            case MachineLeft(name):
                self._lose(name)
                del self.there[name]
                self.drained.discard(name)
                self.lost.discard(name)
                self.taken.pop(name, None)
            case Occupied(name):
                self.taken[name] = event
            case _:
                raise AssertionError(f"{event} is no event of a machine.")

    def _on(self, name: MachineId) -> set[JobId]:
        return {job for job, place in self.held.items() if name in place.machines}

    def _lose(self, name: MachineId) -> None:
        self.must_wait |= self._on(name)

    def settle(self) -> None:
        """Let the scheduler decide until it comes to rest, and carry out what it asks."""
        for _ in range(DECISIONS_MAX):
            actions = self.decider.decide(self.now_s)
            for action in actions:
                self._carry_out(action)
            demand(not self.must_wait, "gone machine", f"{self.must_wait} go on there.")
            self.may_wait.clear()
            if not actions:
                break
        self.scheduler.check()
        self._check_fits()
        for job_id in self.jobs:
            state = self.scheduler.state(job_id)
            expected = state in HOLDING if job_id in self.held else state is JobState.QUEUED
            demand(expected, "states", f"{job_id} is {state}.")

    def _carry_out(self, action: Action) -> None:
        match action:
            case Requeue(job_id):
                expected = job_id in self.must_wait | self.may_wait
                demand(expected, "requeued", f"{job_id} had its place.")
                self.must_wait.discard(job_id)
                del self.held[job_id]
            case Start(job_id, placement):
                demand(job_id not in self.held, "runs once", f"{job_id} runs already.")
                self._check_place(self.jobs[job_id], placement, Placement(()))
                self.held[job_id] = placement
                self.decider.learn(Started(job_id, placement), self.now_s)
            case Grow(job_id, more):
                self._check_place(self.jobs[job_id], more, self.held[job_id])
                self.held[job_id] += more
                self.decider.learn(Grown(job_id, more), self.now_s)
            case Preempt(job_id):
                del self.held[job_id]
                self.decider.learn(Preempted(job_id, 0.0), self.now_s)
            case Refuse(job_id):
                del self.jobs[job_id]
            case Wake():
                pass

    def _check_place(self, job: Job, placement: Placement, before: Placement) -> None:
        for spot in placement.spots:
            self._check_spot(job, spot)
        for name in placement.machines:
            self._check_beside(job, placement, self._host(name))
        level = job.request.closeness.same
        if level is not None:
            # A machine that changed may have taken instances that run to another domain.
            spots = (*before.spots[:1], *placement.spots)
            domains = {self._domain(spot.machine, level) for spot in spots}
            demand(
                len(domains) == 1 and None not in domains,
                "one domain",
                f"{job.id} is in {domains}.",
            )

    def _host(self, name: MachineId) -> Host:
        """Return what others and our jobs leave of a machine."""
        host = self._idle(self.there[name])
        for job_id, place in self.held.items():
            self._seat(host, self.jobs[job_id], place)
        return host

    def _check_beside(self, job: Job, placement: Placement, host: Host) -> None:
        """Check that what a job takes of a machine is there beside others."""
        self._seat(host, job, placement)
        for spot in placement.spots:
            if spot.machine == host.machine.id:
                needs = job.request.tasks[spot.task].demand
                gpus = spot.gpus if not host.machine.pooled else (0,) if needs.gpus else ()
                left = [
                    host.cpu_milli if needs.cpu_milli else 0,
                    host.memory_mib if needs.memory_mib else 0,
                    *(host.gpu_milli[gpu] for gpu in gpus),
                    *(host.gpu_memory_mib[gpu] for gpu in gpus if needs.gpu_memory_mib),
                ]
                demand(min(left) >= 0, "beside others", f"{job.id} on {host.machine.id}.")

    def _domain(self, name: MachineId, level: str) -> str | None:
        return name if level == MACHINE_LEVEL else self.there[name].label(level)

    def _check_spot(self, job: Job, spot: Spot) -> None:
        name, needs = spot.machine, job.request.tasks[spot.task].demand
        demand(name in self.there, "known machine", f"{job.id} goes to {name}, which is gone.")
        demand(name not in self.drained, "drained", f"{job.id} goes to {name}.")
        demand(name not in self.lost, "lost", f"{job.id} goes to {name}.")
        machine = self.there[name]
        demand(needs.selectors <= set(machine.labels), "selectors", f"{job.id} on {machine}.")
        demand(set(machine.taints) <= needs.tolerations, "taints", f"{job.id} on {machine}.")
        if needs.gpus and needs.gpu_types and not machine.pooled:
            used = {machine.device(gpu).type for gpu in spot.gpus}
            demand(used <= needs.gpu_types, "GPU types", f"{job.id} on {used} of {name}.")

    def _check_fits(self) -> None:
        """Check that no machine has more to bear than it has, and others beside ours."""
        for name, machine in self.there.items():
            host = Host.idle(machine)
            for job_id, place in self.held.items():
                self._seat(host, self.jobs[job_id], place)
            least = min(
                [host.cpu_milli, host.memory_mib, *host.gpu_milli, *host.gpu_memory_mib]
            )
            demand(least >= 0, "fits", f"{name} is short of {-least}.")

    def _seat(self, host: Host, job: Job, place: Placement) -> None:
        for spot in place.spots:
            if spot.machine == host.machine.id:
                for _ in range(spot.instances):
                    host.change(job.request.tasks[spot.task].demand, spot.gpus, 1)

    def check_filled(self) -> None:
        """Check that nobody waits for whom a plain first fit finds a place."""
        usable = [one for one in self.there if one not in self.drained | self.lost]
        hosts = [self._host(one) for one in usable]
        for job_id, job in self.jobs.items():
            request = job.request
            if job_id in self.held or len(request.tasks) > 1:
                continue
            for region in self._regions(hosts, request.closeness.same):
                found = first_fit(job, region, self.scheduler.policy.placer.types)
                if found is not None:
                    give_back(found)
                    raise ContractBroken("fills", f"{job_id} waits but fits.")

    def _regions(self, hosts: list[Host], level: str | None) -> list[list[Host]]:
        if level is None:
            return [hosts]
        places = [self._domain(host.machine.id, level) for host in hosts]
        return [
            [host for host, at in zip(hosts, places, strict=True) if at == place]
            for place in sorted({at for at in places if at is not None})
        ]

    def _end(self, job_id: JobId) -> None:
        self.decider.learn(Finished(job_id), self.now_s)
        del self.held[job_id], self.jobs[job_id]

    def end_all(self) -> None:
        """Let all jobs end and check that nothing is held any more."""
        while self.held:
            self._end(min(self.held))
            self.settle()
        known = {machine.id: machine for machine in self.scheduler.cluster}
        demand(known == self.there, "true cluster", f"{known} for {self.there}.")
        for machine in known.values():
            number = self.scheduler.view.number(machine.id)
            left, idle = self.scheduler.view.free(number), self._idle(machine)
            demand(
                (
                    left.cpu_milli,
                    left.memory_mib,
                    list(left.gpu_milli),
                    list(left.gpu_memory_mib),
                )
                == (idle.cpu_milli, idle.memory_mib, idle.gpu_milli, idle.gpu_memory_mib),
                "nothing left behind",
                f"{left} of {machine}, {idle} without jobs.",
            )

    def _idle(self, machine: Machine) -> Host:
        return Host.idle(machine, self.taken.get(machine.id))
