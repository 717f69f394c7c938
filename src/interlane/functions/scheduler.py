"""All functions of a cluster: how many replicas, where, and who goes.  Events in, actions out.

Gateway, simulator and reproductions drive this same object.  It holds no clock: every event
comes with the time at which it happened.  It keeps the one ledger of replicas beside jobs, and
the forecasts and advisors of every function, which live and learn as long as the function does.

A function has as many replicas as its watch wants for the slot that has begun, and more where
calls wait.  Where there is no place for a call's replica, the cheapest set of idle replicas on
one device makes room: what they are worth is the requests that are expected while they would
stay, times what a cold start costs.  The same makes room ahead of requests, if that gains
enough.  A busy or loading replica leaves only where a job needs the room, a promise was broken
by what was measured, or its function is gone.  A job never moves.

In idle moments one replica at a time is loaded beside a job with which its function was never
measured, if the job has saved up what that may cost it: the pair that is known least, of the
job that holds most devices.  Requests go there as to any other, and are learned from.

Calls whose function finds no place wait in a queue until their deadline.  Whenever room may
have come, those in the queue are tried in the order of what they gain over what they cost.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interlane.functions.costs import Costs, Prices, costs_of, horizon, is_worth_it, within
from interlane.functions.events import (
    CoRunsMeasured,
    DeviceJudged,
    DevicesChanged,
    DropReason,
    DropReplica,
    FunctionAction,
    FunctionDeployed,
    FunctionEvent,
    FunctionTimed,
    FunctionWithdrawn,
    JobsHeld,
    LoadReplica,
    PairsFitted,
    QueueReplica,
    RefuseReplica,
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.learned import Learned, learned_of
from interlane.functions.ledger import DeviceLedger, PlacedReplica, ReplicaPhase
from interlane.functions.rank import Hazard, Ranking
from interlane.functions.watch import Band, FunctionWatch, MakeWatch, watches_of
from interlane.model import GpuRef, InvalidInput, Refusal
from interlane.model.function import Function
from interlane.policy.colocate.gpus import ColocatedGpu, Gpus
from interlane.policy.colocate.interference import InterferenceModel
from interlane.policy.colocate.place import NOWHERE, Colocator, FunctionPlacement

LEAST_GAIN: Final = 0.1
"""What loading ahead must gain where others part for it, as a part of the cold start."""
ROOM_DRAWS: Final = 8
"""Devices on which idle replicas are looked at when room must be made."""
PROBE_S: Final = 120.0
"""Seconds for which a pair is measured."""
PROBED_FROM: Final = 0.5
"""The probability of a request from which a function is worth measuring now."""
SHARED: Final = ""
"""Under which is kept what was learned of all functions together."""


@dataclass(slots=True, eq=False)
class _Known:
    """One function as it stands."""

    deployed: FunctionDeployed
    function: Function
    """With what was measured of it."""
    watch: FunctionWatch
    place: int
    """Among those that its watch watches."""
    wanted: int = 0
    """Replicas that it should have in this slot."""
    called: int = 0
    """Replicas that it should have because calls wait; 0 where none do."""
    room: set[int] = field(default_factory=set)
    """Replicas of others that leave for it."""
    until_s: float = -inf
    """Until when calls wait for a place."""

    @property
    def chance(self) -> float:
        return float(self.watch.chances[self.place])


class FunctionScheduler:
    """See the module's text."""

    def __init__(
        self,
        policy: tuple[Colocator, InterferenceModel],
        *,
        slot_s: float,
        make_watch: MakeWatch | None = None,
        prices: Prices | None = None,
        ranking: Ranking | None = None,
        seed: int = 0,
    ) -> None:
        colocator, self.model = policy
        self.ledger = DeviceLedger(colocator, self.model)
        self.slot_s = slot_s
        self.prices = prices or Prices()
        self.ranking = ranking or Hazard()
        self._make_watch = make_watch or watches_of(None, slot_s)
        self._rng = Random(seed)
        self._numbers: Iterator[int] = count(1)
        self._functions: dict[str, _Known] = {}
        self._queued: dict[str, None] = {}
        """Functions whose calls wait for a place."""
        self._probe: tuple[int, float] = (0, -inf)
        """The replica that measures a pair, and until when it is kept."""
        self._stored: dict[str, Learned] = {}
        """What a predecessor has learned of functions that were not deployed yet."""
        self._on: Mapping[type, Callable[..., Iterable[FunctionAction]]] = {
            FunctionDeployed: self._deployed,
            FunctionWithdrawn: self._withdrawn,
            FunctionTimed: self._timed,
            DevicesChanged: self._devices,
            JobsHeld: self._held,
            ReplicasNeeded: self._needed,
            ReplicasObserved: self._observed,
            ReplicasLoaded: self._loaded,
            ReplicasEnded: self._ended,
            CoRunsMeasured: self._measured,
            DeviceJudged: self._judged,
            PairsFitted: self._measured,
            SlotPassed: self._slot_passed,
        }

    def tell(self, event: FunctionEvent, now_s: float) -> tuple[FunctionAction, ...]:
        """Take in an event; return what is to be done, in this order."""
        late = [one for one in self._queued if self._functions[one].until_s <= now_s]
        refused = self._refuse(late, NOWHERE)
        return (*refused, *self._on[type(event)](event, now_s))

    # -- questions --------------------------------------------------------------------

    def band(self, name: str) -> Band:
        """Return what the slot that has begun brings a function."""
        known = self._functions[name]
        return known.watch.band(known.place)

    def queue(self) -> list[str]:
        """Return the functions whose calls wait for a place, those that go first first."""
        return sorted(self._queued, key=self._order)

    def worth(self, name: str) -> float:
        """Return what a warm replica is worth while it would stay."""
        known = self._functions.get(name)
        if known is None:
            return 0.0
        return self.ranking.worth(name, known.chance) * self._costs(known).cold

    def _costs(self, known: _Known) -> Costs:
        return costs_of(
            known.function,
            self.prices,
            slot_s=self.slot_s,
            device_mib=self.ledger.card_mib(),
            # Beside training, an idle replica uses up what training may lose.
            least=known.function.use,
        )

    # -- functions --------------------------------------------------------------------

    def _deployed(self, event: FunctionDeployed, now_s: float) -> list[FunctionAction]:
        function = event.function
        name, old = function.id, self._functions.get(function.id)
        self.model.meet(functions=[function.workload])
        actions = self._drop(self.ledger.staying(name), DropReason.WITHDRAWN, now_s)
        if old is None or old.deployed.keep_s != event.keep_s:
            watch = self._watched(function, event.keep_s, now_s)
        else:
            watch = old.watch
            measured = old.function
            function = replace(
                function, disk_load_s=measured.disk_load_s, p99_limit=measured.p99_limit
            )
        known = _Known(event, function, watch, watch.names.index(name))
        self._functions[name] = known
        self._queued.pop(name, None)
        self._price(known)
        known.wanted = min(event.replicas_max, self._advised(known))
        known.called = int(event.is_loaded)
        return [*actions, *self._place_missing([name], now_s)]

    def _withdrawn(self, event: FunctionWithdrawn, now_s: float) -> list[FunctionAction]:
        if self._functions.pop(event.name, None) is None:
            return []
        self._queued.pop(event.name, None)
        if isinstance(self.ranking, Hazard):
            self.ranking.forget(event.name)
        return self._drop(self.ledger.staying(event.name), DropReason.WITHDRAWN, now_s)

    def _timed(self, event: FunctionTimed, now_s: float) -> Iterable[FunctionAction]:
        known = self._functions.get(event.name)
        if known is None:
            return ()
        old = known.function
        known.function = replace(
            old,
            disk_load_s=old.disk_load_s if event.load_s is None else event.load_s,
            p99_limit=old.p99_limit if event.p99_limit is None else event.p99_limit,
        )
        if event.service_s is not None:
            served = known.deployed.at_a_time * self.slot_s / max(1e-4, event.service_s)
            known.watch.capacity[known.place] = max(1.0, served)
        self._price(known)
        return ()

    def _price(self, known: _Known) -> None:
        known.watch.weight[known.place] = self._costs(known).weight

    # -- devices and jobs -------------------------------------------------------------

    def _devices(self, event: DevicesChanged, now_s: float) -> list[FunctionAction]:
        displaced = self.ledger.follow(event.machines, now_s)
        for known in self._functions.values():
            self._price(known)
        drops: list[FunctionAction] = [
            DropReplica(one.function, one.number, DropReason.JOB) for one in displaced
        ]
        return [*drops, *self._place_missing(self._functions, now_s)]

    def _held(self, event: JobsHeld, now_s: float) -> list[FunctionAction]:
        actions: list[FunctionAction] = []
        is_freed = False
        for ref, held in event.held.items():
            if self.ledger.hold(ref, held, now_s):
                actions += self._make_way(self.ledger.gpus.by_id[ref], now_s)
            is_freed |= not held
        if is_freed or actions:
            actions += self._place_missing(self._functions, now_s)
        return actions

    def _make_way(self, gpu: ColocatedGpu, now_s: float) -> list[FunctionAction]:
        """Drop what takes the memory that jobs need, and what they would not bear."""
        ledger, leaving = self.ledger, list[FunctionAction]()
        while ledger.is_crowded(gpu):
            first = min(ledger.on(gpu), key=self._leaves_first)
            leaving += self._drop([first], DropReason.JOB, now_s)
        while gpu.functions and not ledger.colocator.bears(gpu):
            leaving += self._drop([ledger.worst(gpu)], DropReason.JOB, now_s)
        return leaving

    def _leaves_first(self, one: PlacedReplica) -> tuple[bool, float, int]:
        """Rank replicas of which some must leave: idle ones first, by worth."""
        worth = self.worth(one.function) / max(1, one.need.memory_mib)
        return one.phase is not ReplicaPhase.IDLE, worth, -one.number

    # -- replicas ---------------------------------------------------------------------

    def _observed(self, event: ReplicasObserved, now_s: float) -> Iterable[FunctionAction]:
        for name in event.asked:
            self.ranking.asked(name)
        for number, one in self.ledger.replicas.items():
            if one.phase in (ReplicaPhase.IDLE, ReplicaPhase.BUSY):
                is_busy = number in event.busy
                one.phase = ReplicaPhase.BUSY if is_busy else ReplicaPhase.IDLE
        # Who is idle now may make room.
        return self._place_missing(self._queued, now_s)

    def _loaded(self, event: ReplicasLoaded, now_s: float) -> Iterable[FunctionAction]:
        for number in event.replicas:
            one = self.ledger.replicas.get(number)
            if one is not None and one.phase is ReplicaPhase.LOADING:
                one.phase = ReplicaPhase.IDLE
                known = self._functions.get(one.function)
                if known is not None and len(self.ledger.staying(one.function)) >= known.called:
                    known.wanted, known.called = max(known.wanted, known.called), 0
                    self._queued.pop(one.function, None)
        return ()

    def _ended(self, event: ReplicasEnded, now_s: float) -> list[FunctionAction]:
        for number in event.replicas:
            one = self.ledger.replicas.get(number)
            if one is None:
                continue
            known = self._functions.get(one.function)
            if known is not None and one.phase is not ReplicaPhase.LEAVING:
                # It failed: nobody asks for another but a call that waits.
                known.wanted = max(0, known.wanted - 1)
                known.called = 0
                self._queued.pop(one.function, None)
            self.ledger.gone(one, now_s)
        gone = set(event.replicas)
        for known in self._functions.values():
            known.room -= gone
        return self._place_missing(self._functions, now_s)

    def _needed(self, event: ReplicasNeeded, now_s: float) -> list[FunctionAction]:
        for name, missing in event.missing.items():
            known = self._functions.get(name)
            if known is not None:
                most = known.deployed.replicas_max
                known.called = min(most, len(self.ledger.staying(name)) + missing)
                known.until_s = event.until_s.get(name, -inf)
        return self._place_missing(event.missing, now_s)

    def _drop(
        self, replicas: Collection[PlacedReplica], why: DropReason, now_s: float
    ) -> list[FunctionAction]:
        for one in replicas:
            self.ledger.leave(one, now_s)
        if why is DropReason.WITHDRAWN:
            for name in {one.function for one in replicas}:
                for old in self.ledger.by_function[name].values():
                    old.is_old = True
        return [DropReplica(one.function, one.number, why) for one in replicas]

    # -- slots ------------------------------------------------------------------------

    def _slot_passed(self, event: SlotPassed, now_s: float) -> list[FunctionAction]:
        asked = {name for name, many in event.counts.items() if many > 0}
        chances: dict[str, float] = {}
        for watch in dict.fromkeys(one.watch for one in self._functions.values()):
            watch.passed(np.array([float(event.counts.get(one, 0.0)) for one in watch.names]))
            chances.update(zip(watch.names, watch.chances.tolist(), strict=True))
        self.ranking.passed(asked, chances)
        actions: list[FunctionAction] = []
        for name, known in self._functions.items():
            if known.watch.advisor is None:
                continue  # what is there stays until room is needed
            known.wanted = min(known.deployed.replicas_max, self._advised(known))
            actions += self._drop(self._surplus(name, known, now_s), DropReason.SURPLUS, now_s)
            if known.wanted > len(self.ledger.staying(name)) and not self._pays(known):
                known.wanted = len(self.ledger.staying(name))
        actions += self._place_missing(self._functions, now_s)
        if not actions and not self._queued and now_s >= self._probe[1]:
            actions += self._probed(now_s)
        return actions

    def _advised(self, known: _Known) -> int:
        return 0 if known.watch.advisor is None else int(known.watch.wanted[known.place])

    def _surplus(self, name: str, known: _Known, now_s: float) -> list[PlacedReplica]:
        """Return the idle replicas that are not wanted any more, the newest first."""
        if now_s < known.deployed.kept_until_s:
            return []
        there = self.ledger.staying(name)
        if now_s < self._probe[1]:
            there = [one for one in there if one.number != self._probe[0]]
        idle = [one for one in there if one.phase is ReplicaPhase.IDLE]
        spare = len(there) - max(known.wanted, known.called)
        return idle[::-1][: max(0, spare)]

    def _pays(self, known: _Known) -> bool:
        """Tell whether loading ahead is worth its cost."""
        chance = self._soon(known)
        return is_worth_it(chance, self._costs(known), is_loaded=False)

    def _soon(self, known: _Known) -> float:
        """Return the probability of a request in the slots that loading takes.

        One more beside a replica that is there is copied on the device, in no time.
        """
        is_there = bool(self.ledger.staying(known.function.id))
        load_s = 0.0 if is_there else known.function.disk_load_s
        return within(known.chance, horizon(load_s, self.slot_s))

    # -- placing ----------------------------------------------------------------------

    def _place_missing(self, names: Iterable[str], now_s: float) -> list[FunctionAction]:
        """Load what is missing of these functions, the most worthwhile first."""
        missing = {
            name: lacking
            for name in names
            if (known := self._functions.get(name)) is not None
            and (known.wanted or known.called)
            and (lacking := self._lacking(name, known)) > 0
        }
        if not missing:
            return []
        actions: list[FunctionAction] = []
        waiting = sum(missing.values())
        for name in sorted(missing, key=self._order) if len(missing) > 1 else missing:
            known = self._functions[name]
            for _ in range(missing[name]):
                waiting -= 1
                found = self._place(known, waiting, now_s)
                actions += found
                if not any(isinstance(one, LoadReplica) for one in found):
                    waiting -= missing[name]
                    break
        return actions

    def _order(self, name: str) -> tuple[bool, float]:
        """Rank functions: those that are called, then by gain over slowdown."""
        known = self._functions[name]
        return not known.called, -self.ledger.colocator.priority(
            known.function, self.ledger.gpus
        )

    def _lacking(self, name: str, known: _Known) -> int:
        """Return how many replicas are missing; those that are leaving count until gone."""
        there = self.ledger.by_function.get(name, {}).values()
        room = known.deployed.replicas_max - sum(not one.is_old for one in there)
        return min(room, max(known.wanted, known.called) - len(self.ledger.staying(name)))

    def _place(self, known: _Known, waiting: int, now_s: float) -> list[FunctionAction]:
        """Load one replica where there is room; else make room, or say that there is none."""
        name = known.function.id
        number = next(self._numbers)
        need = replace(known.function, id=str(number))
        ledger = self.ledger
        if not len(ledger.gpus):
            site: FunctionPlacement | Refusal = NOWHERE
        else:
            site = ledger.colocator.place(need, ledger.gpus, max(0, waiting), now_s, self._rng)
        if isinstance(site, FunctionPlacement):
            ledger.place(number, name, need, site, now_s)
            self._queued.pop(name, None)
            return [LoadReplica(name, number, site.gpu.id)]
        if known.room:
            return []  # some are leaving for it
        victims = self._room_for(known, need, now_s)
        if victims:
            for one in victims:
                known.room.add(one.number)
                self.ranking.parted(one.function)
                theirs = self._functions[one.function]
                theirs.wanted = max(0, theirs.wanted - 1)
            return self._drop(victims, DropReason.ROOM, now_s)
        if not known.called or self._fits_soon(need, now_s):
            return []
        if now_s < known.until_s and ledger.could_hold(need):
            if name in self._queued:
                return []
            self._queued[name] = None
            return [QueueReplica(name, site)]
        return self._refuse([name], site)

    def _refuse(self, names: Collection[str], why: Refusal) -> list[FunctionAction]:
        for name in names:
            self._queued.pop(name, None)
            self._functions[name].called = 0
        return [RefuseReplica(name, why) for name in names]

    def _fits_soon(self, need: Function, now_s: float) -> bool:
        """Tell whether a replica could go somewhere once those that are leaving are gone."""
        leaving: dict[GpuRef, list[PlacedReplica]] = {}
        for one in self.ledger.replicas.values():
            if one.phase is ReplicaPhase.LEAVING and one.gpu.id in self.ledger.gpus.by_id:
                leaving.setdefault(one.gpu.id, []).append(one)
        return any(
            self._would_fit(self.ledger.gpus.by_id[ref], there, need, now_s)
            for ref, there in leaving.items()
        )

    # -- making room ------------------------------------------------------------------

    def _room_for(
        self, known: _Known, need: Function, now_s: float
    ) -> list[PlacedReplica] | None:
        """Return the cheapest idle replicas on one device in whose place a replica could go.

        Where no call waits, that must gain enough.
        """
        if not self.ledger.colocator.evicts:
            return None
        best: list[PlacedReplica] | None = None
        best_cost = 0.0
        for gpu, idle in self._idle(known, now_s):
            chosen = self._least(gpu, idle, need, now_s)
            if chosen is None:
                continue
            cost = sum(self.worth(one.function) for one in chosen)
            if best is None or cost < best_cost:
                best, best_cost = chosen, cost
        if best is None or known.called:
            return best
        cold = self._costs(known).cold
        known_lost = (self._functions[one.function] for one in best)
        lost = sum(one.chance * self._costs(one).cold for one in known_lost)
        return best if self._soon(known) * cold - lost > LEAST_GAIN * cold else None

    def _idle(
        self, beside: _Known, now_s: float
    ) -> list[tuple[ColocatedGpu, list[PlacedReplica]]]:
        """Return idle replicas of other functions by device, of a few devices.

        Those that were just deployed leave for calls only.
        """
        found: dict[GpuRef, list[PlacedReplica]] = {}
        for one in self.ledger.replicas.values():
            if one.phase is not ReplicaPhase.IDLE or one.function == beside.function.id:
                continue
            known = self._functions[one.function]
            if beside.called or now_s >= known.deployed.kept_until_s:
                found.setdefault(one.gpu.id, []).append(one)
        drawn = list(found)
        if len(drawn) > ROOM_DRAWS:
            drawn = self._rng.sample(drawn, ROOM_DRAWS)
        return [(self.ledger.gpus.by_id[ref], found[ref]) for ref in drawn]

    def _least(
        self, gpu: ColocatedGpu, idle: list[PlacedReplica], need: Function, now_s: float
    ) -> list[PlacedReplica] | None:
        """Return the least worthy replicas of a device without which another could go there."""
        ranked = sorted(
            idle, key=lambda one: self.worth(one.function) / max(1, one.need.memory_mib)
        )
        chosen: list[PlacedReplica] = []
        for one in ranked:
            chosen.append(one)
            if self._would_fit(gpu, chosen, need, now_s):
                break
        else:
            return None
        for one in chosen[-2::-1]:  # a larger one that came later may be enough
            fewer = [other for other in chosen if other is not one]
            if self._would_fit(gpu, fewer, need, now_s):
                chosen = fewer
        return chosen

    def _would_fit(
        self, gpu: ColocatedGpu, gone: list[PlacedReplica], need: Function, now_s: float
    ) -> bool:
        spared = self.ledger.without(gpu, gone)
        if spared.memory_mib < need.memory_mib:
            return False
        site = self.ledger.colocator.place(need, Gpus([spared]), 0, now_s, self._rng)
        return isinstance(site, FunctionPlacement)

    # -- probes -----------------------------------------------------------------------

    def _probed(self, now_s: float) -> list[FunctionAction]:
        """Load a replica beside the job with which its function teaches most."""
        ledger = self.ledger
        likely = [
            one.function
            for one in self._functions.values()
            if one.chance >= PROBED_FROM
            and 0 < len(ledger.staying(one.function.id)) < one.deployed.replicas_max
        ]
        best = ledger.least_known(likely) if ledger.colocator.explores else None
        if best is None:
            return []
        function, gpus = best
        number = next(self._numbers)
        need = replace(function, id=str(number))
        site = ledger.payable(need, gpus, PROBE_S, now_s)
        if site is None:
            return []
        ledger.place(number, function.id, need, site, now_s)
        self._probe = number, now_s + PROBE_S
        return [LoadReplica(function.id, number, site.gpu.id)]

    # -- what is measured -------------------------------------------------------------

    def _measured(
        self, event: CoRunsMeasured | PairsFitted, now_s: float
    ) -> list[FunctionAction]:
        if isinstance(event, PairsFitted):
            self.model.refit(event.tables)
        else:
            self.model.learn(event.readings, now_s)
        return self._place_missing(self._queued, now_s)

    def _judged(self, event: DeviceJudged, now_s: float) -> list[FunctionAction]:
        worst = self.ledger.judge(event.gpu, event.job, event.p99, now_s)
        if worst is None:
            return []
        actions = self._drop([worst], DropReason.BOUND, now_s)
        return [*actions, *self._place_missing([worst.function], now_s)]

    # -- what is kept -----------------------------------------------------------------

    def snapshot(
        self, now_s: float, names: Collection[str] | None = None
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """Return what was learned: of these functions, or every one, by name; of all by ''.

        Functions that are watched together are not kept.
        """
        ranks = self.ranking.snapshot() if isinstance(self.ranking, Hazard) else {}
        shared = {f"model/{name}": array for name, array in self.model.snapshot().items()}
        found: dict[str, dict[str, NDArray[Any]]] = {
            SHARED: {**shared, "rank": ranks.get(SHARED, np.zeros(1))}
        }
        for name, known in self._functions.items():
            if known.watch.names == (name,) and (names is None or name in names):
                kept = {f"watch/{key}": one for key, one in learned_of(known.watch).items()}
                rank = ranks.get(name, np.zeros(0))
                found[name] = {**kept, "rank": rank, "at_s": np.array([now_s])}
        return found

    def restore(self, stored: Mapping[str, Learned]) -> list[str]:
        """Go on from what a predecessor has learned; functions take theirs up when deployed.

        Return what could not be used.
        """
        self._stored = dict(stored)
        shared = self._stored.pop(SHARED, None)
        if shared is None:
            return []
        try:
            self.model.restore(_inside("model/", shared))
            if isinstance(self.ranking, Hazard):
                self.ranking.restore({SHARED: shared["rank"]})
        except (InvalidInput, KeyError, ValueError, IndexError) as error:
            return [f"What was measured of pairs cannot be used ({error}); it begins anew."]
        return []

    def _watched(self, function: Function, keep_s: float | None, now_s: float) -> FunctionWatch:
        """Return who watches a function, with what a predecessor has learned of it."""
        watch = self._make_watch(function, keep_s, now_s)
        name = function.id
        stored = self._stored.pop(name, None)
        if stored is None or watch.names != (name,):
            return watch
        try:
            slots = int((now_s - float(stored["at_s"][0])) / self.slot_s)
            watch.take_up(_inside("watch/", stored), max(0, slots))
            if isinstance(self.ranking, Hazard) and len(stored["rank"]):
                self.ranking.restore({name: stored["rank"]})
        except (InvalidInput, KeyError, ValueError, IndexError):
            # Another forecast, or other slots: it begins anew.
            return self._make_watch(function, keep_s, now_s)
        return watch


def _inside(prefix: str, stored: Learned) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array
        for name, array in stored.items()
        if name.startswith(prefix)
    }
