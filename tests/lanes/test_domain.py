"""One device as a state machine: events in, actions out."""

from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists

from interlane.lanes.actions import (
    Admit,
    Grant,
    KeepWaiting,
    LaneAction,
    LaneId,
    Lease,
    MemoryDemand,
    Name,
    RefuseTenant,
    Resize,
    Revoke,
)
from interlane.lanes.domain import Domain
from interlane.lanes.events import (
    AllReturned,
    Extended,
    IterationWanted,
    Joined,
    LaneEvent,
    Left,
    MemoryObserved,
    Moved,
    Passed,
    Reattached,
    Released,
    Stalled,
    Switched,
    Yielded,
)
from interlane.lanes.memory import Budget
from interlane.lanes.order import ORDERS, make_order
from interlane.lanes.quantum import HangRule, TurnRule
from interlane.lanes.sharing import Overlap, Serialise
from interlane.model import InvalidField, JobId, Ticked, Tier, Wake

A, B, C = JobId("a"), JobId("b"), JobId("c")
SMALL = MemoryDemand(1, 2)


def domain(
    order: str = "rr",
    *,
    capacity: int = 100,
    recovering_until_s: float | None = None,
    names_successors: bool = False,
) -> Domain:
    return Domain(
        Budget(capacity),
        make_order(order),
        sharing=Serialise(),
        turns=TurnRule(switch_cost_s=0.02),  # a quantum of 1 s
        recovering_until_s=recovering_until_s,
        names_successors=names_successors,
    )


def granted(actions: tuple[LaneAction, ...]) -> list[Lease]:
    return [action.lease for action in actions if isinstance(action, Grant)]


def revoked(actions: tuple[LaneAction, ...]) -> list[JobId]:
    return [action.lease.job_id for action in actions if isinstance(action, Revoke)]


def start(device: Domain, *jobs: JobId, now_s: float = 0.0) -> Lease:
    """Let all join and want the lane; return the first lease."""
    leases = []
    for job in jobs:
        device.handle(Joined(job, SMALL), now_s)
        leases += granted(device.handle(IterationWanted(job), now_s))
    return leases[0]


def test_a_job_joins_wants_and_runs() -> None:
    device = domain()

    actions = device.handle(Joined(A, SMALL), 0)
    (lease,) = granted(device.handle(IterationWanted(A), 0))

    assert actions == (Resize(LaneId(0), 2), Admit(A, LaneId(0), SMALL))
    assert (lease.job_id, lease.quantum_s) == (A, 1.0)
    assert device.leases == (lease,)


def test_nobody_is_revoked_while_nobody_waits() -> None:
    device = domain()
    start(device, A)

    assert device.handle(Ticked(), 99) == ()


def test_a_turn_ends_when_the_quantum_is_over_and_another_waits() -> None:
    device = domain()
    lease = start(device, A, B)

    assert device.handle(Ticked(), 0.5) == (Wake(1.0),)
    actions = device.handle(Ticked(), 1.0)
    assert revoked(actions) == [A]

    (following,) = granted(device.handle(Yielded(A, lease.epoch), 1.2))
    assert following.job_id == B
    assert device.tenants[A].attained_s == pytest.approx(1.2)


def test_a_holder_is_revoked_once_only() -> None:
    device = domain()
    start(device, A, B)
    device.handle(Ticked(), 1.0)

    assert revoked(device.handle(Ticked(), 1.1)) == []


def test_a_stale_epoch_changes_nothing() -> None:
    device = domain()
    old = start(device, A, B)
    (new,) = granted(device.handle(Yielded(A, old.epoch), 0.1))

    assert device.handle(Released(A, old.epoch), 0.2) == device.handle(Ticked(), 0.2)
    assert device.handle(Released(B, old.epoch), 0.2) == device.handle(Ticked(), 0.2)

    assert device.leases == (new,)
    assert new.epoch > old.epoch


def test_a_job_that_yields_a_lease_nobody_knows_still_wants_the_lane() -> None:
    device = domain()
    device.handle(Joined(A, SMALL), 0)

    assert [lease.job_id for lease in granted(device.handle(Yielded(A, 77), 0))] == [A]


