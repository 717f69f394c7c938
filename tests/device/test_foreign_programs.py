"""Programs that know nothing of sharing: children that train, notebooks, imports, odd peaks."""

import signal
import sys

import pytest

from interlane import cli
from interlane.device.memory import Programs, program_of
from interlane.lanes.report import ProcessReport
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, Job, Stage

TRAIN = """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.05)
"""


def run(stage: Stage, *words: object) -> int:
    """Run ``interlane share run`` in this process."""
    return cli.run(["share", "run", "--socket", str(stage.address), *map(str, words)])


def seen(stage: Stage, job: Job) -> ProcessReport:
    return next(one for one in stage.device.processes if one.pid == job.process.pid)


# -- children that train ---------------------------------------------------------------------

CHILDREN = (
    TRAIN
    + """
import torch.multiprocessing as mp
def work(rank, shared, barrier):
    if barrier is not None:
        barrier.wait()
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
    for _ in range(6):
        shared(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
    if barrier is not None:
        barrier.wait()
def main(way, first_steps=0, meet=False):
    train(first_steps)
    context = mp.get_context(way)
    shared = torch.nn.Linear(64, 64)
    shared.share_memory()
    barrier = context.Barrier(2) if meet else None
    workers = [context.Process(target=work, args=(rank, shared, barrier)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    train(2)
    print([worker.exitcode for worker in workers])
"""
)


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_children_of_a_job_of_which_nothing_is_known_train_while_it_waits_for_them(
    stage: Stage, way: str
) -> None:
    stage.daemon()
    job = stage.start(stage.script(CHILDREN + f"if __name__ == '__main__': main({way!r})"))

    assert job.finished().splitlines()[-1] == "[0, 0]"
    until(lambda: not stage.device.processes)
    assert stage.total(job).iterations == 6 + 6 + 2
    assert stage.total(job).processes == 3


def test_children_that_meet_before_and_after_they_train_do_not_wait_for_ever(
    stage: Stage,
) -> None:
    stage.daemon()
    script = stage.script(CHILDREN + "if __name__ == '__main__': main('fork', 2, meet=True)")

    assert stage.start(script).finished().splitlines()[-1] == "[0, 0]"


def test_children_train_beside_a_parent_that_has_declared_most_of_the_device(
    stage: Stage,
) -> None:
    stage.daemon(device="cpu:1GiB")
    script = stage.script(CHILDREN + "if __name__ == '__main__': main('fork', 8)")

    job = stage.start(script, memory_mib=(700, 200))

    assert job.finished().splitlines()[-1] == "[0, 0]"


def test_a_child_for_which_its_parent_leaves_no_room_is_told_so(stage: Stage) -> None:
    stage.daemon(device="cpu:300MiB")
    script = stage.script(
        TRAIN
        + """
held = torch.ones(65 << 20)  # 260 MiB
train(5)
if os.fork():
    print(os.waitstatus_to_exitcode(os.wait()[1]))
else:
    train(5)
"""
    )

    job = stage.start(script, memory_mib=(290, 10))

    said = job.finished()
    assert said.splitlines()[-1] == str(cli.NEVER_PLACED)
    assert "It descends from" in said


