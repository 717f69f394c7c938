"""What the lane book must never do, and what it must do."""

from random import Random

import pytest

from interlane.lanes.actions import Admit, Confine, LaneId, MemoryDemand, Resize
from interlane.lanes.memory import Budget, Change, LaneBook
from interlane.lanes.sharing import Overlap, Serialise
from interlane.model import CapacityViolated, InvalidField, JobId, Refusal, Tier

SEEDS = 2_000
EVENTS = 60
PATIENCE = 3


def ask(book: LaneBook, name: str, *demand: int) -> list[Change]:
    outcome = book.request(JobId(name), MemoryDemand(*demand) if demand else None)
    assert not isinstance(outcome, Refusal)
    return outcome


def admitted(changes: list[Change]) -> list[str]:
    return [change.job_id for change in changes if isinstance(change, Admit)]


def test_the_published_counter_example_is_not_admitted() -> None:
    # As printed, Algorithm 1 reuses a lane of 4 for (3, 2): 5 persistent + 8 in lanes > 10.
    book = LaneBook(Budget(10))
    assert admitted(ask(book, "a", 1, 4)) == ["a"]
    assert admitted(ask(book, "b", 1, 4)) == ["b"]

    assert admitted(ask(book, "c", 3, 2)) == []

    assert book.why_waits(JobId("c")).tier is Tier.CAPACITY
    assert book.booked_bytes == 10


def test_a_job_larger_than_the_budget_is_refused_for_ever_in_one_sentence() -> None:
    book = LaneBook(Budget(10, context_bytes=2, reserve_bytes=1))

    refusal = book.request(JobId("a"), MemoryDemand(4, 4))

    assert isinstance(refusal, Refusal)
    assert refusal.tier is Tier.NEVER_FITS
    assert refusal.reason == (
        "It needs 10 bytes at its peak (4 persistent, 4 ephemeral, 2 for its context), "
        "the device can give 9."
    )
    assert book.waiting == ()


def test_contexts_and_the_reserve_count() -> None:
    book = LaneBook(Budget(10, context_bytes=2, reserve_bytes=2))
    assert admitted(ask(book, "a", 1, 1)) == ["a"]
    assert admitted(ask(book, "b", 1, 1)) == ["b"]
    assert book.free_bytes == 0

    assert admitted(ask(book, "c", 0, 0)) == []


def test_a_guest_of_a_counted_process_pays_no_context() -> None:
    book = LaneBook(Budget(6, context_bytes=2))
    ask(book, "host", 1, 3)

    book.request(JobId("guest"), MemoryDemand(0, 3), processes=0)

    assert book.free_bytes == 0
    assert book.lane_of(JobId("guest")) is book.lane_of(JobId("host"))


def test_a_job_without_an_estimate_has_the_device_alone_until_it_is_observed() -> None:
    book = LaneBook(Budget(10))
    assert admitted(ask(book, "unknown")) == ["unknown"]
    assert admitted(ask(book, "b", 1, 4)) == []

    changes = book.observe(JobId("unknown"), MemoryDemand(2, 3))

    assert admitted(changes) == ["b"]


def test_a_lane_grows_for_a_newcomer_only_at_its_boundary() -> None:
    book = LaneBook(Budget(10), Serialise())
    ask(book, "small", 1, 2)
    lane = book.lane_of(JobId("small"))
    assert lane is not None
    book.began(lane.id)

    changes = ask(book, "large", 1, 5)

    assert admitted(changes) == ["large"]
    assert (lane.size_bytes, lane.booked_bytes) == (2, 5)
    assert book.boundary(lane.id) == [Resize(lane.id, 5)]


def test_a_lane_shrinks_to_the_largest_who_remains_and_the_next_comes_in() -> None:
    book = LaneBook(Budget(10), Serialise())
    ask(book, "small", 1, 2)
    ask(book, "large", 1, 5)
    assert admitted(ask(book, "late", 5, 1)) == []

    changes = book.leave(JobId("large"))

    assert changes[0] == Resize(LaneId(0), 2)
    assert admitted(changes) == ["late"]