def test_the_lane_passes_on_when_its_holder_dies() -> None:
    device = domain()
    start(device, A, B)

    (lease,) = granted(device.handle(Left(A), 0.3))

    assert lease.job_id == B
    assert device.book.booked_bytes == SMALL.peak_bytes
    device.check()


def test_lanes_run_side_by_side_and_jobs_of_one_lane_do_not() -> None:
    device = Domain(Budget(7), make_order("pack"), sharing=Overlap())
    start(device, A)
    start(device, B)
    device.handle(Joined(C, SMALL), 0)

    assert granted(device.handle(IterationWanted(C), 0)) == []
    assert {lease.job_id for lease in device.leases} == {A, B}
    assert [lane.waiting for lane in device.view().lanes] == [(C,), ()]


def test_a_job_that_wanted_the_lane_before_it_was_admitted_gets_it_at_once() -> None:
    device = domain(capacity=4)
    start(device, A)
    (queued,) = device.handle(Joined(B, MemoryDemand(2, 2)), 0)
    assert isinstance(queued, KeepWaiting)
    device.handle(IterationWanted(B), 0)

    actions = device.handle(Left(A), 1)

    assert [lease.job_id for lease in granted(actions)] == [B]


def test_a_job_that_can_never_fit_is_refused_and_forgotten() -> None:
    device = domain(capacity=4)

    (action,) = device.handle(Joined(A, MemoryDemand(9, 9)), 0)

    assert isinstance(action, RefuseTenant)
    assert action.refusal.tier is Tier.NEVER_FITS
    assert device.tenants == {}


def test_events_about_strangers_are_bad_input_and_change_nothing() -> None:
    device = domain()
    for event in (IterationWanted(A), Left(A), MemoryObserved(A, SMALL), Yielded(A, 1)):
        with pytest.raises(InvalidField, match="not on this device"):
            device.handle(event, 0)
    assert device.handle(Released(A, 1), 0) == ()


def test_a_holder_that_does_not_stop_when_asked_is_overdue_after_ten_iterations() -> None:
    device = Domain(
        Budget(100),
        make_order("rr"),
        sharing=Serialise(),
        turns=TurnRule(switch_cost_s=0.02),
        hangs=HangRule(least_s=2.0),
    )
    lease = start(device, A)
    (lease,) = granted(device.handle(Yielded(A, lease.epoch, iterations=2), 1.0))  # 0.5 s each
    device.handle(Joined(B, SMALL), 1.0)
    device.handle(IterationWanted(B), 1.0)
    assert revoked(device.handle(Ticked(), 2.0)) == [A]

    assert device.handle(Ticked(), 6.9) == (Wake(7.0),)  # 10 iterations of 0.5 s
    assert device.overdue(6.9) == ()
    assert device.overdue(7.0) == (lease,)

    device.handle(Extended(A, lease.epoch, until_s=50.0), 7.0)
    assert device.overdue(7.0) == ()
    assert device.overdue(50.0) == (lease,)


def test_what_a_holder_says_of_its_boundary_counts_though_it_was_not_asked_yet() -> None:
    device = domain("rr")
    lease = start(device, A)
    device.handle(Extended(A, lease.epoch, until_s=1e6), 0.0)
    device.handle(Joined(B, SMALL), 1.0)

    assert revoked(device.handle(IterationWanted(B), 2.0)) == [A]

    assert device.overdue(1e6 - 1) == ()
    assert device.overdue(1e6) == (lease,)


@pytest.mark.parametrize("order", ORDERS)
def test_a_holder_that_stalls_is_asked_to_stop_once_and_hung_if_it_does_not(
    order: str,
) -> None:
    device = domain(order)
    lease = start(device, A, B)

    assert revoked(device.handle(Stalled(A, lease.epoch, hung_at_s=7.0), 4.0)) == [A]
    assert revoked(device.handle(Stalled(A, lease.epoch, hung_at_s=8.0), 5.0)) == []

    assert device.overdue(6.9) == ()
    assert device.overdue(7.0) == (lease,)


def test_a_hung_holder_harms_nobody_while_nobody_waits() -> None:
    device = domain()
    lease = start(device, A)

    assert device.handle(Stalled(A, lease.epoch, hung_at_s=1.0), 2.0) == ()
    assert device.overdue(1e9) == ()


