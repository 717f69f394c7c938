"""Whose iteration is next in a lane.

An order answers two questions about the jobs of one lane: who of those that want it gets it,
and when the present holder should be asked to give it up.  It never leaves the lane idle while
somebody wants it, reads no clock, and breaks ties by arrival.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from math import inf
from types import MappingProxyType
from typing import Final, Protocol

from interlane.lanes.tenant import Tenant
from interlane.model import InvalidField, UnknownName

Key = tuple[float, ...]


class LaneOrder(Protocol):
    """Says who goes first.  Must not change the tenants, except in ``enters``."""

    def pick(self, waiting: Sequence[Tenant], now_s: float) -> Tenant:
        """Return who of these (at least one) gets the lane."""
        ...

    def revoke_at_s(
        self, holder: Tenant, waiting: Sequence[Tenant], turn_ends_s: float, now_s: float
    ) -> float:
        """Return when the holder should give way to these (at least one).

        ``now_s`` or earlier means at once, infinity not unless something else happens.
        ``turn_ends_s`` is when its quantum is over.
        """
        ...

    def enters(self, tenant: Tenant, lane_virtual_s: float, *, is_new: bool) -> None:
        """Note that a job joined the lane or, having wanted nothing, wants it again."""
        ...

    def urgency(self, tenant: Tenant) -> float:
        """Rank jobs that wait to be admitted; smaller is tried first."""
        ...


class _Plain(ABC):
    """Smallest key first; no accounts; admitted by arrival."""

    __slots__ = ()

    @abstractmethod
    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Return what is compared; it ends with the arrival, so that no two are equal."""

    def pick(self, waiting: Sequence[Tenant], now_s: float) -> Tenant:
        """Return the one with the smallest key."""
        return min(waiting, key=lambda one: self.key(one, now_s))

    def enters(self, tenant: Tenant, lane_virtual_s: float, *, is_new: bool) -> None:  # noqa: B027 - most need nothing
        """Nothing to note."""

    def urgency(self, tenant: Tenant) -> float:
        """All are equal, so that arrival decides."""
        return 0.0


class _Urgent(_Plain):
    """A more urgent job takes the lane at the holder's next boundary."""

    __slots__ = ()

    def revoke_at_s(
        self, holder: Tenant, waiting: Sequence[Tenant], turn_ends_s: float, now_s: float
    ) -> float:
        """Return now if somebody more urgent waits."""
        return now_s if self.pick([holder, *waiting], now_s) is not holder else inf


class _Turns(_Plain):
    """Jobs take turns of one quantum."""

    __slots__ = ()

    def revoke_at_s(
        self, holder: Tenant, waiting: Sequence[Tenant], turn_ends_s: float, now_s: float
    ) -> float:
        """Return the end of the turn."""
        return turn_ends_s


class _CatchUp(_Plain):
    """The holder gives way when its turn is over and it has caught up with another."""

    __slots__ = ()

    @abstractmethod
    def clock_s(self, tenant: Tenant, now_s: float) -> float:
        """Return what is levelled out; it runs with the time in which a job holds the lane."""

    def pace(self, tenant: Tenant) -> float:
        """Return the seconds of holding the lane in which the clock runs a second."""
        return 1.0

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare clocks; among equals the one that had its turn longest ago."""
        return (self.clock_s(tenant, now_s), tenant.last_turn, tenant.serial)

    def revoke_at_s(
        self, holder: Tenant, waiting: Sequence[Tenant], turn_ends_s: float, now_s: float
    ) -> float:
        """Return when the turn is over and the holder is no longer behind."""
        first_s = min(self.clock_s(one, now_s) for one in waiting)
        behind_s = first_s - self.clock_s(holder, now_s)
        return max(turn_ends_s, now_s + behind_s * self.pace(holder))


@dataclass(frozen=True, slots=True)
class LaneFifo(_Urgent):
    """First come, first served; others run only while the first has nothing to run."""

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare arrival."""
        return (tenant.serial,)


