"""Transitions step by step: what is there after each, who waits for whom, and how long."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.mig.demand import GpuOffer, Problem, Service
from interlane.mig.layouts import SlicePlace
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan
from interlane.mig.transition import replay
from interlane.mig.transition.exchange import _difference, _Exchange, exchange_and_compact
from interlane.mig.transition.present import floors_of, may_stay, present
from interlane.mig.transition.replay import Doing, ReplayedAction
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.simulated import SimulatedGpus
from interlane.mig.transition.steps import (
    Action,
    ImpossibleStep,
    StepKind,
    StepTimes,
    Transition,
    TransitionStep,
    Verb,
    after_step,
    awaited,
    content_of,
    makespan_s,
    one_by_one_s,
    waves,
)
from interlane.model import InvalidInput
from interlane.testing.mig import asked

A30 = "A30-24GB"
RUNS = Instance("2g.12gb", 0, "a", 1, 1, 8.0, 10.0)
IDLE = Instance("1g.6gb", 2)


def gpu(name: str, *instances: Instance) -> GpuPlan:
    return GpuPlan(name, A30, instances)


def step(verb: Verb, instance: Instance, on: str = "g") -> TransitionStep:
    return TransitionStep(verb, on, A30, instance)


HERE = PartitionPlan((gpu("g", RUNS, IDLE),))


# -- one step -----------------------------------------------------------------------------


def test_each_step_changes_its_slot_and_nothing_else() -> None:
    made = after_step(HERE, step(Verb.MAKE, Instance("1g.6gb", 3)))
    assert made.gpus[0].instances == (RUNS, IDLE, Instance("1g.6gb", 3))
    busy = replace(IDLE, service="b", throughput_per_s=2.0)
    assert after_step(HERE, step(Verb.START, busy)).gpus[0].instances == (RUNS, busy)
    drained = after_step(HERE, step(Verb.DRAIN, RUNS))
    assert drained.gpus[0].instances == (Instance("2g.12gb", 0), IDLE)
    assert after_step(HERE, step(Verb.DESTROY, IDLE)).gpus[0].instances == (RUNS,)
    fresh = after_step(HERE, step(Verb.MAKE, Instance("4g.24gb", 0), on="new"))
    assert [one.id for one in fresh.gpus] == ["g", "new"]
    assert HERE.gpus[0].instances == (RUNS, IDLE)


@pytest.mark.parametrize(
    ("verb", "instance", "why"),
    [
        (Verb.MAKE, Instance("2g.12gb", 2), "overlap"),
        (Verb.MAKE, Instance("2g.12gb", 1), "start"),
        (Verb.START, Instance("1g.6gb", 3, "b"), "there is no such slot"),
        (Verb.START, Instance("2g.12gb", 2, "b"), "there is no such slot"),
        (Verb.START, replace(RUNS, service="b"), "a runs in it"),
        (Verb.DRAIN, replace(RUNS, service="b"), "a runs in it"),
        (Verb.DRAIN, replace(IDLE, service="b"), "nothing runs in it"),
        (Verb.DESTROY, RUNS, "a runs in it"),
        (Verb.DESTROY, Instance("1g.6gb", 3), "there is no such slot"),
    ],
)
def test_a_step_that_does_not_fit_what_is_there_is_refused(
    verb: Verb, instance: Instance, why: str
) -> None:
    with pytest.raises(ImpossibleStep, match=f"^Cannot {verb.value} .*{why}"):
        after_step(HERE, step(verb, instance))


def test_steps_and_actions_read_as_sentences() -> None:
    assert str(step(Verb.START, RUNS)) == "start 2g.12gb@0 on g for a"
    assert str(step(Verb.MAKE, IDLE)) == "make 1g.6gb@2 on g"
    moved = replace(RUNS, start=2)
    migrate = Action(StepKind.MIGRATE, (step(Verb.START, moved, "h"), step(Verb.DRAIN, RUNS)))
    assert str(migrate) == "migrate a from 2g.12gb@0 on g to 2g.12gb@2 on h"
    assert migrate.gpus == ("h", "g")
    cut = Action(StepKind.REPARTITION, (step(Verb.DESTROY, IDLE), step(Verb.MAKE, moved)))
    assert str(cut) == "repartition g: 1g.6gb@2 -> 2g.12gb@2"
    assert str(replace(cut, steps=cut.steps[1:])) == "repartition g: free units -> 2g.12gb@2"
    assert str(replace(cut, steps=cut.steps[:1])) == "repartition g: 1g.6gb@2 -> nothing"
    create = Action(StepKind.CREATE, (step(Verb.START, RUNS),))
    assert str(create) == "create a in 2g.12gb@0 on g"


# -- many actions -------------------------------------------------------------------------


@st.composite
def actions(draw: st.DrawFn) -> list[Action]:
    """Draw actions on a few GPUs that wait for earlier ones."""
    made: list[Action] = []
    for number in range(draw(st.integers(0, 8))):
        on = draw(st.sampled_from("pqr"))
        verb = draw(st.sampled_from([Verb.START, Verb.DRAIN]))
        earlier = st.integers(0, number - 1) if number else st.nothing()
        after = draw(st.lists(earlier, max_size=2, unique=True)) if number else []
        kind = StepKind.CREATE if verb is Verb.START else StepKind.DELETE
        made.append(Action(kind, (step(verb, RUNS, on),), tuple(after)))
    return made


@given(made=actions())
def test_an_action_waits_for_those_before_it_and_for_its_gpus(made: list[Action]) -> None:
    found = awaited(made)
    for number, action in enumerate(made):
        same = [n for n in range(number) if set(made[n].gpus) & set(action.gpus)]
        assert found[number] == {*action.after, *same[-1:]}


@given(made=actions())
def test_waves_hold_every_action_once_as_early_as_it_may_go(made: list[Action]) -> None:
    found = waves(made)
    wave_of = {number: at for at, wave in enumerate(found) for number in wave}
    assert sorted(wave_of) == list(range(len(made)))
    for number, before in enumerate(awaited(made)):
        assert wave_of[number] == max((wave_of[one] + 1 for one in before), default=0)
    for wave in found:
        gpus = [name for number in wave for name in made[number].gpus]
        assert len(gpus) == len(set(gpus))


@given(made=actions())
def test_the_makespan_is_the_longest_chain_of_waits(made: list[Action]) -> None:
    times = StepTimes(start_s=30.0, drain_s=10.0)
    chains: list[float] = []
    for action, before in zip(made, awaited(made), strict=True):
        lasts = 30.0 if action.kind is StepKind.CREATE else 10.0
        chains.append(lasts + max((chains[one] for one in before), default=0.0))
    assert makespan_s(made, times) == max(chains, default=0.0)
    assert one_by_one_s(made, times) == sum(
        30.0 if action.kind is StepKind.CREATE else 10.0 for action in made
    )


def test_every_kind_of_step_has_its_time() -> None:
    times = StepTimes(1.0, 2.0, 4.0, 8.0)
    assert [times.of(step(verb, RUNS)) for verb in Verb] == [1.0, 2.0, 4.0, 8.0]
    assert StepTimes() == StepTimes(1.0, 30.0, 10.0, 1.0)


def moving() -> Transition:
    """The service a goes from g to a new GPU h, and g is given back."""
    cut = Action(StepKind.REPARTITION, (step(Verb.MAKE, Instance("2g.12gb", 0), "h"),))
    move = Action(StepKind.MIGRATE, (step(Verb.START, RUNS, "h"), step(Verb.DRAIN, RUNS)), (0,))
    gone = Action(
        StepKind.REPARTITION, (step(Verb.DESTROY, RUNS), step(Verb.DESTROY, IDLE)), (1,)
    )
    return Transition(HERE, PartitionPlan((gpu("h", RUNS),)), {"a": 8.0}, (cut, move, gone))


def test_a_transition_counts_what_it_keeps_and_needs() -> None:
    way = moving()
    assert way.counts() == {"create": 0, "delete": 0, "migrate": 1, "repartition": 2}
    assert (way.running, way.kept) == (1, 0)
    assert replace(way, actions=way.actions[:1]).kept == 1
    # g holds something until the end and h from the beginning: two at once, one more than
    # what runs now or the plan needs.
    assert (way.peak_gpus, way.extra_gpus) == (2, 1)
    gone_first = replace(way, actions=(way.actions[2], way.actions[0]))
    assert (gone_first.peak_gpus, gone_first.extra_gpus) == (1, 0)
    assert [at for at, _ in way.steps] == [0, 1, 1, 2, 2]


def test_content_is_where_each_service_is() -> None:
    assert content_of(HERE) == {
        ("g", SlicePlace(0, "2g.12gb"), "a"),
        ("g", SlicePlace(2, "1g.6gb"), ""),
    }
    faster = PartitionPlan((gpu("g", replace(RUNS, throughput_per_s=9.0), IDLE), gpu("empty")))
    assert content_of(faster) == content_of(HERE)


# -- the verifier -------------------------------------------------------------------------


def doing(verb: str, on: str, one: Instance) -> Doing:
    return Doing(verb, on, A30, one.profile, one.start, one.service, one.throughput_per_s)


GOOD = [
    ReplayedAction((doing("make", "h", Instance("2g.12gb", 0)),), ()),
    ReplayedAction((doing("start", "h", RUNS), doing("drain", "g", RUNS)), (0,)),
    ReplayedAction((doing("destroy", "g", RUNS), doing("destroy", "g", IDLE)), (1,)),
]


def test_a_sound_way_has_no_fault_in_order_or_at_once() -> None:
    for seen in (
        replay.faults_in_order(HERE, GOOD, {"a": 8.0}),
        replay.faults_at_once(HERE, GOOD, {"a": 8.0}, Random(0)),
    ):
        assert seen.faults == ()
        assert seen.lowest == 1.0
        assert seen.end == {("h", "2g.12gb", 0, "a")}
        # Once at first, and twice for each of five steps.
        assert seen.moments == 11


@pytest.mark.parametrize(
    ("actions", "fault"),
    [
        (GOOD[1:], "Impossible to start 2g.12gb@0 on h: there is no such slot."),
        ([GOOD[0], *GOOD[2:]], "Impossible to destroy 2g.12gb@0 on g: it is busy with a."),
        (
            [ReplayedAction((doing("drain", "g", RUNS),), ())],
            "a has 0 requests/s at drain 2g.12gb@0 on g, below its floor of 8.",
        ),
        (
            [ReplayedAction((doing("drain", "g", replace(RUNS, service="b")),), ())],
            "Impossible to drain 2g.12gb@0 on g: a runs there.",
        ),
        (
            [ReplayedAction((doing("drain", "g", replace(IDLE, service="")),), ())],
            "Impossible to drain 1g.6gb@2 on g: nothing runs there.",
        ),
        (
            [ReplayedAction((doing("start", "g", replace(RUNS, service="b")),), ())],
            "Impossible to start 2g.12gb@0 on g: a runs there.",
        ),
        (
            [ReplayedAction((doing("make", "g", IDLE),), ())],
            "Impossible to make 1g.6gb@2 on g: 1g.6gb is there.",
        ),
        (
            [ReplayedAction((doing("make", "g", Instance("1g.6gb", 1)),), ())],
            "g: 1g.6gb at 1 overlaps 2g.12gb at 0 in unit 1.",
        ),
        (
            [ReplayedAction((doing("paint", "g", IDLE),), ())],
            "Impossible to paint 1g.6gb@2 on g: nobody knows this verb.",
        ),
        ([ReplayedAction(GOOD[0].doings, (0,))], "Action 0 waits for one that comes later."),
    ],
)
def test_the_verifier_names_what_is_wrong(actions: list[ReplayedAction], fault: str) -> None:
    assert fault in replay.faults_in_order(HERE, actions, {"a": 8.0}).faults


def test_a_service_below_its_floor_from_the_beginning_is_named_and_its_share_told() -> None:
    seen = replay.faults_in_order(HERE, [], {"a": 16.0, "never": 0.0})
    assert seen.faults == ("a has 8 requests/s at the beginning, below its floor of 16.",)
    assert seen.lowest == 0.5
    assert replay.faults_in_order(HERE, [], {"a": 8.000001}).faults == ()


def test_actions_that_wait_for_each_other_are_noticed_at_once() -> None:
    both = [ReplayedAction(GOOD[0].doings, (1,)), ReplayedAction(GOOD[2].doings[1:], (0,))]
    seen = replay.faults_at_once(HERE, both, {}, Random(0))
    assert seen.faults == ("2 actions wait for each other for ever.",)


def test_a_service_gives_nothing_while_it_starts() -> None:
    # It is drained here only after it has started there; the other way round is a fault.
    wrong = ReplayedAction((GOOD[1].doings[1], GOOD[1].doings[0]), (0,))
    seen = replay.faults_in_order(HERE, [GOOD[0], wrong], {"a": 8.0})
    assert len(seen.faults) == 3
    assert seen.lowest == 0.0


# -- what runs now ------------------------------------------------------------------------


def problem(rate: float = 6.0, **more: object) -> Problem:
    rates = {("a", A30, "2g.12gb"): 8.0, ("a", A30, "1g.6gb"): 3.0}
    made, _ = asked([Service("a", "a", rate, 100.0)], [GpuOffer(A30)], rates)
    return replace(made, **more)  # type: ignore[arg-type]


def test_what_runs_without_figures_runs_as_a_plan_would_run_it() -> None:
    bare = Instance("2g.12gb", 0, "a")
    unknown = Instance("4g.24gb", 0, "a")
    found = present(PartitionPlan((gpu("g", bare, IDLE), gpu("h", unknown))), problem())
    assert found.gpus[0].instances == (
        replace(bare, throughput_per_s=8.0, latency_ms=10.0),
        IDLE,
    )
    assert found.gpus[1].instances == (unknown,)
    slow = replace(RUNS, throughput_per_s=1.0)
    assert present(PartitionPlan((gpu("g", slow),)), problem()).gpus[0].instances == (slow,)


@pytest.mark.parametrize(
    ("current", "retired", "sentence"),
    [
        (PartitionPlan((gpu("g", replace(RUNS, service="b")),)), (), "serves 'b' in 2g.12gb@0"),
        (HERE, ("a",), "Service a is to retire, but the demand asks for it"),
        (HERE, ("zz",), "'zz'"),
        (
            PartitionPlan((GpuPlan("g", "A100-80GB"),)),
            (),
            "g is a A100-80GB, which the demand does not",
        ),
        (
            PartitionPlan((GpuPlan("g", A30, members=(Member("a", 1, 1), Member("b", 1, 1))),)),
            (),
            "g is shared whole by a, b;",
        ),
    ],
)
def test_what_a_transition_cannot_move_is_refused(
    current: PartitionPlan, retired: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        present(current, problem(), retired)


def test_pins_must_be_of_what_is_there() -> None:
    pinned = problem(pinned=(gpu("g", RUNS),))
    assert present(HERE, pinned) == HERE
    with pytest.raises(InvalidInput, match=r"pins 2g\.12gb@0 on g, which is not there now"):
        present(PartitionPlan((gpu("g", IDLE),)), pinned)


def test_a_service_that_retires_may_still_run() -> None:
    other = PartitionPlan((gpu("g", replace(RUNS, service="b")),))
    assert present(other, problem(), ("b",)) == other


def test_an_instance_may_stay_if_it_runs_as_a_plan_would_run_it() -> None:
    on, asked_ = HERE.gpus[0], problem()
    assert may_stay(RUNS, on, asked_)
    for other in (
        replace(RUNS, batch=2),
        replace(RUNS, processes=2),
        replace(RUNS, throughput_per_s=7.0),
        replace(RUNS, service="b"),
        replace(RUNS, profile="4g.24gb"),
    ):
        assert not may_stay(other, on, asked_)


def test_floors_are_the_lesser_of_what_was_and_what_will_be() -> None:
    # It has 8 a second.
    assert floors_of(HERE, problem(6.0)) == {"a": 6.0}
    assert floors_of(HERE, problem(20.0)) == {"a": 8.0}
    assert floors_of(HERE, problem(20.0), {"a": 5.0}) == {"a": 5.0}
    assert floors_of(HERE, problem(20.0), {"a": 15.0}) == {"a": 8.0}
    assert floors_of(HERE, problem(20.0), {}) == {"a": 0.0}


# -- exchange and compact -----------------------------------------------------------------


def test_a_service_differs_by_what_it_has_too_few_and_too_many_of() -> None:
    small = Instance("1g.6gb", 0, "a", 1, 1, 3.0, 10.0)
    current = PartitionPlan((gpu("g", RUNS), gpu("h", small, replace(small, start=1))))
    plan = PartitionPlan((gpu("x", small, replace(RUNS, start=2, throughput_per_s=9.0)),))
    coming, leaving = _difference("a", current, plan)
    assert coming == [(A30, replace(RUNS, start=2, throughput_per_s=9.0))]
    assert [(one.gpu, one.instance.start) for one in leaving] == [("g", 0), ("h", 1)]
    assert _difference("b", current, plan) == ([], [])


def test_what_starts_takes_free_units_before_a_gpu_is_borrowed() -> None:
    here = _Exchange(HERE)
    two = replace(RUNS, start=0)
    here._create(A30, two)
    # The idle slot of g makes way for a slot of two units; then g is full.
    assert here.state().gpus[0].instances == (RUNS, replace(two, start=2))
    assert here.borrowed == []
    here._create(A30, two)
    assert here.borrowed == ["gpu-0"]
    assert here.state().gpus[1].instances == (two,)
    kinds = [action.kind for action in here.log]
    assert kinds == [StepKind.REPARTITION, StepKind.CREATE] * 2


def test_partners_leave_that_together_give_no_more_than_what_came() -> None:
    big = Instance("4g.24gb", 0, "a", 1, 1, 7.0, 10.0)
    small = [Instance("1g.6gb", start, "a", 1, 1, 3.0, 10.0) for start in range(4)]
    rates = {("a", A30, "4g.24gb"): 7.0, ("a", A30, "1g.6gb"): 3.0}
    asked_, _ = asked([Service("a", "a", 7.0, 100.0)], [GpuOffer(A30)], rates)
    way = exchange_and_compact(
        PartitionPlan((gpu("g", *small),)), PartitionPlan((gpu("x", big),)), {"a": 7.0}, asked_
    )
    text = [str(action) for action in way.actions]
    started = next(at for at, one in enumerate(text) if one.startswith("create a in 4g.24gb@0"))
    # 7 a second came: two of 3 may go with it, and the others when it is over.
    assert all(one.startswith("delete a in 1g.6gb") for one in text[started + 1 : started + 5])
    assert not any(one.startswith("delete") for one in text[:started])


# -- GPUs that are not there --------------------------------------------------------------


def test_simulated_gpus_fail_as_often_as_they_are_told_to() -> None:
    kept: list[PartitionPlan] = []
    done, lost, refused = 0, 0, 0
    for seed in range(300):
        gpus = SimulatedGpus(HERE, rng=Random(seed), fail_rate=0.3, keep=kept.append)
        gpus.begin(step(Verb.DESTROY, IDLE))
        _, failure = gpus.ended()
        happened = gpus.observe(HERE) != HERE
        if failure is None:
            done += happened
            continue
        assert ("the answer was lost" in str(failure)) is happened
        lost, refused = lost + happened, refused + (not happened)
    assert len(kept) == done + lost
    # 210, 30 and 60 are expected; standard deviations are 8, 5 and 7.
    assert done == pytest.approx(210, abs=32)
    assert lost == pytest.approx(30, abs=20)
    assert refused == 300 - done - lost


def test_broken_gpus_always_fail_and_steps_take_about_their_time() -> None:
    gpus = SimulatedGpus(HERE, broken=["g"], times=StepTimes(make_s=4.0, destroy_s=100.0))
    gpus.begin(step(Verb.DESTROY, IDLE))
    gpus.begin(step(Verb.MAKE, IDLE, on="h"))
    first, failure = gpus.ended()
    # The quicker step ends first, a quarter sooner or later than it should.
    assert (first.verb, failure) == (Verb.MAKE, None)
    assert 3.0 <= gpus.elapsed_s <= 5.0
    assert [one.id for one in gpus.state.gpus] == ["g", "h"]
    second, failure = gpus.ended()
    assert second.verb is Verb.DESTROY
    assert isinstance(failure, StepFailed)
    assert 75.0 <= gpus.elapsed_s <= 125.0
