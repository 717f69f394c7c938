"""Groups: programs that recur, whose they are, what they ask for and how long they take."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import (
    Flags,
    Floats,
    Ints,
    Rng,
    by_weight,
    deal,
    pick,
    portion,
    sizes,
)

ROLES: Final = ("tensorflow", "PyTorchWorker", "worker", "xComputeWorker", "evaluator", "ps")
"""Names of tasks, as they occur in the trace."""
TENSORFLOW, PYTORCH, WORKER, COMPUTE, EVALUATOR, SERVER = range(len(ROLES))


@dataclass(frozen=True)
class Requests:
    """What an instance of each group asks for."""

    gpu: Ints
    """Percent of a GPU; above 100 whole GPUs, 0 for none."""
    cpu: Ints
    """Percent of a core."""
    memory_gib: Floats


@dataclass(frozen=True)
class Groups:
    """One entry per program in every column."""

    runs: Ints
    user: Ints
    instances: Ints
    """Of the main task."""
    servers: Ints
    """Instances of the parameter servers' task; 0 where there is none."""
    asks: Requests
    server_asks: Requests
    kind: Ints
    """Kind of machine of the main task, an index of ``shares.KINDS``."""
    server_kind: Ints
    names_type: Flags
    workload: Ints
    """Index of ``shares.WORKLOADS``."""
    needs_card: Flags
    """Language models that need 16 GB of a card."""
    role: Ints
    typical_s: Floats
    spread: Floats

    @property
    def count(self) -> int:
        """How many programs there are."""
        return len(self.runs)


def draw_groups(rng: Rng, *, jobs: int, users: int, span_s: float, gpus: Floats) -> Groups:
    """Draw programs that run ``jobs`` times in all; ``gpus`` are there of each kind."""
    runs = _draw_runs(rng, jobs)
    instances = _draw_gangs(rng, runs)
    servers = _draw_servers(rng, runs, instances)
    load = (runs * (instances + servers)).astype(float)
    user = _draw_owners(rng, load, _budgets(users))
    asks = _draw_asks(rng, runs, instances)
    workload, needs_card = _draw_workloads(rng, runs, instances, servers, asks)
    typical_s = _draw_lengths(rng, user, instances, load, workload)
    server_asks = _server_asks(rng, servers)
    kind = _draw_kinds(rng, runs, instances, asks, typical_s, needs_card, span_s, gpus)
    server_kind = _bare_kinds(rng, runs * servers * server_asks.cpu * typical_s, gpus)
    tasks = runs * (1.0 + (servers > 0))
    return Groups(
        runs,
        user,
        instances,
        servers,
        asks,
        server_asks,
        kind,
        server_kind,
        portion(rng, tasks, of.NAMED_TYPE / 0.86, asks.gpu > 0),
        workload,
        needs_card,
        _draw_roles(rng, servers, asks, workload, load),
        typical_s,
        _draw_spreads(rng, load),
    )


