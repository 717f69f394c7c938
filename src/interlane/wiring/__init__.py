"""Words to objects: policies, clusters, traces, worlds and the live machine.

Use cases are built of what this module returns (``interlane.usecases``).  Words come as users
write them; what cannot be understood raises ``InvalidInput`` with one
sentence.  Policies of other packages are found through the entry-point group
``interlane.policies``: ``order.NAME`` is a maker of an order, ``placer.NAME`` of a placer.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import entry_points
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from interlane.functions.watch import Forecast
from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cluster,
    Demand,
    InvalidField,
    InvalidInput,
    JobId,
    Machine,
    MachineId,
    UnknownName,
    one_task,
)
from interlane.placer_files import absolute, placer_file_of
from interlane.policy.base import TypeRule, TypicalDemand
from interlane.policy.catalogue import (
    ORDERS,
    PLACERS,
    QUEUES,
    OrderMaker,
    PlacerMaker,
    PlacerRecipe,
    describe,
    make_order,
    needs_estimate,
    placer_recipe,
)
from interlane.policy.colocate.catalogue import BOUNDED, COLOCATORS, make_colocator
from interlane.policy.policy import Discipline, Policy
from interlane.policy.preempt import Preemption
from interlane.policy.typical import typical_demands
from interlane.predict.recall import Recall
from interlane.predict.store import load
from interlane.sim.experiment import Choice
from interlane.sim.world import (
    CpuContention,
    Failures,
    NeighbourSlowdown,
    ShareContention,
    World,
)
from interlane.traces.cluster_file import ClusterScenario
from interlane.traces.clusters import load_cluster, load_scenario
from interlane.traces.data import data_dir
from interlane.traces.read import read_trace
from interlane.traces.schema import TRUE_DURATION, Trace
from interlane.wiring.functions import forecast_of

if TYPE_CHECKING:
    from interlane.device.probe import ProbeFinding
    from interlane.engines.local.run_findings import RunFindings
    from interlane.live.bounds import ServerBounds
    from interlane.live.driver.state import RequestCounts
    from interlane.live.functions.gateway import FunctionSettings
    from interlane.live.measure.slowdown import Beside
    from interlane.live.notify import NotifyRules
    from interlane.live.questions.etas import Known
    from interlane.live.store.record import JobRecord
    from interlane.live.up import Begin, Mount, TlsFiles
    from interlane.policy.colocate.interference import SlowdownTarget
    from interlane.predict.slowdown.table import SlowdownTable
    from interlane.wiring.engines import MakeEngine

GROUP: Final = "interlane.policies"
"""Entry points by which other packages add policies."""

TRACE_TIMES: Final = "trace"
"""The word for arrivals as the trace has them."""

LEARNING: Final = "learning"
"""The word for estimates by a predictor that begins with nothing and learns as jobs end."""

MODEL: Final = ".ildur"
"""How the names of stored models end."""

NO_SLOW_DOWN: Final = "none"

SIDE_BY_SIDE: Final = "side-by-side/training"
"""The way to share that jobs of the live machine have in lanes of their own."""
LATENCIES: Final = ("side-by-side/p99", "side-by-side/latency")
"""What functions suffer there: the first of these that a model knows."""

LEAST_BETWEEN_FAILURES_S: Final = 10
"""Machines that flap faster than this make more events than a run can play."""

REPAIR_S: Final = 3_600.0
"""Mean time to repair unless the user says otherwise."""


# -- traces and clusters --------------------------------------------------------------


def scenario_of(word: str, data: Path | None = None) -> ClusterScenario:
    """Return the cluster of this name or file, and what happens to its machines."""
    return load_scenario(word, data=data_dir(data))


def cluster_of(word: str, data: Path | None = None) -> Cluster:
    """Return the cluster of this name or file."""
    return load_cluster(word, data=data_dir(data))


def trace_of(
    path: Path,
    cluster: Cluster | ClusterScenario,
    *,
    fmt: str | None = None,
    skip_bad: bool = False,
    data: Path | None = None,
) -> Trace:
    """Read a trace for a cluster; a path that is not here is looked for among the data."""
    return read_trace(
        path_of(path, data),
        fmt=fmt,
        skip_bad=skip_bad,
        extra_gpu_types=cluster.gpu_types,
    )


def any_trace(
    path: Path, *, fmt: str | None = None, skip_bad: bool = False, data: Path | None = None
) -> Trace:
    """Read a trace that no cluster has to fit."""
    return read_trace(path_of(path, data), fmt=fmt, skip_bad=skip_bad)


def path_of(path: Path, data: Path | None = None) -> Path:
    """Return where a trace is: a path that is not here is looked for among the data."""
    folder = data_dir(data)
    if folder is not None and not path.exists() and (folder / path).exists():
        return folder / path
    return path


def data_of(folder: Path | None) -> Path | None:
    """Return where published data lies: the folder given, else the environment's."""
    return data_dir(folder)


