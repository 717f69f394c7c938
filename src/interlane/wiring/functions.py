"""Words to functions that a simulated run plays beside its jobs."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlane.functions.watch import Forecast
from interlane.model import Cluster, InvalidField, InvalidInput, UnknownName
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.sim.function_load import KNOWN_DAYS, LoadWish, load_of
from interlane.sim.function_setting import FunctionSetting, known_arrivals
from interlane.sim.requests import arrivals_of
from interlane.sim.true_slowdown import TrueSlowdowns
from interlane.traces.data import data_dir
from interlane.traces.function_profiles import read_profiles
from interlane.traces.requests import read_requests
from interlane.traces.synth_requests import synthesize_requests

if TYPE_CHECKING:
    from interlane.predict.slowdown.pairs import Pairs
    from interlane.predict.slowdown.table import SlowdownTable

GENERATED: Final = "generate"
"""The word for requests that are made up; ``generate:40`` is 40 functions."""
FUNCTIONS: Final = 16
SHARE: Final = "share"
FLAT: Final = 0.05
"""What a neighbour costs where no co-runs are at hand, as a share."""
PUBLISHED: Final = "lucid"
"""The co-runs that are the truth unless another set is named."""


@dataclass(frozen=True, slots=True)
class FunctionWords:
    """Functions of a run, as people write them."""

    arrivals: str
    """A file of requests, or ``generate``."""
    profiles: Path | None = None
    days: float = 1.0
    load: float = 0.5
    truth: str | None = None
    """A published set of co-runs, a folder with one, or ``share:0.05``."""
    known: float = 0.2
    """Part of the true pairs that the scheduler has seen before."""
    seed: int = 0
    data: Path | None = None


def forecast_of(word: str) -> tuple[Forecast, Trees | LsLstm | None, float | None]:
    """Return what ``trees``, ``ls-lstm:MODEL`` or ``MODEL`` names: who decides, with what.

    The last is the width of the model's slots.  A model alone leads a portfolio.
    """
    from interlane.predict.arrivals.store import load

    name, colon, path = word.partition(":")
    kinds = [kind.value for kind in Forecast]
    if name not in kinds:
        if not Path(word).exists():
            raise UnknownName("forecast", word, [*kinds, "MODEL"])
        name, path = Forecast.PORTFOLIO, word
    kind = Forecast(name)
    if not path:
        if colon:
            raise InvalidField("forecast", word, "after the colon comes a model file")
        return kind, None, None
    found = load(Path(path))
    made = {Forecast.TREES: Trees, Forecast.LS_LSTM: LsLstm}.get(kind, object)
    if not isinstance(found.forecaster, made):
        raise InvalidField("forecast", word, f"that is a model of {found.name}")
    return kind, found.forecaster, found.slot_s


def functions_of(
    words: FunctionWords, cluster: Cluster, trained: Collection[Forecast]
) -> FunctionSetting:
    """Return functions on a cluster, with forecasts that are trained for whoever needs one."""
    from interlane.predict.slowdown.store import trained as fitted

    truth, pairs = _truth(words)
    days = ceil(words.days) + KNOWN_DAYS
    name, colon, many = words.arrivals.partition(":")
    if name == GENERATED:
        if colon and not many.isdigit():
            raise InvalidField("functions", words.arrivals, "it must read like 'generate:40'")
        requests = synthesize_requests(int(many or FUNCTIONS), days, words.seed)
    else:
        requests = read_requests(_found(Path(words.arrivals), words.data))
    profiles = {} if words.profiles is None else read_profiles(words.profiles)
    wish = LoadWish(words.days, words.load, words.seed)
    arrivals = arrivals_of(requests).busy(1.0)
    load = load_of(requests.name, arrivals, profiles, truth, cluster, wish)
    known = known_arrivals(load)
    forecasts: dict[Forecast, Trees | LsLstm] = {}
    if known is not None:
        for one in trained:
            made = LsLstm(seed=words.seed, epochs=2, windows=10_000)
            forecasts[one] = made.fit(known) if one is Forecast.LS_LSTM else Trees().fit(known)
    if not 0 <= words.known < 1:
        raise InvalidField("known-pairs", words.known, "it must be from 0 to below 1")
    table: SlowdownTable | None = None
    if pairs is not None and words.known:
        table = fitted(_part(pairs, words.known, cluster, words.seed), words.seed).table
    return FunctionSetting(load, truth, table, forecasts)


def _part(pairs: "Pairs", part: float, cluster: Cluster, seed: int) -> "Pairs":
    """Return a part of the pairs, as if they had been measured on the cluster's GPUs."""
    from interlane.predict.slowdown.evaluate import by_pair

    seen = by_pair(pairs, part, seed).known
    types = [one for one in cluster.gpu_types if one]
    return replace(seen, profiles=replace(seen.profiles, gpu_types=(min(types),)))


def _truth(words: FunctionWords) -> "tuple[TrueSlowdowns, Pairs | None]":
    """Return how much everybody really slows down, and the pairs behind that."""
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import FOLDERS, multiway, read

    folder = data_dir(words.data)
    word = words.truth
    if word is None:
        has_it = folder is not None and (folder / FOLDERS[PUBLISHED]).is_dir()
        word = PUBLISHED if has_it else f"{SHARE}:{FLAT:g}"
    name, colon, amount = word.partition(":")
    if name == SHARE and colon:
        try:
            return TrueSlowdowns.alike(float(amount)), None
        except ValueError:
            raise InvalidField("truth", word, "it must read like 'share:0.05'") from None
    if word in FOLDERS and folder is None:
        raise InvalidInput(f"The co-runs of {word} are published data; name them with --data.")
    where = Path(word) if folder is None or word not in FOLDERS else folder / FOLDERS[word]
    ways = pairs_by_way(read(where))
    pairs = next(iter(ways.values()))
    lacking = {"sm_active", "memory"} - set(pairs.profiles.counters)
    if lacking:
        rule = f"its workloads have no {min(lacking)}, which says where they fit"
        raise InvalidField("truth", word, rule)
    has_curve = folder is not None and (folder / multiway.FOLDER).is_dir()
    curve = multiway.read(folder / multiway.FOLDER)[0] if folder and has_curve else None
    return TrueSlowdowns.measured(name, pairs, curve), pairs


def _found(path: Path, data: Path | None) -> Path:
    folder = data_dir(data)
    is_there = folder is not None and not path.exists() and (folder / path).exists()
    return folder / path if folder is not None and is_there else path
