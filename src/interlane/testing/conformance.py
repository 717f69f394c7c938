"""The contract of every policy and every engine, checked the same way for all of them.

``check_placer`` and ``check_order`` raise ``ContractBroken``, an ``AssertionError`` that
names the clause.  They decide by plain arithmetic on the answers of the view, never with
the compiled code that they judge.

Two lessons are built in.  Asking twice does not find a placer that uses the global random
generator when a test library reseeds them, so the random generator's state is compared.  And a
random state is bland; run these over states in which empty and full are common (see
``strategies``).
"""

import random
from collections import Counter
from collections.abc import Sequence
from math import inf, isclose, isfinite

import numpy as np

from interlane.kernel.ledger import Ledger
from interlane.kernel.view import LedgerView
from interlane.model import Job, Placement, Refusal, Spot, Task, Tier
from interlane.policy.base import FreeMachine, Order, PlacementRule, Placer, TypeRule
from interlane.policy.scores import Score
from interlane.tables import UP
from interlane.testing.contract import ContractBroken, demand
from interlane.testing.engines import EngineWorld, check_engine

__all__ = [
    "ContractBroken",
    "EngineWorld",
    "check_engine",
    "check_finds_room",
    "check_order",
    "check_placement",
    "check_placer",
]

ASKED_AGAIN = 3
"""How often a question is repeated; a placer that alternates is caught by the second."""


# -- placers ------------------------------------------------------------------------------


def check_placer(placer: Placer, job: Job, ledger: Ledger, seed: int = 0) -> None:
    """Check every clause of a placer's contract in one state of the ledger.

    The view is unchanged; the same question gets the same answer; global random generators
    are untouched; a placement names no GPU twice, fits, is complete and respects GPU types and
    togetherness; a refusal says how fundamental it is, why, and what would change it.
    """
    view = LedgerView(ledger)
    before, rng = _picture(view, ledger, job), _global_rng()
    answer = placer.place(job, view, random.Random(seed))
    demand(_global_rng() == rng, "no global random generator", f"{placer!r} rolled them.")
    demand(
        _picture(view, ledger, job) == before,
        "view unchanged",
        f"{placer!r} changed the state.",
    )
    for number in range(ASKED_AGAIN):
        # Once more of the same view, then of fresh ones: history must not matter either.
        again = placer.place(job, LedgerView(ledger) if number else view, random.Random(seed))
        demand(again == answer, "same answer", f"{placer!r} said {answer}, then {again}.")
    if isinstance(answer, Refusal):
        _check_refusal(answer)
    else:
        check_placement(answer, job, ledger, placer.types)


def check_finds_room(placer: Placer, job: Job, ledger: Ledger, seed: int = 0) -> None:
    """Check that a job of one task is placed wherever there is room, with all that fits.

    Not part of the contract, since a placer may keep room for others on purpose; all
    built-in placers promise it.
    """
    (task,) = job.request.tasks
    view = LedgerView(ledger)
    answer = placer.place(job, view, random.Random(seed))
    room = view.room(task, placer.types)
    if isinstance(answer, Refusal):
        demand(room < task.least, "finds room", f"there is room for {room}, yet: {answer}")
    elif not task.same_machine:
        most = min(task.instances, room)
        demand(answer.instances == most, "finds room", f"{answer.instances} of {most} placed.")


def check_placement(
    placement: Placement, job: Job, ledger: Ledger, types: TypeRule = TypeRule.EXACT
) -> None:
    """Check that a placement is sound, complete and fits what is free."""
    view = LedgerView(ledger)
    use: dict[int, Counter[str]] = {}
    for spot in placement.spots:
        task, free = _check_spot(spot, job, ledger, view, types)
        _count(use.setdefault(free.index, Counter()), spot, task, free)
    for number, task in enumerate(job.request.tasks):
        _check_task(task, [spot for spot in placement.spots if spot.task == number])
    for index, used in use.items():
        _check_fits(used, view.free(index))


