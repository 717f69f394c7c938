"""Prewarming beside keep-alive on this machine: real replicas, a real trace, compressed.

A minute of the trace passes in a quarter of a second, and loading takes as large a part of it
as ten seconds of a minute.  First the gateway keeps replicas as forecasts say, then by a
keep-alive that is just long enough to be warm at least as long: the shorter ones would be
warm for less time, the longer ones for more.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from interlane.model import Machine, MachineId
from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked, figure
from interlane.reproduce.live_machine import driving

if TYPE_CHECKING:
    from interlane.live.driver import Driver
    from interlane.live.functions.calls import Reply
    from interlane.live.functions.port import ReplicaEngine
    from interlane.live.functions.status import FunctionStatus
    from interlane.predict.arrivals.live import Forecaster, Trees
    from interlane.predict.arrivals.series import Arrivals, Series

SLOT_S: Final = 0.25
SLOTS: Final = 600
"""Ten hours of minutes."""
UNJUDGED: Final = 10
"""Slots before that, in which replicas come to be where they would be."""
HISTORY: Final = 7 * 1_440
LOAD_S: Final = 0.04
REQUESTS_MOST: Final = 2
"""Of a minute: any more would find the same replica."""
BUSY: Final = 0.9
"""Functions that are asked in more minutes than this need no decision, and are left out."""
COLD_WORTH: Final = 10.0
"""Idle slots that a cold start is worth."""
ALIKE: Final = 0.01
"""Requests at the edge of what is judged may fall to either side."""
SPARE: Final = 1.1
"""A keep-alive is warm for less time than its rule says: its replicas must be loaded first."""
MEMORY_MIB: Final = 256
CARD_MIB: Final = 16_384
HANDLER: Final = f"""
import time

def load():
    time.sleep({LOAD_S})

def handle(model, asked):
    return asked
