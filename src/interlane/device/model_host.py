"""Many inference models in one process: one context, one interpreter, one request at a time.

The models live in a host process; this side supervises it.  A request is an iteration: with a
daemon it waits for a lease like that of any job, and each model is admitted with the memory it
declares before it is loaded.  What goes wrong is answered to whoever asked:

* a model that raises: ``ModelFailed``; the host goes on;
* a model that takes too long, ends the process or breaks the device: ``ModelFailed``; the host
  is started again with all other models, and the request of nobody else is lost;
* a model that does so ``STRIKES`` times in a row is not started again.

Memory is accounted and not capped: models of one process cannot be told apart by the kernel.
Arguments and results are pickled between the two processes, which belong to one user.
"""

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self

from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import DeviceClient
from interlane.device.lane_request import request_for
from interlane.model import InterlaneError, InvalidInput, UnknownName

START_S: Final = 120.0
LOAD_S: Final = 120.0
REQUEST_S: Final = 30.0
STRIKES: Final = 3
_WORKER: Final = "interlane.device.model_worker"

Factory = str | Callable[[], Callable[..., Any]]
"""Makes a model: ``module:function``, or a function that can be pickled."""


class ModelFailed(InterlaneError):
    """A model could not answer a request, or could not be loaded."""


class _HostLost(Exception):
    """The host process does not answer any more."""


@dataclass(slots=True)
class _Model:
    factory: Factory
    place: DeviceClient | None
    strikes: int = 0
    trouble: str | None = None
    """Why it is not loaded."""


