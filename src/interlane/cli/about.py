"""``interlane policies`` and ``interlane version``."""

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit


def policies(output: OutputOption = OutputFormat.TABLE) -> None:
    """List orders, placers, queues and colocators with a sentence on each."""
    from interlane import wiring

    known = wiring.policies()
    width = max(len(name) for names in known.values() for name in names) + 2
    told = []
    for kind, names in known.items():
        told.append(f"{kind}:")
        told += [f"  {name:<{width}}{about}" for name, about in names.items()]
    emit(known, output, "\n".join(told))


def version() -> None:
    """Print the version."""
    from interlane import __version__

    typer.echo(__version__)