"""


@dataclass(frozen=True, slots=True)
class PrewarmResult:
    """What a replay came to."""

    requests: int
    cold: int
    warm: float
    """Share of the time in which a function had a replica, over all functions."""
    failed: int

    @property
    def cold_rate(self) -> float:
        """The share of requests that waited for a replica to load."""
        return self.cold / self.requests


def _reproduce(setting: Setting, replayed: int = SLOTS) -> list[Row]:
    arrivals, trees = _traffic(setting, replayed)
    forecasts = [_fed(trees, one, replayed) for one in arrivals]
    setting.progress(1, 3, "forecasts")
    ours = _replayed(arrivals, forecasts, None, setting.seed, replayed)
    setting.progress(2, 3, "prewarming")
    slots = _as_long(arrivals, ours.warm, replayed)
    theirs = _replayed(arrivals, forecasts, slots * SLOT_S, setting.seed, replayed)
    setting.progress(3, 3, "keep-alive")
    failed = ours.failed + theirs.failed
    return [
        figure("functions", len(arrivals)),
        checked("requests: prewarming, keep-alive", _both(ours.requests, theirs.requests), None,
                abs(ours.requests - theirs.requests) <= ALIKE * theirs.requests,
                "The two would not have been asked the same."),
        checked("requests that failed", failed, None, failed == 0,
                "The gateway would lose requests."),
        checked(f"warm share: prewarming, keep-alive of {slots} slots",
                _both(ours.warm, theirs.warm), None, ours.warm <= theirs.warm,
                "Prewarming would win by being warm longer."),
        checked("cold-start rate: prewarming, keep-alive",
                _both(ours.cold_rate, theirs.cold_rate), None,
                ours.cold_rate < theirs.cold_rate,
                "Forecasts would not survive real processes."),
    ]  # fmt: skip


def _both(ours: float, theirs: float) -> str:
    return f"{ours:,.4g}, {theirs:,.4g}"


# -- traffic --------------------------------------------------------------------------


def _traffic(setting: Setting, replayed: int) -> "tuple[Arrivals, Trees]":
    """Return functions whose last minutes are replayed, and trees that know the rest."""
    from interlane.predict.arrivals.live import Trees

    if setting.data is None:
        return _generated(setting.seed, replayed), Trees()
    from interlane.reproduce.smore_prewarm import azure

    arrivals = azure(setting)
    sparse = arrivals.only([one.active[-replayed:].mean() < BUSY for one in arrivals])
    known = 1.0 - (replayed + UNJUDGED) / max(len(one) for one in arrivals)
    return sparse, Trees().fit(arrivals.known(known))


def _generated(seed: int, replayed: int) -> "Arrivals":
    """Return functions that are asked now and then: some by the clock, some by chance."""
    import numpy as np

    from interlane.predict.arrivals.series import Arrivals, Series

    rng = np.random.default_rng(seed)
    made = []
    for number in range(12):
        period, slots = 4 + 3 * number, 3 * replayed
        counts = (rng.random(slots) < 0.02).astype(float)
        counts[rng.integers(period) :: period] = 1 + rng.integers(3)
        made.append(Series(f"generated-{number}", counts, 0))
    return Arrivals(60.0, tuple(made))


def _as_long(arrivals: "Arrivals", warm: float, replayed: int) -> int:
    """Return the shortest keep-alive, in slots, that is warm at least as long."""
    from interlane.predict.arrivals.rules import KeepAlive

    for slots in range(1, replayed):
        kept = sum(
            int((KeepAlive(slots).follow(one) | one.active)[-replayed:].sum())
            for one in arrivals
        )
        if kept >= SPARE * warm * replayed * len(arrivals):
            return slots
    return replayed


# -- replay ---------------------------------------------------------------------------


def _replayed(
    arrivals: "Arrivals",
    forecasts: "list[Forecaster]",
    keep_s: float | None,
    seed: int,
    slots: int,
) -> PrewarmResult:
    with tempfile.TemporaryDirectory() as name, _driver(Path(name)) as (driver, replicas):
        (Path(name) / "handler.py").write_text(HANDLER)
        for number, one in enumerate(arrivals):
            _store(driver, _name(number, one), Path(name), keep_s)
        played = _replay(driver, replicas, list(arrivals), deepcopy(forecasts), seed, slots)
        return asyncio.run(played)


@contextmanager
def _driver(folder: Path) -> "Iterator[tuple[Driver, ReplicaEngine]]":
    from interlane.engines.local.functions.replicas import LocalReplicas

    machine = Machine(MachineId("here"), "EMULATED", 1, 1_000, CARD_MIB, CARD_MIB)
    with driving(folder, machine) as (driver, engine):
        yield (
            driver,
            LocalReplicas(engine.secrets, lambda: engine.devices, groups=engine.groups),
        )


def _name(number: int, one: "Series") -> str:
    return f"f{number}-{one.name[:8]}".lower()


def _store(driver: "Driver", name: str, path: Path, keep_s: float | None) -> None:
    import json

    from interlane.live.store.rows import FunctionRow

    spec = {
        "name": name,
        "handler": "handler:handle",
        "load": "handler:load",
        "path": str(path),
        "memory": f"{MEMORY_MIB}MiB",
        "replicas": {"max": 1},
        "keep": "auto" if keep_s is None else keep_s,
    }
    driver.store.put_function(FunctionRow(name, "reproduce", 1, 0.0, json.dumps(spec)))


async def _replay(
    driver: "Driver",
    replicas: "ReplicaEngine",
    series: "Sequence[Series]",
    forecasts: "list[Forecaster]",
    seed: int,
    slots: int,
) -> PrewarmResult:
    from interlane.functions.costs import Prices
    from interlane.live.functions.gateway import FunctionSettings, Gateway

    names = [_name(number, one) for number, one in enumerate(series)]
    by_name = dict(zip(names, forecasts, strict=True))
    worth = COLD_WORTH * SLOT_S * MEMORY_MIB / CARD_MIB / LOAD_S
    settings = FunctionSettings(SLOT_S, lambda name, _: by_name[name], Prices(worth))
    gateway = Gateway(driver, replicas, settings)
    await gateway.start(asyncio.Event().wait)
    try:
        play = _Play(gateway.ask, Random(seed))
        first = None
        for slot in range(-slots - UNJUDGED, 0):
            if slot == -slots:
                first = _figures(gateway.statuses())
            for name, one in zip(names, series, strict=True):
                play.slot(name, int(one.counts[slot]))
            await gateway.next_slot()
        failed = await play.failed()
        last = _figures(gateway.statuses())
    finally:
        await gateway.close()
    assert first is not None
    requests, cold, warm_s, took_s = (
        after - before for after, before in zip(last, first, strict=True)
    )
    return PrewarmResult(int(requests), int(cold), warm_s / (took_s * len(names)), failed)


def _fed(trees: "Trees", one: "Series", slots: int) -> "Forecaster":
    """Return a forecast that has seen the week before the replay."""
    import numpy as np

    from interlane.predict.arrivals.live import OnlineForecaster

    seen = one.counts[: -slots - UNJUDGED][-HISTORY:]
    first = one.first + len(one) - slots - UNJUDGED - len(seen)
    forecast = OnlineForecaster(trees, functions=1, slot_s=60.0, slot=first)
    for count in seen:
        forecast.passed(np.array([count]))
    return forecast


def _figures(statuses: "Sequence[FunctionStatus]") -> tuple[float, float, float, float]:
    """Return requests, cold starts and warm seconds up to now, and now."""
    return (
        sum(one.requests for one in statuses),
        sum(one.cold_starts for one in statuses),
        sum(one.warm_s for one in statuses),
        asyncio.get_running_loop().time(),
    )


class _Play:
    """Sends requests while slots pass, and hears later what became of them."""

    def __init__(
        self, ask: "Callable[[str, bytes], asyncio.Future[Reply]]", rng: Random
    ) -> None:
        self._ask = ask
        self._rng = rng
        self._answers: list[asyncio.Future[Reply]] = []

    def slot(self, name: str, count: int) -> None:
        """Let a function be asked in the slot that has begun, at random moments."""
        loop = asyncio.get_running_loop()
        for _ in range(min(count, REQUESTS_MOST)):
            loop.call_later(self._rng.uniform(0.0, 0.8 * SLOT_S), self._send, name)

    def _send(self, name: str) -> None:
        self._answers.append(self._ask(name, b"1"))

    async def failed(self) -> int:
        """Return how many were not answered."""
        from interlane.live.functions.calls import CallOutcome

        replies = await asyncio.gather(*self._answers)
        return sum(reply.outcome is not CallOutcome.GOOD for reply in replies)


LIVE: Final = Reproduction(
    "live-prewarm",
    "Loading models before requests come beats keeping them after requests (SMore, 4.3).",
    "the gateway carries decisions out too late, or forecasts do not survive real processes.",
    _reproduce,
    needs_data=False,
    basis=Basis.MACHINE,
)
