"""Groups: programs that recur, whose they are, what they ask for and how long they take."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.traces.synth import log_even_sizes
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
)

ROLES: Final = ("tensorflow", "PyTorchWorker", "worker", "xComputeWorker", "evaluator", "ps")
"""Names of tasks, as they occur in the trace."""
TENSORFLOW, PYTORCH, WORKER, COMPUTE, EVALUATOR, SERVER = range(len(ROLES))


@dataclass(frozen=True)
class GroupRequests:
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
    asks: GroupRequests
    server_asks: GroupRequests
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
    instances, servers, bare = _draw_gangs(rng, runs)
    load = (runs * (instances + servers)).astype(float)
    user = _draw_owners(rng, load, _budgets(users))
    asks = _draw_asks(rng, runs, instances, bare)
    server_asks = _server_asks(rng, servers)
    workload, needs_card = _draw_workloads(rng, runs, instances, servers, asks)
    typical_s = _draw_lengths(rng, user, instances, servers, load, asks)
    spread = _draw_spreads(rng, load)
    mean_s = typical_s * np.exp(spread**2 / 2)
    kind = _bare_kinds(rng, runs * instances * (asks.gpu == 0), typical_s)
    gpu_s = runs * instances * asks.gpu / 100 * mean_s
    wanted_s = {one: part * gpus[one] * span_s for one, part in of.GPU_ALLOCATED.items()}
    fits = _kind_fits(instances, asks, typical_s, workload)
    _deal_kinds(rng, kind, gpu_s, asks.gpu, needs_card, wanted_s, fits)
    tasks = runs * (1.0 + (servers > 0))
    return Groups(
        runs=runs,
        user=user,
        instances=instances,
        servers=servers,
        asks=asks,
        server_asks=server_asks,
        kind=kind,
        server_kind=_bare_kinds(rng, runs * servers, typical_s),
        names_type=_tagged(rng, tasks, of.NAMED_TYPE, asks.gpu > 0, np.ones(len(runs))),
        workload=workload,
        needs_card=needs_card,
        role=_draw_roles(rng, servers, asks, workload, load),
        typical_s=typical_s,
        spread=spread,
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
            found.append(log_even_sizes(rng, least, min(most, largest), wanted))
            left -= wanted
            due -= wanted
    return np.concatenate(found)


def _draw_gangs(rng: Rng, runs: Ints) -> tuple[Ints, Ints, Flags]:
    """Return instances of each program's main task, its servers, and who wants no GPU.

    The largest gangs are dealt first; servers of larger gangs count for smaller ones.
    """
    total = float(runs.sum()) * of.INSTANCES_PER_DAY / of.JOBS_PER_DAY
    instances, servers = np.ones(len(runs), np.int64), np.zeros(len(runs), np.int64)
    bare = np.zeros(len(runs), bool)
    sizes_known = np.array([1, *sorted(size for size, _ in of.GANGS)])
    owed, beside = 0.0, dict.fromkeys(sizes_known.tolist(), 0.0)
    for size, share in of.GANGS:
        owed += share * total - beside[size]
        load = (runs * size).astype(float)
        free = (instances == 1) & (load <= max(of.LARGEST_LOAD * total, size))
        if owed < size * rng.random():
            continue
        part = owed / load.sum()
        taken = deal(rng, load, (part, 1.0 - part), (free.astype(float), None)) == 0
        instances[taken] = size
        owed -= float(load[taken].sum())
        bare |= portion(rng, load, of.BARE_GANGS, taken)
        served = portion(rng, load, of.SERVED_GANGS, taken & ~bare)
        wanted = max(1.0, size * of.SERVERS_PER_WORKER)
        count = int(sizes_known[np.searchsorted(sizes_known, wanted, side="right") - 1])
        servers[served] = count
        beside[count] += float(runs[served].sum()) * count
    alone = instances == 1
    return instances, servers, bare | portion(rng, runs.astype(float), of.BARE_ALONE, alone)


def _budgets(users: int) -> Floats:
    """Return each user's share of the instances, largest first (figure 2a)."""
    top = max(1, round(of.TOP_USERS * users))
    half = users - users // 2
    rank = np.arange(1, users + 1)
    high = of.TOP_LEAST * (top / rank[:top]) ** 0.93
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
    # Whoever is a user has run something, however short the trace.
    budget = np.maximum(budgets / budgets.sum() * load.sum(), 1.5)
    tier = np.floor(np.log2(np.maximum(budget, 1.0)) / 2).astype(int)
    for one in np.unique(tier):
        users = np.flatnonzero(tier == one)
        free = np.flatnonzero(owner < 0)
        last = one == tier.max()
        if not last:
            small = max(float(budget[users].min()) / 2, np.quantile(load[free], 0.2))
            free = free[load[free] <= small]
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


def _draw_asks(rng: Rng, runs: Ints, instances: Ints, bare: Flags) -> GroupRequests:
    """Deal GPU requests by instances, apart for gangs and others, then what goes with them."""
    load = (runs * instances).astype(float)
    alone = instances == 1
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
    return GroupRequests(gpu, cpu.astype(np.int64), memory)


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


