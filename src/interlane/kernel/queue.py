"""Who waits, grouped by shape.

Jobs of one shape either all fit or none does, so a decision looks at one head per group, not
at every job.  The heads' keys stand in one table that compiled code scans (``compiled``);
inside a group the rest waits in a heap, or, where keys drift apart with time, in a kinetic
tournament that knows when its winner will change.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final, Protocol

import numpy as np

from interlane import tables
from interlane.kernel.shapes import Shape
from interlane.model import Job, Placement, Refusal
from interlane.model.lifecycle import JobState
from interlane.policy.base import Key, Order
from interlane.tables import Table

BORROWER: Final = 1e12
"""Added to the rank of groups that would borrow: they come after all who would not."""

UNKNOWN_S: Final = 86_400.0
"""A job without any estimate is expected to run for a day."""


class QueuedJob:
    """What the kernel keeps about one job."""

    __slots__ = (
        "borrows", "claims", "group", "growing", "job", "key", "leaf", "placement", "plan",
        "ran_s", "refusal", "rows", "shape", "slot", "stage", "started_s", "state", "ticket",
        "wants",
    )  # fmt: skip

    def __init__(self, job: Job, shape: Shape, plan: tuple[Shape, ...] = ()) -> None:
        self.job = job
        self.shape = shape
        """What the job asks for, in the present stage of its plan if it has one."""
        self.plan = plan
        """Its shapes in the stages of its plan; empty without one."""
        self.stage = 0
        """Which of them ``shape`` is."""
        self.borrows = False
        """Whether it holds a machine that is only lent to it."""
        self.state = JobState.QUEUED
        self.ran_s = 0.0
        """Seconds of progress kept from earlier attempts."""
        self.started_s = 0.0
        """When the present attempt began; meaningful while capacity is held."""
        self.placement: Placement | None = None
        self.rows: Table | None = None
        """What is held, as the ledger counts it; set together with ``placement``."""
        self.growing = 0
        """How many of the last rows and spots are held but not confirmed yet."""
        self.wants: tuple[QueuedJob, ...] = ()
        """What an elastic job lacks and waits for while it runs."""
        self.group: QueueGroup | None = None
        """The group the job waits in; None unless queued."""
        self.key: Key = (0.0, 0.0)
        self.ticket = 0
        """Number drawn when the job was last queued; heap items with another are void."""
        self.leaf = -1
        self.slot = -1
        """Row of the running table; -1 unless capacity is held."""
        self.claims = 0
        """How often others were stopped for this job since it last started."""
        self.refusal: Refusal | None = None
        """The placer's own words when it last refused this very job."""

    def left_s(self) -> float:
        """Return how much longer the job is estimated to run than in earlier attempts."""
        estimate_s = self.job.duration_s_estimate
        return max((UNKNOWN_S if estimate_s is None else estimate_s) - self.ran_s, 0.0)

    def ran_so_far_s(self, now_s: float) -> float:
        """Return what the job has run for, the present attempt included."""
        return self.ran_s if self.slot < 0 else self.ran_s + now_s - self.started_s


class GroupQueue(Protocol):
    """Jobs of one group in order."""

    def push(self, entry: QueuedJob, now_s: float) -> None:
        """Add a job."""
        ...

    def discard(self, entry: QueuedJob, now_s: float) -> None:
        """Take a job out, wherever it stands."""
        ...

    def first(self, now_s: float) -> QueuedJob | None:
        """Return who is ahead at this time."""
        ...

    def in_order(self, now_s: float, most: int) -> Iterable[QueuedJob]:
        """Return the first few, in order; to be read before anything changes."""
        ...

    def valid_until(self) -> float:
        """Return until when ``first`` stays the same if nobody comes or goes."""
        ...


