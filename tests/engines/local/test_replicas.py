"""Replicas in real processes, as the gateway's port has it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.device.inventory import Devices, emulated
from interlane.device.specs import DeviceSpec
from interlane.engines.local.functions.replicas import LocalReplica, LocalReplicas
from interlane.engines.local.groups import AttemptGroups, GroupLimits, groups_here
from interlane.engines.local.launch import JobBounds, Secrets
from interlane.live.files.function import FunctionSpec
from interlane.live.functions.calls import CallOutcome, Reply
from interlane.live.functions.port import (
    Answered,
    CutOff,
    Ready,
    ReplicaEnded,
    ReplicaFailed,
    ReplicaReport,
)
from interlane.model import GpuRef, InvalidInput, MachineId
from interlane.testing.live import this_machine
from interlane.testing.waiting import PATIENCE_S, is_alive, parent_of, until

HANDLERS = Path(__file__).parents[2] / "live"
GPU, OTHER_GPU, NO_GPU = (GpuRef(MachineId("here"), number) for number in range(3))


def function(does: str, **more: Any) -> FunctionSpec:  # noqa: ANN401
    said = {"name": "f", "handler": f"handlers:{does}", "path": str(HANDLERS), **more}
    return FunctionSpec.model_validate(said)


class Running:
    """One replica, and what was reported of it."""

    def __init__(
        self,
        replicas: LocalReplicas,
        spec: FunctionSpec,
        gpu: GpuRef,
        number: int,
        user: str = "admin",
    ) -> None:
        self.reports: list[ReplicaReport] = []
        self.printed = b""
        self.environment = replicas.open(spec, user, self._print)
        self.replica: LocalReplica = self.environment.load(number, gpu, self.reports.append)
        assert self.reports == [], "reports come later"

    def _print(self, more: bytes) -> None:
        self.printed += more

    async def reported(self, *kinds: type[ReplicaReport]) -> Any:  # noqa: ANN401
        """Wait for a report of these kinds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for one in self.reports:
                    if isinstance(one, kinds):
                        return one
                await asyncio.sleep(0.01)

    async def ask(self, body: bytes, number: int = 1) -> Reply:
        self.replica.send(number, [body])
        answer = await self.reported(Answered)
        assert answer.number == number
        (reply,) = answer.replies
        assert isinstance(reply, Reply)
        return reply


class Stage:
    """The replicas of a machine."""

    def __init__(
        self, folder: Path, devices: Devices | None, groups: AttemptGroups, processes: int
    ) -> None:
        (machine,) = this_machine(2)
        self.replicas = LocalReplicas(
            Secrets(folder),
            lambda: devices or emulated(machine),
            groups=groups,
            bounds=JobBounds(processes),
        )
        self.running: list[Running] = []

    def run(self, spec: FunctionSpec, gpu: GpuRef = GPU, user: str = "admin") -> Running:
        """Open an environment, and load a replica."""
        self.running.append(Running(self.replicas, spec, gpu, len(self.running), user))
        return self.running[-1]

    async def close(self) -> None:
        """End everything."""
        self.replicas.close()
        for one in self.running:
            await one.reported(CutOff, ReplicaEnded)


def play(
    folder: Path,
    timeline: Callable[[Stage], Awaitable[None]],
    devices: Devices | None = None,
    groups: AttemptGroups | None = None,
    processes: int = 4096,
) -> None:
    """Let something happen with the replicas of a machine, and end all of them."""

    async def played() -> None:
        stage = Stage(folder, devices, groups or groups_here(folder), processes)
        try:
            await timeline(stage)
        finally:
            await stage.close()

    asyncio.run(played())
    for base in groups_here(folder).bases.values():
        assert not list(base.glob(f"{groups_here(folder).prefix}*")), "a group was left"


