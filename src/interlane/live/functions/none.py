"""For engines that run jobs and no functions."""

from collections.abc import Callable
from dataclasses import dataclass

from interlane.live.files.function import FunctionSpec
from interlane.live.functions.port import Environment
from interlane.model import InvalidInput


@dataclass(frozen=True, slots=True)
class NoReplicas:
    """Refuses every function; see ``live.functions.port.ReplicaEngine``."""

    engine: str
    """What users call the engine."""

    def check(self, spec: FunctionSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse a function."""
        raise self._refusal(spec)

    def open(
        self, spec: FunctionSpec, user: str, printed: Callable[[bytes], None]
    ) -> Environment:
        """Refuse a function that another engine ran from the same folder."""
        raise self._refusal(spec)

    def close(self) -> None:
        """Do nothing: there are no replicas."""

    def _refusal(self, spec: FunctionSpec) -> InvalidInput:
        return InvalidInput(
            f"Function {spec.name} cannot run on --engine {self.engine}, which runs jobs only; "
            "deploy it to a server of --engine local."
        )