class HeapLine:
    """Jobs whose keys do not change with time: a heap with lazy removal."""

    __slots__ = ("_heap", "_void")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, QueuedJob]] = []
        self._void = 0

    def push(self, entry: QueuedJob, now_s: float) -> None:
        """Add a job."""
        heappush(self._heap, (entry.key[0], entry.job.serial, entry.ticket, entry))

    def discard(self, entry: QueuedJob, now_s: float) -> None:
        """Take a job out: at once if it is ahead, otherwise when it comes up."""
        if self._heap and self._heap[0][3] is entry:
            heappop(self._heap)
            return
        self._void += 1
        if self._void > 64 and self._void * 2 > len(self._heap):
            self._heap = [item for item in self._heap if _waits(item)]
            heapify(self._heap)
            self._void = 0

    def first(self, now_s: float) -> QueuedJob | None:
        """Return who is ahead."""
        heap = self._heap
        while heap:
            _, _, ticket, entry = heap[0]
            if entry.ticket == ticket and entry.group is not None:
                return entry
            heappop(heap)
            self._void -= 1
        return None

    def in_order(self, now_s: float, most: int) -> Iterator[QueuedJob]:
        """Yield the first few, exploring the heap from its root."""
        heap, found = self._heap, 0
        frontier = [(heap[0][:3], 0)] if heap else []
        while frontier and found < most:
            _, at = heappop(frontier)
            if _waits(heap[at]):
                yield heap[at][3]
                found += 1
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child][:3], child))

    def valid_until(self) -> float:
        """Return that time changes nothing."""
        return inf


def _waits(item: tuple[float, int, int, QueuedJob]) -> bool:
    entry = item[3]
    return entry.group is not None and entry.ticket == item[2]


class KineticLine:
    """Jobs whose keys are lines in time: a tournament that knows when a match turns.

    Node ``i`` holds the winner of its two children and until when that is certain.  Two lines
    cross at most once, so a match turns at most once while both play in it.
    """

    __slots__ = ("_free", "_leaves", "_until", "_winner")

    def __init__(self) -> None:
        self._leaves: list[QueuedJob | None] = [None]
        self._winner = [0, 0]
        self._until = [inf, inf]
        self._free = [0]

    def push(self, entry: QueuedJob, now_s: float) -> None:
        """Add a job."""
        if not self._free:
            self._double(now_s)
        entry.leaf = self._free.pop()
        self._leaves[entry.leaf] = entry
        self._replay(entry.leaf, now_s)

    def discard(self, entry: QueuedJob, now_s: float) -> None:
        """Take a job out."""
        self._leaves[entry.leaf] = None
        self._free.append(entry.leaf)
        self._replay(entry.leaf, now_s)
        entry.leaf = -1

    def first(self, now_s: float) -> QueuedJob | None:
        """Return who is ahead at this time."""
        self._refresh(1, now_s)
        return self._leaves[self._winner[1]] if len(self._leaves) > 1 else self._leaves[0]

    def in_order(self, now_s: float, most: int) -> list[QueuedJob]:
        """Return the first few at this time."""
        waiting = [entry for entry in self._leaves if entry is not None]
        waiting.sort(key=lambda entry: at_now(entry, now_s))
        return waiting[:most]

    def valid_until(self) -> float:
        """Return until when the winner is certain."""
        return self._until[1]

    def _double(self, now_s: float) -> None:
        size = len(self._leaves)
        self._leaves += [None] * size
        self._free = list(range(2 * size - 1, size - 1, -1))
        self._winner = [0] * (2 * size)
        self._until = [inf] * (2 * size)
        for node in range(2 * size - 1, 0, -1):
            self._play(node, now_s)

    def _child(self, node: int) -> int:
        """Return the leaf that wins at a node; nodes past the inner ones are leaves."""
        inner = len(self._leaves)
        return node - inner if node >= inner else self._winner[node]

    def _play(self, node: int, now_s: float) -> None:
        if node >= len(self._leaves):
            return
        left, right = self._child(2 * node), self._child(2 * node + 1)
        one, two = self._leaves[left], self._leaves[right]
        turn_s = inf
        if one is None or (two is not None and at_now(two, now_s) < at_now(one, now_s)):
            left, one, two = right, two, one
        if one is not None and two is not None:
            turn_s = _turns(one.key, two.key, now_s)
        self._winner[node] = left
        self._until[node] = min(turn_s, self._certain(2 * node), self._certain(2 * node + 1))

    def _certain(self, node: int) -> float:
        return inf if node >= len(self._leaves) else self._until[node]

    def _replay(self, leaf: int, now_s: float) -> None:
        node = (leaf + len(self._leaves)) // 2
        while node >= 1:
            self._refresh(2 * node, now_s)
            self._refresh(2 * node + 1, now_s)
            self._play(node, now_s)
            node //= 2

    def _refresh(self, node: int, now_s: float) -> None:
        if node >= len(self._leaves) or now_s < self._until[node]:
            return
        self._refresh(2 * node, now_s)
        self._refresh(2 * node + 1, now_s)
        self._play(node, now_s)


