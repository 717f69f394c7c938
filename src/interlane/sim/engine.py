"""The engine of virtual time.

It owns the clock and the truth about run times, feeds the scheduler events and carries out its
actions at once.  All events of one moment are learned before anything is decided.

Progress is re-rated exactly when neighbours change or a job grows: its remaining work is
settled at its old speed, and its end is scheduled anew.  Ends that were scheduled before are
void; an attempt counter tells them apart.

Functions beside the jobs have a world of their own (``simulated_functions``), which plays up to
every moment before the moment is learned, and says by how much it slows jobs down.

Machines come, change and go as the world plans it, and fail by chance.  Whom that throws back,
and how much of a job's run is lost, the kernel says (``Requeue``).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from random import Random

from interlane.kernel.rest import Decides, decide_until_rest
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import EventLog, LogEvent
from interlane.model import (
    Action,
    Cancelled,
    Event,
    Finished,
    Grow,
    Grown,
    Job,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineEvent,
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
    Recovered,
    Refusal,
    Refuse,
    Requeue,
    Start,
    Started,
    Submitted,
    Ticked,
    Tier,
    Wake,
    gang_ratio,
)
from interlane.sim.neighbours import Neighbours
from interlane.sim.simulated_functions import SimulatedFunctions
from interlane.sim.world import World

LOSSES_MAX = 1_000
"""A job that is lost with its machines so often is abandoned."""

_END, _TICK, _WITHDRAWN, _PLANNED, _LOST, _RETURNED, _LOOK = range(7)


class _Run:
    """What is true of one job: how much work is left and how fast it goes."""

    __slots__ = (
        "attempt", "beside", "left_s", "placement", "since_s", "speed", "started_s",
        "work_at_start_s",
    )  # fmt: skip

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s
        """Seconds of work left at speed 1, as of ``since_s``."""
        self.work_at_start_s = left_s
        """Work left when the present attempt began."""
        self.started_s = 0.0
        """When it began."""
        self.since_s = 0.0
        self.speed = 1.0
        self.beside = 1.0
        """By how much functions slow it down, which is a part of its speed."""
        self.attempt = 0
        """Rises with every scheduled end; older ends are void."""
        self.placement: Placement | None = None
        """Where the job runs; None when it does not."""


class Simulator:
    """Plays jobs against a scheduler in virtual time."""

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Sequence[Job],
        true_s: Sequence[float],
        world: World | None = None,
        *,
        through: Decides | None = None,
        functions: SimulatedFunctions | None = None,
        paranoid: bool = False,
    ) -> None:
        """Prepare to play; ``through`` wraps the scheduler and is driven in its place."""
        self.scheduler = scheduler
        self._decider: Decides = scheduler if through is None else through
        self.jobs = jobs
        self.world = world or World()
        self.log = EventLog(scheduler.cluster, jobs)
        self.now_s = 0.0
        self.decisions = 0
        self._numbers = {job.id: number for number, job in enumerate(jobs)}
        self._true_s = true_s
        self._runs: dict[int, _Run] = {}
        """Jobs that have started and not ended: few at a time, so they stay in the cache."""
        self._heap: list[tuple[float, int, int, int, int]] = []
        """(time, serial, what, subject, attempt); the serial makes the order total."""
        self._serial = 0
        self._next_job = 0
        self._open = len(jobs)
        """Jobs that have neither finished nor been refused."""
        self._neighbours = (
            None if self.world.is_plain else Neighbours(scheduler.cluster, jobs, self.world)
        )
        self._losses: Counter[int] = Counter()
        """How often each job was lost with a machine."""
        self._away: Counter[MachineId] = Counter()
        """For how many reasons a machine is away: as planned, by chance."""
        self._rng: dict[int, tuple[MachineId, Random]] = {}
        """Machines that fail by chance, each time they join."""
        self._put: list[Machine] = []
        """Machines that joined or changed since the last decision."""
        self._disturbed = False
        """Whether the next decision may throw jobs back because their places are gone."""
        self._paranoid = paranoid
        self.functions = functions
        if functions is not None:
            self._push(functions.next_s, _LOOK, 0, 0)
        self._plan_machines()
        for job_id, at_s in self.world.withdrawn_s.items():
            self._push(at_s, _WITHDRAWN, self._numbers[job_id], 0)

    def resume(self, events: Sequence[Recovered], now_s: float) -> None:
        """Begin in the middle: the first jobs are there already, as the events say.

        The true seconds of one that runs are those it has left.
        """
        for number, event in enumerate(events):
            self.log.add(now_s, LogEvent.SUBMITTED, number)
            self._decider.learn(event, now_s)
            if event.placement is not None:
                run = self._runs[number] = _Run(self._true_s[number])
                self._enter(number, run, event.placement, now_s)
        self._disturbed = True
        self._next_job = len(events)
        self.now_s = now_s
        self._settle_decisions(now_s)

    def run(
        self,
        until_s: float = inf,
        progress: Callable[[int], None] | None = None,
    ) -> EventLog:
        """Play until all jobs and requests have ended, or until a time; return the log."""
        functions = self.functions
        while self._open or (functions is not None and functions.next_s < inf):
            now_s = self.next_moment_s()
            if now_s > until_s or now_s == inf:
                break
            self.now_s = now_s
            if functions is not None:
                functions.until(now_s)
            self._learn_moment(now_s)
            self._settle_decisions(now_s)
            if functions is not None:
                self._settle_functions(functions, now_s)
            if self._paranoid:
                self.scheduler.check()
                if functions is not None:
                    functions.scheduler.ledger.check()
            if progress is not None:
                progress(len(self.jobs) - self._open)
        return self.log

    def next_moment_s(self) -> float:
        """Return when something happens next; infinity if nothing does."""
        arrival_s = (
            self.jobs[self._next_job].submitted_s if self._next_job < len(self.jobs) else inf
        )
        return min(arrival_s, self._heap[0][0] if self._heap else inf)

    # -- events ------------------------------------------------------------------------

    def _learn_moment(self, now_s: float) -> None:
        """Tell the kernel everything that happens at this moment."""
        heap = self._heap
        runs = self._runs
        of_machines: list[tuple[int, int]] = []
        withdrawn: list[int] = []
        while heap and heap[0][0] == now_s:
            _, _, what, subject, attempt = heappop(heap)
            if what == _END:
                run = runs.get(subject)
                if run is not None and run.attempt == attempt:
                    self._end(subject, run, now_s)
            elif what == _TICK:
                self._decider.learn(Ticked(), now_s)
            elif what == _WITHDRAWN:
                withdrawn.append(subject)
            elif what == _LOOK:
                continue  # functions are looked at when everything is decided
            else:
                # Jobs that end in this moment have ended before their machines go.
                of_machines.append((what, subject))
        for what, subject in of_machines:
            self._learn_of_machine(what, subject, now_s)
        jobs, number = self.jobs, self._next_job
        learn, add = self._decider.learn, self.log.add
        while number < len(jobs) and jobs[number].submitted_s == now_s:
            add(now_s, LogEvent.SUBMITTED, number)
            learn(Submitted(jobs[number]), now_s)
            number += 1
        self._next_job = number
        # A job may be cancelled in the moment in which it came.
        for subject in withdrawn:
            self._withdraw(subject, now_s)

    def _end(self, number: int, run: _Run, now_s: float) -> None:
        self._open -= 1
        self.log.add(now_s, LogEvent.FINISHED, number)
        self._decider.learn(Finished(self.jobs[number].id), now_s)
        self._vacate(number, run, now_s)
        del self._runs[number]

    def _withdraw(self, number: int, now_s: float) -> None:
        """Let the user cancel a job, unless it has ended."""
        job_id = self.jobs[number].id
        if number >= self._next_job or self.scheduler.state(job_id) is None:
            return
        self._open -= 1
        self.log.add(now_s, LogEvent.CANCELLED, number)
        self._decider.learn(Cancelled(job_id), now_s)
        run = self._runs.pop(number, None)
        if run is not None and run.placement is not None:
            self._vacate(number, run, now_s)

    # -- actions ----------------------------------------------------------------------

    def _settle_decisions(self, now_s: float) -> None:
        """Have everything decided that can be at this moment."""
        self.decisions += decide_until_rest(
            self._decider, now_s, lambda actions: self._carry_out(actions, now_s)
        )

    def _carry_out(self, actions: Sequence[Action], now_s: float) -> Iterator[Event]:
        """Do what was decided; yield what comes of it at once."""
        if self._disturbed:
            yield from self._clear(actions, now_s)
        for action in actions:
            if type(action) is Start:
                self._start(self._numbers[action.job_id], action, now_s)
                yield Started(action.job_id, action.placement)
            elif type(action) is Grow:
                self._grow(self._numbers[action.job_id], action, now_s)
                yield Grown(action.job_id, action.more)
            elif type(action) is Preempt:
                yield self._preempt(
                    self._numbers[action.job_id], self._numbers[action.in_favour_of], now_s
                )
            elif type(action) is Refuse:
                self._refuse(self._numbers[action.job_id], action.refusal, now_s)
            elif type(action) is Wake:
                self._push(action.at_s, _TICK, 0, 0)

    def _refuse(self, number: int, refusal: Refusal, now_s: float) -> None:
        self._open -= 1
        self.log.add(now_s, LogEvent.REFUSED, number)
        self.log.refusals[number] = refusal

    def _start(self, number: int, action: Start, now_s: float) -> None:
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = _Run(self._true_s[number])
        self._enter(number, run, action.placement, now_s)

    def _enter(self, number: int, run: _Run, placement: Placement, now_s: float) -> None:
        """Let a job run where it is."""
        run.placement = placement
        run.since_s = run.started_s = now_s
        run.work_at_start_s = run.left_s
        run.beside = 1.0
        self.log.add_start(now_s, number, placement)
        if self.functions is not None:
            self.functions.enter(number, placement)
        if self._neighbours is None:
            job = self.jobs[number]
            run.speed = gang_ratio(job.request, placement)
            self._schedule_end(number, run, now_s)
        else:
            self._rerate(self._neighbours.enter(number, placement), now_s)

    def _grow(self, number: int, action: Grow, now_s: float) -> None:
        run, more = self._runs[number], action.more
        assert run.placement is not None
        self._settle(run, now_s)
        run.placement += more
        self.log.add_growth(now_s, number, more)
        if self.functions is not None:
            self.functions.enter(number, more)
        if self._neighbours is None:
            run.speed = gang_ratio(self.jobs[number].request, run.placement) / run.beside
            self._schedule_end(number, run, now_s)
        else:
            self._rerate(self._neighbours.grow(number, more), now_s)

    def _preempt(self, number: int, in_favour_of: int, now_s: float) -> Preempted:
        run, job = self._runs[number], self.jobs[number]
        self._settle(run, now_s)
        done_s = run.work_at_start_s - run.left_s
        # Told to stop, a job without checkpoints saves all it has done; with them, it does not.
        lost_s = job.unsaved_s(done_s) if job.checkpoint_s > 0 else 0.0
        run.left_s += lost_s + self.world.restart_s
        self.log.add_preemption(now_s, number, in_favour_of)
        self._vacate(number, run, now_s)
        return Preempted(job.id, lost_s)

    # -- speed ------------------------------------------------------------------------

    def _schedule_end(self, number: int, run: _Run, now_s: float) -> None:
        run.attempt += 1
        self._serial += 1
        end_s = now_s + run.left_s / run.speed
        heappush(self._heap, (end_s, self._serial, _END, number, run.attempt))

    def _push(self, at_s: float, what: int, subject: int, attempt: int) -> None:
        self._serial += 1
        heappush(self._heap, (at_s, self._serial, what, subject, attempt))

    def _settle(self, run: _Run, now_s: float) -> None:
        """Bring the work left up to date; rounding must not leave less than nothing."""
        run.left_s = max(0.0, run.left_s - (now_s - run.since_s) * run.speed)
        run.since_s = now_s

    def _rerate(self, touched: Iterable[int], now_s: float) -> None:
        """Give jobs whose surroundings changed their new speed."""
        assert self._neighbours is not None
        for number in touched:
            run = self._runs[number]
            if run.placement is None:
                continue
            ratio = gang_ratio(self.jobs[number].request, run.placement)
            speed = self._neighbours.speed(number) * ratio / run.beside
            if speed != run.speed or run.since_s == now_s:
                self._settle(run, now_s)
                run.speed = speed
                self._schedule_end(number, run, now_s)

    def _vacate(self, number: int, run: _Run, now_s: float) -> None:
        """Take a job off its machines and let its neighbours speed up."""
        run.attempt += 1
        run.placement = None
        if self.functions is not None:
            self.functions.leave(number)
        if self._neighbours is not None:
            self._rerate(self._neighbours.leave(number), now_s)

    def _settle_functions(self, functions: SimulatedFunctions, now_s: float) -> None:
        """Let functions follow what was decided, and slow jobs down as they do."""
        looks_s = functions.next_s
        for number, beside in functions.settle(now_s).items():
            run = self._runs[number]
            self._settle(run, now_s)
            run.speed *= run.beside / beside
            run.beside = beside
            self._schedule_end(number, run, now_s)
        if looks_s < functions.next_s < inf:
            self._push(functions.next_s, _LOOK, 0, 0)

    # -- machines ---------------------------------------------------------------------

    def _plan_machines(self) -> None:
        """Schedule what happens to machines, and the first failures."""
        for number, planned in enumerate(self.world.events):
            self._push(planned.at_s, _PLANNED, number, 0)
        for machine in self.scheduler.cluster:
            self._let_fail(machine, 0.0)

    def _let_fail(self, machine: Machine, now_s: float) -> None:
        """Give a machine random generator of its own, if machines fail by chance."""
        failures = self.world.failures
        if failures is not None:
            number, rng = len(self._rng), failures.stream(machine)
            self._rng[number] = machine.id, rng
            self._push(now_s + _next_s(rng, failures.mean_up_s), _LOST, number, 0)

    def _learn_of_machine(self, what: int, subject: int, now_s: float) -> None:
        if what == _PLANNED:
            self._happen(self.world.events[subject].event, now_s)
        elif subject in self._rng:
            self._fail(what, subject, now_s)

    def _fail(self, what: int, number: int, now_s: float) -> None:
        """Lose a machine by chance or let it return, and roll when that ends."""
        failures = self.world.failures
        assert failures is not None
        machine_id, rng = self._rng[number]
        if what == _LOST:
            self._happen(MachineLost(machine_id), now_s)
            self._push(now_s + _next_s(rng, failures.mean_down_s), _RETURNED, number, 0)
        else:
            self._happen(MachineReturned(machine_id), now_s)
            self._push(now_s + _next_s(rng, failures.mean_up_s), _LOST, number, 0)

    def _happen(self, event: MachineEvent, now_s: float) -> None:
        """Let the kernel learn what happens to a machine."""
        away, machine_id = self._away, event.machine_id
        match event:
            case MachineLost():
                away[machine_id] += 1
                if away[machine_id] > 1:
                    return  # it was away already, for another reason
            case MachineReturned():
                away[machine_id] -= 1
                if away[machine_id] > 0:
                    return
            case MachineJoined(machine) | MachineChanged(machine):
                self._put.append(machine)
                if isinstance(event, MachineJoined):
                    self._let_fail(machine, now_s)
            case MachineLeft():
                del away[machine_id]
                kept = (one for one in self._rng.items() if one[1][0] != machine_id)
                self._rng = dict(kept)
            case MachineDrained() | MachineUndrained() | Occupied():
                pass
        self.log.add_machine(now_s, event)
        if self.functions is not None:
            self.functions.follow(event, now_s)
        self._decider.learn(event, now_s)
        self._disturbed = True

    def _clear(self, actions: Sequence[Action], now_s: float) -> Iterator[Cancelled]:
        """Take jobs off machines that are gone; yield those that are given up.

        Machines are what they have become when all such jobs have left them.
        """
        self._disturbed = False
        for action in actions:
            if type(action) is Requeue:
                self._lose_job(self._numbers[action.job_id], action, now_s)
        if self._neighbours is not None:
            for machine in self._put:
                self._rerate(self._neighbours.put(machine), now_s)
        self._put.clear()
        starting = {action.job_id for action in actions if type(action) is Start}
        unlucky = [
            self._numbers[action.job_id]
            for action in actions
            if type(action) is Requeue and action.job_id not in starting
        ]
        for number in unlucky:
            if self._losses[number] >= LOSSES_MAX:
                yield self._abandon(number, now_s)

    def _lose_job(self, number: int, action: Requeue, now_s: float) -> None:
        """Set a job back by the work that the kernel says is lost, at the speed it was done."""
        run = self._runs[number]
        self._settle(run, now_s)
        ran_s = now_s - run.started_s
        if ran_s > 0:
            done_s = run.work_at_start_s - run.left_s
            run.left_s += done_s * (action.work_lost_s / ran_s)
        self.log.add_loss(now_s, number, action.why)
        self._vacate(number, run, now_s)
        self._losses[number] += 1

    def _abandon(self, number: int, now_s: float) -> Cancelled:
        """Take back a job that failing machines never let finish; else no run would end."""
        del self._runs[number]
        refusal = Refusal(
            Tier.CAPACITY,
            f"Its machines failed {LOSSES_MAX} times before it could finish.",
            "Use shorter jobs, checkpoints or machines that fail less often.",
        )
        self._refuse(number, refusal, now_s)
        return Cancelled(self.jobs[number].id)


def _next_s(rng: Random, mean_s: float) -> float:
    return rng.expovariate(1.0 / mean_s)
