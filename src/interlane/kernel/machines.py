"""What becomes of jobs when machines join, change, drain and leave.

A machine that is lost or leaves takes with it whatever ran there; one that changes keeps the
jobs that it still has room for, the longest running first.  Draining and what others occupy
keep new work away and leave running jobs alone.

Events may come twice.  An event about a machine that is not known changes nothing and raises.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from interlane.kernel import compiled
from interlane.kernel.queue import QueuedJob
from interlane.kernel.state import State
from interlane.model import (
    Event,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
)
from interlane.tables import AT_MACHINE, Table
from interlane.tables.compiled import change_rows


class Requeues(Protocol):
    """Lets a job wait again whose place is gone."""

    def __call__(self, entry: QueuedJob, event: type[Event], why: str, now_s: float) -> None:
        """Give back what the job holds, and say why."""
        ...


class MachineEvents:
    """Takes the events of machines into the ledger."""

    def __init__(self, state: State, requeue: Requeues) -> None:
        self._state = state
        self._ledger = state.ledger
        self._running = state.running
        self._requeue = requeue
        self._learn: dict[type[Event], Callable[..., None]] = {
            MachineJoined: self._joined,
            MachineChanged: self._changed,
            MachineDrained: self._drained,
            MachineUndrained: self._undrained,
            MachineLost: self._lost,
            MachineReturned: self._returned,
            MachineLeft: self._left,
            Occupied: self._occupied,
        }
        self.learn = dict.fromkeys(self._learn, self._event)
        """What to do about each kind of event."""

    def _event(self, event: Event, now_s: float) -> None:
        """Take in what became of a machine; whatever was promised is promised anew."""
        state, generation = self._state, self._ledger.generation
        self._learn[type(event)](event, now_s)
        state.promise = None
        if not isinstance(event, MachineLost):
            state.lending.note_machines()
        if generation != self._ledger.generation:
            state.view.follow_machines()
            state.lending.follow_machines()
            if state.staging is not None:
                state.staging.forget_shapes()

    def _joined(self, event: MachineJoined, now_s: float) -> None:
        """Take a machine in; nothing runs on it, whatever ran on one of the same name."""
        machine = event.machine
        self._ledger.make_ready_for(machine)
        if self._ledger.knows(machine.id):
            number = self._ledger.number(machine.id)
            why = f"Machine {machine.id} joined anew, and nothing runs there."
            self._empty(number, MachineJoined, why, now_s)
            self._ledger.forget_occupied(number)
            self._ledger.lost.discard(number)
        self._ledger.put(machine)

    def _changed(self, event: MachineChanged, now_s: float) -> None:
        machine, ledger = event.machine, self._ledger
        number = ledger.number(machine.id)
        ledger.make_ready_for(machine)
        for entry in self._who_no_longer_fits(number, machine):
            why = f"Machine {machine.id} changed, and no longer has what the job held there."
            self._requeue(entry, MachineChanged, why, now_s)
        ledger.put(machine)

    def _who_no_longer_fits(self, number: int, machine: Machine) -> list[QueuedJob]:
        """Return the jobs that a machine has no room for once it is as this one is."""
        row = self._ledger.row_of(machine, number)[np.newaxis]
        asks = self._ledger.asks
        gone = []
        there = self._running.on_machine(number)
        for entry in sorted(there, key=lambda one: (one.started_s, one.job.serial)):
            held = _held_on(number, entry)
            if compiled.fits(row, asks, held, runs=True):
                change_rows(row, asks, held, 0, len(held), 1)
            else:
                gone.append(entry)
        return gone

    def _drained(self, event: MachineDrained, now_s: float) -> None:
        self._ledger.drain(self._ledger.number(event.machine_id), drained=True)

    def _undrained(self, event: MachineUndrained, now_s: float) -> None:
        self._ledger.drain(self._ledger.number(event.machine_id), drained=False)

    def _lost(self, event: MachineLost, now_s: float) -> None:
        number = self._ledger.number(event.machine_id)
        if number in self._ledger.lost:
            return
        self._empty(number, MachineLost, f"Machine {event.machine_id} was lost.", now_s)
        self._ledger.set_up(number, up=False)

    def _returned(self, event: MachineReturned, now_s: float) -> None:
        self._ledger.set_up(self._ledger.number(event.machine_id), up=True)

    def _left(self, event: MachineLeft, now_s: float) -> None:
        number = self._ledger.number(event.machine_id)
        self._empty(number, MachineLeft, f"Machine {event.machine_id} has left.", now_s)
        self._ledger.remove(number)

    def _occupied(self, event: Occupied, now_s: float) -> None:
        self._ledger.occupy(event)

    def _empty(self, number: int, event: type[Event], why: str, now_s: float) -> None:
        for entry in self._running.on_machine(number):
            self._requeue(entry, event, why, now_s)


def _held_on(number: int, entry: QueuedJob) -> Table:
    """Return what a job holds on one machine, as if that were the only one."""
    assert entry.rows is not None
    held: Table = entry.rows[entry.rows[:, AT_MACHINE] == number].copy()
    held[:, AT_MACHINE] = 0
    return held