# -- policies -------------------------------------------------------------------------


@cache
def orders() -> Mapping[str, OrderMaker]:
    """Return all orders by name, those of other packages included."""
    return {**_foreign("order."), **ORDERS}


@cache
def placers() -> Mapping[str, PlacerMaker]:
    """Return all placers by name, those of other packages included."""
    return {**_foreign("placer."), **PLACERS}


def _foreign(prefix: str) -> dict[str, Callable[..., Any]]:
    found = {}
    for point in entry_points(group=GROUP):
        if not point.name.startswith(prefix):
            continue
        try:
            found[point.name.removeprefix(prefix)] = point.load()
        except (ImportError, AttributeError) as error:
            raise InvalidInput(
                f"Policy {point.name} of {point.value} cannot be loaded ({error}); "
                "mend or remove the package that brings it."
            ) from None
    return found


def policies() -> dict[str, dict[str, str]]:
    """Return every policy by name with a sentence about it."""
    return {
        "orders": {name: describe(maker) for name, maker in orders().items()},
        "placers": {name: describe(maker) for name, maker in placers().items()},
        "queues": dict(QUEUES),
        "colocators": {name: describe(maker) for name, maker in COLOCATORS.items()},
    }


@dataclass(frozen=True, slots=True)
class PolicyWords:
    """A policy as users write it; ``name:setting=value`` sets what a policy has to set."""

    order: str = "fifo"
    placer: str = "pack"
    queue: str = Discipline.SKIP.value
    estimate: str | None = None
    gpu_types: str | None = None
    preempt_min_run_s: float = 0.0
    elastic: float | None = None
    colocate: str = BOUNDED
    forecast: str = Forecast.PORTFOLIO.value

    @property
    def name(self) -> str:
        """The policy in a word."""
        return f"{self.order}/{self.placer}/{self.queue}"


def choice_of(words: PolicyWords) -> Choice:
    """Return the policy that the words name.

    Where estimates are needed and none is named, the true duration serves.
    """
    order_name, order_settings = _settings("order", words.order)
    queue, passed_s_max = _queue(words.queue)
    estimate = words.estimate
    if estimate is None and needs_estimate(order_name, queue):
        estimate = TRUE_DURATION
    if words.colocate not in COLOCATORS:
        raise UnknownName("colocator", words.colocate, COLOCATORS)
    forecast, model, _ = forecast_of(words.forecast)
    return Choice(
        words.order,
        make_order(order_name, orders(), **order_settings),
        _recipe(words.placer, _type_rule(words.gpu_types)),
        queue,
        estimate,
        Preemption(min_run_s=words.preempt_min_run_s),
        None if estimate is None else _predictor(estimate),
        words.elastic,
        passed_s_max,
        colocate=words.colocate,
        forecast=forecast,
        forecast_model=model,
    )


def _recipe(word: str, types: TypeRule | None) -> PlacerRecipe:
    """Return how to make the placer of a word: a name, or a class in a file."""
    own = placer_file_of(word)
    if own is None:
        name, settings = _settings("placer", word)
        return placer_recipe(name, types, placers(), **settings)
    name, maker, rest = own
    _, settings = _settings("placer", f"{maker.name}{rest}")
    return placer_recipe(name, types, {name: maker}, **settings)


def _predictor(estimate: str) -> Recall | None:
    """Return the predictor that an estimate names; None for a column of the trace."""
    if estimate == LEARNING:
        return Recall()
    if not estimate.endswith(MODEL):
        return None
    found = load(Path(estimate)).predictor
    if not isinstance(found, Recall):
        raise InvalidInput(
            f"{estimate}: this model does not learn as jobs end; write its estimates into "
            "the trace with 'interlane predict duration apply' and name the column."
        )
    return found


_RENAMED: Final = MappingProxyType({"guess": "estimate"})
"""Parts of a policy as the version before called them."""


