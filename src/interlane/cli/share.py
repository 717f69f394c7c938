"""``interlane share``: many programs on one device, switched between iterations."""

import sys
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.options import LANE_ORDERS, SharingOption
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say

if TYPE_CHECKING:
    from interlane.lanes.report import DaemonReport, DeviceReport, ProcessReport

app = typer.Typer(
    name="share",
    help="Share a device among programs that take turns between iterations.",
    no_args_is_help=True,
)

SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", help="The daemon's socket (or INTERLANE_SHARE_SOCKET)."),
]

MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="PERSISTENT+EPHEMERAL",
        help="Memory between iterations and on top of it inside them, as in 200MiB+1GiB, "
        "or one amount for both; the job is held to it.",
        show_default="measured",
    ),
]


@app.command()
def daemon(
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Device to share: cpu, cpu:MEMORY, cpu:MEMORY:CORES or cuda:N:MEMORY, as in "
            "cpu:4GiB:0-1; repeatable.",
            show_default="cpu",
        ),
    ] = None,
    order: Annotated[
        str,
        typer.Option(help=f"Whose turn it is: {LANE_ORDERS}."),
    ] = "fair",
    sharing: SharingOption = "measured",
    socket: SocketOption = None,
    hung_after: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            help="Seconds that an iteration may take at least while others wait.",
        ),
    ] = 30.0,
    keep_hung: Annotated[
        bool,
        typer.Option("--keep-hung", help="Warn of jobs that are hung, but do not end them."),
    ] = False,
    leave_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1.0,
            help="End when there was no job and no question for so long.",
            show_default="never",
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Serve Prometheus metrics on 127.0.0.1."
        ),
    ] = None,
) -> None:
    """Share this machine's devices until interrupted."""
    from interlane.device.daemon import Daemon
    from interlane.device.rendezvous import socket_path
    from interlane.device.settings import DeviceSettings
    from interlane.device.specs import read_spec

    settings = DeviceSettings(
        tuple(read_spec(text) for text in device or ["cpu"]),
        socket_path(socket),
        order,
        sharing,
        hung_after,
        kills_hung=not keep_hung,
        leave_after_s=leave_after or inf,
    )
    served = Daemon(settings)
    if metrics is not None:
        from interlane.device.exposition import expose

        say(f"metrics at http://127.0.0.1:{expose(lambda: served.published, metrics)}/metrics")
    for shared in served.devices:
        say(f"sharing {shared.describe()}, order {order}")
    say(f"listening at {settings.socket}; interrupt to stop")
    served.run()
    say("stopped; jobs go on with what they have and wait for another daemon")


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, unmodified.")
    ],
    name: Annotated[
        str | None, typer.Option(help="What the job is called.", show_default="from COMMAND")
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher is more urgent.")] = 0,
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="SECONDS",
            min=0.0,
            help="Estimated device time of the job, for srtf.",
        ),
    ] = None,
    memory: MemoryOption = None,
    device: Annotated[
        int | None, typer.Option(min=0, help="Number of the device.", show_default="any")
    ] = None,
    socket: SocketOption = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Give the program its lane from start to end, whatever it does."
        ),
    ] = False,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry", help="Run once more, with more memory, if --memory did not suffice."
        ),
    ] = False,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Fork the program from a process that has imported torch, kept for the next.",
        ),
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Run without sharing where no daemon answers.")
    ] = False,
) -> int:
    """Run a PyTorch program on a shared device and pass its exit code on."""
    from interlane.device import launch
    from interlane.device.lane_request import request_for
    from interlane.device.link import NoDaemon
    from interlane.device.rendezvous import socket_path

    request = request_for(
        name or launch.name_of(command),
        memory=memory,
        device=device,
        priority=priority,
        total_s=time_s,
    )
    path = socket_path(socket)
    try:
        if whole:
            return launch.run_whole(command, request, path)
        return launch.run_shared(command, request, path, warm=warm, retry=retry)
    except NoDaemon:
        if not alone:
            raise
        say("interlane: no daemon answers; the job runs without sharing")
        return launch.run_alone(command)


@app.command()
def status(
    socket: SocketOption = None,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            max=86_400,
            help="Print again every so many seconds.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show devices, lanes, holders and jobs."""
    from interlane.cli.output import colours
    from interlane.device.launch import status as asked
    from interlane.device.rendezvous import socket_path
    from interlane.lanes.report import document_of

    path = socket_path(socket)
    while True:
        answer = asked(path)
        if watch is not None and output is OutputFormat.TABLE and colours(sys.stdout.isatty()):
            typer.echo("\x1b[H\x1b[2J", nl=False)
        emit(document_of(answer), output, _table(answer))
        if watch is None:
            return
        sys.stdout.flush()
        time.sleep(watch)


def _table(report: "DaemonReport") -> str:
    return "\n\n".join(_device_lines(device, report.order) for device in report.devices)


def _device_lines(device: "DeviceReport", order: str) -> str:
    from interlane.model.amounts import written

    booked, capacity = device.booked_bytes, device.capacity_bytes
    remark = ", waiting for jobs of the daemon before" if device.is_recovering else ""
    head = (
        f"{device.name}  {_bar(booked, capacity)} {written(booked)} of "
        f"{written(capacity)} booked  {order}, turns of {device.quantum_s * 1e3:.0f} ms, "
        f"{device.switches_per_s:.0f} switches/s{remark}"
    )
    if not device.processes:
        return head
    rows = [_process_row(one, capacity) for one in device.processes]
    return head + "\n" + grid(_COLUMNS, rows, left=4)


_COLUMNS = ("lane", "job", "state", "memory", "stays", "passes", "iterations", "busy s")
_BAR = 20


def _process_row(process: "ProcessReport", capacity: int) -> tuple[str, ...]:
    from interlane.model.amounts import written

    booked = process.booked
    if booked is None:
        return "-", process.id, process.state, process.why or "", "-", "-", "0", "0.0"
    return (
        str(process.lane),
        process.id,
        process.state,
        _bar(booked.peak_bytes, capacity),
        written(booked.persistent_bytes),
        written(booked.ephemeral_bytes),
        f"{process.run.iterations:,}",
        f"{process.run.busy_s:,.1f}",
    )


def _bar(part: int, whole: int) -> str:
    full = min(_BAR, round(_BAR * part / max(1, whole)))
    return "#" * full + "." * (_BAR - full)
