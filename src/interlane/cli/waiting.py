"""Jobs that wait or have ended: ``hold release change rerun``."""

from typing import Annotated, Any, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions, job_path
from interlane.cli.completion import LiveJob, open_jobs
from interlane.cli.job_files import changed
from interlane.cli.jobs import SubmitOptions, handed_in
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit
from interlane.model.errors import InvalidInput

HIDDEN: Final = "(hidden)"
"""What the server says instead of values of variables, to others than their owner."""

Jobs = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.", autocompletion=open_jobs)
]


@takes(ServerOptions)
def hold(
    jobs: Jobs, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Let jobs that wait go on waiting until they are released.

    Examples:
      interlane hold train-7
      interlane release train-7
    """
    client = ApiClient(options)
    _show([client.put(f"{job_path(job)}/hold").document() for job in jobs], output)


@takes(ServerOptions)
def release(
    jobs: Jobs, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Let jobs that were held start when they can.

    Examples:
      interlane release train-7 train-8
    """
    client = ApiClient(options)
    _show([client.delete(f"{job_path(job)}/hold").document() for job in jobs], output)


@takes(SubmitOptions)
def change(
    job: LiveJob, *, options: SubmitOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Change what a job that waits says; it keeps its place in line.

    Examples:
      interlane change train-7 --set priority=80
      interlane change train-7 --gpus 2 --set time.limit=4h
    """
    if options.name is not None:
        raise InvalidInput("The name of a job stays as it is; submit another.")
    client = ApiClient(options)
    before = client.get(job_path(job)).document()["spec"]
    patch = _difference(before, changed(before, options))
    if not patch:
        raise InvalidInput("Nothing would change; say what, as in --set priority=80.")
    _show([client.patch(job_path(job), patch).document()], output)


@takes(SubmitOptions)
def rerun(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
    *,
    options: SubmitOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Submit jobs again as they were, with what is changed.

    Examples:
      interlane rerun train-7
      interlane rerun train-7 --env SEED=8 --set time.limit=4h
    """
    client = ApiClient(options)
    made = []
    for job in jobs:
        spec = client.get(job_path(job)).document()["spec"]
        made.append(
            handed_in(client, changed({**spec, "after": [], "hold": False}, options), None)
        )
    _show(made, output)


def _difference(before: Any, after: Any) -> dict[str, Any]:  # noqa: ANN401 - any part of a document
    """Return what must be sent so that one document becomes another."""
    sent = {}
    for name in {*before, *after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        both = isinstance(old, dict) and isinstance(new, dict)
        sent[name] = _difference(old, new) if both else new
    return sent


def _show(jobs: list[dict[str, Any]], output: OutputFormat) -> None:
    emit({"jobs": jobs}, output, "\n".join(f"{job['id']} {job['state']}" for job in jobs))
