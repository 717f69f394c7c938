"""The scheduler: events in, actions out.

``learn`` takes one event into the state; ``decide`` looks at the state and returns what should
be done.  ``handle`` does both.  Events of the same moment are learned together before anything
is decided, so that nobody profits from the order in which they happened to be reported.

A decision is a row of phases over one state (``state``), each an object of its own:

    walk        start whoever may start, in order           ``walk``, ``backfill``
    plans       lead waiting jobs through their stages      ``plans``
    preempt     stop running jobs for more deserving ones   ``preempt``
    waking      ask to be woken when time alone may help    ``waking``
    give up     refuse who finds no place on an idle cluster ``giving_up``
    grow        let elastic jobs use what is left           ``grow``

The kernel knows no clock, no randomness of its own and no engine: the simulator, this machine
and Kubernetes feed it the same events and get the same actions (``rest`` has the loop).
"""

from collections.abc import Callable, Iterable

from interlane.kernel.giving_up import GiveUp
from interlane.kernel.grow import GrowJobs
from interlane.kernel.jobs import Jobs
from interlane.kernel.machines import MachineEvents
from interlane.kernel.placing import Placing
from interlane.kernel.plans import FollowPlans
from interlane.kernel.preempt import PreemptPhase
from interlane.kernel.questions import Questions
from interlane.kernel.state import Phase, State
from interlane.kernel.view import LedgerView
from interlane.kernel.waking import Waking
from interlane.kernel.walk import WALKS
from interlane.model import Action, Cluster, Event, JobId, Placement, Refusal
from interlane.model.lifecycle import JobState
from interlane.policy.policy import Policy


class Scheduler:
    """Decides who runs where; see the module's text."""

    def __init__(self, cluster: Cluster, policy: Policy, seed: int = 0) -> None:
        self.policy = policy
        self._state = state = State(cluster, policy)
        self._questions = Questions(state)
        placing, waking, jobs = Placing(state, seed), Waking(state), Jobs(state)
        machines = MachineEvents(state, jobs.requeue)
        self._learn: dict[type[Event], Callable[..., None]] = {
            **jobs.learn,
            **machines.learn,
            **waking.learn,
        }
        walk = WALKS[policy.discipline](state, placing)
        phases: list[Phase] = [walk]
        if state.staging is not None:
            phases.append(FollowPlans(state, state.staging, walk))
        if policy.order.preempts:
            phases.append(PreemptPhase(state, waking))
        if state.staging is not None:
            phases.append(waking)
        phases.append(GiveUp(state, self._questions))
        self._for_waiting = tuple(phases)
        """What is done for jobs that wait, in order."""
        self._grow = GrowJobs(state, placing)

    # -- events in, actions out -------------------------------------------------------

    def learn(self, event: Event, now_s: float) -> None:
        """Take one event into the state without deciding anything."""
        self._learn[type(event)](event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        """Return what should be done now."""
        state = self._state
        actions = state.begin_round()
        if state.queue:
            state.queue.refresh(now_s)
            for phase in self._for_waiting:
                phase(now_s, actions)
        if state.growth.queue:
            self._grow(now_s, actions)
        return tuple(actions)

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """Take one event in and return what should be done about it."""
        return self.handle_all([event], now_s)

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        """Take all events of one moment in and return what should be done about them."""
        for event in events:
            self.learn(event, now_s)
        return self.decide(now_s)

    # -- questions --------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The machines that are known now, lost and drained ones included."""
        return self._state.ledger.cluster

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._state.queue)

    @property
    def view(self) -> LedgerView:
        """What placers see."""
        return self._state.view

    def state(self, job_id: JobId) -> JobState | None:
        """Return where a job stands; None for one that is unknown or has ended."""
        entry = self._state.entries.get(job_id)
        return None if entry is None else entry.state

    def placement(self, job_id: JobId) -> Placement | None:
        """Return where a job holds capacity."""
        entry = self._state.entries.get(job_id)
        return None if entry is None else entry.placement

    def explain(self, job_id: JobId, now_s: float) -> Refusal | None:
        """Return why a job waits, by the state of the last decision; None if it does not."""
        return self._questions.explain(job_id, now_s)

    def ahead(self, job_id: JobId, now_s: float) -> tuple[JobId, ...]:
        """Return the waiting jobs that go before a waiting job, the first of them first."""
        return self._questions.ahead(job_id, now_s)

    def line(self, now_s: float) -> tuple[JobId, ...]:
        """Return all waiting jobs, the first to go first."""
        return self._questions.line(now_s)

    def check(self) -> None:
        """Raise if the tables do not balance; expensive, for tests and paranoid runs."""
        self._questions.check()
