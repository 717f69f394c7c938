"""Evidence that could have failed.

Two things are shown of every entry.  No checked row is compared with its own input: what was
published, and constants that were set from it, are changed, and ours stays as it was.  And
every entry has a checked row that fails when a fault is planted in what it rests on.

Entries run as small as they can.  Those that take minutes all the same are run by
``make evidence`` (INTERLANE_SLOW=1).
"""

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import interlane.reproduce
from interlane.lanes.actions import MemoryDemand
from interlane.mig.transition import exchange, joint, order
from interlane.model import Cluster
from interlane.policy import catalogue
from interlane.predict import recall
from interlane.predict.arrivals import live as arrivals_live
from interlane.predict.estimates import DurationEstimates
from interlane.predict.slowdown import models, multiway
from interlane.predict.starts import Calibrated, StartBand
from interlane.reproduce import (
    eta_simulated,
    fgd,
    helios_queue,
    live_eta,
    live_prewarm,
    mig,
    mig_transition,
    pai,
    pai_contention,
    pai_figures,
    pai_prediction,
    pai_reserve,
    pai_sharing,
    pai_sjf,
    real_clusters,
    real_prediction,
    real_sharing,
    salus,
    salus_workloads,
    share_beside,
    smore,
    smore_utilisation,
)
from interlane.reproduce.base import Kind, Reproduction, Row, Setting
from interlane.reproduce.catalogue import REPRODUCTIONS
from interlane.sim import engine
from interlane.traces.data import data_dir
from interlane.traces.report import users

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

SLOW: Final = bool(os.environ.get("INTERLANE_SLOW"))
PUBLISHED_BY: Final = 1.37
FITTED_BY: Final = 0.97
"""Constants of a draw are moved by little: shares must stay shares."""


def nothing(patch: Patch) -> None:
    """Change nothing."""


def setting(*pairs: tuple[object, str, object]) -> Plant:
    """Return what sets attributes."""

    def plant(patch: Patch) -> None:
        for where, name, value in pairs:
            patch.setattr(where, name, value)

    return plant


@dataclass(frozen=True)
class Case:
    """How an entry is made small, and which fault is planted in it."""

    fault: Plant
    small: Plant = nothing
    choice: str | None = None
    is_slow: bool = False
    run: Callable[[Setting], list[Row]] | None = None
    """What runs in its place, where it takes less to do as an argument."""


# -- faults -------------------------------------------------------------------------------


