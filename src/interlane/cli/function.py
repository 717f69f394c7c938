"""``interlane function``: short work that is asked for over HTTP."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from interlane.cli.beside import beside_told
from interlane.cli.client import ApiClient, Failure, ServerOptions
from interlane.cli.job_files import document_in
from interlane.cli.job_output import LOOK_AT_MOST_S, LOOK_FIRST_S
from interlane.cli.options import takes
from interlane.cli.output import (
    OutputFormat,
    OutputOption,
    RawOption,
    as_shown,
    emit,
    grid,
    lines,
    say,
)
from interlane.model.errors import InvalidInput

app = typer.Typer(
    help="Deploy functions and call them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FunctionName = Annotated[
    str, typer.Argument(metavar="NAME", help="The function's name, as `list` shows it.")
]
_LEFT_OUT: Final = (
    "spec", "replicas", "slots", "bands", "latency_buckets", "latency_sum_s", "beside_jobs",
)  # fmt: skip


@app.command()
@takes(ServerOptions)
def deploy(
    name: Annotated[str | None, typer.Argument(help="Name of the function.")] = None,
    handler: Annotated[
        str | None, typer.Argument(metavar="MODULE:CALLABLE", help="What is called.")
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", metavar="FILE", help="Function file (YAML) instead."),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the module.", show_default="here"),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CALLABLE", help="Makes what the handler gets first."),
    ] = None,
    preload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Import once for all replicas, as torch."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a replica, as 500MB.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Of a request, as 2s.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Calls at a time in a replica.")
    ] = None,
    batch_max: Annotated[
        int | None, typer.Option(min=1, help="Inputs that the handler gets as one list.")
    ] = None,
    batch_window: Annotated[
        str | None, typer.Option(help="How long inputs wait for others, as 10ms.")
    ] = None,
    replicas_max: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="How long replicas stay, as 10m; auto: forecasts decide."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is loaded.")] = True,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Deploy a function, in place of the one of its name; once this returns, it is stored."""
    given: dict[str, Any] = {
        "name": name, "handler": handler, "path": path and str(path.absolute()), "load": load,
        "preload": preload, "memory": memory, "deadline": deadline,
        "concurrency": concurrency, "keep": keep,
        "batch": _given(max=batch_max, window=batch_window),
        "replicas": _given(max=replicas_max),
    }  # fmt: skip
    if file is None and (name is None or handler is None):
        raise InvalidInput("deploy needs NAME and MODULE:CALLABLE, or a file with -f.")
    function = {} if file is None else document_in(file, "function")
    function |= {field: value for field, value in given.items() if value}
    function.setdefault("path", str(Path.cwd()))
    client = ApiClient(options)
    made = client.post("/functions", function).document()
    if wait:
        made = _loaded(client, made["name"])
    emit(made, output, f"{made['name']} {made['state']}")


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _loaded(client: ApiClient, name: str) -> dict[str, Any]:
    """Wait until a function has loaded, or could not."""
    pause_s = LOOK_FIRST_S
    while (found := client.get(_path(name)).document())["state"] == "loading":
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
    if found["state"] == "failed":
        raise Failure(
            f"{name} is stored, but cannot be loaded: {found['reason']} See "
            f"'interlane function logs {name}'.",
            1,
        )
    return found


@app.command("list")
@takes(ServerOptions)
def list_functions(
    *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """List functions, their replicas and how fast they answer."""
    found = ApiClient(options).get("/functions").document()
    head = (
        *("function", "state", "replicas", "requests/s", "p50 ms", "p99 ms", "cold", "late"),
        *("slowdown", "predicted"),
    )
    rows = [_row(one) for one in found["functions"]]
    emit(found, output, grid(head, rows, left=2) if rows else "No functions.")


@app.command()
@takes(ServerOptions)
def describe(
    name: FunctionName, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show everything about a function."""
    found = ApiClient(options).get(_path(name)).document()
    shown = {field: value for field, value in found.items() if field not in _LEFT_OUT}
    head = ("replica", "state", "device", "pid", "age s", "calls", "memory MiB")
    rows = [
        (
            str(one["number"]),
            one["state"],
            one["device"],
            str(one["pid"] or "-"),
            f"{one['age_s']:,.0f}",
            str(one["calls"]),
            f"{one['memory_mib']:,.0f}",
        )
        for one in found["replicas"]
    ]
    told = [
        *lines({**shown, "spec": found["spec"]}),
        *([grid(head, rows, left=3)] if rows else []),
        *beside_told("jobs", found["beside_jobs"]),
    ]
    emit(found, output, "\n".join(told))


@app.command()
@takes(ServerOptions)
def invoke(
    name: FunctionName,
    data: Annotated[
        str, typer.Argument(metavar="JSON", help="The input; - reads it from stdin.")
    ] = "null",
    *,
    deadline: Annotated[str | None, typer.Option(help="Sooner than its own, as 2s.")] = None,
    options: ServerOptions,
) -> None:
    """Call a function and print what it answers."""
    body = sys.stdin.buffer.read() if data == "-" else data.encode()
    headers = None if deadline is None else {"X-Deadline": deadline}
    answer = ApiClient(options).send(f"{_path(name)}/invoke", body, headers)
    typer.echo(as_shown(answer.body.decode(errors="replace")))


@app.command()
@takes(ServerOptions)
def logs(name: FunctionName, *, raw: RawOption = False, options: ServerOptions) -> None:
    """Print the newest of what a function printed."""
    printed = ApiClient(options).get(f"{_path(name)}/log").body.decode(errors="replace")
    typer.echo(as_shown(printed, raw=raw), nl=False)


@app.command()
@takes(ServerOptions)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Functions.")],
    *,
    options: ServerOptions,
) -> None:
    """Forget functions; their replicas end when they have answered."""
    client = ApiClient(options)
    for name in names:
        client.delete(_path(name))
        say(f"{name} deleted")


def _path(name: str) -> str:
    from urllib.parse import quote

    return f"/functions/{quote(name, safe='')}"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        one["state"],
        str(len(one["replicas"])),
        f"{one['rate_per_s']:,.1f}",
        _ms(one["p50_s"]),
        _ms(one["p99_s"]),
        f"{one['cold_starts']:,}",
        f"{one['deadline_misses']:,}",
        *_worst(one["beside_jobs"]),
    )


def _worst(compared: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the most that jobs cost a function anywhere, and what was predicted of that."""
    if not compared:
        return "-", "-"
    worst = max(compared, key=lambda one: float(one["measured"]))
    return f"{worst['measured']:.2f}", f"{worst['predicted']:.2f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f}"
