"""How close to each other the instances of a job are placed.

Placers know nothing of domains.  They are asked for a place on some machines only: those of
one domain (*same*), of as few as can be had (*pack*), or for a portion of the instances on
each of as many as can be had (*spread*).  The best choice comes first; *same* is a condition,
the other two are actions, so that their last choice is to place the job anywhere.

Machines that are in no domain of a level count for *pack* and *spread* when nothing else does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interlane.kernel.ledger import Ledger
from interlane.kernel.shapes import Shape
from interlane.kernel.topology import Domains
from interlane.kernel.view import LedgerView
from interlane.model import Request
from interlane.tables import CPU, FREE, UP, Table
from interlane.tables.compiled import slots_of

Machines = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a job that goes to some machines: all tasks, or some instances of some."""

    avoid: Machines
    """Machines that are not to be used."""
    request: Request | None = None
    """What is asked for; None for the whole job."""
    tasks: tuple[int, ...] = ()
    """Which tasks of the job those of ``request`` are."""


class Choices:
    """Finds the machines that suit the closeness of one job, the best first."""

    def __init__(
        self,
        shape: Shape,
        view: LedgerView,
        ledger: Ledger,
        avoid: Machines,
        held: Sequence[int],
    ) -> None:
        self._shape = shape
        self._ledger = ledger
        self._avoid = avoid
        self._held = held
        """Machines that the job has already, if it grows."""
        self._rooms = np.stack([view.room_of(part.profile) for part in shape.parts])
        """Units of each task that each machine could take."""

    def __iter__(self) -> Iterator[tuple[Portion, ...]]:
        closeness = self._shape.closeness
        for region in self._regions():
            if closeness.pack is not None:
                yield from self._packed(self._ledger.domains(closeness.pack), region)
            elif closeness.spread is not None:
                yield from self._spread(self._ledger.domains(closeness.spread), region)
            yield (Portion(region),)

    def _regions(self) -> Iterator[Machines]:
        """Yield the machines to be avoided if the job goes to one domain or the other."""
        within, same = self._shape.within, self._shape.closeness.same
        if within is not None:
            level, name = within
            domains = self._ledger.domains(level)
            if name in domains.names:
                yield self._avoid | domains.outside(domains.names.index(name))
        elif same is not None:
            yield from self._one_domain(self._ledger.domains(same))
        else:
            yield self._avoid

    def _one_domain(self, domains: Domains) -> Iterator[Machines]:
        """Yield single domains with room, the one that is left fullest first.

        An elastic gang prefers one where it gets more instances.
        """
        room = self._room_by(domains, self._avoid)
        fits: Machines = np.all(room >= self._least(), axis=0)
        got = np.minimum(room, self._most()).sum(axis=0)
        idle = self._idle_by(domains)
        for domain in np.lexsort((idle, -got)).tolist():
            if fits[domain]:
                yield self._avoid | domains.outside(domain)

    def _packed(self, domains: Domains, region: Machines) -> Iterator[tuple[Portion, ...]]:
        """Yield as few domains as can be had, then one more, and so on.

        The roomiest come first; the last one is the fullest that will do.
        """
        if self._held:
            held = np.isin(domains.of, domains.of[list(self._held)])
            yield (Portion(region | ~held | domains.apart),)
        room = self._room_by(domains, region)
        wanted = np.minimum(self._most(), room.sum(axis=1, keepdims=True))
        if (wanted < self._least()).any():
            return
        idle = self._idle_by(domains)
        share = (np.minimum(room, wanted) / np.maximum(wanted, 1)).sum(axis=0)
        order = np.lexsort((idle, -share))
        enough = np.cumsum(room[:, order], axis=1) >= wanted
        fewest = int(enough.argmax(axis=1).max()) if len(order) else len(order)
        for count in range(fewest, len(order)):
            first, rest = order[:count], order[count:]
            missing = wanted - room[:, first].sum(axis=1, keepdims=True)
            able = rest[(room[:, rest] >= missing).all(axis=0)]
            if able.size:
                last = able[np.argmin(idle[able])]
                yield (Portion(region | ~np.isin(domains.of, [*first, last])),)

    def _spread(self, domains: Domains, region: Machines) -> Iterator[tuple[Portion, ...]]:
        """Yield a portion for each of as many domains as can be had."""
        if self._held:
            held = np.isin(domains.of, domains.of[list(self._held)])
            yield (Portion(region | held | domains.apart),)
            return
        room = self._room_by(domains, region)
        wanted = np.minimum(self._most()[:, 0], room.sum(axis=1))
        if (wanted < self._least()[:, 0]).any():
            return
        counts = _dealt(room, wanted)
        yield tuple(
            self._portion(counts[:, domain].tolist(), region | domains.outside(domain))
            for domain in np.nonzero(counts.any(axis=0))[0].tolist()
        )

    def _portion(self, counts: list[int], avoid: Machines) -> Portion:
        request, parts = self._shape.request, self._shape.parts
        numbers = tuple(number for number, count in enumerate(counts) if count)
        tasks = tuple(
            task if task.same_machine else replace(task, instances=count, instances_min=count)
            for task, part, count in zip(request.tasks, parts, counts, strict=True)
            if count
        )
        return Portion(avoid, Request(tasks), numbers)

    def _room_by(self, domains: Domains, avoid: Machines) -> Table:
        """Return the room for each task in each domain."""
        return np.stack([domains.sums(np.where(avoid, 0, room)) for room in self._rooms])

    def _idle_by(self, domains: Domains) -> Table:
        """Return how idle each domain is: GPU share first, then CPU."""
        free = np.maximum(self._ledger.free, 0) * (self._ledger.free[:, UP] == 1)[:, None]
        slots = slots_of(free)
        gpu = domains.sums(free[:, FREE : FREE + slots].sum(axis=1))
        return gpu * (1 << 32) + np.minimum(domains.sums(free[:, CPU]), (1 << 32) - 1)

    def _least(self) -> Table:
        return np.array([[part.least] for part in self._shape.parts])

    def _most(self) -> Table:
        return np.array([[part.most] for part in self._shape.parts])


def _dealt(room: Table, wanted: Table) -> Table:
    """Deal units of tasks to domains, each to the one that has the fewest and has room."""
    counts = np.zeros_like(room)
    for part, units in enumerate(wanted.tolist()):
        for _ in range(units):
            has = counts.sum(axis=0).astype(np.float64)
            has[counts[part] >= room[part]] = np.inf
            # Among equals, the roomiest: it is the least likely to be needed for others.
            domain = np.lexsort((-room[part], has))[0]
            counts[part, domain] += 1
    return counts