def _check_spot(
    spot: Spot, job: Job, ledger: Ledger, view: LedgerView, types: TypeRule
) -> tuple[Task, FreeMachine]:
    demand(ledger.knows(spot.machine), "known machine", f"{spot.machine} does not exist.")
    demand(0 <= spot.task < len(job.request.tasks), "known task", f"{spot} has none.")
    demand(spot.instances >= 1, "complete", f"{spot} holds nobody.")
    task = job.request.tasks[spot.task]
    number = ledger.number(spot.machine)
    free = view.free(number)
    demand(ledger.free[number, UP] == 1, "machine is there", f"{spot.machine} is lost.")
    machine = ledger.machine(number)
    demand(
        task.demand.selectors <= set(machine.labels)
        and set(machine.taints) <= task.demand.tolerations,
        "labels and taints",
        f"{task.demand} may not use {machine}.",
    )
    demand(len(set(spot.gpus)) == len(spot.gpus), "no GPU twice", f"{spot} names a GPU twice.")
    told_apart = task.demand.gpus and not free.pooled
    demand(
        len(spot.gpus) == (task.demand.gpus if told_apart else 0),
        "right number of GPUs",
        f"{spot} serves {task.demand}.",
    )
    demand(
        all(0 <= gpu < len(free.gpu_milli) for gpu in spot.gpus),
        "known GPU",
        f"{spot} has not.",
    )
    allowed = types.binding(task.demand) if task.demand.gpus else frozenset()
    used = [free.gpu_types[gpu] for gpu in ((0,) if free.pooled else spot.gpus)]
    demand(
        not allowed or set(used) <= allowed | {ledger.wildcard},
        "GPU types",
        f"{used} on {spot.machine} are not all among {sorted(allowed)}.",
    )
    return task, free


def _count(used: "Counter[str]", spot: Spot, task: Task, free: FreeMachine) -> None:
    needs = task.demand
    used["cpu"] += spot.instances * needs.cpu_milli
    used["memory"] += spot.instances * needs.memory_mib
    if free.pooled:
        used["gpu 0"] += spot.instances * needs.gpu_milli_total
    for gpu in spot.gpus:
        used[f"gpu {gpu}"] += spot.instances * needs.gpu_milli
        used[f"gpu memory {gpu}"] += spot.instances * needs.gpu_memory_mib


def _check_fits(used: "Counter[str]", free: FreeMachine) -> None:
    has = Counter({"cpu": free.cpu_milli, "memory": free.memory_mib})
    for gpu, (milli, memory_mib) in enumerate(
        zip(free.gpu_milli, free.gpu_memory_mib, strict=True)
    ):
        has[f"gpu {gpu}"] = milli
        has[f"gpu memory {gpu}"] = memory_mib
    for what, amount in used.items():
        demand(
            amount <= has[what], "fits", f"{amount} of {what} on {free.id}, {has[what]} free."
        )


def _check_task(task: Task, spots: Sequence[Spot]) -> None:
    placed = sum(spot.instances for spot in spots)
    demand(
        task.least <= placed <= task.instances,
        "complete",
        f"{placed} instances of {task.role} placed, {task.least} to {task.instances} asked.",
    )
    if task.same_machine:
        where = {spot.machine for spot in spots}
        demand(len(where) == 1, "togetherness", f"{task.role} is spread over {sorted(where)}.")


def _check_refusal(answer: Refusal) -> None:
    demand(isinstance(answer, Refusal), "an answer", f"{answer!r} is none.")
    demand(isinstance(answer.tier, Tier), "refusal has a tier", f"{answer.tier!r} is none.")
    for what in ("reason", "remedy"):
        said = getattr(answer, what)
        demand(
            isinstance(said, str) and said.strip().endswith(".") and said[0].isupper(),
            f"refusal has a {what}",
            f"{said!r} is not a sentence.",
        )


def _global_rng() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), name, bytes(np.asarray(keys, np.uint64)), *rest


def _picture(view: LedgerView, ledger: Ledger, job: Job) -> tuple[object, ...]:
    """Return the state and everything that the view says about them."""
    said: list[object] = [view.free(number) for number, _ in ledger.numbered()]
    for types in TypeRule:
        for task in job.request.tasks:
            said += [view.room(task, types), tuple(view.candidates(task, types))]
        said += [
            view.why_not(job, types),
            view.choose(job, PlacementRule(Score.FIRST, types=types)),
        ]
    return ledger.free.tobytes(), ledger.total.tobytes(), ledger.releases, *said


# -- orders -------------------------------------------------------------------------------