def test_the_quantum_keeps_switching_at_two_percent_of_the_time() -> None:
    device = domain()

    for way_s in (0.0002, 0.0002, 9.0):  # one outlier
        device.handle(Switched(way_s, 0.0008), 0)

    assert device.quantum_s == pytest.approx(0.05)


def test_turns_too_short_to_tell_what_a_switch_costs_become_longer() -> None:
    device = domain()  # where a switch is taken to cost 0.02 s
    for _ in range(5):
        device.handle(Switched(0.0002, 0.0), 0)
    assert device.quantum_s == pytest.approx(0.01)

    for _ in range(6):
        device.handle(Switched(0.0002, None), 0)

    assert device.quantum_s == pytest.approx(1.01)


def test_nothing_is_admitted_or_granted_until_the_grace_period_ends() -> None:
    device = domain(recovering_until_s=10.0, capacity=9)
    actions = device.handle(Reattached(A, SMALL, LaneId(4), 2), 1)
    assert [type(action) for action in actions] == [Admit, Wake]
    device.handle(IterationWanted(A), 2)
    queued, wake = device.handle(Joined(B, SMALL), 3)
    assert isinstance(queued, KeepWaiting)
    assert wake == Wake(10.0)
    assert device.leases == ()

    actions = device.handle(Ticked(), 10.0)

    assert [lease.job_id for lease in granted(actions)] == [A]
    assert any(isinstance(action, Admit) and action.job_id == B for action in actions)


def test_the_grace_period_ends_early_when_all_came_back() -> None:
    device = domain(recovering_until_s=10.0)
    device.handle(Reattached(A, SMALL, LaneId(0), 2), 1)
    device.handle(IterationWanted(A), 1)

    assert granted(device.handle(AllReturned(), 2))[0].job_id == A


def test_a_job_comes_back_with_its_lease_and_its_epoch() -> None:
    device = domain(recovering_until_s=10.0)
    device.handle(Reattached(A, SMALL, LaneId(2), 2, epoch=41), 1)
    device.handle(Reattached(B, SMALL, LaneId(2), 2), 1)
    device.handle(IterationWanted(B), 1)
    device.check()
    assert [lease.epoch for lease in device.leases] == [41]

    device.handle(Ticked(), 10.0)
    (lease,) = granted(device.handle(Released(A, 41), 11.0))

    assert (lease.job_id, lease.epoch) == (B, 42)


def test_two_jobs_cannot_both_come_back_as_holders_of_one_lane() -> None:
    device = domain(recovering_until_s=10.0)
    device.handle(Reattached(A, SMALL, LaneId(0), 2, epoch=1), 1)

    actions = device.handle(Reattached(B, SMALL, LaneId(0), 2, epoch=2), 1)

    assert isinstance(actions[0], RefuseTenant)
    assert B not in device.tenants


def test_under_fair_order_a_newcomer_shares_from_now_on_and_not_for_the_past() -> None:
    device = domain("fair")
    lease = start(device, A)
    device.handle(Joined(B, SMALL), 100.0)
    assert revoked(device.handle(IterationWanted(B), 100.0)) == [A]

    device.handle(Yielded(A, lease.epoch), 100.0)

    assert device.handle(Ticked(), 100.5) == (Wake(101.0),)  # B's turn, not 100 s of it


def test_a_job_that_is_moved_runs_beside_those_it_took_turns_with() -> None:
    device = domain("rr")
    lease = start(device, A, B)
    assert device.book.lane_of(A) is device.book.lane_of(B)

    actions = device.handle(Moved(B), 0.0)

    assert [one.job_id for one in granted(actions)] == [B]
    assert {one.job_id for one in device.leases} == {A, B}
    (mine,) = (one for one in device.leases if one.job_id == B)
    device.handle(Released(B, mine.epoch), 1.0)
    device.handle(Moved(B, lease.lane), 1.0)
    assert granted(device.handle(IterationWanted(B), 1.0)) == []


def test_a_job_is_not_moved_while_it_runs_or_where_there_is_no_room() -> None:
    device = domain("rr", capacity=100)
    start(device, A)
    device.handle(Joined(B, MemoryDemand(1, 60)), 0.0)
    before = device.book.lane_of(A), device.book.lane_of(B)

    device.handle(Moved(A), 0.0)  # it holds the lane
    device.handle(Moved(B), 0.0)  # its 60 bytes are booked once, and there are 38 more
    device.handle(Moved(B, LaneId(7)), 0.0)  # there is no such lane

    assert (device.book.lane_of(A), device.book.lane_of(B)) == before
    device.check()


