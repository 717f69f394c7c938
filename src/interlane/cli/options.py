"""Options that several commands share, each defined once.

A command takes a group of options as one argument: ``@takes(RunOptions)`` unfolds the fields
of the dataclass into the command's own parameters, and folds their values back.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from interlane.usecases.simulate import RunWords
    from interlane.wiring import PolicyWords
    from interlane.wiring.functions import FunctionWords

Answer = TypeVar("Answer")

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of published traces (or INTERLANE_DATA)."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the trace: interlane, pai-sim, pai2020, openb, philly, helios or "
        "sacct; told from the file unless given.",
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows out and count them.")
]
TraceArgument = Annotated[
    Path,
    typer.Argument(metavar="TRACE", help="Trace file, or a directory of PAI v2020 tables."),
]
TraceOption = Annotated[
    Path,
    typer.Option(
        "--trace", metavar="TRACE", help="Trace file, or a directory of PAI v2020 tables."
    ),
]
ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model that `train` wrote.")
]
ModelOutOption = Annotated[Path, typer.Option("--out", help="Where to write the model.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Same seed, same answer.")]
LANE_ORDERS = "fair, fifo, srtf, rr, pack, priority or las"
SharingOption = Annotated[
    str,
    typer.Option(
        "--sharing",
        help="Whether jobs of a device run in turns, beside each other while memory lasts, or "
        "as measured: whichever gets more done.",
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", min=1, help="Runs at a time.", show_default="all cores"),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What decides the outcome of a run, beside the trace."""

    cluster: Annotated[
        str,
        typer.Option(
            help="Built-in cluster (pai2020, pai2020-1to5, openb, openb-all, spot2026, "
            "pool:GPUS) or a file."
        ),
    ] = "pai2020"
    order: Annotated[str, typer.Option(help="Who goes first; see `interlane policies`.")] = (
        "fifo"
    )
    estimate: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|MODEL",
            help="Column of the trace with estimated durations (timelimit means "
            "timelimit_estimate), a model file (.ildur) that "
            "learns on as jobs end, or 'learning' for one that begins with nothing; the true "
            "duration (an oracle) where estimates are needed and none is named.",
        ),
    ] = None
    placer: Annotated[str, typer.Option(help="Where a job goes.")] = "pack"
    queue: Annotated[
        str, typer.Option(help="What a job that does not fit does: skip, strict or easy.")
    ] = "skip"
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", help="Play N jobs drawn as the published simulator draws."),
    ] = None
    sample_seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 42
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="trace|RATE", help="The trace's own times, or RATE jobs every minute."
        ),
    ] = "trace"
    weight: Annotated[
        str, typer.Option(help="What counts as one in means and percentiles: job or instance.")
    ] = "job"
    gpu_types: Annotated[
        str | None,
        typer.Option(
            help="Whose GPU types bind: exact (all), v100 (only V100 jobs) or any (nobody's).",
            show_default="the placer's own rule",
        ),
    ] = None
    elastic: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Let gangs start with this share of their instances and grow, as in 0.5.",
            show_default="as the trace says",
        ),
    ] = None
    preempt_min_run: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Seconds for which a job that has just started is not stopped.",
        ),
    ] = 0.0
    checkpoint: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Seconds between checkpoints; a stopped job loses the work since the last. "
            "0: a stopped job loses nothing, one whose machine fails all of its attempt.",
        ),
    ] = 0.0
    restart_cost: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Work that a stopped job must do to get going."),
    ] = 0.0
    speed: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=F", help="Speed of a GPU type, as in T4=0.5; repeatable."),
    ] = None
    slowdown: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE", help="Slowdown beside others: none, share:0.1 or cpu; repeatable."
        ),
    ] = None
    failures: Annotated[
        str | None,
        typer.Option(
            metavar="MTBF_S[:MTTR_S]", help="Let machines fail, seconds between and to repair."
        ),
    ] = None
    functions: Annotated[
        str | None,
        typer.Option(
            metavar="ARRIVALS",
            help="Play functions beside the jobs: a file of requests (Azure Functions, "
            "ServeGen, GenAI, or rows of time, function and count), or 'generate[:N]'.",
            show_default=False,
        ),
    ] = None
    function_profiles: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the functions are: memory, service time and so on, a row each.",
            show_default="drawn from the measured workloads",
        ),
    ] = None
    function_days: Annotated[
        float,
        typer.Option(
            metavar="DAYS",
            help="Days of requests that are played, the last; forecasts know earlier ones.",
        ),
    ] = 1.0
    function_load: Annotated[
        float,
        typer.Option(
            metavar="REPLICAS",
            help="Replicas per GPU that requests keep busy, where no profile says how long one "
            "takes.",
        ),
    ] = 0.5
    colocate: Annotated[
        str,
        typer.Option(help="How functions share GPUs with jobs: bounded, smore or none."),
    ] = "bounded"
    forecast: Annotated[
        str,
        typer.Option(
            metavar="KIND[:MODEL]",
            help="What decides how many replicas there are: portfolio, trees or ls-lstm, with "
            "what `predict arrivals train` made or trained on the days before.",
        ),
    ] = "portfolio"
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="CO-RUNS",
            help="How much jobs and functions really slow each other down: a published set of "
            "co-runs (lucid), a folder with one, or share:0.05.",
            show_default="lucid where there is data, else share:0.05",
        ),
    ] = None
    known_pairs: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Part of these co-runs that the scheduler has seen before."
        ),
    ] = 0.2
    seed: SeedOption = 0
    fmt: FormatOption = None
    skip_bad: SkipOption = False
    paranoid: Annotated[
        bool, typer.Option("--paranoid", help="Check all state after every moment (slow).")
    ] = False
    data: DataOption = None