@dataclass(frozen=True, slots=True)
class Priority(_Urgent):
    """Highest priority first, preempting at the next boundary; then first come."""

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare priority."""
        return (-tenant.priority, tenant.serial)

    def urgency(self, tenant: Tenant) -> float:
        """Admit by priority, too."""
        return -tenant.priority


@dataclass(frozen=True, slots=True)
class ShortestRemaining(_Plain):
    """Least remaining device time first, preempting at the next boundary; no estimate is last.

    A job past its estimate is taken to need as much again as it is over: one that was
    underestimated a little is nearly done, one that was underestimated tenfold is not.
    """

    def remaining_s(self, tenant: Tenant, now_s: float) -> float:
        """Return what is left of the estimate."""
        if tenant.total_s is None:
            return inf
        return abs(tenant.total_s - tenant.attained_at(now_s))

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare what is left."""
        return (self.remaining_s(tenant, now_s), tenant.serial)

    def revoke_at_s(
        self, holder: Tenant, waiting: Sequence[Tenant], turn_ends_s: float, now_s: float
    ) -> float:
        """Return now if somebody has less to do, or when the holder will be that far over."""
        left_s = self.remaining_s(holder, now_s)
        least_s = min(self.remaining_s(one, now_s) for one in waiting)
        is_over = holder.total_s is not None and holder.attained_at(now_s) >= holder.total_s
        if least_s < left_s and not is_over:
            return now_s
        if holder.total_s is None or least_s == inf:
            return inf
        until_over_s = holder.total_s - holder.attained_at(now_s)
        return max(turn_ends_s, now_s + until_over_s + least_s)

    def urgency(self, tenant: Tenant) -> float:
        """Admit the shortest first, too."""
        return inf if tenant.total_s is None else tenant.total_s


@dataclass(frozen=True, slots=True)
class RoundRobin(_Turns):
    """Turns of one quantum; whoever had the lane longest ago is next."""

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare the last turn."""
        return (tenant.last_turn, tenant.serial)


@dataclass(frozen=True, slots=True)
class Pack(_Turns):
    """Whoever has wanted the lane longest is next; made for many lanes side by side."""

    def key(self, tenant: Tenant, now_s: float) -> Key:
        """Compare since when the lane is wanted."""
        since_s = tenant.wanted_since_s
        return (inf if since_s is None else since_s, tenant.serial)


@dataclass(frozen=True, slots=True)
class Fair(_CatchUp):
    """Least virtual time first: jobs get device time by weight, equal ones equally.

    Virtual time starts at the lane's own when a job joins, so that a newcomer shares from then
    on instead of catching up on the past; a job that was away keeps at most ``credit_s``.
    """

    credit_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.credit_s < inf:
            raise InvalidField("credit_s", self.credit_s, "it must be 0 or above, and finite")

    def clock_s(self, tenant: Tenant, now_s: float) -> float:
        """Level virtual time out."""
        return tenant.virtual_at(now_s)

    def pace(self, tenant: Tenant) -> float:
        """Virtual time runs the slower, the greater the weight."""
        return tenant.weight

    def enters(self, tenant: Tenant, lane_virtual_s: float, *, is_new: bool) -> None:
        """Start from the lane's virtual time."""
        credit_s = 0.0 if is_new else self.credit_s
        tenant.virtual_s = max(tenant.virtual_s, lane_virtual_s - credit_s)


@dataclass(frozen=True, slots=True)
class LeastAttained(_CatchUp):
    """Least device time received first (LAS): short jobs pass without any estimate."""

    def clock_s(self, tenant: Tenant, now_s: float) -> float:
        """Level device time out."""
        return tenant.attained_at(now_s)


ORDERS: Final[Mapping[str, Callable[[], LaneOrder]]] = MappingProxyType(
    {
        "fifo": LaneFifo,
        "srtf": ShortestRemaining,
        "fair": Fair,
        "rr": RoundRobin,
        "pack": Pack,
        "priority": Priority,
        "las": LeastAttained,
    }
)
"""Orders by name; the first paragraph of the docstring is their help."""


def make_order(name: str) -> LaneOrder:
    """Return the order of this name."""
    if name not in ORDERS:
        raise UnknownName("lane order", name, ORDERS)
    return ORDERS[name]()


def describe(name: str) -> str:
    """Return the help sentence of an order."""
    return " ".join((getdoc(ORDERS[name]) or "").split("\n\n")[0].split())
