"""Run times predicted in the order of time, on real rows of three clusters.

Nothing is learned from a run before it has ended.  Each trace tells what it tells: PAI's rows
have users and groups, Philly's the virtual cluster, Helios' (as far as it is at hand) the GPUs
only.  Beside ours stand the paper's tree, rules on a line, and the trace's own limit: what its
publishers' estimates reach, or what one estimate per group could have reached in hindsight.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Excuse, Reproduction, Row, Setting, checked, figure
from interlane.reproduce.pai import data_file
from interlane.reproduce.pai_prediction import REAL_ESTIMATES
from interlane.reproduce.real_runtimes import HELIOS, PHILLY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlane.predict.evaluate import RunSplit
    from interlane.predict.runs import Runs

LUCID: Final = {
    "LightGBM of QSSF": "lucid-colocation/venus_sept_lgb_priority.csv.gz",
    "EBM of Lucid": "lucid-colocation/venus_sept_ebm_priority.csv.gz",
}
NEGATIVE_S: Final = 1_000.0
"""What Lucid's simulator puts in the place of estimates below 0."""

NEWEST: Final = 30_000
"""Jobs of Philly and Helios that are looked at: the newest; a fifth of them is judged."""
PAI_JOB_S: Final = 60.0
"""PAI's rows have no times, but their numbers are in the order of submission: one a minute."""
RIVALS: Final = ("cart", "last-two", "mean-per-user")
OURS: Final = "recall, learning"
_BY_RATIO: Final = (
    "ours minimises what is lost over the whole band and has the lower MAE there, but is near "
    "less often where a trace tells little of a job"
)
_FEW_RUNS: Final = "the last two runs say more than 800 rows teach our trees"
KNOWN_TO_LOSE: Final = {
    ("PAI", "last-two"): Excuse(_FEW_RUNS, 36.0, 44.0),
    ("Philly", "cart"): Excuse(_BY_RATIO, 18.0, 32.5),
    ("Philly", "last-two"): Excuse(_BY_RATIO, 18.0, 29.0),
}
"""Where a simpler rule is near more often than ours, and how far ours may fall there."""

BANDS: Final = (0.70, 0.90)
"""Share of jobs for which P10 to P90 must hold, where thousands are judged."""


@dataclass(frozen=True, eq=False)
class KnownRuns:
    """A real trace as predictors see it."""

    name: str
    runs: "Runs"
    says: str
    """What it tells of a job."""
    own_s: "dict[str, NDArray[np.float64]]"
    """Estimates that came with it, in the order of the runs; NaN where there is none."""