def test_a_replica_loads_answers_and_ends(tmp_path: Path) -> None:
    async def timeline(stage: Stage) -> None:
        one = stage.run(function("times", load="handlers:doubler"))
        await one.reported(Ready)
        assert await one.ask(b"21") == Reply(CallOutcome.GOOD, b"42")
        assert one.replica.memory_mib() is not None

        one.replica.kill()

        assert (await one.reported(ReplicaEnded)).why == "It was ended by SIGKILL."
        assert [type(report) for report in one.reports] == [
            Ready,
            Answered,
            CutOff,
            ReplicaEnded,
        ]
        assert one.printed == b"loading twice two\n"

    play(tmp_path, timeline)


def test_calls_that_were_not_begun_are_known_even_of_one_that_was_killed(
    tmp_path: Path,
) -> None:
    async def timeline(stage: Stage) -> None:
        one = stage.run(function("sleeps"))
        await one.reported(Ready)
        for number in (7, 8):
            one.replica.send(number, [b"1000"])
        async with asyncio.timeout(PATIENCE_S):
            while one.replica.begun[0] != 7:
                await asyncio.sleep(0.01)
        assert one.replica.pid is not None
        os.kill(one.replica.pid, signal.SIGKILL)

        assert (await one.reported(CutOff)).begun == {7}
        await one.reported(ReplicaEnded)

    play(tmp_path, timeline)


def test_a_replica_sees_its_own_gpu_its_secrets_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "KEY").write_text("opensesame\n")
    specs = tuple(DeviceSpec("cuda:0", 16 << 30) for _ in range(2))
    machine = this_machine(2).machines[0]
    real = Devices(machine, emulated=False, shared=specs, uuids=("GPU-a", "GPU-b"))

    async def timeline(stage: Stage) -> None:
        spec = function("whoami", env={"COLOUR": "red"}, secrets=["KEY"])
        one = stage.run(spec, OTHER_GPU)
        await one.reported(Ready)
        reply = await one.ask(b"null")

        for said in ('"INTERLANE_DEVICES":"1"', '"CUDA_VISIBLE_DEVICES":"GPU-b"'):
            assert said in reply.data.decode()
        assert '"COLOUR":"red","KEY":"opensesame"' in reply.data.decode()
        assert one.replica.memory_mib() is None, "its memory is the GPU's"

    play(tmp_path, timeline, real)


@pytest.mark.parametrize(
    ("more", "gpu", "says"),
    [
        ({}, NO_GPU, "There is no GPU here:2 any more."),
        ({"preload": ["no_such_module"]}, GPU, "ModuleNotFoundError"),
        ({"secrets": ["NONE"]}, GPU, "has no value for"),
    ],
)
def test_one_that_cannot_begin_has_ended_and_says_why(
    tmp_path: Path, more: dict[str, object], gpu: GpuRef, says: str
) -> None:
    async def timeline(stage: Stage) -> None:
        one = stage.run(function("echo", **more), gpu)

        assert says in (await one.reported(ReplicaEnded)).why
        assert not any(isinstance(report, Ready) for report in one.reports)

    play(tmp_path, timeline)


def test_one_that_writes_to_the_line_is_of_no_use(tmp_path: Path) -> None:
    async def timeline(stage: Stage) -> None:
        one = stage.run(function("writes_to_every_descriptor"))
        await one.reported(Ready)
        one.replica.send(1, [b"null"])

        assert "wrote to the gateway's line" in (await one.reported(ReplicaFailed)).why

    play(tmp_path, timeline)


def test_a_fork_server_ends_with_the_last_function_that_needs_it(tmp_path: Path) -> None:
    async def timeline(stage: Stage) -> None:
        first = stage.run(function("echo"))
        second = stage.run(function("sleeps"))
        for one in (first, second):
            await one.reported(Ready)
        assert first.replica.pid is not None
        assert second.replica.pid is not None
        server = parent_of(first.replica.pid)
        assert parent_of(second.replica.pid) == server
        for one in (first, second):
            one.replica.kill()
            await one.reported(ReplicaEnded)

        first.environment.close()
        await asyncio.sleep(0.1)
        assert is_alive(server)

        second.environment.close()
        await asyncio.to_thread(until, lambda: not is_alive(server), "its end")

    play(tmp_path, timeline)


