"""What running jobs hold, in one table, and who of them ends first."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.held import RunningRows
from interlane.kernel.queue import QueuedJob
from interlane.kernel.running import Running
from interlane.kernel.state import State
from interlane.model import MachineId, Placement, Spot
from interlane.policy.order import Fifo
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.tables import AT_WIDTH, Table
from interlane.testing.build import cluster, job

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "replace", "remove"]), st.integers(0, 9), st.integers(1, 5)
    ),
    max_size=200,
)


def rows_of(mark: int, count: int) -> Table:
    return np.full((count, AT_WIDTH), mark, np.int64)


@given(CHANGES)
def test_every_slot_keeps_its_own_rows_whoever_comes_grows_and_goes(
    changes: list[tuple[str, int, int]],
) -> None:
    held, expected = RunningRows(2), list[Table]()
    for mark, (what, which, count) in enumerate(changes):
        table = rows_of(mark, count)
        if what == "add":
            expected.append(table)
            held.put(len(expected) - 1, table, len(expected))
        elif expected and what == "replace":
            slot = which % len(expected)
            expected[slot] = table
            held.put(slot, table, len(expected))
        elif expected:
            slot, last = which % len(expected), expected.pop()
            if slot < len(expected):
                expected[slot] = last
                held.move(len(expected), slot)
        rows, first, size = held.tables
        for slot, table in enumerate(expected):
            assert rows[first[slot] : first[slot] + size[slot]].tolist() == table.tolist()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=40), st.integers(1, 45))
def test_the_soonest_are_the_first_of_all_and_those_who_end_together_are_not_parted(
    lengths_s: list[int], most: int
) -> None:
    view, running = State(cluster(gpus=[1]), Policy(Fifo(), pack())).view, Running(Fifo())
    for number, length_s in enumerate(lengths_s):
        one = job(f"j{number}", gpus=1, estimate=float(length_s))
        entry = QueuedJob(one, view.shape(one.request, pack().types))
        entry.placement = Placement((Spot(MachineId("m0"), (0,)),))
        entry.rows = rows_of(number, 1)
        running.add(entry)
    in_order = sorted(range(len(lengths_s)), key=lambda slot: lengths_s[slot])
    last_s = lengths_s[in_order[min(most, len(lengths_s)) - 1]]
    slots, ends_s = running.soonest(0.0, most)
    assert slots.tolist() == [slot for slot in in_order if lengths_s[slot] <= last_s]
    assert ends_s.tolist() == [lengths_s[slot] for slot in slots.tolist()]
