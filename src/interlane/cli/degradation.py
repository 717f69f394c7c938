"""``interlane predict degradation``: how much work slows down beside other work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from interlane.cli.options import DataOption, ModelArgument, ModelOutOption, SeedOption
from interlane.cli.output import Output, OutputOption, emit, grid, say
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.device.corun import Pair, Solo
    from interlane.predict.degradation.pairs import Pairs
    from interlane.predict.degradation.store import Part
    from interlane.traces.colocation.coruns import CoRuns

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

NAIVE: Final = ("random-forest", "linear", "constant")
"""Models that are always shown beside."""


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
    from interlane.device import corun
    from interlane.traces.colocation import own

    names = workload or list(corun.BUILT_IN)
    with progress("measuring", len(names) + pairs, "runs") as tell:
        solos, kept = corun.measure(
            names, pairs=pairs, seconds=seconds, cores=cores, seed=seed, tell=tell
        )
    own.write(_measured(solos, kept), out)
    say(f"{out}: {len(solos)} jobs alone, {len(kept)} pairs, {seconds:g} s each")
    most = max(solo.cpu_share for solo in solos)
    if most < QUIET:
        say(f"No job got more than {most:.0%} of its cores even alone: other work runs on this "
            f"machine, and these figures are not to be trusted.")  # fmt: skip


def _measured(solos: "list[Solo]", kept: "list[Pair]") -> "CoRuns":
    import numpy as np

    from interlane.traces.colocation.coruns import Corun, CoRuns, Way

    counters = [[solo.cpu_share, solo.memory_share, solo.steps_per_s * 3600] for solo in solos]
    values = np.array([counters])
    values[:, :, 2] = np.log(np.maximum(values[:, :, 2], 1.0))
    runs = [
        Corun("CPU", *side)
        for pair in kept
        for side in (
            (pair.one, pair.other, pair.kept_one),
            (pair.other, pair.one, pair.kept_other),
        )
    ]
    return CoRuns(
        "measured",
        tuple(solo.name for solo in solos),
        tuple(solo.family for solo in solos),
        ("CPU",),
        ("host_cpu", "memory", "log_speed"),
        values,
        {Way("side-by-side", "training"): tuple(dict.fromkeys(runs))},
    )


@app.command()
def train(
    source: SourceArgument,
    *,
    out: ModelOutOption,
    seed: SeedOption = 0,
    data: DataOption = None,
) -> None:
    """Learn from measured co-runs, complete the table of all pairs, and write both."""
    from interlane.predict.degradation.models import LEAST_PAIRS
    from interlane.predict.degradation.store import Model, save, trained

    coruns, ways = _read(source, data)
    few = [way for way, pairs in ways.items() if len(pairs) < LEAST_PAIRS]
    if 0 < len(few) < len(ways):
        say(f"{', '.join(few)}: left out, because fewer than {LEAST_PAIRS} pairs are known.")
        ways = {way: pairs for way, pairs in ways.items() if way not in few}
    parts = {}
    with progress("training", len(ways), "ways") as tell:
        for done, (way, pairs) in enumerate(ways.items(), 1):
            parts[way] = trained(pairs, seed)
            tell(done)
    account: dict[str, object] = {
        "set": coruns.name,
        "workloads": len(coruns.workloads),
        "gpu_types": list(coruns.gpu_types),
        "co_runs": coruns.count,
    }
    digest = save(Model(parts, account), out)
    say(f"{out}: {len(parts)} ways to share, learned from {coruns.count} co-runs of "
        f"{len(coruns.workloads)} workloads, sha256 {digest[:16]}")  # fmt: skip


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
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge how well models guess co-runs that they have not seen."""
    from interlane.predict.degradation.evaluate import judge, splits
    from interlane.predict.degradation.models import PREDICTORS, make_predictor

    names = list(dict.fromkeys([*(model or ["blend"]), *NAIVE]))
    for name in names:
        make_predictor(name)
    coruns, ways = _read(source, data)
    chosen, pairs = _way(ways, way)
    found = {}
    with progress("judging", len(names), "models") as tell:
        for done, name in enumerate(names, 1):
            parted = splits(pairs, split, part=part, seed=seed, probes=probes)
            found[name] = judge(PREDICTORS[name], parted)
            tell(done)
    answer = {
        "set": coruns.name,
        "way": chosen,
        "split": split,
        "part": part if split == "pair" else None,
        "probes": probes if split != "pair" else None,
        "seed": seed,
        "models": found,
    }
    rows = [
        [name, f"{one['mae']:.4f}", f"{one['r2']:.3f}", f"{one['rmsle']:.4f}"]
        for name, one in found.items()
    ]
    judged = int(next(iter(found.values()))["pairs"])
    head = f"{coruns.name}, {chosen}: {judged} of {len(pairs)} pairs judged, unseen {split}"
    emit(answer, output, f"{head}\n\n{grid(['model', 'MAE', 'R2', 'RMSLE'], rows)}")


