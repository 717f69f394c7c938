"""Prewarming beside SMore's and others': cold starts, idle warmth, few places, replicas."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting, checked, figure
from interlane.reproduce.pai import data_file

if TYPE_CHECKING:
    from interlane.functions.rank import Ranking
    from interlane.functions.replay import FunctionGroup
    from interlane.predict.arrivals.evaluate import Told
    from interlane.predict.arrivals.judge import Trial
    from interlane.predict.arrivals.live import OnlineForecaster, RecordedForecasts, Trees
    from interlane.predict.arrivals.series import Arrivals

GENAI_DAYS_S: Final = (1_731_974_400.0, 1_733_616_000.0)
"""19 whole days, from 2024-11-19 on: before and after them the trace fades in and out."""
GENAI_LEAST: Final = 150
"""Requests of the base models that are judged; with 30 they compete for warm places."""
GENAI_COMPETING: Final = 30
SERVEGEN_SLOTS: Final = 14 * 144
"""Slots of the clients that were watched for two weeks."""
SERVEGEN_LEAST: Final = 0.02 * 14 * 86_400
WEIGHTS: Final = (2.0, 10.0, 20.0)
AHEAD: Final = "ours, having seen the minute"
KNOWN_RULES: Final = ("LRU", "LFU", "GDSF")
"""Who parts when there is no room, as others do it."""


@dataclass(frozen=True, slots=True)
class Bars:
    """What must be reached on one data set."""

    keep_alive: tuple[float, float]
    """Cold rate and waste of ten slots, as measured before anything was built."""
    waste: float
    """Waste at that cold rate, at most."""
    newsvendor: tuple[float, float, float]
    """Mean cost of the portfolio by weight, at most."""


BARS: Final = {
    "azure": Bars((0.0186, 0.286), 0.095, (0.46, 1.17, 1.77)),
    "servegen": Bars((0.0144, 0.096), 0.071, (0.82, 2.91, 5.12)),
    "genai": Bars((0.136, 0.136), 0.123, (1.92, 6.94, 11.3)),
}
EIGHT_PLACES: Final = 0.137
"""Cold rate with eight warm places on GenAI, at most, where the minute has been seen."""


def _reproduce(setting: Setting) -> list[Row]:
    names = [setting.choice] if setting.choice else list(BARS)
    rows: list[Row] = []
    steps = 4 * len(names)
    for at, name in enumerate(names):
        for step, part in enumerate(_parts(name, setting), 1):
            rows += part
            setting.progress(4 * at + step, steps, name)
    return rows


def _parts(name: str, setting: Setting) -> Iterator[list[Row]]:
    """Yield the rows of a data set: rules, ours, SMore's, replicas (and few places)."""
    from interlane.predict.arrivals.evaluate import chances_of_trees, told_by_ls_lstm
    from interlane.predict.arrivals.judge import Trial
    from interlane.predict.arrivals.live import Trees
    from interlane.predict.arrivals.lslstm import LsLstm

    trial = Trial(_READ[name](setting))
    known = trial.arrivals.known(trial.part)
    yield _rules(name, trial)
    trees = Trees().fit(known)
    yield _ours(name, trial, chances_of_trees(trees, trial))
    told = told_by_ls_lstm(LsLstm(seed=setting.seed).fit(known), trial)
    yield _smore(name, trial, told[0])
    few = _few_places(setting, trees) if name == "genai" else []
    yield [*_replicas(name, trial, trees, told), *few]


# -- data -----------------------------------------------------------------------------


def _read(setting: Setting, file: str) -> "Arrivals":
    from interlane.sim.requests import arrivals_of
    from interlane.traces.requests import read_requests

    return arrivals_of(read_requests(data_file(setting, file)))


def azure(setting: Setting) -> "Arrivals":
    """Return the functions of Azure, by the minute."""
    return _read(setting, "azure-functions-2019-sample/azure_fn_2019_minute.csv.gz")


def _servegen(setting: Setting) -> "Arrivals":
    found = _read(setting, "servegen-arrivals/servegen_arrivals.csv.gz")
    return found.only([len(one) == SERVEGEN_SLOTS for one in found]).busy(SERVEGEN_LEAST)


def _genai(setting: Setting, least: int = GENAI_LEAST) -> "Arrivals":
    found = _read(setting, "pai-v2026-genai/lora_request_trace.csv.gz")
    named = found.only([one.name != "none" for one in found])
    return named.between(*GENAI_DAYS_S).busy(least)


_READ: Final[dict[str, Callable[[Setting], "Arrivals"]]] = {
    "azure": azure,
    "servegen": _servegen,
    "genai": _genai,
}


# -- cold starts against idle warmth --------------------------------------------------


def _rules(name: str, trial: "Trial") -> list[Row]:
    from interlane.predict.arrivals.evaluate import rules

    rows = []
    for rule, fixed in rules(trial).items():
        cold, waste = fixed.outcome.cold_rate, fixed.outcome.waste
        ours = f"{cold:.4f} / {waste:.3f}"
        if rule != "keep-alive 10":
            rows.append(figure(f"{name}: {rule}, cold rate / idle-warm", ours))
            continue
        then_cold, then_waste = BARS[name].keep_alive
        same = abs(cold - then_cold) < 0.0005 and abs(waste - then_waste) < 0.0005
        then = f"{then_cold} / {then_waste}"
        what = f"{name}: {rule}, cold rate / idle-warm"
        rows.append(checked(what, ours, then, same, "The trace would be read otherwise."))
    return rows


