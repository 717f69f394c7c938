"""``interlane mig``: what GPUs can be cut into, and the fewest that serve what is asked."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit, grid, printed, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.mig import MigPlan, WrittenTable

app = typer.Typer(
    help="Cut GPUs into MIG slices: profiles, layouts, plans.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
table_app = typer.Typer(
    help="Make and convert performance tables.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(table_app, name="table")

GpuOption = Annotated[
    str, typer.Option("--gpu", help="GPU model; see `interlane mig profiles`.")
]
ForbidOption = Annotated[
    bool,
    typer.Option("--forbid-4g3g", help="The older rule: no 4g beside a 3g on one GPU."),
]
KindsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        help="Kind of profiles to use beside the base ones: double-memory, media, media-all, "
        "no-media, graphics; repeatable.",
    ),
]


class PlanOutput(StrEnum):
    """How a plan is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    PARTED = "mig-parted"


@app.command()
def profiles(
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="One GPU model.", show_default="all")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List GPU models and the profiles that each can be cut into."""
    from dataclasses import asdict

    from interlane.usecases import mig

    models = mig.models(gpu)
    answer = {
        model.name: {
            "arch": model.arch,
            "units": model.grid,
            "profiles": [
                {**asdict(one), "kind": one.kind.value, "starts": list(one.starts)}
                for one in model.profiles
            ],
            "sources": dict(model.sources),
            "notes": model.notes,
        }
        for model in models
    }
    rows = [
        [
            model.name,
            one.name,
            one.kind.value,
            f"{one.compute_slices}/{model.compute_slices}",
            f"{one.memory_mib:,}",
            "-" if one.sm is None else str(one.sm),
            str(one.max_count),
            f"{one.size}/{model.grid}",
            " ".join(map(str, one.starts)),
        ]
        for model in models
        for one in model.profiles
    ]
    head = ["GPU", "profile", "kind", "compute", "MiB", "SMs", "most", "units", "starts"]
    emit(answer, output, grid(head, rows, left=3))


@app.command()
def layouts(
    gpu: GpuOption = "A100-80GB",
    kind: KindsOption = None,
    *,
    forbid_4g3g: ForbidOption = False,
    every: Annotated[
        bool, typer.Option("--all", help="List all maximal layouts, not only one a multiset.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Count and list the ways to cut a GPU; nothing is listed by hand."""
    from interlane.usecases import mig

    found = mig.layouts(gpu, kind or (), forbid_4g3g=forbid_4g3g)
    answer: dict[str, Any] = {
        "gpu": gpu,
        "legal": found.legal,
        "maximal": len(found.maximal),
        "multisets": len(found.multisets),
        "undominated": len(found.undominated),
    }
    listed = {
        str(one): {
            "layout": " ".join(map(str, one.verifier)),
            "undominated": str(one) in found.undominated,
        }
        for one in found.multisets
    }
    counted = (
        f"{gpu}: {answer['legal']} legal layouts, {answer['maximal']} maximal, "
        f"{answer['multisets']} multisets, {answer['undominated']} undominated"
    )
    if every:
        layout_list = [" ".join(map(str, one)) for one in found.maximal]
        emit({**answer, "layouts": layout_list}, output, "\n".join([counted, *layout_list]))
        return
    rows = [
        [name, "yes" if one["undominated"] else "no", str(one["layout"])]
        for name, one in listed.items()
    ]
    table = grid(["multiset", "undominated", "a layout that has it"], rows, left=3)
    emit({**answer, "layouts": listed}, output, f"{counted}\n{table}")


@app.command()
def optimisers(output: OutputOption = OutputFormat.TABLE) -> None:
    """List the optimisers with a sentence on each."""
    from interlane.usecases import mig

    known = mig.optimisers()
    width = max(map(len, known.about)) + 2
    lines = [
        f"{name:<{width}}{about}{' (default)' if name == known.default else ''}"
        for name, about in known.about.items()
    ]
    emit(known.about, output, "\n".join(lines))


