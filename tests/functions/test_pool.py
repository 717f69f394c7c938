import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from interlane.functions.pool import LoadReplica, NoRoom, Pool, Unload
from interlane.model import CapacityViolated, InvalidField, InvalidInput, UnknownName
from interlane.model.function import Function

NAMES = ("a", "b", "c", "d")
SIZES_MIB = {"a": 3, "b": 5, "c": 2, "d": 7}


def pool(device_mib: int = 10) -> Pool:
    made = (Function(name, name, SIZES_MIB[name], disk_load_s=20.0) for name in NAMES)
    return Pool(made, device_mib=device_mib)


def alphabetical(name: str) -> float:
    return float(-NAMES.index(name))


def loaded(one: Pool, *names: str) -> Pool:
    for name in names:
        assert not isinstance(one.load(name, alphabetical), NoRoom)
        one.loaded(name)
    return one


def test_a_request_goes_to_an_idle_replica_or_is_a_cold_start() -> None:
    one = loaded(pool(), "a")

    assert one.asked("a")
    assert not one.asked("a")
    assert not one.asked("b")
    one.served("a")
    assert one.asked("a")


def test_the_least_worthy_idle_replica_makes_room() -> None:
    one = loaded(pool(), "a", "b", "c")

    actions = one.load("a", alphabetical)

    assert actions == (Unload("c"), Unload("b"), LoadReplica("a"))


def test_a_busy_replica_never_makes_room() -> None:
    one = loaded(pool(), "a", "b", "c")
    for name in ("a", "b", "c"):
        one.asked(name)

    refusal = one.load("d", alphabetical)

    assert refusal == NoRoom("d", 7, 0)
    assert "needs 7 MiB, but only 0" in str(refusal)


def test_bad_functions_and_events_are_refused() -> None:
    with pytest.raises(InvalidField, match="memory_mib"):
        Pool([Function("a", "a", 0)], device_mib=1)
    with pytest.raises(InvalidField, match="disk_load_s"):
        Function("a", "a", 1, disk_load_s=-1.0)
    with pytest.raises(InvalidInput, match="the device has 6"):
        pool(6)
    with pytest.raises(UnknownName, match="function 'x'"):
        pool().asked("x")
    with pytest.raises(CapacityViolated, match="no replica was busy"):
        pool().served("a")


class Anything(RuleBasedStateMachine):
    """Whatever an engine tells in whatever order, the state hold and nobody busy parts."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool(device_mib=12)
        self.busy = dict.fromkeys(NAMES, 0)
        self.loading = dict.fromkeys(NAMES, 0)

    @rule(name=st.sampled_from(NAMES), worth=st.permutations(NAMES))
    def load(self, name: str, worth: list[str]) -> None:
        before = {one: self.pool.replicas(one) for one in NAMES}
        actions = self.pool.load(name, lambda one: float(worth.index(one)))
        if isinstance(actions, NoRoom):
            assert {one: self.pool.replicas(one) for one in NAMES} == before
        else:
            self.loading[name] += 1

    @rule(name=st.sampled_from(NAMES))
    def loaded(self, name: str) -> None:
        if self.loading[name]:
            self.loading[name] -= 1
            self.pool.loaded(name)

    @rule(name=st.sampled_from(NAMES))
    def asked(self, name: str) -> None:
        self.busy[name] += self.pool.asked(name)

    @precondition(lambda self: any(self.busy.values()))
    @rule(name=st.sampled_from(NAMES))
    def served(self, name: str) -> None:
        if self.busy[name]:
            self.busy[name] -= 1
            self.pool.served(name)

    @rule(name=st.sampled_from(NAMES))
    def part(self, name: str) -> None:
        if self.pool.idle(name):
            self.pool.part(name)

    @invariant()
    def the_state_hold(self) -> None:
        self.pool.check()

    @invariant()
    def nobody_busy_or_loading_has_parted(self) -> None:
        for name in NAMES:
            assert self.pool.replicas(name) >= self.busy[name] + self.loading[name]


TestAnything = Anything.TestCase


@given(st.lists(st.sampled_from(NAMES), max_size=30))
def test_actions_carried_out_in_order_never_exceed_the_device(names: list[str]) -> None:
    one = pool(device_mib=9)
    used_mib = 0
    for name in names:
        actions = one.load(name, alphabetical)
        if isinstance(actions, NoRoom):
            continue
        for action in actions:
            size_mib = SIZES_MIB[action.function]
            used_mib += size_mib if isinstance(action, LoadReplica) else -size_mib
            assert 0 <= used_mib <= 9
        one.loaded(name)