def test_a_lane_under_a_running_iteration_keeps_its_size_and_its_memory_booked() -> None:
    book = LaneBook(Budget(10), Serialise())
    ask(book, "small", 1, 2)
    ask(book, "large", 1, 5)
    book.began(LaneId(0))
    ask(book, "late", 5, 1)

    assert book.leave(JobId("large")) == []

    assert admitted(book.boundary(LaneId(0))) == ["late"]


def test_any_departure_lets_others_in_even_from_a_shared_lane() -> None:
    book = LaneBook(Budget(10), Serialise())
    ask(book, "a", 3, 4)
    ask(book, "b", 3, 4)
    assert admitted(ask(book, "c", 3, 4)) == []

    assert admitted(book.leave(JobId("a"))) == ["c"]


def test_a_job_that_outgrows_the_device_is_held_to_what_there_is() -> None:
    book = LaneBook(Budget(10))
    ask(book, "a", 1, 2)
    ask(book, "b", 1, 2)

    changes = book.observe(JobId("a"), MemoryDemand(9, 9))

    assert Confine(JobId("a"), MemoryDemand(9, 9), MemoryDemand(5, 2)) in changes
    assert book.free_bytes == 0
    book.check()


def test_what_a_job_gave_up_may_pay_for_what_it_needs_more() -> None:
    book = LaneBook(Budget(10))
    ask(book, "a", 8, 2)

    assert book.observe(JobId("a"), MemoryDemand(2, 8)) == [Resize(LaneId(0), 8)]

    assert book.booked(JobId("a")) == MemoryDemand(2, 8)


def test_a_waiting_job_is_passed_by_at_most_patience_later_ones() -> None:
    book = LaneBook(Budget(10), patience=2)
    ask(book, "first", 1, 4)
    assert admitted(ask(book, "large", 6, 4)) == []
    assert admitted(ask(book, "s1", 1, 0)) == ["s1"]
    assert admitted(ask(book, "s2", 1, 0)) == ["s2"]

    assert admitted(ask(book, "s3", 1, 0)) == []

    why = book.why_waits(JobId("s3"))
    assert (why.tier, why.blocked_by) == (Tier.ORDER, "large")
    book.leave(JobId("s1"))
    book.leave(JobId("s2"))
    assert admitted(book.leave(JobId("first"))) == ["large"]


def test_the_more_urgent_is_admitted_first() -> None:
    book = LaneBook(Budget(10))
    ask(book, "now", 10, 0)
    book.request(JobId("long"), MemoryDemand(10, 0), urgency=9.0)
    book.request(JobId("short"), MemoryDemand(10, 0), urgency=1.0)

    assert admitted(book.leave(JobId("now"))) == ["short"]


def test_a_reattached_job_is_booked_even_beyond_the_budget_and_nobody_joins_it() -> None:
    book = LaneBook(Budget(10))
    book.reattach(JobId("old"), MemoryDemand(8, 4), LaneId(3), 5)
    book.check()
    assert book.free_bytes == -3

    assert admitted(ask(book, "new", 0, 0)) == []

    assert admitted(book.leave(JobId("old"))) == ["new"]
    book.check()


def test_a_closed_book_admits_nobody_and_says_why() -> None:
    book = LaneBook(Budget(10))
    book.is_open = False
    assert admitted(ask(book, "new", 1, 1)) == []
    assert "restart" in book.why_waits(JobId("new")).reason

    assert admitted(book.open()) == ["new"]


@pytest.mark.parametrize("twice", ["waiting", "admitted"])
def test_a_job_cannot_be_on_a_device_twice(twice: str) -> None:
    book = LaneBook(Budget(10))
    ask(book, "admitted", 10, 0)
    ask(book, "waiting", 1, 1)

    with pytest.raises(InvalidField):
        book.request(JobId(twice), MemoryDemand(0, 0))