def named(actions: tuple[LaneAction, ...]) -> list[Name]:
    return [action for action in actions if isinstance(action, Name)]


def test_a_holder_is_told_who_is_next_and_may_pass_the_lane_on() -> None:
    device = domain(names_successors=True)
    lease = start(device, A)
    device.handle(Joined(B, SMALL), 0.0)
    (name,) = named(device.handle(IterationWanted(B), 0.0))
    assert (name.lease, name.successor) == (lease, B)

    actions = device.handle(Passed(A, lease.epoch, name.successor_epoch, 3), 1.2)

    assert granted(actions) == []  # B knows
    assert [(one.job_id, one.epoch) for one in device.leases] == [(B, name.successor_epoch)]
    assert device.tenants[A].attained_s == pytest.approx(1.2)
    assert device.tenants[A].iterations == 3
    device.check()


def test_a_more_urgent_job_becomes_successor_but_the_one_before_may_have_the_lane_already() -> (
    None
):
    device = domain("priority", names_successors=True)
    lease = start(device, A)
    device.handle(Joined(B, SMALL), 0.0)
    (first,) = named(device.handle(IterationWanted(B), 0.0))
    device.handle(Joined(C, SMALL, priority=9), 0.0)
    (second,) = named(device.handle(IterationWanted(C), 0.0))
    assert (first.successor, second.successor) == (B, C)

    actions = device.handle(Passed(A, lease.epoch, first.successor_epoch), 0.5)

    assert device.lease_of(B) is not None
    assert revoked(actions) == [B]
    assert [name.successor for name in named(actions)] == [C]


def test_a_lane_that_was_passed_to_a_job_that_is_gone_goes_to_the_next() -> None:
    device = domain(names_successors=True)
    lease = start(device, A)
    device.handle(Joined(B, SMALL), 0.0)
    (name,) = named(device.handle(IterationWanted(B), 0.0))
    device.handle(Joined(C, SMALL), 0.0)
    device.handle(IterationWanted(C), 0.0)
    device.handle(Left(B), 0.1)

    actions = device.handle(Passed(A, lease.epoch, name.successor_epoch), 0.2)

    assert [one.job_id for one in granted(actions)] == [C]


def test_an_successor_is_not_moved_because_it_may_be_running() -> None:
    device = domain(names_successors=True)
    lease = start(device, A, B)

    device.handle(Moved(B), 0.0)

    assert device.book.lane_of(B) is device.book.lane_of(A)
    device.handle(Released(A, lease.epoch), 0.1)
    (second,) = device.leases
    assert second.job_id == B
    device.handle(Released(B, second.epoch), 0.2)
    device.handle(Moved(B), 0.3)
    assert device.book.lane_of(B) is not device.book.lane_of(A)