def policy_words(text: str, base: PolicyWords) -> PolicyWords:
    """Return the policy of ``order=sjf,placer=fgd,queue=easy``; the base fills the rest."""
    known = (
        "order", "placer", "queue", "estimate", "gpu-types", "elastic", "colocate", "forecast",
    )  # fmt: skip
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or not value:
            raise InvalidField(
                "policy", text, "it must read like 'order=sjf,placer=fgd,queue=easy'"
            )
        key = _RENAMED.get(key, key)
        if key not in known:
            raise UnknownName("part of a policy", key, known)
        given[key] = value
    return PolicyWords(
        given.get("order", base.order),
        given.get("placer", base.placer),
        given.get("queue", base.queue),
        given.get("estimate", base.estimate),
        given.get("gpu-types", base.gpu_types),
        base.preempt_min_run_s,
        _number("elastic", given["elastic"]) if "elastic" in given else base.elastic,
        given.get("colocate", base.colocate),
        given.get("forecast", base.forecast),
    )


def _settings(kind: str, word: str) -> tuple[str, dict[str, str]]:
    """Split ``name:setting=value:setting=value``."""
    name, *pairs = word.split(":")
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InvalidField(kind, word, "settings read like 'priority:age_s=600'")
        settings[key] = value
    return name, settings


def _queue(word: str) -> tuple[Discipline, float]:
    """Return a discipline, and for how long a head may be passed by estimates."""
    name, settings = _settings("queue", word)
    if name not in QUEUES:
        raise UnknownName("queue", name, QUEUES)
    for key in settings:
        if key != BOUND or name != Discipline.EASY.value:
            raise UnknownName(
                f"setting of {name}", key, [BOUND] if name == "easy" else ["none"]
            )
    bound_s = _number(BOUND, settings[BOUND]) if settings else inf
    if bound_s < 0:
        raise InvalidField(BOUND, settings[BOUND], "it must be 0 or more")
    return Discipline(name), bound_s


BOUND: Final = "bound_s"
"""The setting of ``easy``: after so many seconds nobody passes the head by an estimate."""


def _type_rule(word: str | None) -> TypeRule | None:
    known = [rule.value for rule in TypeRule]
    if word is not None and word not in known:
        raise UnknownName("gpu-types rule", word, known)
    return None if word is None else TypeRule(word)


# -- the live machine -----------------------------------------------------------------


def serve(
    state: Path,
    words: PolicyWords,
    *,
    make_engine: "MakeEngine",
    host: str,
    port: int,
    slot: str,
    forecast: str | None,
    slowdown: Path | None,
    colocate: str,
    durations: Path | None,
    typical: Path | None,
    keep: str,
    bounds: Iterable[str],
    tls: tuple[Path | None, Path | None],
    behind_proxy: bool,
    database_url: str | None,
    say: Callable[[str], None],
    mount: "Mount | None" = None,
    begin: "Begin | None" = None,
    notify: "NotifyRules | None" = None,
) -> None:
    """Run an engine under a policy until told to end, with web pages if given."""
    from interlane.live import up
    from interlane.live.bounds import ServerBounds
    from interlane.live.driver.state import SchedulerPlan
    from interlane.live.driver.warmup import warm_up
    from interlane.live.functions.gateway import Gateway
    from interlane.model import amounts

    trained = None if durations is None else _trained(durations)
    expected = () if typical is None else workload_in(typical)
    named = {"order": words.order, "placer": absolute(words.placer), "queue": words.queue}
    plan = SchedulerPlan(live_scheduler_maker(named), named, expected)
    bounded = ServerBounds.of(bounds)
    settled = function_settings(slot, forecast, bounded)
    functions = _placed_functions(settled, colocate, slowdown, state)
    keep_s = amounts.seconds("keep", keep) or inf
    made = make_engine(state, keep_s, database_url)
    warm_up(plan.make(_ANY_CLUSTER, ()))  # whoever stands by is ready once it leads
    made.lead(say)
    beside = None if slowdown is None else _beside(slowdown, made.gpu_type)
    settings = up.UpSettings(
        state,
        host,
        port,
        functions,
        database_url,
        beside,
        made.greeting,
        keep_s,
        begin or up.Begin(),
        made.unreachable,
        bounds=bounded,
        tls=_tls_files(*tls),
        behind_proxy=behind_proxy,
        notify=notify,
        serves=made.serves,
    )
    up.serve(
        settings,
        made.engine,
        trained,
        lambda driver, how: Gateway(driver, made.replicas, how),
        plan,
        played_starts,
        say,
        mount,
    )


def job_bounds() -> "list[ProbeFinding]":
    """Return what a server that is started here would hold its jobs to."""
    from interlane.engines.local.enforced import enforced_here

    return list(enforced_here())


def look_through_runs(runs: Path, records: "Iterable[JobRecord]") -> "RunFindings":
    """Compare the folders of an engine's runs with what is on record."""
    from interlane.engines.local.run_findings import look_through

    return look_through(runs, records)


