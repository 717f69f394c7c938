"""A tournament that knows when its winner changes must always name the winner."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from interlane import tables
from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import GroupQueue, HeapLine, KineticLine, QueuedJob, WaitingJobs
from interlane.kernel.view import LedgerView
from interlane.policy.base import TypeRule
from interlane.policy.order import HighestResponseRatio, ShortestFirst
from interlane.testing.build import job, pool

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "drop", "drop first", "wait", "wait"]),
        st.integers(0, 400),
        st.integers(0, 50),
    ),
    max_size=60,
)


SHARED = LedgerView(Ledger(pool(1)))


def entry(serial: int, estimate: float, at: float) -> QueuedJob:
    asked = job(f"j{serial}", gpus=1, estimate=estimate, at=at, serial=serial)
    return QueuedJob(asked, SHARED.shape(asked.request, TypeRule.EXACT))


def walk(
    queue: WaitingJobs, steps: list[tuple[str, int, int]]
) -> Iterator[tuple[list[QueuedJob], float]]:
    """Push, drop and wait; after every step tell who waits, and the time."""
    now_s, waiting = 0.0, list[QueuedJob]()
    for serial, (what, amount, pick) in enumerate(steps):
        if what == "wait":
            now_s += amount
        elif what == "push":
            waiting.append(entry(serial, float(amount), now_s - pick))
            queue.push(waiting[-1], now_s)
        elif waiting:
            gone = (
                least(waiting, now_s) if what == "drop first" else waiting[pick % len(waiting)]
            )
            waiting.remove(gone)
            queue.remove(gone, now_s)
        queue.refresh(now_s)
        yield waiting, now_s


def first_four(queue: WaitingJobs, now_s: float) -> list[QueuedJob]:
    return list(queue.group(0).line.in_order(now_s, 4)) if len(queue) else []


def compared_by(queue: WaitingJobs) -> tuple[float, float, int]:
    """Return the row of the table by which groups are compared."""
    row = queue.keys[0]
    return row[tables.KEY_VALUE], row[tables.KEY_SLOPE], int(row[tables.KEY_SERIAL])


def place(each: QueuedJob, now_s: float) -> tuple[float, int]:
    return each.key[0] + each.key[1] * now_s, each.job.serial


def in_order(waiting: list[QueuedJob], now_s: float) -> list[QueuedJob]:
    return sorted(waiting, key=lambda each: place(each, now_s))


def least(waiting: list[QueuedJob], now_s: float) -> QueuedJob:
    return in_order(waiting, now_s)[0]


@given(steps=STEPS)
def test_the_kinetic_line_equals_sorting_at_every_time(
    steps: list[tuple[str, int, int]],
) -> None:
    queue = WaitingJobs(HighestResponseRatio())
    for waiting, now_s in walk(queue, steps):
        assert len(queue) == len(waiting)
        assert first_four(queue, now_s) == in_order(waiting, now_s)[:4]


@given(steps=STEPS)
def test_the_heap_line_equals_sorting(steps: list[tuple[str, int, int]]) -> None:
    queue = WaitingJobs(ShortestFirst())
    for waiting, now_s in walk(queue, steps):
        assert len(queue) == len(waiting)
        assert first_four(queue, now_s) == in_order(waiting, now_s)[:4]


@given(steps=STEPS)
def test_groups_are_compared_by_the_key_of_their_head(
    steps: list[tuple[str, int, int]],
) -> None:
    queue = WaitingJobs(HighestResponseRatio())
    for waiting, now_s in walk(queue, steps):
        if waiting:
            head = queue.head(0, now_s)
            assert head is least(waiting, now_s)
            assert compared_by(queue) == (*head.key, head.job.serial)


def test_lines_that_never_cross_need_no_second_look() -> None:
    line: GroupQueue = HeapLine()
    assert line.first(0.0) is None
    assert line.valid_until() == float("inf")
    assert KineticLine().first(0.0) is None
