"""``interlane mig``: what GPUs can be cut into, and the fewest that serve what is asked."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlane.cli.output import Output, OutputOption, emit, grid, printed, say
from interlane.cli.progress import saying_if_slow

if TYPE_CHECKING:
    from interlane.mig.check import Terms
    from interlane.mig.demand import Problem
    from interlane.mig.layouts import Rules
    from interlane.mig.plan import Outcome, Plan
    from interlane.mig.services_file import Asked
    from interlane.mig.table import PerformanceTable

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
    output: OutputOption = Output.TABLE,
) -> None:
    """List GPU models and the profiles that each can be cut into."""
    from dataclasses import asdict

    from interlane.mig.profiles import gpu_model, gpu_models

    models = [gpu_model(gpu)] if gpu is not None else list(gpu_models().values())
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Count and list the ways to cut a GPU; nothing is listed by hand."""
    from interlane.mig.layouts import legal_layouts, maximal_layouts, multisets, undominated
    from interlane.mig.profiles import gpu_model

    rules = _rules(kind, forbid_4g3g=forbid_4g3g)
    model = gpu_model(gpu)
    found = maximal_layouts(gpu, rules)
    kept = {str(one) for one in undominated(gpu, rules)}
    answer: dict[str, Any] = {
        "gpu": gpu,
        "legal": sum(1 for _ in legal_layouts(model, rules)),
        "maximal": len(found),
        "multisets": len(multisets(gpu, rules)),
        "undominated": len(kept),
    }
    listed = {
        str(one): {
            "layout": " ".join(map(str, one.witness)),
            "undominated": str(one) in kept,
        }
        for one in multisets(gpu, rules)
    }
    counted = (
        f"{gpu}: {answer['legal']} legal layouts, {answer['maximal']} maximal, "
        f"{answer['multisets']} multisets, {answer['undominated']} undominated"
    )
    if every:
        layout_list = [" ".join(map(str, one)) for one in found]
        emit({**answer, "layouts": layout_list}, output, "\n".join([counted, *layout_list]))
        return
    rows = [
        [name, "yes" if one["undominated"] else "no", str(one["layout"])]
        for name, one in listed.items()
    ]
    table = grid(["multiset", "undominated", "a layout that has it"], rows, left=3)
    emit({**answer, "layouts": listed}, output, f"{counted}\n{table}")


@app.command()
def optimisers(output: OutputOption = Output.TABLE) -> None:
    """List the optimisers with a sentence on each."""
    from inspect import getdoc

    from interlane.mig.optimise import DEFAULT, OPTIMISERS

    known = {
        name: " ".join((getdoc(type(one)) or "").split("\n\n")[0].split())
        for name, one in OPTIMISERS.items()
    }
    width = max(map(len, known)) + 2
    lines = [
        f"{name:<{width}}{about}{' (default)' if name == DEFAULT else ''}"
        for name, about in known.items()
    ]
    emit(known, output, "\n".join(lines))


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
    seed: Annotated[int, typer.Option(help="Seed of optimisers that roll dice.")] = 0,
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
    import time

    from interlane.mig import draw
    from interlane.mig.documents import outcome_document
    from interlane.mig.optimise import optimise
    from interlane.mig.parted import parted_document
    from interlane.mig.plan import Effort

    asked = asked_in(services, gpu, kind, forbid_4g3g=forbid_4g3g)
    problem, terms = problem_of(asked, measured_for(asked, table, services))
    there = None if current is None else read_plan(current, asked.offers[0].model)
    with saying_if_slow(f"Looking for a better plan, for at most {time_limit:g} s..."):
        outcome = optimise(problem, optimiser, Effort(time_limit, seed, time.monotonic))
    _insist(outcome, optimiser, terms)
    for note in outcome.notes:
        say(note)
    if there is not None:
        outcome = _named_after(outcome, there)
    head, rows = draw.service_table(asked.services, outcome.plan)
    if svg is not None:
        svg.write_text(draw.svg(outcome.plan), encoding="utf-8")
    if html is not None:
        html.write_text(draw.page(outcome, head, rows), encoding="utf-8")
    if output is PlanOutput.PARTED:
        typer.echo(printed(parted_document(outcome.plan, gpus_per_node), Output.YAML))
        return
    text = f"{outcome.told} ({outcome.optimiser})\n\n" + grid(head, rows, left=2)
    if shown:
        text += "\n\n" + draw.terminal(outcome.plan, shown)
    emit(outcome_document(outcome), Output(output.value), text)


