"""``interlane doctor``: what this machine can do."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit, grid, printed, say

if TYPE_CHECKING:
    from interlane.device.self_test.checks import GpuReport


def doctor(
    *,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Test the GPU for about two minutes, too.")
    ] = False,
    report: Annotated[
        Path,
        typer.Option(metavar="FILE", help="With --gpu: where to write what was found."),
    ] = Path("interlane-gpu.json"),
    train_s: Annotated[
        float,
        typer.Option(
            "--train", metavar="SECONDS", min=1.0, help="With --gpu: length of a training."
        ),
    ] = 10.0,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Say what this machine can do, what jobs are held to, and how devices are shared.

    --gpu tries an NVIDIA GPU: what its driver tells, two trainings that take turns, a memory
    cap, MPS and MIG where they are in use. Nothing is changed. It writes one small file that
    says nothing of whose machine it is; send it to us if anything in it does not hold.

    Exit code 1 if devices cannot be shared here at all, or if something of the GPU fails.
    """
    from interlane.device.probe import probe, promises
    from interlane.wiring import job_bounds

    if gpu:
        return _gpu(report, train_s, output)
    findings = probe()
    promised = promises(findings)
    findings += job_bounds()
    rows = [(one.name, "yes" if one.holds else "no", one.here, one.follows) for one in findings]
    table = grid(("what", "", "here", "what follows"), rows, left=4)
    width = max(map(len, promised)) + 2
    told = [f"{mode:<{width}}{what}" for mode, what in promised.items()]
    emit(
        {"findings": [asdict(one) for one in findings], "promises": promised},
        output,
        "\n".join([table, "", *told]),
    )
    return int(not all(one.holds for one in findings if one.is_needed))


HELD = {True: "holds", False: "fails", None: "not tried"}


def _gpu(path: Path, train_s: float, output: OutputFormat) -> int:
    from interlane.device.self_test.checks import self_test

    found = self_test(say, train_s=train_s)
    path.write_text(printed(found.document, OutputFormat.JSON) + "\n", encoding="utf-8")
    emit(found.document, output, _told(found, path))
    return int(any(one.holds is False for one in found.checks))


def _told(found: "GpuReport", path: Path) -> str:
    rows = [(one.name, HELD[one.holds], one.here) for one in found.checks]
    lines = [grid(("what", "", "here"), rows, left=3), ""]
    if found.stand_in:
        lines.append(
            "There is no GPU behind this: a stand-in for NVIDIA's driver answered, and "
            f"trainings ran on the {found.device.upper()}."
        )
    elif found.device == "cpu":
        lines.append("PyTorch sees no GPU here, so trainings ran on the CPU.")
    return "\n".join([*lines, f"Written to {path}."])
