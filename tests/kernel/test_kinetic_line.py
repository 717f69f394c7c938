"""A tournament that knows when its winner changes must always name the winner."""

from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import Entry, HeapLine, KineticLine, Line, Queue
from interlane.kernel.view import View
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


SHARED = View(Ledger(pool(1)))


def entry(serial: int, guess: float, at: float) -> Entry:
    asked = job(f"j{serial}", gpus=1, guess=guess, at=at, serial=serial)
    return Entry(asked, SHARED.shape(asked.request, TypeRule.EXACT))


def walk(queue: Queue, steps: list[tuple[str, int, int]]) -> None:
    """Push, drop and wait; after every step the head must be the least of all keys."""
    now_s, waiting = 0.0, list[Entry]()
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
        assert len(queue) == len(waiting)
        if waiting:
            head = queue.head(0, now_s)
            assert place(head, now_s) == place(least(waiting, now_s), now_s)
            # The table that groups are compared by must say the same.
            assert queue.keys[0, compiled.KEY_VALUE] == head.key[0]
            assert queue.keys[0, compiled.KEY_SLOPE] == head.key[1]
            assert queue.keys[0, compiled.KEY_SERIAL] == head.job.serial
            line = queue.group(0).line
            expected = sorted(waiting, key=lambda each: place(each, now_s))
            assert list(line.in_order(now_s, 4)) == expected[:4]


def place(each: Entry, now_s: float) -> tuple[float, int]:
    return each.key[0] + each.key[1] * now_s, each.job.serial


def least(waiting: list[Entry], now_s: float) -> Entry:
    return min(waiting, key=lambda each: place(each, now_s))


@given(steps=STEPS)
def test_the_kinetic_line_equals_sorting_at_every_time(
    steps: list[tuple[str, int, int]],
) -> None:
    walk(Queue(HighestResponseRatio()), steps)


@given(steps=STEPS)
def test_the_heap_line_equals_sorting(steps: list[tuple[str, int, int]]) -> None:
    walk(Queue(ShortestFirst()), steps)


def test_lines_that_never_cross_need_no_second_look() -> None:
    line: Line = HeapLine()
    assert line.first(0.0) is None
    assert line.valid_until() == float("inf")
    assert KineticLine().first(0.0) is None