def _server_asks(rng: Rng, servers: Ints) -> GroupRequests:
    count = len(servers)
    cpu = pick(rng, of.BARE_CPU, count)
    memory = pick(rng, of.MEMORY_GIB, count)
    return GroupRequests(np.zeros(count, np.int64), cpu.astype(np.int64), memory)


def _draw_workloads(
    rng: Rng, runs: Ints, instances: Ints, servers: Ints, asks: GroupRequests
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
    small = np.where(asks.gpu <= 50, 3.0, 1.0)
    ctr = _tagged(rng, tasks, of.CTR_TASKS, has_gpu & (workload == 0) & (instances < 64), small)
    workload[ctr] = of.CTR
    return workload, portion(rng, tasks, of.NLP_LARGE, nlp)


def _tagged(rng: Rng, tasks: Floats, share: float, among: Flags, liking: Floats) -> Flags:
    part = share * float(tasks.sum() / max(tasks[among].sum(), 1e-9))
    return portion(rng, tasks, min(part, 1.0), among, liking)


def _draw_lengths(
    rng: Rng, user: Ints, instances: Ints, servers: Ints, load: Floats, asks: GroupRequests
) -> Floats:
    """Return each program's typical run time, with the published quantiles by instances."""
    habit = rng.standard_normal(int(user.max()) + 1)[user]
    own = rng.standard_normal(len(user))
    rank = of.OWNER_PULL * habit + np.sqrt(1 - of.OWNER_PULL**2) * own
    rank += 0.25 * np.minimum(np.log(instances), 4.0)
    rank -= np.select([asks.gpu == 0, servers > 0], [of.BARE_SOON, of.SERVED_SOON], 0.0)
    rank -= np.where(asks.gpu >= 100, of.WHOLE_SOON, 0.0)
    return by_weight(rank, load, of.RUN_AT, of.RUN_S)


def _kind_fits(
    instances: Ints, asks: GroupRequests, typical_s: Floats, workload: Ints
) -> tuple[Floats, Floats, Floats]:
    """Return how readily programs go to machines that are strong, weak, or have two GPUs."""
    whole = asks.gpu >= 100
    ctr = workload == of.CTR
    strong = np.where(whole, 12.0, 1.0) * np.where(instances > 1, 3.0, 1.0)
    strong *= np.clip(typical_s / 2000.0, 0.05, 4.0) * np.where(ctr, 0.05, 1.0)
    weak = np.where(ctr, 0.01, 1.0) * np.select([asks.gpu < 50, whole], [0.5, 1.7], 1.0)
    # Machines with eight GPUs have few CPUs for each.
    weak *= np.select([asks.cpu < 600, asks.cpu > 600], [3.0, 0.15], 1.0)
    return strong, weak, np.where(asks.gpu <= 200, 1.0, 0.0)


def _deal_kinds(
    rng: Rng,
    kind: Ints,
    gpu_s: Floats,
    gpu: Ints,
    needs_card: Flags,
    wanted_s: dict[int, float],
    fits: tuple[Floats, Floats, Floats],
) -> None:
    """Deal machines by GPU time, so that kinds are as full as they were; writes ``kind``."""
    large = (gpu > 0) & needs_card
    kind[large] = of.V100M32
    free = np.flatnonzero((gpu > 0) & ~needs_card)
    left_s = wanted_s | {of.V100M32: wanted_s[of.V100M32] - float(gpu_s[large].sum())}
    total_s = max(float(gpu_s[free].sum()), 1e-9)
    order = (of.V100M32, of.V100, of.MISC)
    parts = [max(left_s[one], 0.0) / total_s for one in order]
    rest = max(1.0 - sum(parts), 0.0)
    strong, weak, two = (fit[free] for fit in fits)
    shares = (*parts, rest * 0.55, rest * 0.45)
    dealt = deal(rng, gpu_s[free], shares, (strong, strong, weak, two, None))
    kind[free] = np.array((*order, of.P100, of.T4))[dealt]
    # The last class takes what is left, but machines with two GPUs cannot take all of it.
    kind[(gpu > 200) & (kind == of.T4)] = of.MISC


def _bare_kinds(rng: Rng, load: Ints, typical_s: Floats) -> Ints:
    """Put work without GPUs beside other work, long ones where CPUs are plenty."""
    kinds, parts, likings = zip(*of.BARE_KINDS, strict=True)
    fits = [(typical_s / 1000.0) ** liking for liking in likings]
    return np.array(kinds)[deal(rng, load.astype(float), parts, fits)]


def _draw_roles(
    rng: Rng, servers: Ints, asks: GroupRequests, workload: Ints, load: Floats
) -> Ints:
    role = np.where(rng.random(len(servers)) < 0.8, TENSORFLOW, PYTORCH)
    role = np.where(asks.gpu == 0, COMPUTE, role)
    role = np.where(servers > 0, WORKER, role)
    ctr = workload == of.CTR
    infers = portion(rng, load, 1.0 - of.CTR_TRAINING, ctr)
    return np.where(infers, EVALUATOR, role).astype(np.int64)


def _draw_spreads(rng: Rng, load: Floats) -> Floats:
    dealt = deal(rng, load, tuple(share for _, share in of.SPREADS))
    return np.array([spread for spread, _ in of.SPREADS])[dealt]
