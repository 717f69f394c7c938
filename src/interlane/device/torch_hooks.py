"""Find the iterations of an unmodified PyTorch script.

An iteration ends where the optimizer has stepped, and begins at the next forward pass of the
model.  Which module is the model?  One with parameters that no other module calls.  For that,
the call that all modules have in common is noticed, which costs a module a fraction of a
microsecond.  What comes out of torch is the same as without: compiled code skips the notice, so
that graphs neither break nor are made again, tracers see the modules that they always see, and
nothing is kept in modules, which are copied and pickled.

What is not a plain loop:

* inference: the model's forward pass without gradients is an iteration by itself;
* gradient accumulation, closures, several models: forward passes inside an iteration change
  nothing;
* several optimizers: a step outside of an iteration is a short iteration;
* steps that do not happen (GradScaler after an overflow), or happen during the backward pass:
  one forward pass more than any step has needed so far begins a new iteration;
* no optimizer of torch's was made: after a few backward passes, a backward pass ends
  an iteration; where there are only gradients of functions, each of these does;
* no modules at all: after a few ends without any forward pass, each end begins the next
  iteration.

torch is an argument, so that nothing here imports it before the script does.
"""

import functools
import importlib
import threading
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

PATIENT_FORWARDS: Final = 64
"""Forward passes in training that may come before the first step."""
PATIENT_BACKWARDS: Final = 4
"""Backward passes that may come before the first step."""
DRY_ENDS: Final = 8
"""Ends in a row without a forward pass after which modules are not waited for."""
NO_BACKWARD: Final = -1


class IterationGate(Protocol):
    """What keeps iterations apart: a ``Client``."""

    lends: bool

    @property
    def inside(self) -> bool:
        """Whether an iteration runs."""
        ...

    def begin(self) -> None:
        """Begin an iteration unless one runs."""
        ...

    def end(self) -> None:
        """End the iteration, if one runs."""
        ...

    def forget(self) -> None:
        """Let go in a forked child without a word to anybody."""
        ...


class _End(IntEnum):
    """What ends iterations, the surest sign last: it counts once it was seen."""

    GRADIENTS = 1
    BACKWARD = 2
    STEP = 3


