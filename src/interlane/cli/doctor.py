"""``interlane doctor``: what this machine can do."""

from dataclasses import asdict

from interlane.cli.output import OutputFormat, OutputOption, emit, grid


def doctor(output: OutputOption = OutputFormat.TABLE) -> int:
    """Say what this machine can do, what jobs are held to, and how devices are shared.

    Exit code 1 if devices cannot be shared here at all.
    """
    from interlane.device.probe import probe, promises
    from interlane.wiring import job_bounds

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