def _predicted(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    traces = (_pai, _philly, _helios)
    for done, read in enumerate(traces, 1):
        rows += _judged(read(setting))
        setting.progress(done, len(traces), "traces")
    return rows


# -- traces ---------------------------------------------------------------------------


def _pai(setting: Setting) -> KnownRuns:
    import numpy as np

    from interlane import wiring
    from interlane.sim.learning import runs_of

    trace = wiring.any_trace(data_file(setting, REAL_ESTIMATES))
    submit_s = PAI_JOB_S * trace.frame["job_id"].cast(int).to_numpy().astype(np.float64)
    own = {f"its own {name}": trace.frame[name].to_numpy() for name in ("group_gpu_dur",)}
    runs = replace(runs_of(trace), submit_s=submit_s)
    return KnownRuns("PAI", runs, "user, group, GPUs, CPUs", own)


def _philly(setting: Setting) -> KnownRuns:
    from interlane import wiring
    from interlane.sim.learning import runs_of

    trace = wiring.any_trace(data_file(setting, PHILLY))
    runs = replace(runs_of(trace), user=tuple(trace.frame["queue"]))
    return KnownRuns("Philly", _newest(runs)[0], "virtual cluster, GPUs", {})


def _helios(setting: Setting) -> KnownRuns:
    import numpy as np
    import polars as pl

    from interlane import wiring
    from interlane.sim.learning import runs_of

    trace = wiring.any_trace(data_file(setting, HELIOS))
    runs, order = _newest(runs_of(trace))
    ids = trace.frame["job_id"][order.tolist()].cast(int)
    own = {}
    for name, file in LUCID.items():
        told = pl.read_csv(data_file(setting, file))
        by_id = dict(zip(told["job_id"], told["priority"].cast(float), strict=True))
        given = np.array([by_id.get(one, np.nan) for one in ids])
        own[f"{name}, which knows users"] = np.where(given < 0, NEGATIVE_S, given)
    return KnownRuns("Helios", runs, "GPUs", own)


def _newest(runs: "Runs") -> "tuple[Runs, NDArray[np.int64]]":
    import numpy as np

    order = np.argsort(runs.submit_s, kind="stable")[-NEWEST:]
    return runs.take(order), order


# -- judging --------------------------------------------------------------------------


def _judged(known: KnownRuns) -> Iterator[Row]:
    from interlane.predict.catalogue import make_predictor
    from interlane.predict.evaluate import RunSplit, evaluate
    from interlane.predict.naive import LastTwo

    split = RunSplit.by_time(known.runs)
    predictors = {
        name: LastTwo() if name == "last-two" else make_predictor(name)
        for name in ("recall", *RIVALS)
    }
    found = evaluate(split, predictors, learning=True)
    where, judged = known.name, int(split.judged.sum())
    yield figure(f"{where}: jobs judged, of which it tells {known.says}", judged)
    for name, one in found.items():
        yield figure(f"{where}: within 25 %, % of jobs, {name}", _percent(one))
        yield figure(f"{where}: MAE, s, {name}", round(one["mae_s"]))
    yield from _limits(known, split)
    yield from _verdicts(where, found, judged)


def _verdicts(where: str, found: dict[str, dict[str, float]], judged: int) -> Iterator[Row]:
    ours = found[OURS]
    worse = "Our predictor would not be worth its cost on real jobs."
    for rival in RIVALS:
        also = found.get(f"{rival}, learning", found[rival])
        best = max(_percent(found[rival]), _percent(also))
        yield checked(
            f"{where}: within 25 %, % of jobs, ours beside {rival}",
            _percent(ours),
            f"> {best}",
            _percent(ours) > best,
            worse,
            KNOWN_TO_LOSE.get((where, rival)),
        )
    if judged >= 1_000:
        yield checked(
            f"{where}: judged jobs inside P10-P90, %, ours",
            round(100 * ours["band_holds"], 1),
            f"{100 * BANDS[0]:g} to {100 * BANDS[1]:g}",
            BANDS[0] <= ours["band_holds"] <= BANDS[1],
            "Bands would promise more, or less, than they hold.",
        )


def _limits(known: KnownRuns, split: "RunSplit") -> Iterator[Row]:
    """Yield what the trace's own estimates reach, and one estimate per group in hindsight."""
    import numpy as np

    from interlane.predict.evaluate import hindsight

    judged = split.rest.where(split.judged)
    first_s = float(judged.submit_s.min())
    later = known.runs.submit_s >= first_s
    for name, told_s in known.own_s.items():
        at = later & ~np.isnan(told_s)
        off = np.abs(told_s[at] - known.runs.duration_s[at]) / known.runs.duration_s[at]
        what = f"{known.name}: within 25 %, % of {int(at.sum()):,} jobs, {name}"
        yield figure(what, round(100 * float((off <= 0.25).mean()), 1))
    keys = zip(judged.group, judged.user, judged.gpus, strict=True)
    told = replace(judged, group=tuple(f"{group}/{user}/{gpus}" for group, user, gpus in keys))
    limit = 100 * hindsight(told)[0]
    yield figure(
        f"{known.name}: within 25 %, % of jobs, best estimate per group in hindsight",
        round(limit, 1),
    )


def _percent(scores: dict[str, float]) -> float:
    return round(100 * scores["within_25_percent"], 1)


BY_TIME: Final = Reproduction(
    "prediction-by-time",
    "How long real jobs run, estimated at submission: 1,000 of PAI, the newest 30,000 "
    "of Philly and of Helios; ours beside the paper's tree, the mean of the last two runs, a "
    "mean per user, and each trace's own limit.",
    "Estimates would be worse than a rule on a line, and no policy should order by them.",
    _predicted,
    teaches="On real rows nobody comes near the paper's 78 %: 44 % of PAI's jobs at best, by "
    "the mean of their group's last two runs, and of Philly's the tree is near more often than "
    "ours; estimates published for Helios are ranks, near for 1 to 6 % of its jobs.",
)