def at_now(entry: QueuedJob, now_s: float) -> tuple[float, int]:
    """Return where a job stands among others at this time."""
    return entry.key[0] + entry.key[1] * now_s, entry.job.serial


def _turns(ahead: Key, behind: Key, now_s: float) -> float:
    """Return when ``behind`` overtakes, or never."""
    if behind[1] >= ahead[1]:
        return inf
    return max(now_s, (behind[0] - ahead[0]) / (ahead[1] - behind[1]))


class Awaited:
    """A profile for which somebody waits, or did."""

    __slots__ = ("groups", "position", "profile")

    def __init__(self, profile: int) -> None:
        self.profile = profile
        self.groups = 0
        """Groups with somebody in them that wait for it."""
        self.position = -1
        """Where it stands in the queue's list of profiles."""


class QueueGroup:
    """Waiting jobs of one shape (and one account, where accounts count)."""

    __slots__ = (
        "account", "awaited", "borrows", "in_vain", "line", "number", "position", "shape",
        "size",
    )  # fmt: skip

    def __init__(
        self, number: int, shape: Shape, account: str | None, line: GroupQueue, awaited: Awaited
    ) -> None:
        self.number = number
        self.shape = shape
        self.account = account
        self.line = line
        self.awaited = awaited
        self.borrows = shape.stage is not None and bool(shape.stage.lent)
        self.in_vain = -1
        """The kernel's count of strong places given back when reclaiming last was in vain."""
        self.size = 0
        self.position = -1
        """Where it stands in the queue's list of groups with somebody in them."""


