"""Words to engines: what ``up --engine`` may name, and the options that each engine has.

An engine brings a dataclass of its options, whose fields are called as the options of
``interlane up`` are, a maker, and a line in ``ENGINES``.  An option of another engine than the
one that was chosen is refused: whoever gives it believes that it does something.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from interlane.live.functions.none import NoReplicas
from interlane.live.functions.port import ReplicaEngine
from interlane.live.port import Engine
from interlane.live.turn import Unreachable
from interlane.live.view import View
from interlane.model import InvalidInput, UnknownName
from interlane.model.gpu import NO_GPU


@dataclass(frozen=True, slots=True)
class MadeEngine:
    """An engine, and what is worth knowing of it before it runs."""

    engine: Engine
    replicas: ReplicaEngine
    gpu_type: str = NO_GPU
    """Of its first GPU: what a model of slowdowns is asked about."""
    greeting: str | None = None
    """What is said of it when it serves."""
    unreachable: Unreachable = lambda holder: None
    """What it says of attempts that others hold."""
    lead: Callable[[Callable[[str], None]], None] = lambda say: None
    """Waits until no other server works on the engine, and says for whom."""
    serves: Callable[[View], None] = lambda view: None
    """Told what can be asked, once the server serves."""


MakeEngine = Callable[[Path, float, str | None], MadeEngine]
"""Makes an engine that keeps what it must in a folder, for so many seconds after its end, and
that servers of the same database may use in turn."""


@dataclass(frozen=True, slots=True)
class LocalWords:
    """The options of the engine of this machine."""

    devices: str
    turns: str
    sharing: str
    accounts: Path | None
    trust_users: bool
    work: Path | None
    processes_per_job: int | None
    instances_per_job: int | None

    def make(self, state: Path, keep_s: float, database_url: str | None) -> MadeEngine:
        """Return the engine."""
        from interlane.engines.local.accounts import accounts_of
        from interlane.engines.local.launch import bounds_of
        from interlane.engines.local.make import local

        runs_as = accounts_of(self.accounts, trusts_users=self.trust_users, work=self.work)
        bounds = bounds_of(self.processes_per_job, self.instances_per_job)
        made = local(
            *(state, self.devices, self.turns, self.sharing, keep_s, runs_as, bounds),
            database_url=database_url,
        )
        return MadeEngine(
            made.engine, made.replicas, made.gpu_type, made.greeting, made.engine.unreachable
        )


@dataclass(frozen=True, slots=True)
class SlurmWords:
    """The options of the engine of Slurm."""

    partition: str | None
    dry_run: bool
    trust_users: bool

    def make(self, state: Path, keep_s: float, database_url: str | None) -> MadeEngine:
        """Return the engine."""
        from interlane.engines.slurm.make import greeting, slurm

        engine = slurm(
            state,
            self.partition,
            keep_s,
            dry_run=self.dry_run,
            trusts_users=self.trust_users,
        )
        return MadeEngine(engine, NoReplicas("slurm"), greeting=greeting(engine))


@dataclass(frozen=True, slots=True)
class KubernetesWords:
    """The options of the engine of a Kubernetes cluster."""

    kubeconfig: Path | None
    namespace: str | None
    home: str | None
    image: str | None

    def make(self, state: Path, keep_s: float, database_url: str | None) -> MadeEngine:
        """Return the engine."""
        from interlane.engines.kubernetes.make import kubernetes

        made = kubernetes(self.kubeconfig, self.namespace, self.home, self.image, keep_s)
        return MadeEngine(
            made.engine,
            NoReplicas(made.engine.traits.name),
            greeting=made.greeting,
            lead=made.lead,
            serves=made.explain_from,
        )


EngineWords = LocalWords | KubernetesWords | SlurmWords
"""The options of an engine, as users write them."""

ENGINES: Final[Mapping[str, type[EngineWords]]] = MappingProxyType(
    {"local": LocalWords, "kubernetes": KubernetesWords, "slurm": SlurmWords}
)
"""What ``up --engine`` may name."""


def engine_of(name: str, said: Mapping[str, Any], usual: Mapping[str, Any]) -> MakeEngine:
    """Return how to make an engine.

    Args:
        name: what users call it.
        said: all options by name, those of other engines and of none included.
        usual: what they are if nothing is said.
    """
    if name not in ENGINES:
        raise UnknownName("engine", name, ENGINES)
    own = {one.name for one in fields(ENGINES[name])}
    for other, words in ENGINES.items():
        for one in fields(words):
            if one.name not in own and said[one.name] != usual[one.name]:
                raise InvalidInput(
                    f"--{one.name.replace('_', '-')} is an option of --engine {other}, and "
                    f"--engine is {name}; leave one of them out."
                )
    return ENGINES[name](**{option: said[option] for option in own}).make
