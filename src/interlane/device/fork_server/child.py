"""A forked job: put in place what a parent gives to a new process, run the script, end.

The end is like an interpreter's (threads are waited for, exit handlers run, the script's own
objects go, streams are flushed), but torch's modules are not taken apart: that would touch
every page that the job shares with the fork server and takes more than a second.
"""

import atexit
import gc
import io
import os
import resource
import runpy
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final, NoReturn

from interlane.device.fork_server.request import ForkRequest

_OURS: Final = (str(Path(__file__).parents[1]), runpy.__file__, "<frozen runpy")


def run(request: ForkRequest, from_imports: Mapping[str, str]) -> NoReturn:
    """Become the process that was asked for, to its end."""
    code = 1
    try:
        _inherit(request)
        os.environ.update({**from_imports, **request.environment})
        _fresh_interpreter()
        _share_if_asked()
        _run_main(request)
        code = 0
    except SystemExit as stop:
        code = _code(stop)
    except BaseException as error:
        _tell(error)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        _end(code)


def _inherit(request: ForkRequest) -> None:
    """Take over what the kernel would have handed down."""
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request.folder)
    os.umask(request.umask)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, request.nice)
        os.sched_setaffinity(0, request.cores)
    for which, soft, hard in request.limits:
        with suppress(OSError, ValueError):
            resource.setrlimit(which, (soft, hard))
    os.environ.clear()


def _fresh_interpreter() -> None:
    """Make anew what an interpreter, and torch, make when they start."""
    # The streams were made on descriptors that lead elsewhere now.
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.write_through:
        sys.stdout.reconfigure(line_buffering=os.isatty(1))
    # Python's own random generator is seeded anew in every fork.
    import numpy
    import torch

    torch.seed()
    numpy.random.seed()


def _share_if_asked() -> None:
    """Do what ``sitecustomize`` does in a job that is started cold."""
    from interlane.device import inject
    from interlane.device.lane_request import REQUEST_VARIABLE

    if REQUEST_VARIABLE in os.environ:
        import torch

        os.environ.update(inject.with_hooks(os.environ))
        inject.share(torch)


def _run_main(request: ForkRequest) -> None:
    sys.argv = [request.script, *request.arguments]
    if request.is_module:
        sys.path.insert(0, request.folder)
        # What the interpreter itself calls for ``-m``.
        runpy._run_module_as_main(request.script)  # type: ignore[attr-defined]
    else:
        _run_script(Path(request.folder) / request.script)


def _run_script(path: Path) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(path)
    main.__loader__ = SourceFileLoader("__main__", str(path))
    main.__dict__.update(__builtins__=__builtins__, __cached__=None, __annotations__={})
    sys.modules["__main__"] = main
    if not sys.flags.safe_path:
        sys.path.insert(0, str(path.resolve().parent))
    with io.open_code(str(path)) as file:
        source = file.read()
    exec(compile(source, str(path), "exec", dont_inherit=True), main.__dict__)


def _code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return (stop.code or 0) & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    """Print a traceback that begins where the script does."""
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_OURS):
        at = at.tb_next
    sys.excepthook(type(error), error.with_traceback(at), at)


def _end(code: int) -> NoReturn:
    """Do what an interpreter does at its end, in its order."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