def another_placer(name: str) -> Plant:
    """Let every placer be this one."""

    def plant(patch: Patch) -> None:
        make = catalogue.placer_recipe

        def other(asked: str, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - as the original's
            return make(name)

        patch.setattr(catalogue, "placer_recipe", other)
        for module in (fgd, real_clusters):
            patch.setattr(module, "placer_recipe", other, raising=False)
        patch.setattr("interlane.wiring.placer_recipe", other, raising=False)

    return plant


def wrong_estimates(patch: Patch) -> None:
    """Let our predictor estimate three times too long."""
    predict, follow = recall.Recall.predict, recall.Recall.follow

    def longer(told: DurationEstimates) -> DurationEstimates:
        return replace(told, seconds=3 * told.seconds, low_s=told.high_s, high_s=told.high_s)

    patch.setattr(recall.Recall, "predict", lambda self, runs: longer(predict(self, runs)))
    patch.setattr(recall.Recall, "follow", lambda self, runs: longer(follow(self, runs)))


def late_arrivals(patch: Patch) -> None:
    """Let the simulator forget that jobs were cancelled."""
    patch.setattr(engine.Simulator, "_withdraw", lambda self, number, now_s: None)


def cheap_packing(patch: Patch) -> None:
    """Pack shares into half as many GPUs as they need."""
    packed = pai_sharing.packed
    for module in (pai_sharing, real_sharing):
        patch.setattr(module, "packed", lambda asks: packed(asks) // 2)


def misread(column: str, times: float) -> Plant:
    """Read a column of every CSV file in other units."""

    def plant(patch: Patch) -> None:
        import polars as pl

        read = pl.read_csv

        def other(*args: Any, **settings: Any) -> pl.DataFrame:  # noqa: ANN401 - as the original's
            frame = read(*args, **settings)
            if column not in frame.columns:
                return frame
            return frame.with_columns(pl.col(column) * times)

        patch.setattr(pl, "read_csv", other)

    return plant


def no_plan(patch: Patch) -> None:
    """Plan with whole GPUs whatever is asked for."""
    solved = mig._solved
    patch.setattr(
        mig,
        "_solved",
        lambda problem, name, limit_s, seed: solved(problem, "whole", limit_s, seed),
    )


def moving_everything(patch: Patch) -> None:
    """Let our transitions be exchange-and-compact's."""

    def all_moved(current: Any, target: Any, floors: Any, problem: Any, *, seed: int) -> Any:  # noqa: ANN401 - as the original's
        found = joint.joint_plan(problem, current)
        return exchange.exchange_and_compact(current, found.optimum.plan, floors, problem)

    patch.setattr(order, "ordered", all_moved)


def constant_predictor(patch: Patch) -> None:
    """Let our predictor of slowdown be a constant."""
    known = dict(models.PREDICTORS)
    patch.setattr(models, "PREDICTORS", known | {"blend": known["constant"]})


def bold_bounds(patch: Patch) -> None:
    """Promise a tenth more than a bound says."""
    from interlane.predict.slowdown import bounds

    patch.setattr(
        bounds.Bounds,
        "lower",
        lambda self, estimate, gpu: np.minimum(estimate.throughput + 0.1, 1.0),
    )


def plain_sum(patch: Patch) -> None:
    """Let our rule of more than two be the plain sum."""
    patch.setattr(multiway.SuperAdditive, "slow_down", multiway.WeightedSum.slow_down)
    patch.setattr(multiway.SuperAdditive, "total", lambda self, excess, *rest: 1.0 + excess)
    patch.setattr(multiway.SuperAdditive, "learn", lambda self, crowd, slow_down: None)


def careless(patch: Patch) -> None:
    """Let functions go wherever they fit, and never away."""
    from interlane.policy.colocate import catalogue as colocators

    make = colocators.make_colocator
    patch.setattr(
        colocators,
        "make_colocator",
        lambda name, tables: _fearless(*make("smore" if name == "bounded" else name, tables)),
    )


def _fearless(colocator: Any, model: Any) -> Any:  # noqa: ANN401 - whatever the catalogue makes
    model.slowdowns.rule = multiway.WeightedSum(weight=0.0)
    return colocator, model


def one_order(patch: Patch) -> None:
    """Let every order of a lane be FIFO."""
    played = salus._played
    patch.setattr(
        salus,
        "_played",
        lambda jobs, order, sharing="turns", switch_s=0.3: played(
            jobs, "fifo", sharing, switch_s
        ),
    )


def nothing_beside(patch: Patch) -> None:
    """Let jobs have the device alone though they should be packed."""
    figures = salus._figures
    patch.setattr(
        salus,
        "_figures",
        lambda jobs, order, sharing="turns": figures(
            [salus._alone(job) for job in jobs], "fifo"
        ),
    )


def all_persistent(patch: Patch) -> None:
    """Book ephemeral memory as if it stayed."""
    took = salus_workloads._took
    patch.setattr(
        salus_workloads,
        "_took",
        lambda book, job, demand, processes: took(
            book, job, MemoryDemand(demand.peak_bytes, 0), processes
        ),
    )


def narrow_bands(patch: Patch) -> None:
    """Promise starts to the second."""

    def band(self: Calibrated, starts_s: Any, now_s: float) -> StartBand:  # noqa: ANN401 - as the original's
        middle_s = float(np.median(starts_s))
        return StartBand(middle_s, middle_s, middle_s, middle_s)

    patch.setattr(Calibrated, "band", band)


def wrong_top(patch: Patch) -> None:
    """Count another part of the users as the heaviest."""
    patch.setattr(users, "TOP", 0.10)


def nobody_slows(patch: Patch) -> None:
    """Let shared GPUs slow nobody down."""
    patch.setattr(pai_contention.PairWorld, "factor", lambda self, job, here: 1.0)


def never_asked(patch: Patch) -> None:
    """Forecast that nobody will ask."""
    chances, quantiles = (
        arrivals_live.OnlineForecaster.chances,
        arrivals_live.OnlineForecaster.quantiles,
    )
    patch.setattr(arrivals_live.OnlineForecaster, "chances", lambda self: 0.0 * chances(self))
    patch.setattr(
        arrivals_live.OnlineForecaster,
        "quantiles",
        lambda self, levels: 0.0 * quantiles(self, levels),
    )


def wrong_forecasts(patch: Patch) -> None:
    """Forecast the contrary of what was learned."""
    from interlane.predict.arrivals import evaluate

    told = evaluate.chances_of_trees

    def contrary(trees: Any, trial: Any) -> Any:  # noqa: ANN401 - as the original's
        return {name: 1.0 - chance for name, chance in told(trees, trial).items()}

    patch.setattr(evaluate, "chances_of_trees", contrary)


def never_beside(patch: Patch) -> None:
    """Let the rule that measures take turns whatever it measures."""
    daemon = share_beside._daemon
    patch.setattr(
        share_beside,
        "_daemon",
        lambda rule, cores: daemon("turns" if rule == "measured" else rule, cores),
    )


def swapped_estimates(patch: Patch) -> None:
    """Order by the worst estimates where the best are asked for."""
    other = dict(pai_sjf.ESTIMATES)
    other["oracle"], other["user"] = other["user"], other["oracle"]
    patch.setattr(pai_sjf, "ESTIMATES", other)


def balance_only(patch: Patch) -> None:
    """Let reserving be balancing."""
    from interlane.policy import place, reserve

    patch.setattr(reserve, "reserve_and_pack", lambda *args, high, model: place.balance(*args))
    patch.setattr(reserve, "reserve_and_lend", lambda *args, high, model: place.balance(*args))


# -- small ----------------------------------------------------------------------------------


def some_orders(patch: Patch) -> None:
    kept = {("SJF", 6500), ("FIFO", 6500)}
    patch.setattr(
        pai, "SJF_MEAN_JCT_S", {k: v for k, v in pai.SJF_MEAN_JCT_S.items() if k in kept}
    )


def few_runs(patch: Patch) -> None:
    """Judge few of the stand-in's jobs, and a few hours of the draw."""
    whole = pai_prediction._stand_in
    patch.setattr(pai_prediction, "SYNTH_DAYS", 0.5)
    patch.setattr(pai_prediction, "_made", {})
    patch.setattr(
        pai_prediction, "_stand_in", lambda setting: whole(setting).take(np.arange(4_000))
    )


def fewer_jobs(patch: Patch) -> None:
    """Look at few jobs of every trace."""
    patch.setattr(real_prediction, "NEWEST", 8_000)


def one_size(patch: Patch) -> None:
    """Play one size, on a fifth of everything."""
    whole = pai_sjf._experiment

    def fifth(
        trace: Any,  # noqa: ANN401 - as the original's
        run: pai_sjf.SjfRun,
        gpus: int,
        rate: int | None,
        setting: Setting,
        jobs: int | None = None,
    ) -> Any:  # noqa: ANN401 - as the original's
        if rate is None or jobs is not None:
            return whole(trace, run, gpus, rate, setting, jobs)
        return whole(trace, run, gpus // 5, round(rate / 5), setting, pai_sjf.FIFTH_JOBS)

    patch.setattr(pai_sjf, "PAPER_MEAN_S", {6500: dict(pai_sjf.PAPER_MEAN_S[6500])})
    patch.setattr(pai_sjf, "_experiment", fifth)


def short_loads(patch: Patch) -> None:
    """Play three days for a tenth of the machines: in fewer, V100s are hardly contended."""
    patch.setattr(
        pai_reserve, "loads", lambda setting: [pai_reserve.PlayedLoad(3.0, setting.seed, 0.1)]
    )


def few_venus_jobs(patch: Patch) -> None:
    """Play the first month on a fifth of the machines."""
    whole = helios_queue._trace

    def first(setting: Setting) -> Any:  # noqa: ANN401 - a trace
        trace = whole(setting)
        return replace(trace, frame=trace.frame.head(12_000))

    patch.setattr(helios_queue, "_trace", first)
    patch.setattr(helios_queue, "MACHINES", 60)
    patch.setattr(helios_queue, "RUNS", (("strict", 1.0), ("skip", 1.0)))


def one_pool(patch: Patch) -> None:
    patch.setattr(real_sharing, "POOLS", (40,))


def small_spot(patch: Patch) -> None:
    """Fill a fifth of each cluster once."""
    from interlane import wiring

    load = wiring.cluster_of

    def part(spec: str, data: Path | None = None) -> Cluster:
        whole = load(spec, data)
        return whole if spec == "spot2026" else replace(whole, machines=whole.machines[::4])

    patch.setattr(real_clusters, "SEEDS", 1)
    patch.setattr(real_clusters, "PLACERS", ("fgd", "random"))
    patch.setattr(wiring, "cluster_of", part)


def hardly_trained(patch: Patch) -> None:
    """Train SMore's network for a moment: no row that is checked is its own."""
    from interlane.predict.arrivals import lslstm

    whole = lslstm.LsLstm
    little = {"epochs": 1, "windows": 1_000}
    patch.setattr(lslstm, "LsLstm", lambda **given: whole(**given | little))


def one_small_cluster(patch: Patch) -> None:
    """Play four hours of eight GPUs."""
    hardly_trained(patch)
    patch.setattr(smore_utilisation, "SIZES", {8: 240})


CASES: Final[Mapping[str, Case]] = {
    "pai-fifo-1000": Case(another_placer("balance")),
    "pai-sjf": Case(setting((pai, "ESTIMATES", dict.fromkeys(pai.ESTIMATES))), some_orders),
    "pai-prediction": Case(wrong_estimates, few_runs, is_slow=True),
    "pai-sjf-paper": Case(swapped_estimates, one_size, is_slow=True),
    "pai-figures": Case(wrong_top, choice="small"),
    "pai-sharing": Case(cheap_packing, choice="small"),
    "pai-reserve": Case(balance_only, short_loads, is_slow=True),
    "pai-contention": Case(
        nobody_slows,
        setting((pai_contention, "DAYS", 0.2), (pai_contention, "SEEDS", 1)),
        is_slow=True,
    ),
    "sharing-openb": Case(cheap_packing, one_pool),
    "sharing-classes": Case(misread("count", 2)),
    "philly-runtimes": Case(misread("runtime", 60.0)),
    "prediction-by-time": Case(wrong_estimates, fewer_jobs),
    "helios-queue": Case(misread("submit_gpu_job", 2), few_venus_jobs),
    "openb-failures": Case(late_arrivals),
    "dlrm-disaggregated": Case(setting((engine, "gang_ratio", lambda *args: 3.0))),
    "spot-nodes": Case(another_placer("random"), small_spot, is_slow=True),
    "fgd-openb": Case(
        another_placer("random"),
        setting(
            (fgd, "SEEDS", 1), (fgd, "PUBLISHED", {"random": "01-Random", "fgd": "06-FGD"})
        ),
        is_slow=True,
    ),
    "smore-prewarm": Case(wrong_forecasts, hardly_trained, choice="azure", is_slow=True),
    "mig-parvagpu": Case(no_plan),
    "mig-heuristics": Case(
        no_plan, run=partial(mig._heuristics, sizes=(20,), seeds=(0,), slow=())
    ),
    "smore-pairs": Case(
        constant_predictor,
        setting(
            (smore, "SEEDS", 1), (smore, "SETS", ("lucid",)), (smore, "BESIDE", ("linear",))
        ),
        is_slow=True,
    ),
    "smore-admission": Case(
        bold_bounds, setting((smore, "SEEDS", 1), (smore, "SETS", ("lucid",))), is_slow=True
    ),
    "smore-multiway": Case(plain_sum),
    "smore-utilisation": Case(careless, one_small_cluster, is_slow=True),
    "mig-transition": Case(
        moving_everything,
        run=partial(mig_transition._transition, changes=(("normal", 0.3),), seeds=1),
    ),
    "salus-table1": Case(one_order, run=partial(salus._hundred, traces=2)),
    "salus-hpo": Case(nothing_beside),
    "salus-inference": Case(all_persistent),
    "eta-simulated": Case(
        narrow_bands,
        setting((eta_simulated, "JOBS", 1_200), (eta_simulated, "QUEUES", (("fifo", "skip"),))),
        is_slow=True,
    ),
    "live-eta": Case(narrow_bands, setting((live_eta, "JOBS", 80)), is_slow=True),
    "live-prewarm": Case(
        never_asked, run=partial(live_prewarm._reproduce, replayed=120), is_slow=True
    ),
    "share-beside": Case(never_beside, is_slow=True),
}


# -- the tests ------------------------------------------------------------------------------

_plain: dict[str, list[Row]] = {}
"""What entries give when nothing is changed; run once for all tests of this file."""


@pytest.fixture(scope="module")
def data() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    found = data_dir(None) or beside
    if not (found / "pai-v2020").is_dir():
        pytest.skip("needs the published traces; set INTERLANE_DATA")
    return found


def run(name: str, data: Path, plant: Plant = nothing) -> list[Row]:
    """Run an entry in its small form, with something changed."""
    entry, case = REPRODUCTIONS[name], CASES[name]
    with pytest.MonkeyPatch.context() as patch:
        case.small(patch)
        plant(patch)
        return (case.run or entry.run)(Setting(data, entry.seed, choice=case.choice))


def plain(name: str, data: Path) -> list[Row]:
    if name not in _plain:
        _plain[name] = run(name, data)
    return _plain[name]


def is_ranks(value: object) -> bool:
    """Tell where quantiles stand: numbers that rise from 0 to 1, and must go on doing so."""
    return (
        isinstance(value, tuple)
        and all(isinstance(one, float) for one in value)
        and (value[:1], value[-1:]) == ((0.0,), (1.0,))
    )


def moved(value: Any, by: float) -> Any:  # noqa: ANN401 - any constant there may be
    """Return a constant in which every number is another; shapes and names stay."""
    if callable(value):
        return lambda *args: moved(value(*args), by)
    if isinstance(value, Mapping):
        return {key: moved(one, by) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, by) for one in value))
    if is_ranks(value):
        return tuple(one**by for one in value)
    if isinstance(value, tuple | list):
        return type(value)(moved(one, by if at % 2 else 2 - by) for at, one in enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        # What users write is as it is (a GPU, half of one); how many of them do was set.
        told = {one.name: getattr(value, one.name) for one in fields(value)}
        set_from = {name: one for name, one in told.items() if not isinstance(one, int)}
        return replace(value, **{name: moved(one, by) for name, one in set_from.items()})
    if isinstance(value, np.ndarray):
        return value * by
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return value + (max(1, round(value * (by - 1))) if by > 1 else -round(value * (1 - by)))
    if isinstance(value, float):
        return value * by
    raise TypeError(f"{value!r} cannot be moved")


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_number_that_was_published_or_fitted_can_be_changed(name: str) -> None:
    entry = REPRODUCTIONS[name]
    for names, by in ((entry.published, PUBLISHED_BY), (entry.fitted, FITTED_BY)):
        for where in names:
            module, attribute = where.split(":")
            value = getattr(import_module(module), attribute)
            assert callable(value) or repr(moved(value, by)) != repr(value), where


def test_every_constant_that_a_calibrated_row_names_is_changed() -> None:
    named: set[str] = set()
    for constants in pai_figures.SET_IN.values():
        module = ""
        for one in constants.split(", "):
            before, _, constant = one.rpartition(".")
            module = before or module
            named.add(f"interlane.traces.synth_pai.{module}:{constant}")

    assert named <= set(pai_figures.DRAWN_FROM)


def moving(entry: Reproduction) -> Plant:
    """Return what changes every published number, and every constant set from one."""

    def plant(patch: Patch) -> None:
        for names, by in ((entry.published, PUBLISHED_BY), (entry.fitted, FITTED_BY)):
            for name in names:
                module, attribute = name.split(":")
                where = import_module(module)
                patch.setattr(where, attribute, moved(getattr(where, attribute), by))

    return plant


def quick_or_slow(name: str) -> Any:  # noqa: ANN401 - pytest's own
    marks = [pytest.mark.data]
    if CASES[name].is_slow:
        why = "takes minutes: make evidence"
        marks.append(pytest.mark.skipif(not SLOW, reason=why))
    return pytest.param(name, marks=marks)


EVERY: Final = [quick_or_slow(name) for name in CASES]


def test_every_entry_has_a_fault_that_can_be_planted() -> None:
    assert set(CASES) == set(REPRODUCTIONS)


@pytest.mark.parametrize("name", EVERY)
def test_no_checked_row_is_compared_with_its_own_input(name: str, data: Path) -> None:
    entry = REPRODUCTIONS[name]
    before = [row for row in plain(name, data) if row.kind is Kind.CHECKED]
    numbers = [row for row in before if isinstance(row.published, int | float)]
    if not entry.published and not entry.fitted:
        assert numbers == [], "numbers to compare with must be named in Reproduction.published"
        return

    changed = run(name, data, moving(entry))

    after = [row for row in changed if row.kind is Kind.CHECKED]
    assert [(row.what, row.ours) for row in before] == [(row.what, row.ours) for row in after]
    same = [
        row.what
        for row, other in zip(before, after, strict=True)
        if row in numbers and row.published == other.published
    ]
    assert same == [], "compared with numbers that Reproduction.published does not name"


@pytest.mark.parametrize("name", EVERY)
def test_a_planted_fault_fails_a_checked_row(name: str, data: Path) -> None:
    held = {row.what for row in plain(name, data) if row.kind is Kind.CHECKED and row.holds}

    try:
        broken = run(name, data, CASES[name].fault)
    except AssertionError:
        return  # the fault was found before there was a row
    failed = {row.what for row in broken if row.kind is Kind.CHECKED and not row.holds}

    assert held, "nothing holds where nothing is broken"
    # Rows may name what they counted, so that their words change with the fault.
    assert failed & held or failed - {row.what for row in plain(name, data)}


def sources() -> list[Path]:
    return sorted(Path(interlane.reproduce.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_no_row_holds_because_its_source_says_so(path: Path) -> None:
    written = [
        f"{path.name}:{call.lineno}"
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("checked", "claim", "calibrated", "Row")
        for given in (*call.args[1:], *(keyword.value for keyword in call.keywords))
        if isinstance(given, ast.Constant) and given.value is True
    ]
    assert written == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_published_numbers_have_names(path: Path) -> None:
    """A number that is written into a row could not be changed by the test above."""
    written = [
        f"{path.name}:{call.lineno}"
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("checked", "figure", "calibrated")
        and len(call.args) > 2
        and isinstance(call.args[2], ast.Constant)
        and isinstance(call.args[2].value, int | float)
    ]
    assert written == []