def takes(options: type) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Unfold a dataclass of options, which the command takes as ``options``."""

    def unfold(command: Callable[..., Answer]) -> Callable[..., Answer]:
        hints = get_type_hints(options, include_extras=True)
        own = get_type_hints(command, include_extras=True)
        mine = [
            parameter.replace(annotation=own[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "options"
        ]
        theirs = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(options)
        ]
        names = {parameter.name for parameter in theirs}

        @wraps(command)
        def folded(**values: Any) -> Answer:  # noqa: ANN401 - typer gives each its own type
            group = options(**{name: values.pop(name) for name in names})
            return command(options=group, **values)

        parameters = sorted([*mine, *theirs], key=lambda one: one.kind)
        folded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        folded.__annotations__ = {one.name: one.annotation for one in parameters}
        del folded.__wrapped__
        return folded

    return unfold


def words_in(options: RunOptions) -> "PolicyWords":
    """Return the policy that the options name."""
    from interlane.wiring import PolicyWords

    return PolicyWords(
        options.order,
        options.placer,
        options.queue,
        options.estimate,
        options.gpu_types,
        options.preempt_min_run,
        options.elastic,
        options.colocate,
        options.forecast,
    )


def run_in(options: RunOptions, trace: Path) -> "RunWords":
    """Return the run of a trace that the options name."""
    from interlane.usecases.simulate import RunWords
    from interlane.usecases.traces import TraceFile

    return RunWords(
        TraceFile(trace, options.fmt, options.skip_bad, options.data),
        words_in(options),
        options.cluster,
        sample=options.sample,
        sample_seed=options.sample_seed,
        arrivals=options.arrivals,
        weight=options.weight,
        checkpoint_s=options.checkpoint,
        restart_s=options.restart_cost,
        speeds=options.speed or (),
        slow_downs=options.slowdown or (),
        failures=options.failures,
        seed=options.seed,
        paranoid=options.paranoid,
        functions=_functions_in(options),
    )


def _functions_in(options: RunOptions) -> "FunctionWords | None":
    from interlane.wiring.functions import FunctionWords

    if options.functions is None:
        return None
    return FunctionWords(
        options.functions,
        options.function_profiles,
        options.function_days,
        options.function_load,
        options.truth,
        options.known_pairs,
        options.seed,
        options.data,
    )