class TorchHooks:
    """Turns what a script does with torch into beginnings and ends of iterations.

    Without a gate nothing happens until a backward pass or an optimizer's step; then ``attach``
    makes one.
    """

    def __init__(
        self,
        torch: Any,  # noqa: ANN401 - a module
        gate: IterationGate | None,
        attach: Callable[[], IterationGate],
    ) -> None:
        self._torch = torch
        self._gate: IterationGate | None = None
        self._attach = attach
        self._thread = 0
        self._running = False
        """Whether a module's forward pass has begun: what it calls is no model."""
        self._forwards = 0
        """Forward passes of models since the last boundary."""
        self._most_forwards = 0
        """The most that one end has needed."""
        self._surest = _End.GRADIENTS
        """What has ended iterations so far, or would."""
        self._unstepped = 0
        """How often it came before it was believed."""
        self._dry_ends = 0
        """Ends in a row without a forward pass."""
        self._inferring = False
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._notice_calls()
        self._notice_backward()
        # The package deletes the name of this module from itself.
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)
        self._notice_optimizers(optimizer.Optimizer)
        if gate is not None:
            self._use(gate)

    def _use(self, gate: IterationGate) -> None:
        self._gate = gate
        # What is taken for an iteration here may be one that nobody will end.
        gate.lends = True

    def orphan(self) -> None:
        """Forget the parent's gate in a forked child."""
        if self._gate is not None:
            self._gate.forget()
        self._gate = None
        self._thread = self._forwards = 0
        self._running = self._inferring = False

    def _is_foreign_thread(self) -> bool:
        """Tell whether another thread than the one that runs the iterations calls."""
        here = threading.get_ident()
        self._thread = self._thread or here
        return here != self._thread

    # -- modules ---------------------------------------------------------------------------

    def _notice_calls(self) -> None:
        module = self._torch.nn.Module
        call, is_compiling, hooks = module.__call__, self._torch.compiler.is_compiling, self

        @functools.wraps(call)
        def noticed(module: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            # The compiler must find nothing here but the call.
            if is_compiling() or hooks._running or hooks._is_foreign_thread():
                return call(module, *args, **named)
            hooks._running = True
            is_model = hooks._is_model(module)
            try:
                if is_model:
                    hooks._before_model(module)
                return call(module, *args, **named)
            finally:
                hooks._running = False
                if is_model:
                    hooks._after_model()

        module.__call__ = noticed

    def _is_model(self, module: Any) -> bool:  # noqa: ANN401 - torch's module
        if module in self._models:
            return True
        has_parameters = next(module.parameters(), None) is not None
        if has_parameters:
            self._models.add(module)
        return has_parameters

    def _before_model(self, module: Any) -> None:  # noqa: ANN401
        gate = self._gate
        if gate is None:
            return
        if self._torch.is_grad_enabled():
            self._forwards += 1
            if gate.inside and self._forwards > self._allowed_forwards(module):
                self._boundary(gate)
                self._forwards = 1
        elif not gate.inside:
            self._inferring = True
        gate.begin()

    def _after_model(self) -> None:
        if self._inferring and self._gate is not None:
            self._inferring = False
            self._boundary(self._gate)

    def _allowed_forwards(self, module: Any) -> int:  # noqa: ANN401
        unknown = PATIENT_FORWARDS if module.training else 1
        return self._most_forwards or unknown

    # -- backward passes -------------------------------------------------------------------

    def _notice_backward(self) -> None:
        """Notice what ``backward`` and ``grad`` have in common, under both of its names.

        Neither of the two is replaced: tensors of other kinds are told which was called.
        """
        autograd = self._torch.autograd
        run = getattr(autograd.graph, "_engine_run_backward", None)
        if run is None:  # another version of torch: steps are noticed all the same
            return
        is_compiling, hooks = self._torch.compiler.is_compiling, self

        @functools.wraps(run)
        def noticed(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            if is_compiling() or hooks._running or hooks._is_foreign_thread():
                return run(*args, **named)
            if hooks._torch._C._current_graph_task_id() != NO_BACKWARD:
                return run(*args, **named)
            hooks._gated().begin()
            try:
                return run(*args, **named)
            finally:
                is_backward = named.get("accumulate_grad", False)
                hooks._after_backward(_End.BACKWARD if is_backward else _End.GRADIENTS)

        autograd.graph._engine_run_backward = noticed
        autograd._engine_run_backward = noticed

    def _gated(self) -> IterationGate:
        if self._gate is None:
            self._use(self._attach())
        assert self._gate is not None
        return self._gate

    def _after_backward(self, end: _End) -> None:
        if self._gate is None or end < self._surest:
            return
        self._unstepped = self._unstepped + 1 if end == self._surest else 1
        self._surest = end
        if self._unstepped > PATIENT_BACKWARDS:
            self._end(self._gate)

    # -- optimizers ------------------------------------------------------------------------

    def _notice_optimizers(self, kind: Any) -> None:  # noqa: ANN401 - torch's class
        """Wait for steps once there is an optimizer: many backward passes may lead to one."""
        make, hooks = kind.__init__, self

        @functools.wraps(make)
        def noticed(one: Any, *args: Any, **named: Any) -> None:  # noqa: ANN401
            hooks._surest = _End.STEP
            make(one, *args, **named)

        kind.__init__ = noticed

    def _before_step(self, *_: object) -> None:
        if not self._torch.compiler.is_compiling():
            self._surest = _End.STEP  # backward passes of a closure end nothing
            self._gated().begin()

    def _after_step(self, *_: object) -> None:
        gate = self._gate
        if gate is None or self._torch.compiler.is_compiling():
            return
        self._most_forwards = max(self._most_forwards, self._forwards)
        if self._torch._C._current_graph_task_id() == NO_BACKWARD:
            self._end(gate)

    def _end(self, gate: IterationGate) -> None:
        self._most_forwards = max(self._most_forwards, self._forwards)
        self._dry_ends = 0 if self._forwards else self._dry_ends + 1
        self._boundary(gate)
        if self._dry_ends >= DRY_ENDS:
            gate.begin()

    def _boundary(self, gate: IterationGate) -> None:
        self._forwards = 0
        gate.end()