def test_the_check_sees_a_book_that_does_not_balance() -> None:
    book = LaneBook(Budget(10))
    ask(book, "a", 1, 4)
    book.lanes[LaneId(0)].size_bytes = 12

    with pytest.raises(CapacityViolated):
        book.check()


class RandomTrace:
    """Random arrivals, departures, measurements and iterations on one book."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        sharing = Overlap() if self.rng.random() < 0.5 else Serialise()
        self.book = LaneBook(Budget(160, self.rng.choice([0, 4]), 6), sharing, PATIENCE)
        self.arrived: list[JobId] = []
        self.admissions: list[JobId] = []
        self.passed: dict[JobId, int] = {}

    def demand(self) -> MemoryDemand:
        ephemeral = self.rng.randint(2, 100)
        return MemoryDemand(int(ephemeral * self.rng.uniform(0.03, 0.6)), ephemeral)

    def step(self) -> None:
        present = [job for lane in self.book.lanes.values() for job in lane.tenants]
        kind = self.rng.random()
        if kind < 0.45 or not present:
            self.arrive()
        elif kind < 0.65:
            leaver = self.rng.choice([*present, *self.book.waiting])
            lane = self.book.lane_of(leaver)
            held = lane is not None and lane.busy and self.rng.random() < 0.5
            self.note(self.book.leave(leaver, held_lane=held))
            self.passed.pop(leaver, None)
        elif kind < 0.8:
            self.note(self.book.observe(self.rng.choice(present), self.demand()))
        else:
            lane_id = self.rng.choice(list(self.book.lanes))
            if self.book.lanes[lane_id].busy:
                self.note(self.book.boundary(lane_id))
            else:
                self.book.began(lane_id)

    def arrive(self) -> None:
        job = JobId(f"j{len(self.arrived)}")
        self.arrived.append(job)
        demand = None if self.rng.random() < 0.03 else self.demand()
        outcome = self.book.request(job, demand, urgency=self.rng.choice([0.0, 1.0]))
        if not isinstance(outcome, Refusal):
            self.passed[job] = 0
            self.note(outcome)

    def note(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Resize):
                assert not self.book.lanes[change.lane].busy
            if isinstance(change, Admit):
                self.admissions.append(change.job_id)
                del self.passed[change.job_id]
                came = self.arrived.index(change.job_id)
                for job in self.passed:
                    self.passed[job] += self.arrived.index(job) < came

    def check(self) -> None:
        self.book.check()
        lanes = self.book.lanes.values()
        persistent = sum(d.persistent_bytes for lane in lanes for d in lane.tenants.values())
        contexts = sum(len(lane.tenants) for lane in lanes) * self.book.budget.context_bytes
        in_lanes = sum(max(lane.size_bytes, lane.needed_bytes) for lane in lanes)
        assert persistent + contexts + in_lanes + 6 <= 160
        assert max(self.passed.values(), default=0) <= PATIENCE


def test_the_book_is_never_unsafe_and_nobody_is_passed_too_often() -> None:
    admissions = 0
    for seed in range(SEEDS):
        trace = RandomTrace(seed)
        for _ in range(EVENTS):
            trace.step()
            trace.check()
        admissions += len(trace.admissions)
    assert admissions > SEEDS * 5  # the traces did something


@pytest.mark.parametrize("seed", range(50))
def test_everybody_who_is_not_refused_is_admitted_once_the_others_leave(seed: int) -> None:
    trace = RandomTrace(seed)
    for _ in range(EVENTS):
        trace.step()
    waiting = set(trace.book.waiting)

    while trace.book.lanes:
        job = next(job for lane in trace.book.lanes.values() for job in lane.tenants)
        trace.note(trace.book.leave(job, held_lane=True))

    assert waiting <= set(trace.admissions)
    assert trace.book.free_bytes == 154