def _tls_files(cert: Path | None, key: Path | None) -> "TlsFiles | None":
    from interlane.live.up import TlsFiles

    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InvalidInput("A certificate needs its key: give both --tls-cert and --tls-key.")
    return TlsFiles(cert.absolute(), key.absolute())


def live_scheduler_maker(
    settings: Mapping[str, str],
) -> "Callable[[Cluster, RequestCounts], Scheduler]":
    """Return how to make a scheduler for machines and what was asked for there lately.

    The settings are the words of a policy, as a server's log keeps them.  Placers that look
    ahead expect more of the same, or whole GPUs as long as nobody has asked for anything.
    """
    try:
        words = PolicyWords(settings["order"], settings["placer"], settings["queue"])
    except KeyError as error:
        raise InvalidInput(
            f"The log does not say by which {error.args[0]} jobs were scheduled; only logs of "
            "'interlane up' can be replayed."
        ) from None
    choice = choice_of(words)

    def made(cluster: Cluster, lately: "RequestCounts") -> Scheduler:
        placer = choice.placer
        typical: tuple[TypicalDemand, ...] = ()
        if placer.needs_typical:
            workload = lately or ((one_task(Demand(gpus=1)), 1),)
            typical = typical_demands(workload, placer.types or TypeRule.EXACT)
        policy = Policy(
            choice.order,
            placer.make(typical),
            choice.queue,
            choice.preemption,
            words.name,
            choice.passed_s_max,
        )
        return Scheduler(cluster, policy)

    made(_ANY_CLUSTER, ())  # what cannot be made is said before anything begins
    return made


_ANY_CLUSTER: Final = Cluster("any", (Machine(MachineId("any"), "ANY", 1),))


def workload_in(path: Path) -> "RequestCounts":
    """Return what the jobs of a trace ask for, and how often."""
    from interlane.sim.experiment import request_counts
    from interlane.traces.jobs import jobs_of

    jobs, _ = jobs_of(any_trace(path), estimate=None)
    return tuple(request_counts(jobs).items())


def _trained(path: Path) -> Recall:
    """Return a stored predictor of durations that goes on learning as jobs end."""
    found = load(path).predictor
    if not isinstance(found, Recall):
        raise InvalidInput(
            f"{path}: this model does not learn as jobs end; train one with 'interlane predict "
            "duration train --model recall'."
        )
    return found


def function_settings(
    slot: str, forecast: str | None, bounds: "ServerBounds"
) -> "FunctionSettings":
    """Return how functions are kept warm: how often it is decided, by whom, with what."""
    from interlane.functions.watch import forecasts_of
    from interlane.live.functions.gateway import FunctionSettings
    from interlane.model.amounts import seconds
    from interlane.predict.arrivals.live import Trees
    from interlane.predict.arrivals.lslstm import LsLstm
    from interlane.predict.arrivals.series import must_be_slot

    slot_s = seconds("slot", slot)
    must_be_slot(slot_s)
    settings = FunctionSettings(
        slot_s, functions_per_user=bounds.functions_per_user, answers_mib=bounds.answers_mib
    )
    if forecast is None:
        return settings
    leads, model, knows_s = forecast_of(forecast)
    if knows_s is not None and knows_s != slot_s:
        raise InvalidField("slot", slot, f"{forecast} knows slots of {knows_s:g} s only")
    made = model or (LsLstm() if leads is Forecast.LS_LSTM else Trees())
    if isinstance(made, LsLstm):
        made.network()  # that torch is missing is said before anything begins
    return replace(settings, forecast=forecasts_of(made, slot_s), leads=leads)


def _placed_functions(
    settings: "FunctionSettings", colocate: str, slowdown: Path | None, state: Path
) -> "FunctionSettings":
    """Add how functions share GPUs with jobs, and where what they teach is kept."""
    from interlane.live.measure.learned import LearnedFiles

    make_colocator(colocate)  # what is not known is said before anything begins
    trained = None if slowdown is None else _trained_pairs(slowdown)
    return replace(
        settings,
        colocate=colocate,
        trained=trained,
        refit=partial(_fitted_pairs, state / "coruns"),
        learned=LearnedFiles(state / "learned"),
    )


def _fitted_pairs(coruns: Path) -> "dict[SlowdownTarget, SlowdownTable]":
    """Return what a model says of pairs that is fitted to a machine's own co-runs.

    Nothing is said of what too few were measured of.
    """
    from interlane.predict.slowdown.models import LEAST_PAIRS
    from interlane.predict.slowdown.store import trained
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import read

    ways = pairs_by_way(read(coruns))
    enough = [way for way, pairs in ways.items() if len(pairs) >= LEAST_PAIRS]
    return {target: trained(ways[way]).table for target, way in _by_target(enough).items()}


