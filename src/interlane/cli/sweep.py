"""``interlane sweep``: many trials of one command, each with other parameters."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from interlane.cli.client import ApiClient, Failure, ServerOptions
from interlane.cli.help import WithExamples
from interlane.cli.job_files import document_in
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.progress import TERMINAL
from interlane.model.errors import InvalidInput

if TYPE_CHECKING:
    from interlane.usecases.sweep import SweepStatus

START: Final = "start"
NO_BEST: Final = 1
SHOWN: Final = 10
"""Trials that a table shows; ``-o json`` has all."""


class _StartsByDefault(TyperGroup):
    """Takes what is no command of its own for a sweep to start."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - the library's own
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [START, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_StartsByDefault,
    help="Try a command with many parameters, and find the best: a grid, random draws, or "
    "successive halving.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SweepName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the sweep.")]


@dataclass(frozen=True, slots=True)
class StartOptions(ServerOptions):
    """What is swept, and how."""

    name: Annotated[
        str | None, typer.Option(help="Name of the sweep.", show_default="one is made up")
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="A parameter: 0.1,0.01 or 2..8; with --random also 0.1..0.9 or "
            "log:0.0001..0.1. Repeatable.",
        ),
    ] = None
    random: Annotated[
        int | None, typer.Option(metavar="TRIALS", help="Draw so many instead of a grid.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Same seed, same draws.")] = None
    halving: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO[:BY]",
            help="Successive halving: budgets FROM to TO, each BY (3) times the one before and "
            "for a BY-th of the trials. {budget} in the command gets it; without, it counts "
            "lines with the metric, and trials that fall behind are stopped.",
        ),
    ] = None
    metric: Annotated[
        str | None, typer.Option(help="What trials print, as in loss for lines with loss=0.25.")
    ] = None
    minimise: Annotated[
        bool, typer.Option("--min", help="The least is best, which is the default.")
    ] = False
    maximise: Annotated[bool, typer.Option("--max", help="The most is best.")] = False
    gpus: Annotated[
        float | None, typer.Option(metavar="N", help="GPUs of a trial: 1, or a share as 0.25.")
    ] = None
    memory: Annotated[
        str | None, typer.Option(help="Memory of each GPU, as in 500MB; shares the GPU.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("-e", "--env", metavar="NAME=VALUE", help="A variable; repeatable."),
    ] = None


@app.command(START, cls=WithExamples)
@takes(StartOptions)
def start(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.yaml | -- COMMAND...]",
            help="A file that describes the sweep, or the command; {lr} stands for a value.",
            show_default=False,
        ),
    ] = None,
    *,
    options: StartOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Start a sweep and follow it; its trials are jobs, and go on if this command ends.

    Exit code 1 if no trial ran to its end with a metric.

    Examples:
      interlane sweep --set lr=0.1,0.01 --metric loss -- python train.py --lr {lr}
      interlane sweep --set lr=log:1e-4..1 --random 50 --metric loss -- ./train --lr {lr}
      interlane sweep --set lr=0.1,1 --halving 1..27 --metric acc --max -- ./train {lr} {budget}
      interlane sweep tune.yaml
      interlane sweep status tune
    """
    from interlane.usecases.sweep import begun

    document = _document(words or [], options)
    name = document.setdefault("name", f"sweep-{secrets.token_hex(3)}")
    _followed(lambda: begun(ApiClient(options), document, TERMINAL), name, output)


@app.command(cls=WithExamples)
@takes(ServerOptions)
def resume(
    name: SweepName,
    *,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Go on with a sweep whose command was ended, from where its trials stand.

    Examples:
      interlane sweep resume tune
    """
    from interlane.usecases.sweep import resumed

    _followed(lambda: resumed(ApiClient(options), name, TERMINAL), name, output)