def problem_of(asked: "Asked", measured: "PerformanceTable | None") -> "tuple[Problem, Terms]":
    """Return what is to be solved, and what a plan must keep to."""
    from interlane.mig import services_file

    return services_file.problem_from(asked, services_file.full_table(asked, measured))


def _insist(outcome: "Outcome", optimiser: str, terms: "Terms") -> None:
    from interlane.mig.check import faults
    from interlane.model import InterlaneError

    wrong = faults(outcome.plan, terms)
    if wrong:
        raise InterlaneError(
            f"Optimiser {optimiser} made a plan that does not hold: {wrong[0]} "
            "This is a fault of interlane; please report it."
        )


def _named_after(outcome: "Outcome", there: "Plan") -> "Outcome":
    from dataclasses import replace

    from interlane.mig.match import matched

    found = matched(outcome.plan, there)
    say(f"{found.kept} of {found.running} running instances stay where they are.")
    return replace(outcome, plan=found.plan)


# -- files ----------------------------------------------------------------------------


def asked_in(
    services: str, gpu: str | None, kind: Sequence[str] | None, *, forbid_4g3g: bool
) -> "Asked":
    """Read a services file, with what the command line says otherwise."""
    from dataclasses import replace

    from interlane.mig.layouts import Rules
    from interlane.mig.services_file import kinds_of, read_services, with_gpu

    asked = read_services(yaml_in(services), services)
    rules = Rules(
        asked.rules.kinds | kinds_of(kind or ()), asked.rules.forbid_4g3g or forbid_4g3g
    )
    asked = replace(asked, rules=rules)
    return asked if gpu is None else with_gpu(asked, gpu)


def _rules(kind: Sequence[str] | None, *, forbid_4g3g: bool) -> "Rules":
    from interlane.mig.layouts import Rules
    from interlane.mig.services_file import kinds_of

    return Rules(kinds_of(kind or ()), forbid_4g3g)


def yaml_in(path: str) -> object:
    """Read a YAML file, or standard input."""
    import yaml

    from interlane.model import InvalidFile

    try:
        return yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        line = mark.line + 1 if mark else None
        raise InvalidFile(path, f"this is not YAML ({problem}); mend it.", line) from None


def _text(path: str) -> str:
    from interlane.model import InvalidFile

    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidFile(path, "this is not text in UTF-8; convert it.") from None


def measured_for(
    asked: "Asked", given: Path | None, services: str
) -> "PerformanceTable | None":
    """Read the table that was named; one that the file names lies beside the file."""
    if given is None and asked.table is None:
        return None
    beside = Path() if services == "-" else Path(services).parent
    path = given if given is not None else beside / (asked.table or "")
    return read_performance(path)


def read_performance(path: Path) -> "PerformanceTable":
    """Read a performance table of any known format."""
    from interlane.mig.tables import read_table

    return read_table(_text(str(path)).splitlines(), str(path))


def json_in(path: Path) -> object:
    """Read a JSON file."""
    import json

    from interlane.model import InvalidFile

    try:
        return json.loads(_text(str(path)))
    except json.JSONDecodeError as error:
        raise InvalidFile(str(path), f"this is not JSON ({error.msg}).", error.lineno) from None


def read_plan(path: Path, default_model: str | None = None) -> "Plan":
    """Read a plan, or what is there now, from JSON."""
    from interlane.mig.documents import read_state

    return read_state(json_in(path), str(path), default_model)


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
    from interlane.mig.tables import synthetic

    families = synthetic.drawn(models, seed) if models else list(synthetic.FAMILIES.values())
    _write(synthetic.table_of(families, gpu or ["A100-80GB"]), dst)


@table_app.command()
def convert(
    src: Annotated[Path, typer.Argument(help="ParvaGPU's or MIGPerf's measurements (CSV).")],
    dst: Annotated[Path, typer.Argument(help="Where to write (CSV).")],
) -> None:
    """Convert published measurements to interlane's own columns."""
    _write(read_performance(src), dst)


def _write(table: "PerformanceTable", dst: Path) -> None:
    from interlane.mig.tables.own import write

    lines = list(write(table))
    dst.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"{dst}: {len(lines) - 1} measurements of {len(table.models)} models")