def _by_target(ways: Collection[str]) -> "dict[SlowdownTarget, str]":
    """Return which way to share says what jobs suffer, and what functions do."""
    from interlane.policy.colocate.interference import SlowdownTarget

    latency = next((way for way in LATENCIES if way in ways), None)
    training = SIDE_BY_SIDE if SIDE_BY_SIDE in ways else None
    found = {SlowdownTarget.TRAINING: training, SlowdownTarget.LATENCY: latency}
    return {target: way for target, way in found.items() if way is not None}


def _trained_pairs(model: Path) -> "dict[SlowdownTarget, SlowdownTable]":
    """Return what a stored model says of jobs and functions beside each other."""
    from interlane.predict.slowdown import store

    found = store.load(model).parts
    return {target: found[way].table for target, way in _by_target(found).items()}


def _beside(model: Path, gpu_type: str) -> "Beside":
    """Return what a stored model says of jobs that run beside each other.

    Slowdowns by several add up, as in SMore; a program that it does not know has none.
    """
    from interlane.predict.slowdown import store
    from interlane.predict.slowdown.table import CellBasis

    found = store.load(model).parts
    if SIDE_BY_SIDE not in found:
        raise InvalidInput(f"{model} has nothing on {SIDE_BY_SIDE}; train one on such co-runs.")
    table = found[SIDE_BY_SIDE].table
    gpu = table.gpu(gpu_type)

    def slowdown(victim: str, others: Sequence[str]) -> float | None:
        read = [
            table.read(gpu, table.workload(victim), table.workload(other)) for other in others
        ]
        if any(one.basis is CellBasis.UNKNOWN for one in read):
            return None
        return 1.0 + sum(1.0 / one.throughput - 1.0 for one in read)

    return slowdown


def played_starts(
    make: Callable[[], Scheduler],
    jobs: "Sequence[Known]",
    job_ids: Sequence[JobId],
    now_s: float,
) -> dict[JobId, list[float]]:
    """Return when jobs of the live machine start in each play, in order."""
    from interlane.sim import forward

    expected = [forward.Expected(one.event, one.seconds, one.low_s, one.high_s) for one in jobs]
    return forward.all_played_starts(make, expected, job_ids, now_s)


# -- the world ------------------------------------------------------------------------


def world_of(
    scenario: ClusterScenario,
    *,
    speeds: Iterable[str] = (),
    slow_downs: Iterable[str] = (),
    failures: str | None = None,
    restart_s: float = 0.0,
    seed: int = 0,
) -> World:
    """Return the world of ``T4=0.5``, ``share:0.1`` or ``cpu``, and ``86400:3600``."""
    return World(
        dict(_speed(word, scenario.gpu_types) for word in speeds),
        tuple(_slow_down(word) for word in slow_downs if word != NO_SLOW_DOWN),
        None if failures is None else _failures(failures, seed),
        restart_s,
        scenario.events,
    )


def rate_of(word: str) -> int | None:
    """Return the jobs that arrive each minute, or None for the trace's own times."""
    if word == TRACE_TIMES:
        return None
    if not (word.isascii() and word.isdigit() and 0 < int(word[:18]) <= 10**9):
        raise InvalidField(
            "arrivals", word, "it must be 'trace' or a whole number of jobs per minute"
        )
    return int(word)


def _speed(word: str, gpu_types: frozenset[str]) -> tuple[str, float]:
    gpu_type, equals, factor = word.partition("=")
    if not equals:
        raise InvalidField("speed", word, "it must read like 'T4=0.5'")
    if gpu_type not in gpu_types:
        raise UnknownName("GPU type", gpu_type, gpu_types)
    return gpu_type, _number(f"speed of {gpu_type}", factor)


def _slow_down(word: str) -> NeighbourSlowdown:
    name, colon, amount = word.partition(":")
    if name == "share":
        return ShareContention(_number("slowdown", amount)) if colon else ShareContention()
    if name == "cpu" and not colon:
        return CpuContention()
    raise UnknownName("slowdown", word, ["none", "share:0.1", "cpu"])


def _failures(word: str, seed: int) -> Failures:
    up, colon, down = word.partition(":")
    mean_up_s = _number("failures", up)
    mean_down_s = _number("failures", down) if colon else REPAIR_S
    if min(mean_up_s, mean_down_s) < LEAST_BETWEEN_FAILURES_S:
        rule = f"it must be {LEAST_BETWEEN_FAILURES_S} s or more"
        raise InvalidField("failures", word, rule)
    return Failures(mean_up_s, mean_down_s, seed)


def _number(what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise InvalidField(what, text, "it must be a number")
    return number
