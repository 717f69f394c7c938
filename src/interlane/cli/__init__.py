"""The command line: parse, call one use case, print one answer.

Exit codes: 0 all is well, 1 an error, 2 usage or bad input, 3 nobody answers, 4 denied,
5 stale, 6 cannot be placed now, 7 never, 124 timeout, 130 interrupted; ``run``, ``wait`` and
``share run`` pass on the code of what they ran.  An error is one sentence on stderr; when
nobody reads our output any more, we leave without a word.
Heavy imports are inside the commands, so that ``--help`` is quick.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Final

import typer

from interlane.cli import (
    about,
    audit,
    compare,
    compile,
    demo,
    describe,
    doctor,
    explain,
    forward,
    function,
    gpus,
    job_output,
    jobs,
    kube,
    machines,
    mig,
    mig_gpus,
    mig_measure,
    mig_transition,
    pages,
    predict,
    ps,
    questions,
    replay,
    report,
    reproduce,
    share,
    share_bench,
    share_simulate,
    simulate,
    slurm,
    state,
    sweep,
    terminal,
    token,
    trace,
    up,
    usage,
    waiting,
)
from interlane.cli.client import Failure
from interlane.cli.extras import missing
from interlane.cli.help import GroupedCommands, WithExamples
from interlane.cli.output import say
from interlane.cli.progress import telling_of_compiling
from interlane.cli.renamed import with_new_names
from interlane.model.errors import InterlaneError, InvalidInput, Rejected, Unreachable

OK: Final = 0
ERROR: Final = 1
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3
NEVER_PLACED: Final = 7
INTERRUPTED: Final = 130

app = typer.Typer(
    name="interlane",
    cls=GroupedCommands,
    help="Share GPUs in deep-learning clusters in space and in time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(*, wanted: bool) -> None:
    if wanted:
        about.version()
        raise typer.Exit


@app.callback()
def _whole(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _version(wanted=wanted),
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Share GPUs in deep-learning clusters in space and in time."""


for command in (
    *(demo.demo, simulate.simulate, compare.compare, up.up, up.down, replay.replay),
    *(pages.pages, jobs.submit, jobs.run, ps.ps, describe.describe, explain.explain),
    *(describe.eta, questions.plan, jobs.wait, job_output.logs, jobs.cancel, jobs.resolve),
    terminal.attach,
    *(waiting.hold, waiting.release, waiting.change, waiting.rerun),
    *(gpus.gpus, gpus.top, machines.machines, machines.drain, machines.undrain),
    usage.usage,
    *(explain.timeline, about.policies, doctor.doctor, audit.audit, about.version),
):
    app.command(cls=WithExamples)(command)
app.command("port-forward", cls=WithExamples)(forward.port_forward)
app.add_typer(sweep.app, name="sweep")
app.add_typer(function.app, name="function")
app.command("compile", cls=WithExamples)(compile.compile_)
app.command(cls=reproduce.Command)(reproduce.reproduce)
trace.app.command()(report.report)
app.add_typer(trace.app, name="trace")
app.add_typer(predict.app, name="predict")
mig.app.command()(mig_transition.transition)
mig.app.command()(mig_transition.apply)
mig.app.command()(mig_gpus.state)
mig.app.command()(mig_gpus.cut)
mig.app.command()(mig_measure.measure)
app.add_typer(mig.app, name="mig")
share.app.command()(share_bench.bench)
share.app.command()(share_bench.profile)
share.app.command()(share_simulate.simulate)
app.add_typer(share.app, name="share")
app.add_typer(kube.app, name="kube")
app.add_typer(token.app, name="token")
app.add_typer(state.app, name="state")
app.add_typer(slurm.app, name="slurm")


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; no exception of bad input leaves here."""
    try:
        with telling_of_compiling():
            code = _invoke(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return ERROR
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except InvalidInput as error:
        return _fail(str(error), BAD_INPUT)
    except Unreachable as error:
        return _fail(str(error), UNREACHABLE)
    except Rejected as error:
        return _fail(str(error), NEVER_PLACED)
    except Failure as error:
        return _fail(str(error), error.exit_code)
    except InterlaneError as error:
        return _fail(str(error), ERROR)
    except ModuleNotFoundError as error:
        if (sentence := missing(error)) is None:
            raise
        return _fail(sentence, BAD_INPUT)
    except OSError as error:
        return _fail(_os_sentence(error), BAD_INPUT)
    except MemoryError:
        return _fail("the memory does not suffice; take a smaller --sample.", ERROR)
    return code


def _invoke(arguments: Sequence[str]) -> int:
    call: Callable[..., object] = app
    try:
        answer = call(with_new_names(arguments), standalone_mode=False, prog_name="interlane")
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        # Usage errors: typer's own, whose base class is not public in every version.
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)
    return answer if isinstance(answer, int) else OK


def _usage(error: Exception) -> int:
    sentence = str(error.format_message()).strip()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if not sentence or type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(context.get_help() if context is not None else sentence, err=True)
        return BAD_INPUT
    path = "interlane" if context is None else context.command_path
    return _fail(f"{sentence.rstrip('.')}; see '{path} --help'.", BAD_INPUT)


def _fail(sentence: str, code: int) -> int:
    one_line = " ".join(sentence.split())
    say(f"interlane: error: {one_line}")
    return code


def _os_sentence(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{error.filename}: {what}." if error.filename else f"{what}."


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