def _draw_runs(rng: Rng, jobs: int) -> Ints:
    """Return how often each program runs; in a short trace none may set the tone."""
    largest = max(10, jobs // 200)
    found: list[Ints] = []
    left, due = jobs, 0.0
    for least, most, share in reversed(of.RECURRENCE):
        due += jobs * share
        wanted = left if least == 1 else min(left, round(due))
        if least <= min(largest, wanted):
            found.append(sizes(rng, least, min(most, largest), wanted))
            left -= wanted
            due -= wanted
    return np.concatenate(found)


def _draw_gangs(rng: Rng, runs: Ints) -> Ints:
    """Return the instances of each program's main task, largest gangs dealt first."""
    jobs = int(runs.sum())
    total = jobs * of.INSTANCES_PER_DAY / of.JOBS_PER_DAY
    instances = np.ones(len(runs), np.int64)
    owed = 0.0
    for size, share in of.GANGS:
        owed += share * total
        load = (runs * size).astype(float)
        free = (instances == 1) & (load <= max(of.LARGEST_LOAD * total, size))
        if owed < size * rng.random():
            continue
        part = owed / load.sum()
        taken = deal(rng, load, (part, 1.0 - part), (free.astype(float), None)) == 0
        instances[taken] = size
        owed -= float(load[taken].sum())
    return instances


def _draw_servers(rng: Rng, runs: Ints, instances: Ints) -> Ints:
    """Return how many parameter servers stand beside the workers."""
    served = portion(rng, runs.astype(float), of.SERVED_GANGS, instances > 1)
    servers = np.maximum(1, np.rint(instances / of.WORKERS_PER_SERVER)).astype(np.int64)
    return np.where(served, servers, 0)


def _budgets(users: int) -> Floats:
    """Return each user's share of the instances, largest first (figure 2a)."""
    top = max(1, round(of.TOP_USERS * users))
    half = users - users // 2
    rank = np.arange(1, users + 1)
    high = of.TOP_LEAST * (top / rank[:top]) ** 1.0
    high *= of.TOP_SHARE / high.sum()
    along = np.linspace(0.0, 1.0, half - top)
    middle = np.exp(-(along**0.8) * np.log(high[-1] / of.HALF_MOST))
    middle *= (1.0 - of.TOP_SHARE - 0.004) / max(middle.sum(), 1e-9)
    low = np.geomspace(of.HALF_MOST, of.HALF_MOST / 100, users - half)
    return np.concatenate([high, np.minimum(middle, high[-1]), low])


def _draw_owners(rng: Rng, load: Floats, budgets: Floats) -> Ints:
    """Give groups to users so that each user gets about the load budgeted for.

    Small users come first and take small groups only; a group that is large for a user
    would exceed the budget.
    """
    owner = np.full(len(load), -1, np.int64)
    budget = budgets / budgets.sum() * load.sum()
    tier = np.floor(np.log2(np.maximum(budget, 1.0)) / 2).astype(int)
    for one in np.unique(tier):
        users = np.flatnonzero(tier == one)
        free = np.flatnonzero(owner < 0)
        last = one == tier.max()
        if not last:
            free = free[load[free] <= max(1.0, float(budget[users].min()) / 2)]
        order = rng.permutation(free)
        reached = np.cumsum(load[order])
        wanted = np.cumsum(budget[users])
        if last and len(order):
            wanted *= reached[-1] / wanted[-1]
        place = np.searchsorted(wanted, reached - load[order] / 2)
        inside = place < len(users)
        owner[order[inside]] = users[place[inside]]
    owner[owner < 0] = 0
    return owner


def _draw_asks(rng: Rng, runs: Ints, instances: Ints) -> Requests:
    """Deal GPU requests by instances, apart for gangs and others, then what goes with them."""
    load = (runs * instances).astype(float)
    alone = instances == 1
    # Work without GPUs is mostly small.
    bare = portion(rng, runs.astype(float), of.BARE_JOBS, runs > 0, 1.0 / np.sqrt(instances))
    gpu = np.zeros(len(runs), np.int64)
    for some, share_of in ((alone, "single"), (~alone, "gang")):
        items = np.flatnonzero(some & ~bare)
        if len(items):
            odds = np.array([getattr(ask, share_of) for ask in of.ASKS])
            step = deal(rng, load[items], tuple(odds / odds.sum()))
            gpu[items] = np.array([ask.gpu for ask in of.ASKS])[step]
    cpu = _dealt(rng, load, of.BARE_CPU, bare)
    for ask in of.ASKS:
        cpu += _dealt(rng, load, ask.cpu, gpu == ask.gpu)
    memory = _dealt(rng, load, of.MEMORY_GIB, np.ones(len(runs), bool))
    return Requests(gpu, cpu.astype(np.int64), memory)


def _dealt(
    rng: Rng, load: Floats, choices: tuple[tuple[float, float], ...], among: Flags
) -> Floats:
    """Deal values by shares of the load among some items; 0 for the others."""
    found = np.zeros(len(load))
    items = np.flatnonzero(among)
    if len(items):
        odds = np.array([share for _, share in choices])
        place = deal(rng, load[items], tuple(odds / odds.sum()))
        found[items] = np.array([value for value, _ in choices], float)[place]
    return found


def _server_asks(rng: Rng, servers: Ints) -> Requests:
    count = len(servers)
    cpu = pick(rng, of.SERVER_CPU, count)
    memory = pick(rng, of.MEMORY_GIB, count)
    return Requests(np.zeros(count, np.int64), cpu.astype(np.int64), memory)


def _draw_workloads(
    rng: Rng, runs: Ints, instances: Ints, servers: Ints, asks: Requests
) -> tuple[Ints, Flags]:
    """Tag some programs by what they do; the tags are dealt by tasks or by instances."""
    tasks = runs * (1.0 + (servers > 0))
    load = (runs * instances).astype(float)
    workload = np.zeros(len(runs), np.int64)
    has_gpu = asks.gpu > 0
    # Reinforcement learning simulates in huge gangs; graph sampling in middling ones.
    for tag, share, least in ((of.RL, of.RL_INSTANCES, 200), (of.GNN, of.GNN_INSTANCES, 5)):
        some = (instances >= least) & has_gpu & (workload == 0)
        if some.any():
            part = share * float(load.sum() / load[some].sum())
            workload[portion(rng, load, min(part, 1.0), some)] = tag
    whole = np.where(asks.gpu >= 100, 6.0, 1.0) / instances
    nlp = _tagged(rng, tasks, of.NLP_TASKS, has_gpu & (workload == 0), whole)
    workload[nlp] = np.array(of.NLP)[rng.integers(0, len(of.NLP), int(nlp.sum()))]
    small = np.where(asks.gpu <= 50, 3.0, 1.0) / np.sqrt(instances)
    ctr = _tagged(rng, tasks, of.CTR_TASKS, has_gpu & (workload == 0) & (instances < 64), small)
    workload[ctr] = of.CTR
    return workload, portion(rng, tasks, of.NLP_LARGE, nlp)


def _tagged(rng: Rng, tasks: Floats, share: float, among: Flags, liking: Floats) -> Flags:
    part = share * float(tasks.sum() / max(tasks[among].sum(), 1e-9))
    return portion(rng, tasks, min(part, 1.0), among, liking)


def _draw_lengths(
    rng: Rng, user: Ints, instances: Ints, load: Floats, workload: Ints
) -> Floats:
    """Return each program's typical run time, with the published quantiles by instances."""
    habit = rng.standard_normal(int(user.max()) + 1)[user]
    own = rng.standard_normal(len(user))
    rank = of.OWNER_PULL * habit + np.sqrt(1 - of.OWNER_PULL**2) * own
    rank += 0.25 * np.minimum(np.log(instances), 4.0)
    return by_weight(rank, load, of.RUN_AT, of.RUN_S)


def _draw_kinds(
    rng: Rng,
    runs: Ints,
    instances: Ints,
    asks: Requests,
    typical_s: Floats,
    needs_card: Flags,
    span_s: float,
    gpus: Floats,
) -> Ints:
    """Deal machines by GPU time, so that kinds are as full as they were."""
    kind = _bare_kinds(rng, runs * instances * asks.cpu * typical_s, gpus)
    gpu_s = runs * instances * asks.gpu / 100 * typical_s
    with_gpu = asks.gpu > 0
    kind[with_gpu & needs_card] = of.V100M32
    free = np.flatnonzero(with_gpu & ~needs_card)
    wanted = {one: share * gpus[one] * span_s for one, share in of.GPU_ALLOCATED.items()}
    wanted[of.V100M32] -= float(gpu_s[kind == of.V100M32].sum())
    whole, large = asks.gpu[free] >= 100, instances[free] > 1
    strong = np.where(whole, 12.0, 1.0) * np.where(large, 3.0, 1.0)
    strong *= np.clip(typical_s[free] / 2000.0, 0.05, 4.0)
    weak = np.where(asks.gpu[free] < 100, 1.0, 0.5)
    total = max(float(gpu_s[free].sum()), 1e-9)
    order = (of.V100M32, of.V100, of.MISC)
    parts = [max(wanted[one], 0.0) / total for one in order]
    rest = max(1.0 - sum(parts), 0.0)
    fits = (strong * (asks.gpu[free] <= 800), strong, weak, _two(asks.gpu[free]), None)
    dealt = deal(rng, gpu_s[free], (*parts, rest * 0.55, rest * 0.45), fits)
    kind[free] = np.array((*order, of.P100, of.T4))[dealt]
    kind[free] = np.where((asks.gpu[free] > 200) & (kind[free] == of.T4), of.MISC, kind[free])
    return kind


def _two(gpu: Ints) -> Floats:
    """Keep requests of more than two GPUs from machines with two."""
    return np.where(gpu <= 200, 1.0, 0.0)


def _bare_kinds(rng: Rng, cpu_s: Floats, gpus: Floats) -> Ints:
    """Put work without GPUs on machines without, and beside others on those with two GPUs."""
    dealt = deal(rng, cpu_s.astype(float), (0.15, 0.35, 0.50))
    return np.array((of.CPU, of.T4, of.P100))[dealt]


def _draw_roles(rng: Rng, servers: Ints, asks: Requests, workload: Ints, load: Floats) -> Ints:
    role = np.where(rng.random(len(servers)) < 0.8, TENSORFLOW, PYTORCH)
    role = np.where(asks.gpu == 0, COMPUTE, role)
    role = np.where(servers > 0, WORKER, role)
    ctr = workload == of.CTR
    infers = portion(rng, load, 1.0 - of.CTR_TRAINING, ctr)
    return np.where(infers, EVALUATOR, role).astype(np.int64)


def _draw_spreads(rng: Rng, load: Floats) -> Floats:
    dealt = deal(rng, load, tuple(share for _, share in of.SPREADS))
    return np.array([spread for spread, _ in of.SPREADS])[dealt]