@pytest.mark.parametrize(
    "how",
    [
        "world_size=2, rank=int(sys.argv[1])",
        "init_method='tcp://127.0.0.1:9?rank=0&world_size=2'",
        "init_method='file://' + sys.argv[0] + '.store', world_size=2, rank=0",
    ],
)
@pytest.mark.parametrize("start", [("--warm",), ()])
def test_ranks_are_refused_before_they_wait_for_each_other(
    stage: Stage, how: str, start: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon()
    script = stage.script(
        TRAIN
        + f"""
from torch.distributed import init_process_group
if len(sys.argv) > 1:
    init_process_group("gloo", {how})
    train(3)
else:
    import subprocess
    sys.exit(subprocess.run([sys.executable, sys.argv[0], "0"]).returncode)
"""
    )

    code = run(stage, *start, "--", sys.executable, script)

    assert code == 2
    assert "the job has 2 ranks" in capfd.readouterr().err


def test_a_group_of_one_rank_is_none(stage: Stage) -> None:
    stage.daemon()
    script = stage.script(
        TRAIN
        + """
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
train(3)
print(torch.distributed.get_world_size())
"""
    )

    assert stage.start(script).finished() == "1\n"


# -- programs that idle ----------------------------------------------------------------------

IDLES_INSIDE = (
    TRAIN
    + """
train(8)
model(torch.ones(2, 64)).shape  # with gradients, as always: an iteration that nobody ends
print("idle", flush=True)
wait_for(sys.argv[1])
train(4)
print("awake")
"""
)


@pytest.mark.parametrize("order", ["fair", "fifo"])
def test_a_job_that_idles_inside_an_iteration_lends_its_lane_and_lives(
    stage: Stage, order: str
) -> None:
    stage.daemon("--hung-after", "2", "--order", order)
    go = stage.folder / "go"
    idle = stage.start(stage.script(IDLES_INSIDE), go, memory_mib=(60, 40))
    until(lambda: "idle" in idle.text)

    stage.start("mlp.py", 200, memory_mib=(60, 40)).finished()
    go.touch()

    assert idle.finished() == "idle\nawake\n"
    assert "others wait" not in stage.log


def test_what_a_job_holds_in_the_middle_of_an_iteration_stays_booked(stage: Stage) -> None:
    stage.daemon(device="cpu:1GiB")
    script = stage.script(
        TRAIN
        + """
wide = torch.nn.Linear(64, 64)
train(8)
kept = wide(torch.ones(160 << 12, 64))  # 160 MiB, for a backward pass that does not come
print("idle", flush=True)
time.sleep(1000)
"""
    )
    idle = stage.start(script, memory_mib=(60, 40), declared=False)
    until(lambda: "idle" in idle.text)

    stage.start("mlp.py", 200, memory_mib=(60, 40)).finished()

    booked = seen(stage, idle).booked
    assert booked is not None
    assert booked.persistent_bytes > 160 * MIB


def test_a_job_that_is_busy_inside_an_iteration_keeps_its_lane(stage: Stage) -> None:
    stage.daemon("--hung-after", "1000")
    go = stage.folder / "go"
    script = stage.script(
        TRAIN
        + """
class Busy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = model
    def forward(self, inputs):
        print("busy", flush=True)
        while not os.path.exists(sys.argv[1]):
            pass
        return self.layer(inputs)
train(8)
Busy()(torch.ones(8, 64)).sum().backward()
optimizer.step()
"""
    )
    busy = stage.start(script, go, name="busy", memory_mib=(60, 40))
    until(lambda: "busy" in busy.text)
    other = stage.start("mlp.py", 20, name="other", memory_mib=(60, 40))
    until(lambda: stage.states.get("other") == "waiting")
    ticks = stage.device.processes[0].run.present_s + 4

    until(lambda: seen(stage, busy).run.present_s > ticks)

    assert stage.states == {"busy": "running", "other": "waiting"}
    go.touch()
    busy.finished()
    other.finished()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_job_that_idles_before_it_is_known_holds_what_it_uses_and_can_go_on(
    stage: Stage, steps: int
) -> None:
    stage.daemon()
    go = stage.folder / "go"
    text = TRAIN + f"train({steps})\nprint('idle', flush=True)\nwait_for(sys.argv[1])\ntrain(9)"
    idle = stage.start(stage.script(text), go)
    until(lambda: "idle" in idle.text)
    assert stage.device.booked_bytes == 1 << 30  # nobody else wants it

    other = stage.start("mlp.py", 50)

    other.finished()
    booked = seen(stage, idle).booked
    assert booked is not None
    assert booked.peak_bytes < 300 * MIB
    go.touch()
    idle.finished()


def test_a_job_that_was_booked_with_little_while_it_idled_has_more_when_it_grows(
    stage: Stage,
) -> None:
    stage.daemon()
    go = stage.folder / "go"
    text = TRAIN + "print('idle', flush=True)\nwait_for(sys.argv[1])\n"
    text += "held = torch.ones(50 << 20)\nprint('grown', flush=True)\ntime.sleep(1000)\n"
    idle = stage.start(stage.script(text), go)
    until(lambda: "idle" in idle.text)
    other = stage.start("mlp.py", 100_000)
    until(lambda: stage.iterations(other) > 10)

    go.touch()
    until(lambda: "grown" in idle.text)

    until(lambda: (seen(stage, idle).booked or 0) and stage.device.booked_bytes > 200 * MIB)
    idle.process.send_signal(signal.SIGKILL)
    other.process.send_signal(signal.SIGKILL)


# -- memory ----------------------------------------------------------------------------------

TESTS_AFTERWARDS = (
    TRAIN
    + """
train(20)
with torch.no_grad():
    model(torch.ones(int(sys.argv[1]) << 12, 64))  # in MiB, and as much again for the answer
"""
)


def learned_mib(stage: Stage, *command: object) -> float:
    program = program_of([*map(str, command)], stage.folder)
    demand = Programs(stage.address.with_suffix(".programs")).demand(program)
    assert demand is not None
    return demand.peak_bytes / MIB


def test_what_comes_after_the_last_measurement_is_learned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.folder)
    stage.daemon(device="cpu:2GiB")
    command = (sys.executable, stage.script(TESTS_AFTERWARDS), 200)

    assert run(stage, "--warm", "--", *command) == 0

    assert 400 < learned_mib(stage, *command) < 600


