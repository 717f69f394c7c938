"""Find the iterations of an unmodified PyTorch script.

An iteration ends where the optimizer has stepped, and begins at the next forward pass of the
model.  Which module is the model?  At first a hook on every module looks for the roots: modules
with parameters that no other module calls.  That costs some 3 us a module, so after a few
iterations only calls of the roots' classes are noticed.  (The class is patched and not the
module hooked, because models are copied and pickled, and hooks would go along.)

What is not a plain loop:

* inference: a root's forward pass without gradients is an iteration by itself;
* gradient accumulation, closures, several models: forward passes inside an iteration change
  nothing;
* several optimizers: a step outside of an iteration is a short iteration;
* steps that do not happen (GradScaler after an overflow), or happen during the backward pass:
  one forward pass more than any step has needed so far begins a new iteration;
* no modules at all: after a few steps without any forward pass, each step ends one iteration
  and begins the next;
* a model that turns up later: the same few steps, and the daemon asking for a lease on which
  nothing happens, start the search for roots again.

torch is an argument, so that nothing here imports it before the script does.
"""

import importlib
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

LEARNED_AFTER: Final = 4
"""Iterations for which every module is watched."""
PATIENT_FORWARDS: Final = 64
"""Forward passes in training that may come before the first step."""
DRY_STEPS: Final = 8
"""Steps in a row without a forward pass after which modules are not waited for."""
NO_BACKWARD: Final = -1


class IterationGate(Protocol):
    """What keeps iterations apart: a ``Client``."""

    on_recall: Callable[[], None] | None

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


class TorchHooks:
    """Turns what a script does with torch into beginnings and ends of iterations.

    Without a gate nothing happens until an optimizer steps; then ``attach`` makes one.
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
        self._running: list[Any] = []
        """Modules whose forward pass has begun, the outermost first.

        Who looks from the middle of a pass on sees the ends of modules whose beginning it
        missed; those must not close others.
        """
        self._forwards = 0
        """Forward passes of roots since the last boundary."""
        self._most_forwards = 0
        """The most that one step has needed."""
        self._dry_steps = 0
        """Steps in a row without a forward pass."""
        self._inferring = False
        self._boundaries = 0
        self._found: weakref.WeakSet[Any] = weakref.WeakSet()
        self._patched: set[type] = set()
        self._watching: list[Any] = []
        """Handles of the hooks on every module, while roots are looked for."""
        # The package deletes the name of this module from itself.
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)
        if gate is not None:
            self._use(gate)

    def _use(self, gate: IterationGate) -> None:
        self._gate = gate
        gate.on_recall = self._watch_if_idle
        self.watch()

    def watch(self) -> None:
        """Look for roots among all modules."""
        self._boundaries = 0
        if self._watching:
            return
        module = self._torch.nn.modules.module
        self._watching = [
            module.register_module_forward_pre_hook(self._before_any),
            module.register_module_forward_hook(self._after_any, always_call=True),
        ]

    def _watch_if_idle(self) -> None:
        """Look for roots again, unless one runs: its layers would be taken for roots."""
        if not self._running:
            self.watch()

    def orphan(self) -> None:
        """Forget the parent's gate in a forked child."""
        if self._gate is not None:
            self._gate.forget()
        self._gate = None
        self._thread = self._forwards = 0
        self._running = []
        self._inferring = False

    # -- modules ---------------------------------------------------------------------------

    def _before_any(self, module: Any, _: object) -> None:  # noqa: ANN401 - torch's module
        if self._is_foreign_thread():
            return
        self._running.append(module)
        if len(self._running) == 1 and next(module.parameters(), None) is not None:
            self._found.add(module)
            self._before_root(module)

    def _after_any(self, module: Any, *_: object) -> None:  # noqa: ANN401
        if self._is_foreign_thread():
            return
        if not self._running or self._running[-1] is not module:
            return
        self._running.pop()
        if self._running:
            return
        if module in self._found:
            self._after_root()
        self._stop_if_learned()

    def _is_foreign_thread(self) -> bool:
        """Tell whether another thread than the one that runs the iterations calls."""
        here = threading.get_ident()
        self._thread = self._thread or here
        return here != self._thread

    def _before_root(self, module: Any) -> None:  # noqa: ANN401
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

    def _after_root(self) -> None:
        if self._inferring and self._gate is not None:
            self._inferring = False
            self._boundary(self._gate)

    def _allowed_forwards(self, module: Any) -> int:  # noqa: ANN401
        unknown = PATIENT_FORWARDS if module.training else 1
        return self._most_forwards or unknown

    # -- optimizers ------------------------------------------------------------------------

    def _before_step(self, *_: object) -> None:
        if self._gate is None:
            self._use(self._attach())
        if self._gate is not None:
            self._gate.begin()

    def _after_step(self, *_: object) -> None:
        gate = self._gate
        if gate is None:
            return
        self._most_forwards = max(self._most_forwards, self._forwards)
        if self._torch._C._current_graph_task_id() != NO_BACKWARD:
            return
        self._dry_steps = 0 if self._forwards else self._dry_steps + 1
        self._boundary(gate)
        if self._dry_steps >= DRY_STEPS:
            self.watch()
            gate.begin()

    def _boundary(self, gate: IterationGate) -> None:
        self._forwards = 0
        gate.end()
        self._boundaries += 1
        self._stop_if_learned()

    # -- from all modules to the roots' classes ----------------------------------------------

    def _stop_if_learned(self) -> None:
        """Stop looking for roots, but not in the middle of one: its end would be missed."""
        if self._running or not self._watching:
            return
        if self._boundaries < LEARNED_AFTER or not self._found:
            return
        for handle in self._watching:
            handle.remove()
        self._watching = []
        for kind in {type(module) for module in self._found}:
            if kind not in self._patched:
                self._patched.add(kind)
                self._notice_calls(kind)

    def _notice_calls(self, kind: type) -> None:
        call = kind.__call__
        hooks = self

        def noticed(module: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            if hooks._running or hooks._watching or hooks._is_foreign_thread():
                return call(module, *args, **named)
            hooks._running = [hooks]  # whatever runs inside is no root
            try:
                hooks._before_root(module)
                return call(module, *args, **named)
            finally:
                hooks._running = []
                hooks._after_root()

        kind.__call__ = noticed  # type: ignore[method-assign]
