"""``interlane up`` and ``interlane down``: the server of this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.client import StateOption, state_folder
from interlane.cli.options import LANE_ORDERS, SharingOption, takes
from interlane.cli.output import say
from interlane.cli.replay import DatabaseOption
from interlane.model.errors import InterlaneError, InvalidInput

if TYPE_CHECKING:
    from interlane.live.notify import NotifyRules
    from interlane.live.up import Begin, Mount

PORT: Final = 7411
SERVING: Final = "Serving"
"""How the line begins by which a server says that it serves."""

END_S: Final = 30.0
"""Seconds that a server gets to end."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """How a server is started."""

    engine: Annotated[
        str,
        typer.Option(
            help="What runs the jobs: local for processes of this machine, kubernetes for pods "
            "of a cluster, slurm for a Slurm cluster."
        ),
    ] = "local"
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the cluster is and who we are there.",
            show_default="the pod's own account, $KUBECONFIG or ~/.kube/config",
        ),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Namespace of submitted jobs.",
            show_default="that of the kubeconfig",
        ),
    ] = None
    home: Annotated[
        str | None,
        typer.Option(
            help="Namespace of the lease, the key and what agents report, which jobs should "
            "not see.",
            show_default="that of the jobs",
        ),
    ] = None
    image: Annotated[
        str | None,
        typer.Option(
            help="Container image of jobs that name none.",
            show_default=False,
        ),
    ] = None
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --engine slurm: the partitions whose jobs are scheduled, with commas.",
            show_default=False,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="With --engine slurm: change nothing, and say what would be done beside what "
            "Slurm does.",
        ),
    ] = False
    devices: Annotated[
        str,
        typer.Option(
            help="nvml for all NVIDIA GPUs and MIG slices, cpu:N for N emulated devices, "
            "cpu:N:16GB with so much memory each, mig:A100-40GB:N for N emulated GPUs that "
            "`mig cut` cuts up; auto for GPUs if there are any, else cpu:4."
        ),
    ] = "auto"
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = PORT
    order: Annotated[
        str,
        typer.Option(
            help="Who goes first; see `interlane policies`. By default the highest priority, "
            "and who came first among equals."
        ),
    ] = "priority"
    placer: Annotated[
        str,
        typer.Option(
            help="Where a job goes; by default over idle devices before any is shared."
        ),
    ] = "balance"
    queue: Annotated[
        str,
        typer.Option(
            help="What a job that does not fit does: skip, strict or easy, which reserves "
            "a place for the first; bound_s is for how many seconds estimates may let others "
            "pass it."
        ),
    ] = "easy:bound_s=1800"
    turns: Annotated[
        str,
        typer.Option(help=f"Whose turn it is on a device that jobs share: {LANE_ORDERS}."),
    ] = "fair"
    sharing: SharingOption = "measured"
    slot: Annotated[
        str,
        typer.Option(help="How often it is decided anew which functions are warm."),
    ] = "10s"
    forecast: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[:MODEL]",
            help="What decides how many replicas there are: portfolio (the default), trees "
            "or ls-lstm; with an arrival model (`predict arrivals train`) of slots as wide, it "
            "forecasts requests from the first day.  All learn on.",
        ),
    ] = None
    slowdown: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Predict slowdown beside each other with what `predict slowdown train` "
            "made; it learns from STATE/coruns.  Functions are placed by its bounds.",
            show_default=False,
        ),
    ] = None
    colocate: Annotated[
        str,
        typer.Option(
            help="How functions share GPUs with jobs: bounded keeps promises by bounds, "
            "smore goes by estimates, none keeps them apart."
        ),
    ] = "bounded"
    durations: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Estimate how long jobs run with what `predict duration train` made, from the "
            "first job on; it goes on learning.",
            show_default=False,
        ),
    ] = None
    typical: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="Jobs that fgd and lookahead expect; without it, those of the server's log.",
            show_default=False,
        ),
    ] = None
    keep: Annotated[
        str,
        typer.Option(
            help="How long jobs stay at hand after their end: then what they printed goes, "
            "and their records move to STATE/archive; 0 for ever."
        ),
    ] = "30d"
    accounts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With root: lines such as 'ann: ACCOUNT', the name of a token and as whom its "
            "jobs run.",
            show_default=False,
        ),
    ] = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where jobs of other accounts have their folders.",
            show_default="/var/lib/interlane/work",
        ),
    ] = None
    processes_per_job: Annotated[
        int | None,
        typer.Option(
            min=16, help="Processes and threads that a job may have.", show_default="4096"
        ),
    ] = None
    instances_per_job: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes of a gang that may start together.", show_default="256"
        ),
    ] = None
    trust_users: Annotated[
        bool,
        typer.Option(
            "--trust-users",
            help="With root: let users submit who have no account; they can do what root can.",
        ),
    ] = False
    pages: Annotated[bool, typer.Option(help="Serve the web pages, too.")] = True
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait while another serves the database, and take over once it is dead.",
        ),
    ] = False
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Take the database over from another server; its jobs that cannot be asked "
            "about are left unknown.",
        ),
    ] = False
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew", help="Accept that the database of a used folder is gone for good."
        ),
    ] = False
    clock_is_right: Annotated[
        bool,
        typer.Option(
            "--clock-is-right",
            help="Accept a clock that is more than a month after the last moment on record.",
        ),
    ] = False
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certificate in PEM, to serve https.", show_default=False
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate's key.", show_default=False),
    ] = None
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy encrypts, and says who calls."),
    ] = False
    notify_allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Who may be told of jobs (`notify:` in their files), as hooks.example.com or "
            "*.example.com; may be repeated.",
            show_default="nobody",
        ),
    ] = None
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Is told of the end of all jobs that name nobody.",
            show_default=False,
        ),
    ] = None
    bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Bound what one caller or all may take, as in header_s=5; may be repeated.",
            show_default=False,
        ),
    ] = None


@takes(UpOptions)
def up(
    *,
    options: UpOptions,
    state: StateOption = None,
    database_url: DatabaseOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it serves; `interlane down` ends it.")
    ] = False,
    log_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there once it serves.")
    ] = None,
) -> None:
    """Run jobs on this machine, or on a Slurm cluster: the same kernel as the simulator.

    Example: interlane up --engine slurm --partition gpu --dry-run
    """
    folder = state_folder(state)
    if detach:
        _detached(folder, options, database_url, log_file or folder / "server.log")
        return
    from interlane.usecases.compiling import compile_beside
    from interlane.wiring import PolicyWords, serve
    from interlane.wiring.engines import engine_of

    def told(line: str) -> None:
        say(line)
        if log_file is not None and line.startswith(SERVING):
            _turn_over_to(log_file)

    compile_beside()
    serve(
        folder,
        PolicyWords(options.order, options.placer, options.queue),
        make_engine=engine_of(options.engine, asdict(options), asdict(UpOptions())),
        host=options.host,
        port=options.port,
        slot=options.slot,
        forecast=options.forecast,
        slowdown=options.slowdown,
        colocate=options.colocate,
        durations=options.durations,
        typical=options.typical,
        keep=options.keep,
        bounds=options.bound or (),
        tls=(options.tls_cert, options.tls_key),
        behind_proxy=options.behind_proxy,
        database_url=database_url,
        say=told,
        mount=_pages() if options.pages else None,
        begin=_begin(options),
        notify=_notify(options),
    )


def _begin(options: UpOptions) -> "Begin":
    from interlane.live.turn import Taking
    from interlane.live.up import Begin

    if options.standby and options.take_over:
        raise InvalidInput("--standby waits and --take-over does not; give one of them.")
    taking = Taking.NOW if options.take_over else Taking.REFUSE
    if options.standby:
        taking = Taking.WAIT
    return Begin(taking, options.begin_anew, options.clock_is_right)


def _notify(options: UpOptions) -> "NotifyRules":
    from interlane.live.notify import rules_of

    return rules_of(options.notify_allow or (), options.notify)


def _pages() -> "Mount":
    from interlane.pages.mount import mount

    return mount


def _detached(
    folder: Path, options: UpOptions, database_url: str | None, log_file: Path
) -> None:
    """Start the same in the background, and pass on what it says until it serves."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in asdict(options).items()
        if value is not None and not isinstance(value, bool | list)
    ]
    words.extend(f"--bound={one}" for one in options.bound or ())
    words.extend(f"--notify-allow={one}" for one in options.notify_allow or ())
    words.append("--pages" if options.pages else "--no-pages")
    words += [
        f"--{name.replace('_', '-')}"
        for name, value in asdict(options).items()
        if value is True and name != "pages"
    ]
    env = dict(os.environ)
    if database_url is not None:
        env["INTERLANE_DATABASE_URL"] = database_url  # it may hold a password: not an argument
    command = (sys.executable, "-m", "interlane", "up", *words, "--state", str(folder))
    with subprocess.Popen(
        (*command, "--log-file", str(log_file)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            say(line.rstrip("\n"))
            if line.startswith(SERVING):
                process.returncode = 0  # it goes on without us
                return
        raise typer.Exit(process.wait())


def _turn_over_to(log_file: Path) -> None:
    """Say everything else in a file: whoever started us may leave."""
    fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, sys.stdout.fileno())
    os.dup2(fd, sys.stderr.fileno())
    os.close(fd)


def down(*, state: StateOption = None) -> None:
    """End the server of a state folder; its jobs run on."""
    folder = state_folder(state)
    try:
        pid = json.loads((folder / "server.json").read_text())["pid"]
        reference = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError):
        raise InvalidInput(f"No server runs in {folder}; there is nothing to end.") from None
    if not _is_held(folder):
        raise InvalidInput(f"No server runs in {folder}; there is nothing to end.")
    signal.pidfd_send_signal(reference, signal.SIGTERM)
    end_s = time.monotonic() + END_S
    while _is_held(folder):
        if time.monotonic() > end_s:
            raise InterlaneError(f"The server (process {pid}) does not end; look at its log.")
        time.sleep(0.05)
    say("The server has ended; jobs run on.")


def _is_held(folder: Path) -> bool:
    """Tell whether a server holds the folder."""
    import fcntl

    with (folder / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