LEAVES = ("leaves_a_child", "leaves_another_session", "leaves_a_daemon")


@pytest.mark.parametrize("groups", [None, AttemptGroups()], ids=["control groups", "marked"])
@pytest.mark.parametrize("leaves", LEAVES)
def test_nothing_of_a_replica_outlives_it(
    tmp_path: Path, leaves: str, groups: AttemptGroups | None
) -> None:
    async def timeline(stage: Stage) -> None:
        other = stage.run(function("leaves_another_session"))
        one = stage.run(function(leaves))
        for each in (other, one):
            await each.reported(Ready)
        kept = int((await other.ask(b"null")).data)
        child = int((await one.ask(b"null")).data)
        one.replica.kill()
        await one.reported(ReplicaEnded)

        assert not is_alive(child), "its end was told while something was left"
        assert is_alive(kept), "which is another's"

    play(tmp_path, timeline, groups=groups)


@pytest.mark.parametrize("leaves", LEAVES)
def test_nothing_of_a_replica_outlives_its_fork_server(tmp_path: Path, leaves: str) -> None:
    if not groups_here(tmp_path).bases:
        pytest.skip("no control groups may be used here")

    async def timeline(stage: Stage) -> None:
        one = stage.run(function(leaves))
        await one.reported(Ready)
        child = int((await one.ask(b"null")).data)
        assert one.replica.pid is not None
        os.kill(parent_of(one.replica.pid), signal.SIGKILL)
        assert (await one.reported(ReplicaEnded)).why == "Its fork server has ended."

        assert not is_alive(child)

    play(tmp_path, timeline)


def test_a_handler_that_kills_its_fork_server_hurts_no_other_user(tmp_path: Path) -> None:
    async def timeline(stage: Stage) -> None:
        mine = stage.run(function("echo"), user="ann")
        theirs = stage.run(function("kills_its_parent"), user="bob")
        for one in (mine, theirs):
            await one.reported(Ready)
        theirs.replica.send(1, [b"null"])
        await theirs.reported(ReplicaEnded)

        assert await mine.ask(b"7") == Reply(CallOutcome.GOOD, b"7")
        assert [type(report) for report in mine.reports] == [Ready, Answered]

    play(tmp_path, timeline)


def test_a_handler_that_forks_without_end_meets_its_bound_and_ends(tmp_path: Path) -> None:
    if "pids" not in groups_here(tmp_path).limits:
        pytest.skip("the number of processes cannot be limited here")

    async def timeline(stage: Stage) -> None:
        one = stage.run(function("forks_without_end"))
        await one.reported(Ready)
        forked = int((await one.ask(b"200")).data)
        assert 0 < forked < 40
        one.replica.kill()
        await one.reported(ReplicaEnded)

    play(tmp_path, timeline, processes=40)


def test_what_functions_left_when_all_that_watched_was_killed_ends_at_the_next_start(
    tmp_path: Path,
) -> None:
    groups = groups_here(tmp_path)
    if not groups.bases:
        pytest.skip("no control groups may be used here")
    group = groups.make("+replica.1", GroupLimits())
    job = groups.make("replica-1.0.1", GroupLimits())
    left, runs = (
        subprocess.Popen(("sleep", "1000"), preexec_fn=one.join) for one in (group, job)
    )

    groups.end_functions()

    assert left.wait() == -signal.SIGKILL
    assert runs.poll() is None, "a job outlives its server"
    job.kill()
    runs.wait()
    job.end()
    assert not list(next(iter(groups.bases.values())).glob(f"{groups.prefix}*"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"path": "/no/such/folder"}, "path is '/no/such/folder', but"),
        ({"secrets": ["NONE"]}, "secrets names 'NONE', which has no value"),
    ],
)
def test_a_function_that_can_never_run_here_is_refused(
    tmp_path: Path, more: dict[str, object], says: str
) -> None:
    (machine,) = this_machine(1)

    with pytest.raises(InvalidInput, match=says):
        LocalReplicas(Secrets(tmp_path), lambda: emulated(machine)).check(
            function("echo", **more), "ann"
        )