def _ours(name: str, trial: "Trial", told: "Told") -> list[Row]:
    from interlane.predict.arrivals.evaluate import best_keep_alive, calibration, scored

    found = scored(trial, told)
    bar, beside = BARS[name].waste, BARS[name].keep_alive
    off = calibration(trial, told)
    rows = [
        _at_most(f"{name}: ours, idle-warm at keep-alive 10's cold rate", found.waste, bar),
        _at_most(f"{name}: ours, cold rate at its idle-warm", found.cold_rate, beside[0]),
        _at_most(f"{name}: ours, told probability off by, mean over deciles", off, 0.02),
    ]
    for weight in WEIGHTS[:2]:
        best = round(best_keep_alive(trial, weight), 4)
        what = (
            f"{name}: ours, cost of a slot, cold start {weight:g}; best keep-alive afterwards"
        )
        rows.append(_at_most(what, found.costs[weight], best))
    return rows


def _smore(name: str, trial: "Trial", told: "Told") -> list[Row]:
    from interlane.predict.arrivals.evaluate import scored

    found = scored(trial, told)
    return [
        figure(f"{name}: LS-LSTM, idle-warm at that cold rate", round(found.waste, 4)),
        figure(f"{name}: LS-LSTM, cold rate at its idle-warm", round(found.cold_rate, 4)),
    ]


def _at_most(what: str, ours: float, bar: float) -> Row:
    return checked(what, round(ours, 4), f"at most {bar:g}", ours <= bar)


# -- several replicas -----------------------------------------------------------------


def _replicas(
    name: str, trial: "Trial", trees: "Trees", told: "tuple[Told, Told]"
) -> list[Row]:
    from interlane.functions.replay import PORTFOLIO, costs

    rows = []
    for weight, bar in zip(WEIGHTS, BARS[name].newsvendor, strict=True):
        found = costs(
            trial.arrivals,
            trial.part,
            weight,
            {
                "trees": lambda group: _live(trees, group),
                "ls-lstm": lambda group: _recorded(told, group),
            },
        )
        means = {kind: float(cost.mean()) for kind, cost in found.items()}
        what = f"{name}: replicas, a missing one is {weight:g} idle:"
        rows += [
            figure(f"{what} {kind}", round(mean, 3))
            for kind, mean in means.items()
            if kind in ("trees", "ls-lstm", "keep-alive 1", "keep-alive 10", "last x 1.5")
        ]
        rows.append(_at_most(f"{what} portfolio", means[PORTFOLIO], bar))
    return rows


def _live(trees: "Trees", group: "FunctionGroup") -> "OnlineForecaster":
    from interlane.predict.arrivals.live import OnlineForecaster

    count = len(group.names)
    return OnlineForecaster(trees, functions=count, slot_s=group.slot_s, slot=group.first)


def _recorded(told: "tuple[Told, Told]", group: "FunctionGroup") -> "RecordedForecasts":
    import numpy as np

    from interlane.predict.arrivals.live import RecordedForecasts

    chances, sizes = (np.column_stack([one[name] for name in group.names]) for one in told)
    return RecordedForecasts(chances, sizes)


# -- few warm places ------------------------------------------------------------------


def _few_places(setting: Setting, trees: "Trees") -> list[Row]:
    import numpy as np

    from interlane.functions.rank import Foreseen, Frequent, GreedyDual, Hazard, Recent
    from interlane.functions.replay import cold_share, groups_of
    from interlane.predict.arrivals.judge import KNOWN
    from interlane.predict.arrivals.live import RecordedForecasts

    competing = _genai(setting, GENAI_COMPETING)
    (group,) = groups_of(competing, KNOWN)
    count = len(group.names)
    told = {one.name: trees.chance.predict(one, competing) for one in competing}
    chances = np.column_stack([told[name] for name in group.names])
    ahead = chances[1:]
    rankings: dict[str, Callable[[], tuple[Ranking, RecordedForecasts | None]]] = {
        "LRU": lambda: (Recent(), None),
        "LFU": lambda: (Frequent(), None),
        "GDSF": lambda: (GreedyDual(), None),
        "Belady, who knows the future": lambda: (Foreseen(group.names, group.counts), None),
        "ours": lambda: (Hazard(), RecordedForecasts(chances, chances)),
        AHEAD: lambda: (Hazard(is_ahead=True), RecordedForecasts(ahead, ahead)),
    }
    rows = []
    for places, together in ((8, True), (8, False), (4, False), (16, False)):
        how = "together" if together else "in turn"
        what = f"genai: {places} warm places, {count} models, asked {how}:"
        cold = {
            kind: cold_share(group, places, *make(), together=together)
            for kind, make in rankings.items()
            if kind != AHEAD or not together
        }
        bars = {"ours": round(min(cold[kind] for kind in KNOWN_RULES), 4)}
        if places == 8:
            bars["ours" if together else AHEAD] = EIGHT_PLACES
        rows += [
            _at_most(f"{what} {kind}", share, bars[kind])
            if kind in bars
            else figure(f"{what} {kind}", round(share, 4))
            for kind, share in cold.items()
        ]
    return rows


PREWARM: Final = Reproduction(
    "smore-prewarm",
    "Functions are warm when they are asked and seldom otherwise: a probability for every slot "
    "instead of SMore's counts by LSTM.",
    "Forecasts of arrivals, or what is made of them, are worse than simple rules.",
    _reproduce,
    variants=tuple(BARS),
)