@app.command(cls=WithExamples)
@takes(ServerOptions)
def status(
    name: SweepName,
    *,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show how a sweep stands: its trials, and the best so far.

    Examples:
      interlane sweep status tune
      interlane sweep status tune -o json
    """
    from interlane.usecases.sweep import looked_at

    found = looked_at(ApiClient(options), name)
    emit(found.document(), output, _told(found))


@app.command(cls=WithExamples)
@takes(ServerOptions)
def cancel(
    name: SweepName,
    *,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Cancel all trials of a sweep that have not ended.

    Examples:
      interlane sweep cancel tune
    """
    from interlane.usecases.sweep import cancelled

    found = cancelled(ApiClient(options), name)
    emit({"name": name, "cancelled": found}, output, f"{len(found):,} jobs cancelled")


# -- what is written ------------------------------------------------------------------


def _document(words: list[str], options: StartOptions) -> dict[str, Any]:
    """Return the sweep that a command describes: a file, changed by options, or these alone."""
    from interlane.usecases.sweep import command_line

    is_file = len(words) == 1 and words[0].endswith((".yaml", ".yml"))
    made = document_in(Path(words[0]), "sweep") if is_file else {}
    if is_file:
        made.setdefault("name", Path(words[0]).stem)
    elif words:
        gpu: dict[str, object] = {"count": 1}
        made["job"] = {"run": command_line(words), "resources": {"gpu": gpu}}
    given = {
        "name": options.name,
        "random": options.random,
        "seed": options.seed,
        "halving": options.halving,
        "metric": options.metric,
        "goal": _goal(options),
    }
    made |= {field: value for field, value in given.items() if value is not None}
    if options.set:
        made["set"] = {
            **(made.get("set") or {}),
            **dict(_pair("--set", one) for one in options.set),
        }
    made["job"] = _job(made.get("job") or {}, options)
    return made


def _job(job: Any, options: StartOptions) -> Any:  # noqa: ANN401 - as it was written
    if not isinstance(job, dict):
        return job  # which is refused with a sentence later
    made = {"workdir": str(Path.cwd()), **job}
    if options.gpus is not None or options.memory is not None:
        resources = dict(made.get("resources") or {})
        gpu = resources.get("gpu")
        gpu = dict(gpu) if isinstance(gpu, dict) else {"count": 1 if gpu is None else gpu}
        if options.gpus is not None:
            gpu["count"] = int(options.gpus) if options.gpus.is_integer() else options.gpus
        if options.memory is not None:
            gpu["memory"] = options.memory
        made["resources"] = {**resources, "gpu": gpu}
    if options.env:
        made["env"] = {
            **(made.get("env") or {}),
            **dict(_pair("--env", one) for one in options.env),
        }
    return made


def _goal(options: StartOptions) -> str | None:
    if options.minimise and options.maximise:
        raise InvalidInput("--min and --max exclude each other; leave one out.")
    return "max" if options.maximise else "min" if options.minimise else None


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{option} is {text!r}, but it must read like NAME=VALUE.")
    return name, value


# -- what is printed ------------------------------------------------------------------


def _followed(follow: Any, name: str, output: OutputFormat) -> None:  # noqa: ANN401 - a call
    try:
        found: SweepStatus = follow()
    except KeyboardInterrupt:
        say(
            f"The trials of {name} go on; 'interlane sweep resume {name}' follows them, "
            f"'interlane sweep cancel {name}' ends them."
        )
        raise
    emit(found.document(), output, _told(found))
    if found.problem is not None:
        raise Failure(found.problem, NO_BEST)


def _told(found: "SweepStatus") -> str:
    sweep = found.sweep
    names = [one.name for one in sweep.parameters]
    head = ("trial", *names, sweep.metric, "reports", "job", "")
    ordered = found.ordered()
    rows = [
        (
            str(run.trial),
            *(sweep.trials[run.trial].values[name] for name in names),
            "-" if run.value is None else f"{run.value:.6g}",
            str(len(run.reports)),
            run.job_id,
            found.told(run),
        )
        for run in ordered[:SHOWN]
    ]
    counts = "  ".join(f"{state} {count:,}" for state, count in found.counts().items() if count)
    lines = [f"sweep {sweep.name}: {len(sweep.trials):,} trials  {counts}"]
    if rows:
        right = range(len(names) + 3)
        lines.append(grid(head, rows, right=right))
    if len(ordered) > SHOWN:
        lines.append(f"... and {len(ordered) - SHOWN:,} more; -o json has all")
    best = found.best
    if best is not None:
        lines += [
            f"best: trial {best.trial}, {sweep.metric} {best.value:.6g}",
            f"  {sweep.command(best.trial, best.rung)}",
            f"  interlane rerun {best.job_id}",
        ]
    return "\n".join(lines)