class RandomLife:
    """Random events on one domain, carried out as an honest body would."""

    def __init__(self, seed: int, order: str) -> None:
        self.rng = Random(seed)
        self.device = Domain(
            Budget(160, 2, 4),
            make_order(order),
            sharing=Overlap() if self.rng.random() < 0.5 else Serialise(),
            patience=3,
            names_successors=self.rng.random() < 0.5,
        )
        self.names: dict[int, list[Name]] = {}
        """Successor that the holder of each lease was told of."""
        self.now_s = 0.0
        self.jobs: list[JobId] = []
        self.made = 0
        self.busy_s = 0.0
        self.device_s = 0.0
        self.epochs: list[int] = []

    def run(self, events: int) -> None:
        for _ in range(events):
            passed_s = self.rng.choice([0.0, 0.01, 0.2])
            self.now_s += passed_s
            self.busy_s += passed_s * len(self.device.leases)
            self.feed(self.event())
            self.check()

    def event(self) -> LaneEvent:
        kind = self.rng.random()
        if kind < 0.2 or not self.jobs:
            self.made += 1
            total_s = self.rng.choice([None, 1.0, 5.0])
            job = JobId(f"j{self.made}")
            return Joined(job, self.demand(), self.rng.randint(0, 3), total_s)
        job = self.rng.choice(self.jobs)
        if kind < 0.45:
            return IterationWanted(job)
        if kind < 0.8 and self.device.leases:
            lease = self.rng.choice(self.device.leases)
            if lease.epoch in self.names and self.rng.random() < 0.7:
                name = self.rng.choice(self.names[lease.epoch])
                return Passed(lease.job_id, lease.epoch, name.successor_epoch)
            again = self.rng.random() < 0.5
            return (Yielded if again else Released)(lease.job_id, lease.epoch)
        if kind < 0.87:
            return MemoryObserved(job, self.demand())
        if kind < 0.92:
            return Left(job)
        if kind < 0.96:
            lanes = [*self.device.book.lanes, LaneId(99)]
            return Moved(job, self.rng.choice([None, *lanes]))
        others: list[LaneEvent] = [
            Ticked(),
            Switched(self.rng.random() / 100, 0.0),
            Released(job, 0),
        ]
        return self.rng.choice(others)

    def demand(self) -> MemoryDemand:
        ephemeral = self.rng.randint(2, 100)
        return MemoryDemand(int(ephemeral * self.rng.uniform(0.03, 0.6)), ephemeral)

    def feed(self, event: LaneEvent) -> None:
        if isinstance(event, Left):
            self.jobs.remove(event.job_id)
            self.device_s += self.device.tenants[event.job_id].attained_at(self.now_s)
        actions = self.device.handle(event, self.now_s)
        if isinstance(event, Joined) and event.job_id in self.device.tenants:
            self.jobs.append(event.job_id)
        for name in named(actions):
            self.names.setdefault(name.lease.epoch, []).append(name)
        for lease in granted(actions):
            lane = self.device.book.lanes[lease.lane]
            assert lane.tenants[lease.job_id].ephemeral_bytes <= lane.size_bytes
            self.epochs.append(lease.epoch)
        assert sum(isinstance(action, Wake) for action in actions) <= 1

    def check(self) -> None:
        self.device.check()
        for lane in self.device.view().lanes:
            assert lane.lease is not None or not lane.waiting, "an idle lane that is wanted"


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_safe_work_conserving_and_counts_all_of_the_time(order: str) -> None:
    for seed in range(60):
        life = RandomLife(seed, order)
        life.run(events=80)
        present_s = sum(
            tenant.attained_at(life.now_s) for tenant in life.device.tenants.values()
        )
        assert life.device_s + present_s == pytest.approx(life.busy_s)
        assert life.epochs == sorted(set(life.epochs))


@pytest.mark.parametrize("order", ["rr", "pack", "fair", "las"])
def test_nobody_who_wants_a_shared_lane_starves_where_turns_are_taken(order: str) -> None:
    device = domain(order)
    jobs = [JobId(f"j{number}") for number in range(8)]
    start(device, *jobs)
    now_s = 0.0
    for _ in range(200):
        now_s += 0.25  # one iteration
        if revoked(device.handle(Ticked(), now_s)):
            (lease,) = device.leases
            device.handle(Yielded(lease.job_id, lease.epoch), now_s)

    shares_s = [device.tenants[job].attained_at(now_s) for job in jobs]

    assert max(shares_s) - min(shares_s) <= 1.25  # one turn and one iteration


@given(lists(integers(50, 500), min_size=2, max_size=6))
def test_the_fair_order_gives_device_time_by_weight(milli: list[int]) -> None:
    device = domain("fair")
    jobs = {JobId(f"j{number}"): share / 1000 for number, share in enumerate(milli)}
    for job, weight in jobs.items():
        device.handle(Joined(job, SMALL, weight=weight), 0.0)
        device.handle(IterationWanted(job), 0.0)
    now_s = 0.0
    for _ in range(2000):
        now_s += 0.25  # one iteration
        if revoked(device.handle(Ticked(), now_s)):
            (lease,) = device.leases
            device.handle(Yielded(lease.job_id, lease.epoch), now_s)

    level_s = [device.tenants[job].attained_at(now_s) / jobs[job] for job in jobs]

    least = min(jobs.values())  # nobody is ahead by more than a turn and an iteration
    assert max(level_s) - min(level_s) <= 1.25 / least + 1e-6