@app.command()
def plan(
    services: Annotated[
        str, typer.Option("-f", "--file", metavar="FILE|-", help="Services file (YAML).")
    ],
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="Plan for this GPU model.", show_default="the file's"),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Performance table (CSV).", show_default="the file's"),
    ] = None,
    optimiser: Annotated[
        str, typer.Option(help="Who plans; see `interlane mig optimisers`.")
    ] = "columns",
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="Seconds for the best plan so far."),
    ] = 30.0,
    current: Annotated[
        Path | None,
        typer.Option(help="What is there now (JSON); GPUs are named after those most alike."),
    ] = None,
    kind: KindsOption = None,
    *,
    forbid_4g3g: ForbidOption = False,
    seed: Annotated[int, typer.Option(help="Seed of optimisers that draw random numbers.")] = 0,
    shown: Annotated[
        int, typer.Option("--shown", min=0, help="Different GPUs to draw; 0 for none.")
    ] = 12,
    gpus_per_node: Annotated[
        int, typer.Option(min=1, help="GPUs of a node, for -o mig-parted.")
    ] = 8,
    svg: Annotated[Path | None, typer.Option(help="Write the picture here as SVG.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the picture here.")
    ] = None,
    output: Annotated[
        PlanOutput, typer.Option("-o", "--output", help="How to print.")
    ] = PlanOutput.TABLE,
) -> None:
    """Plan the fewest GPUs that meet every service's throughput and latency target."""
    from interlane.usecases import mig
    from interlane.usecases.documents import from_file

    demand = mig.MigDemand(
        from_file(services),
        None if table is None else from_file(table),
        gpu,
        kind or (),
        forbid_4g3g,
    )
    found = mig.plan(
        demand,
        None if current is None else from_file(current),
        optimiser=optimiser,
        limit_s=time_limit,
        seed=seed,
        reporter=TERMINAL,
    )
    _tell_of(found, svg, html)
    if output is PlanOutput.PARTED:
        typer.echo(printed(found.parted(gpus_per_node), OutputFormat.YAML))
        return
    head, rows = found.table
    text = f"{found.outcome.told} ({found.outcome.optimiser})\n\n" + grid(head, rows, left=2)
    if shown:
        text += "\n\n" + found.drawn(shown)
    emit(found.document, OutputFormat(output.value), text)


def _tell_of(found: "MigPlan", svg: Path | None, html: Path | None) -> None:
    """Say what is to be known of a plan, and write its pictures."""
    for note in found.outcome.notes:
        say(note)
    if (kept := found.matched) is not None:
        say(f"{kept.kept} of {kept.running} running instances stay where they are.")
    if svg is not None:
        svg.write_text(found.svg, encoding="utf-8")
    if html is not None:
        html.write_text(found.page, encoding="utf-8")


# -- tables ---------------------------------------------------------------------------


@table_app.command()
def synth(
    dst: Annotated[Path, typer.Argument(help="Where to write (CSV).")],
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", help="GPU model; repeatable.", show_default="A100-80GB"),
    ] = None,
    models: Annotated[
        int, typer.Option(min=0, help="Models to draw; 0 for the built-in families.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Same seed, same table.")] = 0,
) -> None:
    """Make a performance table with the shapes that measurements have."""
    from interlane.usecases import mig

    _told(mig.synthetic_table(dst, gpu or ["A100-80GB"], models=models, seed=seed))


@table_app.command()
def convert(
    src: Annotated[Path, typer.Argument(help="ParvaGPU's or MIGPerf's measurements (CSV).")],
    dst: Annotated[Path, typer.Argument(help="Where to write (CSV).")],
) -> None:
    """Convert published measurements to interlane's own columns."""
    from interlane.usecases import mig
    from interlane.usecases.documents import from_file

    _told(mig.convert_table(from_file(src), dst))


def _told(written: "WrittenTable") -> None:
    say(f"{written.path}: {written.rows} measurements of {written.models} models")