@app.command()
def table(
    model: ModelArgument,
    *,
    way: WayOption = None,
    gpu: GpuOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what every victim (row) retains at least beside every aggressor (column)."""
    from interlane.predict.degradation.store import load

    found = load(model)
    chosen, part = _way(dict(found.parts), way)
    names = part.table.profiles.names
    gpu_type = gpu or part.table.profiles.gpu_types[0]
    place = _measured_gpu(part, gpu_type)
    lower = part.table.lower[place]
    answer = {
        "way": chosen,
        "gpu_type": gpu_type,
        "workloads": list(names),
        "lower": lower.round(4).tolist(),
        "retained": _retained(part, place),
    }
    cells = [[f"{one:.2f}" for one in row] for row in lower]
    head = f"{chosen} on {gpu_type}: retained at least, but for one pair in ten"
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a model is; with two workloads, what each retains beside the other.

    A workload or GPU type that the model does not know gets the stated fallback.
    """
    from interlane.model import InvalidInput
    from interlane.predict.degradation.store import FORMAT, VERSION, load

    found = load(model)
    if victim is None:
        answer = {
            "format": FORMAT,
            "version": VERSION,
            "sha256": found.sha256,
            "trained_on": dict(found.trained_on),
            "ways": list(found.parts),
            "workloads": list(next(iter(found.parts.values())).table.profiles.names),
        }
        emit(answer, output)
        return
    if aggressor is None:
        raise InvalidInput("One workload is named, but a pair has two; name the other.")
    readings: dict[str, Any] = {}
    for way, part in found.parts.items():
        for one, other in ((victim, aggressor), (aggressor, victim)):
            readings[f"{way}: {one} beside {other}"] = _reading(part, gpu, one, other)
    rows = [
        [what, f"{one['retained']:.3f}", f"{one['lower']:.3f}", one["basis"]]
        for what, one in readings.items()
    ]
    emit(readings, output, grid(["", "retained", "at least", "basis"], rows))


def _reading(part: "Part", gpu: str | None, victim: str, aggressor: str) -> dict[str, object]:
    table = part.table
    place = 0 if gpu is None else table.gpu(gpu)
    found = table.read(place, table.workload(victim), table.workload(aggressor))
    return {
        "retained": round(found.retained, 4),
        "lower": round(found.lower, 4),
        "basis": found.basis.name.lower().replace("_", " "),
    }


def _measured_gpu(part: "Part", gpu_type: str) -> int:
    from interlane.model import UnknownName

    place = part.table.gpu(gpu_type)
    if place < 0:
        raise UnknownName("GPU type", gpu_type, part.table.profiles.gpu_types)
    return place


def _retained(part: "Part", gpu: int) -> list[list[float]]:
    import numpy as np

    rows: list[list[float]] = np.exp(part.table.mean[gpu]).round(4).tolist()
    return rows


def _way(ways: "dict[str, Any]", way: str | None) -> tuple[str, Any]:
    from interlane.model import UnknownName

    chosen = way or next(iter(ways))
    if chosen not in ways:
        raise UnknownName("way to share", chosen, ways)
    return chosen, ways[chosen]


def _read(source: str, data: Path | None) -> "tuple[CoRuns, dict[str, Pairs]]":
    from interlane.model import InvalidInput
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import FOLDERS, read
    from interlane.traces.data import data_dir

    folder = Path(source)
    if source in FOLDERS and not folder.exists():
        where = data_dir(data)
        if where is None:
            raise InvalidInput(
                f"Set {source} is published data, and no directory of it is known; name it "
                f"with --data or INTERLANE_DATA."
            )
        folder = where / FOLDERS[source]
    coruns = read(folder)
    ways = pairs_by_way(coruns)
    if not ways:
        raise InvalidInput(f"{folder} has solo runs only; learning needs co-runs.")
    missing = [name for name, lacks in zip(
        coruns.workloads, next(iter(ways.values())).profiles.missing, strict=True
    ) if lacks]  # fmt: skip
    if missing:
        say(f"{len(missing)} workloads lack a counter, the first {missing[0]}: the middle of "
            f"their family stands in.")  # fmt: skip
    return coruns, ways
