"""``interlane predict slowdown``: how much work slows down beside other work."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from interlane.cli.options import DataOption, ModelArgument, ModelOutOption, SeedOption
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.progress import TERMINAL

app = typer.Typer(
    help="How much work slows down beside other work: measure, train, judge, look up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="CORUNS",
        help="A folder that `measure` wrote, or a published set: lucid, gavel or tally.",
    ),
]
WayOption = Annotated[
    str | None,
    typer.Option(
        "--way",
        help="Sharing mode and target, such as side-by-side/training or mps/p99.",
        show_default="the first",
    ),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", help="GPU type.", show_default="the first measured")
]

QUIET: Final = 0.8
"""Share of the cores that at least one job gets alone on a quiet machine."""


@app.command()
def measure(
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder to write what was measured to.")],
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            help="A built-in job (mlp/16, mlp/256, cnn/8, lstm/16, embedding/512, matmul/1) or "
            "module:function that builds one and returns its step; repeatable.",
            show_default="all built-in",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(help="Co-runs, drawn at random from all.")] = 12,
    seconds: Annotated[float, typer.Option(help="Seconds of each run.")] = 2.0,
    cores: Annotated[int, typer.Option(help="CPU cores that stand for the device.")] = 1,
    seed: SeedOption = 0,
) -> None:
    """Run PyTorch jobs on this machine, alone and in pairs, and write what each kept.

    The offline phase of prediction, on CPU cores. `train` learns from the folder.
    """
    from interlane.usecases import slowdown

    found = slowdown.measure(
        out,
        workloads=workload or (),
        pairs=pairs,
        seconds=seconds,
        cores=cores,
        seed=seed,
        reporter=TERMINAL,
    )
    say(f"{out}: {found.alone} jobs alone, {found.pairs} pairs, {seconds:g} s each")
    most = found.most_cpu_share
    if most < QUIET:
        say(f"No job got more than {most:.0%} of its cores even alone: other work runs on this "
            f"machine, and these figures are not to be trusted.")  # fmt: skip


@app.command()
def train(
    source: SourceArgument,
    *,
    out: ModelOutOption,
    seed: SeedOption = 0,
    data: DataOption = None,
) -> None:
    """Learn from measured co-runs, complete the table of all pairs, and write both."""
    from interlane.usecases import slowdown

    found = slowdown.train(source, out, seed=seed, data=data, reporter=TERMINAL)
    say(f"{out}: {found.ways} ways to share, learned from {found.coruns} co-runs of "
        f"{found.workloads} workloads, sha256 {found.sha256[:16]}")  # fmt: skip


@app.command()
def evaluate(
    source: SourceArgument,
    *,
    split: Annotated[
        str,
        typer.Option(
            help="What is never seen: pair (a random part is learned), model or family."
        ),
    ] = "pair",
    part: Annotated[float, typer.Option(help="Part of the pairs that is learned from.")] = 0.2,
    probes: Annotated[
        int, typer.Option(help="Co-runs of each unknown workload with anchors, 0 to 4.")
    ] = 0,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="blend, hinge; repeatable. SMore's and the naive ones are always beside.",
            show_default="blend",
        ),
    ] = None,
    way: WayOption = None,
    seed: SeedOption = 0,
    data: DataOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Judge how well models estimate co-runs that they have not seen."""
    from interlane.usecases import slowdown

    found = slowdown.evaluate(
        source,
        split=split,
        part=part,
        probes=probes,
        models=model or (),
        way=way,
        seed=seed,
        data=data,
        reporter=TERMINAL,
    )
    answer = {
        "set": found.source,
        "way": found.way,
        "split": split,
        "part": part if split == "pair" else None,
        "probes": probes if split != "pair" else None,
        "seed": seed,
        "models": found.models,
    }
    rows = [
        [name, f"{one['mae']:.4f}", f"{one['r2']:.3f}", f"{one['rmsle']:.4f}"]
        for name, one in found.models.items()
    ]
    judged = int(next(iter(found.models.values()))["pairs"])
    head = (
        f"{found.source}, {found.way}: {judged} of {found.pairs} pairs judged, unseen {split}"
    )
    emit(answer, output, f"{head}\n\n{grid(['model', 'MAE', 'R2', 'RMSLE'], rows)}")


@app.command()
def table(
    model: ModelArgument,
    *,
    way: WayOption = None,
    gpu: GpuOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print what every victim (row) retains at least beside every aggressor (column)."""
    from interlane.usecases import slowdown

    found = slowdown.table(model, way=way, gpu=gpu)
    names = found.workloads
    answer = {
        "way": found.way,
        "gpu_type": found.gpu_type,
        "workloads": list(names),
        "lower": found.lower.round(4).tolist(),
        "retained": found.throughput.round(4).tolist(),
    }
    cells = [[f"{one:.2f}" for one in row] for row in found.lower]
    head = f"{found.way} on {found.gpu_type}: retained at least, but for one pair in ten"
    columns = ["", *(str(number) for number in range(len(names)))]
    numbered = [[f"{at} {names[at]}", *row] for at, row in enumerate(cells)]
    emit(answer, output, f"{head}\n\n{grid(columns, numbered)}")


@app.command()
def show(
    model: ModelArgument,
    victim: Annotated[str | None, typer.Argument(metavar="[A]", help="A workload.")] = None,
    aggressor: Annotated[
        str | None, typer.Argument(metavar="[B]", help="The workload beside it.")
    ] = None,
    *,
    gpu: GpuOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print what a model is; with two workloads, what each retains beside the other.

    A workload or GPU type that the model does not know gets the stated fallback.
    """
    from interlane.model import InvalidInput
    from interlane.usecases import slowdown

    if victim is None:
        emit(asdict(slowdown.show(model)), output)
        return
    if aggressor is None:
        raise InvalidInput("One workload is named, but a pair has two; name the other.")
    readings = slowdown.beside(model, victim, aggressor, gpu)
    rows = [
        [what, f"{one.throughput:.3f}", f"{one.lower:.3f}", one.basis]
        for what, one in readings.items()
    ]
    answer = {what: asdict(one) for what, one in readings.items()}
    emit(answer, output, grid(["", "retained", "at least", "basis"], rows))