class ModelHost:
    """Hosts models; every method may be called from any thread."""

    def __init__(
        self,
        *,
        share: Path | None = None,
        load_s: float = LOAD_S,
        request_s: float = REQUEST_S,
    ) -> None:
        """Start the host.

        Args:
            share: socket of the device daemon that admits models and grants requests; without
                one nobody does.
            load_s: seconds in which a model must have loaded.
            request_s: seconds in which a request must be answered, once it has begun.
        """
        self._share = share
        self._load_s = load_s
        self._request_s = request_s
        self._models: dict[str, _Model] = {}
        self._turn = threading.Lock()
        self._closed = False
        self.restarts = 0
        # The one context of the host, in which the models are guests.
        self._context = _place("model host", "0", share) if share is not None else None
        try:
            self._start()
        except ModelFailed:
            if self._context is not None:
                self._context.close()
            raise

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order in which they were added."""
        return tuple(self._models)

    def add(self, name: str, factory: Factory, *, memory: str | None = None) -> None:
        """Load a model; with a daemon, after it has been admitted.

        Args:
            name: what to call it by.
            factory: makes the model, in the host.
            memory: ``PERSISTENT+EPHEMERAL``, as in ``200MiB+50MiB``.
        """
        place = (
            None if self._share is None else _place(name, memory, self._share, is_guest=True)
        )
        model = _Model(factory, place)
        try:
            with self._turn:
                self._be_there()
                if name in self._models:
                    raise InvalidInput(f"there is a model {name!r} already; remove it first.")
                if not self._load(name, model):
                    self._restart()
                if model.trouble is not None:
                    raise ModelFailed(f"model {name!r} was not loaded: {model.trouble}.")
                self._models[name] = model
        except InterlaneError:
            self._leave(model)
            raise

    def remove(self, name: str) -> None:
        """Unload a model; its memory is free for others."""
        with self._turn:
            self._be_there()
            model = self._known(name)
            del self._models[name]
            with suppress(_HostLost):
                self._ask(("remove", name, None), self._request_s)
        self._leave(model)

    def call(self, name: str, *arguments: object, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """Run one request and return the model's answer."""
        with self._turn:
            self._be_there()
            model = self._known(name)
            if model.trouble is not None:
                raise ModelFailed(f"model {name!r} is not loaded: {model.trouble}.")
            with self._lease(model):
                fate, answer = self._answer(name, arguments, timeout_s or self._request_s)
            if fate == "ok":
                model.strikes = 0
                return answer
            if fate != "error":
                self._strike(model, answer)
                self._restart()
            raise ModelFailed(f"model {name!r} failed: {answer}.")

    __call__ = call

    def close(self) -> None:
        """Unload everything."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            self._stop()
            for model in self._models.values():
                self._leave(model)
            if self._context is not None:
                self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests, one at a time -----------------------------------------------------------

    def _answer(self, name: str, arguments: object, timeout_s: float) -> tuple[str, Any]:
        try:
            return self._ask(("call", name, arguments), timeout_s)
        except _HostLost as lost:
            return "lost", f"it {lost}"
        except Exception as error:
            return "error", f"its arguments or its answer cannot be pickled ({error})"

    def _strike(self, model: _Model, what: str) -> None:
        model.strikes += 1
        if model.strikes >= STRIKES:
            model.trouble = f"{what}, {STRIKES} times in a row; remove and add it again"

    def _ask(self, message: tuple[str, str, object], timeout_s: float) -> tuple[str, Any]:
        """Send the host a message and return its answer; raises if it does not answer."""
        # Plain pickles: torch would pass tensors on through a server of the sending process.
        sent = pickle.dumps(message)
        try:
            self._line.send_bytes(sent)
            if not self._line.poll(timeout_s):
                raise _HostLost(f"did not answer within {timeout_s:g} s")
            received = self._line.recv_bytes()
        except (EOFError, ConnectionError):
            code = self._process.wait()
            raise _HostLost(f"ended its host with exit code {code}") from None
        except KeyboardInterrupt:
            # The answer would be taken for that of the next request.
            self._process.kill()
            self._process.wait()
            raise
        fate, answer = pickle.loads(received)
        return fate, answer

    def _known(self, name: str) -> _Model:
        if name not in self._models:
            raise UnknownName("model", name, self._models)
        return self._models[name]

    def _be_there(self) -> None:
        """See that there is a host, whatever became of it since the last request."""
        if self._closed:
            raise InvalidInput("the model host is closed; make another one.")
        if self._process.poll() is not None:
            self._restart()

    # -- the host process ------------------------------------------------------------------

    def _start(self) -> None:
        near, far = socket.socketpair()
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _WORKER, str(far.fileno())],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._line: Connection[Any, Any] = Connection(near.detach())
        try:
            self._ask(("hello", "", sys.path), START_S)
        except _HostLost as lost:
            self._stop()
            raise ModelFailed(f"the model host did not start: it {lost}.") from None

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._line.close()

    def _restart(self) -> None:
        """Start the host again, as often as it takes to have every model that will load."""
        while not self._reloaded():
            pass

    def _reloaded(self) -> bool:
        self.restarts += 1
        self._stop()
        self._start()
        sound = [(name, one) for name, one in self._models.items() if one.trouble is None]
        return all(self._load(name, model) for name, model in sound)

    def _load(self, name: str, model: _Model) -> bool:
        """Load a model, or note why not; return whether the host is still there."""
        try:
            fate, answer = self._ask(("add", name, model.factory), self._load_s)
        except _HostLost as lost:
            model.trouble = f"it {lost}"
            return False
        except Exception as error:
            fate, answer = "error", f"its factory cannot be pickled ({error})"
        model.trouble = None if fate == "ok" else str(answer)
        return fate != "sticky"

    # -- the device ------------------------------------------------------------------------

    def _lease(self, model: _Model) -> AbstractContextManager[None]:
        return nullcontext() if model.place is None else model.place.iteration()

    def _leave(self, model: _Model) -> None:
        if model.place is not None:
            model.place.close()


def _place(
    name: str, memory: str | None, share: Path, *, is_guest: bool = False
) -> DeviceClient:
    """Take a place on the device, and wait for it if need be."""
    return DeviceClient(request_for(name, memory=memory, is_guest=is_guest), share, Unmeasured)