RAN_S = (0.0, 1.0, 59.5, 3_600.0, 40_000.0, 1e6)
"""Seconds run before, as an order is asked about."""


def check_order(order: Order, jobs: Sequence[Job]) -> None:
    """Check every clause of an order's contract on some jobs with serials of their own.

    The same question gets the same answer, however often and in whatever order it is asked;
    keys, ranks and shares are finite numbers, so that keys with serials order all jobs; the
    rank of a job does not fall while it waits nor rise when it starts; a promised rise comes,
    later than now; accounts with more running are not preferred; no global random generator.
    """
    rng = _global_rng()
    demand(order.preempts is order.preempts, "same answer", "preempts changed.")
    demand(order.keeps_accounts is order.keeps_accounts, "same answer", "accounts changed.")
    first = [_opinion(order, job) for job in jobs]
    for opinion in first:
        _check_numbers(opinion)
    for job, opinion in reversed(list(zip(jobs, first, strict=True))):
        again = _opinion(order, job)
        for one, two in zip(opinion, again, strict=True):
            demand(
                two[1] >= one[1],
                "rank never falls",
                f"{job.id} fell from {one[1]} to {two[1]}.",
            )
        demand(again == opinion, "same answer", f"{opinion}, then {again}.")
        if order.preempts:
            _check_rise(order, job)
        if order.keeps_accounts:
            _check_account(order, job)
    _check_total(order, jobs)
    demand(_global_rng() == rng, "no global random generator", f"{order!r} rolled them.")


Opinion = list[tuple[tuple[float, float], float, float | None]]


def _opinion(order: Order, job: Job) -> Opinion:
    return [
        (order.key(job, ran_s), order.rank(job, ran_s), order.rank_rises_after_s(job, ran_s))
        for ran_s in RAN_S
    ]


def _check_numbers(opinion: Opinion) -> None:
    for key, rank, _ in opinion:
        demand([isfinite(part) for part in key] == [True, True], "key is finite", f"{key}.")
        demand(isfinite(rank), "rank is finite", f"{rank}.")


def _check_rise(order: Order, job: Job) -> None:
    demand(order.rank_slope <= 0, "slope is not above 0", f"{order.rank_slope}.")
    for ran_s in RAN_S:
        after_s = order.rank_rises_after_s(job, ran_s)
        rank, ahead_s = order.rank(job, ran_s), 10.0 if after_s is None else after_s / 2
        then = rank if order.rank_slope == 0 else max(0.0, rank + order.rank_slope * ahead_s)
        demand(
            isclose(order.rank(job, ran_s + ahead_s), then, rel_tol=1e-9, abs_tol=1e-6),
            "rank follows its slope",
            f"{job.id} has {order.rank(job, ran_s + ahead_s)}, not {then}.",
        )
        if after_s is None:
            continue
        demand(0 < after_s < inf, "rise comes later", f"the rank rises after {after_s} s.")
        slack_s = 1e-6 * (1.0 + ran_s + after_s)
        risen = order.rank(job, ran_s + after_s + slack_s) > order.rank(job, ran_s)
        demand(risen, "rise comes", f"{job.id} was to rise {after_s} s after {ran_s} s.")
        demand(order.counts_lost_work, "service counts", "lost work would lower the rank.")


def _check_account(order: Order, job: Job) -> None:
    account = order.account(job)
    demand(isinstance(account, str), "account is a name", f"{account!r}.")
    demand(order.account(job) == account, "same answer", f"account of {job.id} changed.")
    shares = [order.share(account, milli) for milli in (0, 1, 1_000, 64_000)]
    demand(all(isfinite(share) for share in shares), "share is finite", f"{shares}.")
    demand(shares == sorted(shares), "more running, less urgent", f"{shares}.")
    demand(
        shares == [order.share(account, milli) for milli in (0, 1, 1_000, 64_000)],
        "same answer",
        "the share changed.",
    )


def _check_total(order: Order, jobs: Sequence[Job]) -> None:
    """Check that at any time no two jobs stand in the same place."""
    for now_s in (0.0, 1e3, 1e6):
        keys = [order.key(job, 0.0) for job in jobs]
        places = {
            (value + slope * now_s, job.serial)
            for (value, slope), job in zip(keys, jobs, strict=True)
        }
        demand(len(places) == len(jobs), "total order", f"{places} at {now_s} s.")
