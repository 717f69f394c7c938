"""``interlane demo``: this machine as a small cluster, with sharing and without."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from interlane.cli.options import ProcessesOption
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.model.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from interlane.cli.demo_site import DemoServer
    from interlane.cli.demo_work import DemoRun, Work

SECONDS: Final = 60.0
START_S: Final = 4.0
"""Seconds that a training takes to begin."""

STEP_S: Final = 0.05
"""Seconds of one of its steps, with nobody else there."""

SHARE_ALONE: Final = 0.6
"""Part of the time that the work takes without sharing."""

DEVICE_GB: Final = 10


def demo(
    *,
    seconds: Annotated[
        float, typer.Option(min=20, max=3_600, help="How long it takes, about.")
    ] = SECONDS,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated", help="Instead, compare six policies on a simulated day; no torch."
        ),
    ] = False,
    processes: ProcessesOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Train and serve small models on this machine, with sharing and without, and compare.

    Starts a server with two emulated devices and real PyTorch work in a temporary folder, and
    prints where its pages are.  --processes is for --simulated.
    """
    if simulated:
        from interlane.cli.demo_simulated import simulated_day

        simulated_day(processes, output)
        return
    _check_installed()
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="interlane-demo-", ignore_cleanup_errors=True) as name:
        _live(seconds, name, output)


def _check_installed() -> None:
    from importlib.util import find_spec

    for module in ("torch", "fastapi"):
        if find_spec(module) is None:
            raise InvalidInput(
                f"{module} is not installed; install interlane[server], or use --simulated."
            )


def _live(seconds: float, name: str, output: OutputFormat) -> None:
    from pathlib import Path

    from interlane.cli.demo_site import site
    from interlane.cli.demo_work import KINDS, Work

    steps = max(20, round((seconds * SHARE_ALONE / len(KINDS) - START_S) / STEP_S))
    work, folder = Work(steps, stream_s=seconds / 4), Path(name)
    cores = _cores()
    with site(folder / "shared", f"cpu:2:{DEVICE_GB}GB", cores) as shared:
        say(f"Two emulated devices on {len(cores)} cores. Pages: {shared.page or shared.url}")
        say(
            f"Shared: {len(KINDS)} trainings of {steps} steps each and two functions, wherever "
            "there is room."
        )
        together = _played(work, shared, shared, len(cores), is_shared=True)
        say("Without sharing: one device for trainings, one at a time, and one for functions.")
        apart = _apart(work, folder, cores)
        found = _figures(together, apart)
        emit(found, output, _told(found, together, apart))


def _cores() -> list[int]:
    """Return an even number of cores, or the only one."""
    import os

    cores = sorted(os.sched_getaffinity(0))
    return cores[: len(cores) // 2 * 2] or cores


def _apart(work: "Work", folder: "Path", cores: list[int]) -> "DemoRun":
    from interlane.cli.demo_site import site

    half = len(cores) // 2 or 1
    device = f"cpu:1:{DEVICE_GB}GB"
    with (
        site(folder / "trains", device, cores[:half]) as trains,
        site(folder / "serves", device, cores[-half:]) as serves,
    ):
        return _played(work, trains, serves, len(cores), is_shared=False)


def _played(
    work: "Work", trains: "DemoServer", serves: "DemoServer", cores: int, *, is_shared: bool
) -> "DemoRun":
    from interlane.cli.demo_work import play

    return play(work, trains, serves, cores, lambda line: say(f"  {line}"), shared=is_shared)


def _figures(together: "DemoRun", apart: "DemoRun") -> dict[str, Any]:
    from interlane.cli.demo_work import SLOWDOWN_MAX

    pairs = list(zip(together.trained, apart.trained, strict=True))
    slowdowns = [shared.loop_s / alone.loop_s for shared, alone in pairs]
    return {
        "shared": _side(together),
        "exclusive": _side(apart),
        "slowdown_mean": sum(slowdowns) / len(slowdowns),
        "slowdown_worst": max(slowdowns),
        "slowdown_max": SLOWDOWN_MAX,
        "same_losses": all(shared.loss == alone.loss for shared, alone in pairs),
        "trainings": [
            {"shared": asdict(shared), "exclusive": asdict(alone)} for shared, alone in pairs
        ],
    }


def _side(played: "DemoRun") -> dict[str, Any]:
    return {
        "utilisation": played.utilisation,
        "makespan_s": played.makespan_s,
        "mean_completion_s": played.mean_completion_s,
        "latency_p50_s": played.latency_s(0.5),
        "latency_p95_s": played.latency_s(0.95),
        "requests": len(played.asked),
        "unanswered": played.unanswered,
        "cold_starts": played.cold_starts,
    }


_ROWS: Final = (
    ("device utilisation", "utilisation", "{:.0%}"),
    ("makespan of trainings", "makespan_s", "{:.1f} s"),
    ("mean completion", "mean_completion_s", "{:.1f} s"),
    ("request latency P50", "latency_p50_s", "{:.3f} s"),
    ("request latency P95", "latency_p95_s", "{:.3f} s"),
    ("requests without answer", "unanswered", "{}"),
    ("cold starts", "cold_starts", "{}"),
)


def _told(found: dict[str, Any], together: "DemoRun", apart: "DemoRun") -> str:
    shared, alone = found["shared"], found["exclusive"]
    rows = [
        [what, form.format(alone[name]), form.format(shared[name]), _times(shared, alone, name)]
        for what, name, form in _ROWS
    ]
    table = grid(["", "without sharing", "shared", "shared / without"], rows)
    gain = together.utilisation / apart.utilisation - 1
    bits = "the same, bit for bit" if found["same_losses"] else "NOT the same"
    return (
        f"{table}\n\n"
        f"Average device utilisation {100 * gain:+.0f} %; trainings took "
        f"{found['slowdown_mean']:.2f} times as long as alone on average and "
        f"{found['slowdown_worst']:.2f} times at worst (bound {found['slowdown_max']:g}); they "
        f"came to losses that are {bits}."
        f"{_why_over(found['slowdown_worst'], found['slowdown_max'])}"
    )


def _why_over(worst: float, most: float) -> str:
    """Return why a training was slower than its bound, with what this machine did meanwhile."""
    import os

    if worst <= most:
        return ""
    cores = len(_cores())
    load = os.getloadavg()[0]
    return (
        f"\nThe bound of {most:g} was broken: it holds for what trainings on one device do to "
        f"each other, as predicted when they were placed, and here all devices are emulated on "
        f"{cores} cores that others use, too. The load was {load:.1f} processes for {cores} "
        "cores in the last minute; where it stays below the cores, or on GPUs, the bound is "
        "what decides who may share."
    )


def _times(shared: dict[str, Any], alone: dict[str, Any], name: str) -> str:
    if name in ("unanswered", "cold_starts"):
        return ""
    return f"{shared[name] / alone[name]:.2f}"
