"""Selectors, taints and tolerations, and sentences that name what keeps a job waiting."""

from interlane.model import (
    JobId,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLost,
    Occupied,
    Placement,
    Refusal,
    Refuse,
    Spot,
    Start,
    Submitted,
    TakenGpu,
    Tier,
)
from interlane.testing.build import cluster, job, machine, make

A, B = JobId("a"), JobId("b")
FAST = machine("fast", gpus=1, labels={"disk": "nvme", "zone": "north"})
SLOW = machine("slow", gpus=1, labels={"disk": "hdd"})
LAB = ("dedicated", "lab")
TAINTED = machine("lab", gpus=4, taints=[LAB])


def on(name: str, *gpus: int) -> Placement:
    return Placement((Spot(MachineId(name), gpus),))


def refusal_of(*actions: object) -> Refusal:
    (action,) = actions
    assert isinstance(action, Refuse)
    return action.refusal


def test_a_job_goes_where_all_its_labels_are() -> None:
    scheduler = make(cluster(SLOW, FAST))
    asked = job("a", gpus=1, selects=[("disk", "nvme"), ("zone", "north")])

    assert scheduler.handle(Submitted(asked), 0) == (Start(A, on("fast", 0)),)


def test_a_job_waits_for_machines_with_its_labels_while_others_are_free() -> None:
    scheduler = make(cluster(SLOW, FAST))
    asked = [job(name, gpus=1, selects=[("disk", "nvme")]) for name in ("a", "b")]

    assert len(scheduler.handle_all(map(Submitted, asked), 0)) == 1

    why = scheduler.explain(B, 0)
    assert why is not None
    assert why.tier is Tier.CAPACITY
    assert "Other machines have room. Only fast has the label disk=nvme." in why.reason
    (start,) = scheduler.handle(
        MachineChanged(machine("slow", gpus=1, labels={"disk": "nvme"})), 1
    )
    assert start == Start(B, on("slow", 0))


def test_a_label_that_no_machine_has_is_named() -> None:
    scheduler = make(cluster(SLOW, FAST))

    refusal = refusal_of(
        *scheduler.handle(Submitted(job("a", gpus=1, selects=[("disk", "tape")])), 0)
    )

    assert refusal.tier is Tier.NEVER_FITS
    assert "No machine has the label disk=tape; disk is hdd and nvme there." in refusal.reason


def test_labels_that_no_machine_has_together_are_named() -> None:
    scheduler = make(cluster(SLOW, FAST))
    asked = job("a", gpus=1, selects=[("disk", "hdd"), ("zone", "north")])

    refusal = refusal_of(*scheduler.handle(Submitted(asked), 0))

    assert "No machine has all of the labels disk=hdd and zone=north." in refusal.reason


def test_a_taint_keeps_work_away_that_does_not_tolerate_it() -> None:
    scheduler = make(cluster(TAINTED, SLOW))

    (start,) = scheduler.handle(Submitted(job("a", gpus=1)), 0)
    assert start == Start(A, on("slow", 0))
    (start,) = scheduler.handle(Submitted(job("b", gpus=1, tolerates=[LAB])), 0)
    assert start == Start(B, on("lab", 0))


def test_a_taint_that_is_not_tolerated_is_named() -> None:
    scheduler = make(cluster(TAINTED, SLOW))

    refusal = refusal_of(*scheduler.handle(Submitted(job("a", gpus=4)), 0))

    assert "The taint dedicated=lab of lab is not tolerated." in refusal.reason


def test_a_taint_that_comes_keeps_new_work_away_and_lets_old_work_run() -> None:
    scheduler = make(cluster(gpus=[2]))
    scheduler.handle(Submitted(job("a", gpus=1)), 0)

    tainted = machine("m0", gpus=2, taints=[LAB])
    assert scheduler.handle(MachineChanged(tainted), 1) == ()
    assert scheduler.placement(A) == on("m0", 0)
    scheduler.check()
    refusal = refusal_of(*scheduler.handle(Submitted(job("b", gpus=1)), 1))
    assert "The taint dedicated=lab of m0 is not tolerated." in refusal.reason


def test_more_machines_than_a_word_has_bits_are_told_apart() -> None:
    plain = [machine(f"m{number}", gpus=1) for number in range(70)]
    scheduler = make(cluster(*plain))
    scheduler.learn(MachineJoined(machine("last", gpus=1, labels={"disk": "nvme"})), 0)

    (start,) = scheduler.handle(Submitted(job("a", gpus=1, selects=[("disk", "nvme")])), 0)

    assert start == Start(A, on("last", 0))
    scheduler.check()


def test_explain_says_that_the_machines_that_fit_are_drained_or_lost() -> None:
    scheduler = make(cluster(gpus=[4, 4, 1]))
    for name in ("m0", "m1"):
        scheduler.learn(MachineDrained(MachineId(name)), 0)
    assert scheduler.handle(Submitted(job("a", gpus=4)), 0) == ()

    why = scheduler.explain(A, 0)
    assert why is not None
    assert "It would fit on m0 and m1, which are drained." in why.reason

    other = make(cluster(gpus=[4, 1]))
    other.learn(MachineLost(MachineId("m0")), 0)
    other.handle(Submitted(job("a", gpus=4)), 0)
    why = other.explain(A, 0)
    assert why is not None
    assert "It would fit on m0, which is lost." in why.reason


def test_explain_names_a_drained_machine_that_is_busy_if_no_other_could_take_the_job() -> None:
    scheduler = make(cluster(gpus=[4, 1]))
    scheduler.handle(Submitted(job("b", gpus=4)), 0)
    scheduler.learn(MachineDrained(MachineId("m0")), 0)
    assert scheduler.handle(Submitted(job("a", gpus=4)), 0) == ()

    why = scheduler.explain(A, 0)

    assert why is not None
    assert "It cannot do without m0, which is drained." in why.reason


def test_explain_blames_no_drain_while_another_machine_could_take_the_job() -> None:
    scheduler = make(cluster(gpus=[4, 4]))
    scheduler.handle(Submitted(job("b", gpus=4)), 0)
    scheduler.handle(Submitted(job("c", gpus=4)), 0)
    scheduler.learn(MachineDrained(MachineId("m0")), 0)
    scheduler.handle(Submitted(job("a", gpus=4)), 0)

    why = scheduler.explain(A, 0)

    assert why is not None
    assert "drained" not in why.reason


def test_explain_says_how_much_others_occupy() -> None:
    scheduler = make(cluster(gpus=[2]))
    sight = Occupied(MachineId("m0"), cpu_milli=500, gpus=(TakenGpu(0, 1000), TakenGpu(1, 500)))
    scheduler.learn(sight, 0)
    assert scheduler.handle(Submitted(job("a", gpus=1)), 0) == ()

    why = scheduler.explain(A, 0)

    assert why is not None
    assert "Others occupy 1.5 GPU and 0.5 CPU of m0; without them it would fit." in why.reason
