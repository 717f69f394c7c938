"""When functions will be asked, and what to keep warm: train, judge and apply forecasts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane import wiring
from interlane.predict.arrivals import evaluate as evaluation
from interlane.predict.arrivals.forecast import Told, next_slots
from interlane.predict.arrivals.judge import Trial
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.series import Arrivals
from interlane.predict.arrivals.store import (
    ArrivalModel,
    Forecaster,
    load,
    make_forecaster,
    save,
)
from interlane.sim.requests import arrivals_of
from interlane.traces.requests import read_requests
from interlane.usecases.reporter import SILENT, Reporter
from interlane.usecases.traces import TraceFile

TREES: Final = "trees"


@dataclass(frozen=True, slots=True)
class Counting:
    """How requests are counted."""

    slot_s: float | None = None
    """Width of a slot; the trace's own unless given."""
    least: int = 0
    """Functions with fewer requests are left out."""


@dataclass(frozen=True, slots=True)
class TrainedForecaster:
    """A model on disk."""

    functions: int
    slots: int
    slot_s: float
    sha256: str


def train(
    requests: TraceFile,
    out: Path,
    *,
    model: str = TREES,
    counting: Counting = Counting(),  # noqa: B008 - frozen
    reporter: Reporter = SILENT,
) -> TrainedForecaster:
    """Learn when the functions of a trace are asked, and write what was learned to a file."""
    forecaster = make_forecaster(model)
    name, arrivals = _read(requests, counting, reporter)
    _fit(forecaster, arrivals, model, reporter)
    slots = sum(len(one) for one in arrivals)
    account = {
        "trace": name,
        "functions": len(arrivals),
        "slots": slots,
        "requests": float(sum(one.seen.sum() for one in arrivals)),
    }
    digest = save(ArrivalModel(forecaster, arrivals.slot_s, account), out)
    return TrainedForecaster(len(arrivals), slots, arrivals.slot_s, digest)


@dataclass(frozen=True, slots=True)
class JudgedForecasts:
    """How well rules and forecasts do on what they have not seen."""

    trace: str
    slot_s: float
    functions: int
    judged_functions: int
    judged_slots: int
    never_asked: int
    policies: dict[str, dict[str, float]]
    """Rule or forecast -> figure -> value."""


def evaluate(
    requests: TraceFile,
    *,
    models: Sequence[str] = (),
    known: float = 0.7,
    counting: Counting = Counting(),  # noqa: B008 - frozen
    reporter: Reporter = SILENT,
) -> JudgedForecasts:
    """Judge rules and forecasts on the part of a trace that they have not seen."""
    forecasters = {name: make_forecaster(name) for name in dict.fromkeys(models or [TREES])}
    name, arrivals = _read(requests, counting, reporter)
    trial = Trial(arrivals, known)
    found = {rule: one.figures() for rule, one in evaluation.rules(trial).items()}
    for kind, forecaster in forecasters.items():
        found[kind] = _judged(forecaster, trial, kind, reporter)
    return JudgedForecasts(
        name,
        arrivals.slot_s,
        len(arrivals),
        len(trial.judged),
        len(trial.active),
        sum(not one.active.any() for one in arrivals),
        found,
    )


@dataclass(frozen=True, slots=True)
class ForecastSlot:
    """What is expected of a function in one slot."""

    chance: float
    """That it is asked."""
    count: float
    """Requests, if it is."""
    is_warm: bool
    """Whether keeping it warm costs less than a cold start."""


@dataclass(frozen=True, slots=True)
class ForecastSlots:
    """What is expected of functions in the slots after a trace."""

    model: str
    slot_s: float
    functions: dict[str, tuple[ForecastSlot, ...]]


def forecast(
    requests: TraceFile,
    model: Path,
    *,
    weight: float = 10.0,
    slots: int = 1,
    reporter: Reporter = SILENT,
) -> ForecastSlots:
    """Tell which functions will be asked and should be warm.

    The weight is how many idle slots a cold start is worth.
    """
    found = load(model)
    _, arrivals = _read(requests, Counting(found.slot_s), reporter)
    told = next_slots(found.forecaster, arrivals, slots)
    functions = {
        coming[0].function: tuple(_slot(one, weight) for one in coming) for coming in told
    }
    return ForecastSlots(found.name, found.slot_s, functions)


def _slot(one: Told, weight: float) -> ForecastSlot:
    return ForecastSlot(one.chance, one.count, one.chance * (1 + weight) > 1)


def _read(requests: TraceFile, counting: Counting, reporter: Reporter) -> tuple[str, Arrivals]:
    """Read requests and count them; note what was left out."""
    path = wiring.path_of(requests.path, requests.data)
    found = read_requests(path, fmt=requests.fmt, skip_bad=requests.skip_bad)
    if found.bad.count:
        first = found.bad.rows[0]
        reporter.note(
            f"{requests.path}: {found.bad.count} bad rows left out, the first line "
            f"{first.line}: {first.what}"
        )
    return found.name, arrivals_of(found, counting.slot_s).busy(counting.least)


def _fit(forecaster: Forecaster, arrivals: Arrivals, name: str, reporter: Reporter) -> None:
    if not isinstance(forecaster, LsLstm):
        forecaster.fit(arrivals)
        return
    with reporter.steps(f"training {name}", forecaster.epochs, "epochs") as tell:
        forecaster.fit(arrivals, tell)


def _judged(
    forecaster: Forecaster, trial: Trial, name: str, reporter: Reporter
) -> dict[str, float]:
    _fit(forecaster, trial.arrivals.known(trial.part), name, reporter)
    if isinstance(forecaster, LsLstm):
        told = evaluation.told_by_ls_lstm(forecaster, trial)[0]
    else:
        told = evaluation.chances_of_trees(forecaster, trial)
    return evaluation.scored(trial, told).figures()