class WaitingJobs:
    """All waiting jobs; keeps the tables that ``compiled`` scans."""

    def __init__(self, order: Order, *, notes_shortest: bool = False) -> None:
        self._order = order
        self._notes_shortest = notes_shortest
        """Whether each group keeps a lower bound on its estimates, for backfilling."""
        self._accounted = order.keeps_accounts
        self._groups: dict[Shape | tuple[Shape, str], QueueGroup] = {}
        self._by_number: list[QueueGroup] = []
        self._accounts: dict[str, set[int]] = {}
        self._running_milli: dict[str, int] = {}
        self._drifts = False
        """Whether any key has a slope, so that heads may change by waiting alone."""
        self._size = 0
        self._tickets = 0
        self.keys = np.zeros((64, tables.KEY_WIDTH), np.float64)
        """Key of each group's head."""
        self.groups: Table = np.zeros((64, tables.GROUP_WIDTH), np.int64)
        """Profile, need and bar of each group."""
        self._until = np.full(64, inf)
        """Until when each group's head is certain."""
        self.active: Table = np.zeros(64, np.int64)
        """Numbers of the groups with somebody in them, from 0 to ``actives``."""
        self.actives = 0
        self._active: list[QueueGroup] = []
        """The same groups as objects."""
        self._entitled = 0
        """How many of them have a right to machines that are lent."""
        self.profiles: Table = np.zeros(64, np.int64)
        """Profiles that somebody waits for, from 0 to ``waited_for``."""
        self.waited_for = 0
        self._waited_for: list[Awaited] = []
        """The same profiles as objects."""
        self._awaited: dict[int, Awaited] = {}

    def __len__(self) -> int:
        return self._size

    @property
    def tables(self) -> tuple[Any, ...]:
        """All tables as they are now, in the order of ``tables.Waiting``."""
        return (
            self.profiles, self.waited_for, self.active, self.actives, self.keys, self.groups
        )  # fmt: skip

    def push(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job wait."""
        entry.key = key = self._order.key(entry.job, entry.ran_s)
        self._tickets += 1
        entry.ticket = self._tickets
        shape = entry.shape
        group = self._groups.get(
            (shape, self._order.account(entry.job)) if self._accounted else shape
        )
        if group is None:
            group = self._new_group(entry)
        entry.group = group
        if key[1] != 0.0:
            self._drifts = True
        group.line.push(entry, now_s)
        self._size += 1
        group.size += 1
        if group.size == 1:
            self._activate(group)
            self.keys[group.number, tables.KEY_SHORTEST] = inf
        if self._notes_shortest:
            self.note_shortest(group.number, entry.left_s())
        head = group.line.first(now_s)
        if head is entry or (self._drifts and head is not None):
            # Where keys drift, somebody else may have overtaken meanwhile, and the newcomer
            # may be the next to do so.
            self._set_head(group, head)

    def remove(self, entry: QueuedJob, now_s: float) -> None:
        """Take a job out, because it starts or was cancelled."""
        group = entry.group
        assert group is not None
        entry.group = None
        group.line.discard(entry, now_s)
        self._size -= 1
        group.size -= 1
        head = group.line.first(now_s)
        if head is None:
            self._deactivate(group)
        else:
            self._set_head(group, head)

    def group(self, number: int) -> QueueGroup:
        """Return the group with this number."""
        return self._by_number[number]

    def head(self, number: int, now_s: float) -> QueuedJob:
        """Return who is ahead in a group."""
        entry = self._by_number[number].line.first(now_s)
        assert entry is not None
        return entry

    def heads(self, now_s: float, numbers: Iterable[int] | None = None) -> list[QueuedJob]:
        """Return the heads of some groups, or of all with somebody in them, in order."""
        if numbers is None:
            numbers = self.active[: self.actives].tolist()
        heads = [self.head(number, now_s) for number in numbers]
        heads.sort(key=lambda entry: at_now(entry, now_s))
        return heads

    def entitled(self) -> list[QueueGroup]:
        """Return the groups with somebody in them who has a right to what is lent."""
        if not self._entitled:
            return []
        return [group for group in self._active if group.shape.reclaims]

    def bar(self, number: int, epoch: int) -> None:
        """Leave a group out of greedy walks until something becomes free."""
        self.groups[number, tables.GROUP_BARRED] = epoch

    def unbar(self, number: int) -> None:
        """Let greedy walks see a group again."""
        self.groups[number, tables.GROUP_BARRED] = -1

    def note_shortest(self, number: int, seconds: float) -> None:
        """Note that a job of the group is estimated to run no longer than this."""
        if seconds < self.keys[number, tables.KEY_SHORTEST]:
            self.keys[number, tables.KEY_SHORTEST] = seconds

    def refresh(self, now_s: float) -> None:
        """Let heads change that time alone has overtaken."""
        if not self._drifts:
            return
        for number in np.nonzero(self._until[: len(self._by_number)] <= now_s)[0].tolist():
            group = self.group(number)
            entry = group.line.first(now_s)
            assert entry is not None
            self._set_head(group, entry)

    def charge(self, account: str, gpu_milli: int) -> None:
        """Note that an account runs more (or less) GPU share than before."""
        running = self._running_milli.get(account, 0) + gpu_milli
        self._running_milli[account] = running
        share = self._order.share(account, running)
        for number in self._accounts.get(account, ()):
            late = BORROWER if self._by_number[number].borrows else 0.0
            self.keys[number, tables.KEY_RANK] = share + late

    def share(self, account: str) -> float:
        """Return the rank of an account by what it runs; 0 where accounts do not count."""
        if not self._accounted:
            return 0.0
        return self._order.share(account, self._running_milli.get(account, 0))

    def _new_group(self, entry: QueuedJob) -> QueueGroup:
        number = self._new_number()
        line: GroupQueue = KineticLine() if entry.key[1] != 0.0 else HeapLine()
        account = self._order.account(entry.job) if self._accounted else None
        part = entry.shape.parts[0]
        awaited = self._awaited.setdefault(part.profile, Awaited(part.profile))
        group = QueueGroup(number, entry.shape, account, line, awaited)
        is_plain = len(entry.shape.parts) == 1 and not entry.shape.is_close
        most = part.most if is_plain else 0
        self.groups[number] = part.profile, part.least, -1, most
        rank = BORROWER if group.borrows else 0.0
        if account is not None:
            self._accounts.setdefault(account, set()).add(number)
            rank += self.share(account)
        self.keys[number, tables.KEY_RANK] = rank
        self._groups[entry.shape if account is None else (entry.shape, account)] = group
        self._by_number.append(group)
        return group

    def _new_number(self) -> int:
        number = len(self._by_number)
        if number == len(self.keys):
            self.keys = np.concatenate([self.keys, np.zeros_like(self.keys)])
            self.groups = np.concatenate([self.groups, np.zeros_like(self.groups)])
            self.active = np.concatenate([self.active, np.zeros_like(self.active)])
            self._until = np.concatenate([self._until, np.full_like(self._until, inf)])
        return number

    def _set_head(self, group: QueueGroup, entry: QueuedJob) -> None:
        number, keys = group.number, self.keys
        keys[number, tables.KEY_VALUE] = entry.key[0]
        keys[number, tables.KEY_SERIAL] = entry.job.serial
        if self._drifts:
            keys[number, tables.KEY_SLOPE] = entry.key[1]
            self._until[number] = group.line.valid_until()

    def _activate(self, group: QueueGroup) -> None:
        group.position = self.actives
        self.active[self.actives] = group.number
        self.actives += 1
        self._active.append(group)
        self._entitled += group.shape.reclaims
        awaited = group.awaited
        awaited.groups += 1
        if awaited.groups == 1:
            self._await(awaited)

    def _await(self, awaited: Awaited) -> None:
        if self.waited_for == len(self.profiles):
            self.profiles = np.concatenate([self.profiles, np.zeros_like(self.profiles)])
        awaited.position = self.waited_for
        self.profiles[self.waited_for] = awaited.profile
        self.waited_for += 1
        self._waited_for.append(awaited)

    def _deactivate(self, group: QueueGroup) -> None:
        """Leave an empty group out of the walk; it is kept, as its shape tends to return.

        The last one of the list moves into its place.
        """
        self.actives -= 1
        self._entitled -= group.shape.reclaims
        last = self._active.pop()
        if last is not group:
            at = last.position = group.position
            self._active[at] = last
            self.active[at] = last.number
        awaited = group.awaited
        awaited.groups -= 1
        if awaited.groups == 0:
            self._await_no_more(awaited)
        if self._drifts:
            self._until[group.number] = inf

    def _await_no_more(self, awaited: Awaited) -> None:
        self.waited_for -= 1
        last = self._waited_for.pop()
        if last is not awaited:
            at = last.position = awaited.position
            self._waited_for[at] = last
            self.profiles[at] = last.profile