def test_a_run_of_two_iterations_is_learned_from(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.folder)
    stage.daemon(device="cpu:2GiB")
    script = stage.script(TRAIN + "train(1)\nheld = torch.ones(50 << 20)\ndel held\ntrain(1)")

    assert run(stage, "--warm", "--", sys.executable, script) == 0

    assert 200 < learned_mib(stage, sys.executable, script) < 400


def test_a_large_iteration_is_seen_while_the_job_runs(stage: Stage) -> None:
    stage.daemon(device="cpu:2GiB")
    text = TRAIN + "train(20)\nmodel(torch.ones(160 << 12, 64)).sum().backward()\n"
    job = stage.start(stage.script(text + "optimizer.step()\ntime.sleep(1000)"))

    until(lambda: stage.iterations(job) == 21)
    until(lambda: (found := seen(stage, job).measured) and found.peak_bytes > 300 * MIB)


def test_a_job_of_which_nothing_is_known_is_held_to_the_device(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(stage.folder)
    stage.daemon(device="cpu:500MiB")
    command = (sys.executable, stage.script(TESTS_AFTERWARDS), 600)

    assert run(stage, "--warm", "--", *command) == 1
    assert "can't allocate memory" in capfd.readouterr().err
    assert run(stage, "--warm", "--", *command) == cli.NEVER_PLACED
    assert "the device can give" in capfd.readouterr().err


def test_a_part_of_the_device_grows_when_others_leave(stage: Stage) -> None:
    stage.daemon(device="cpu:1GiB")
    first = stage.start("mlp.py", 100_000, memory_mib=(500, 100))
    until(lambda: stage.iterations(first) > 3)
    go = stage.folder / "go"
    text = TRAIN + "train(8)\nprint('known', flush=True)\nwait_for(sys.argv[1])\n"
    text += "train(2)\nheld = torch.ones(150 << 20)\nprint('has it')"
    job = stage.start(stage.script(text), go)
    until(lambda: "known" in job.text)

    first.process.send_signal(signal.SIGKILL)
    first.process.wait(PATIENCE_S)
    until(lambda: len(stage.device.processes) == 1)
    before = seen(stage, job).run.present_s
    until(lambda: seen(stage, job).run.present_s > before + 4)
    go.touch()

    assert "has it" in job.finished()
