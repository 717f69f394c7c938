"""How long a job is thought to run: by its program, its user's word, its name."""

from interlane.live.files import job as spec
from interlane.live.files.job import read_spec, request_of
from interlane.live.questions.estimates import JobFeatures, LiveEstimates
from interlane.model import Cluster, JobId, Machine, MachineId

CLUSTER = Cluster("one", (Machine(MachineId("a"), "T4", 4, 8_000, 65_536, 16_384),))


def asked(number: int = 1, **said: object) -> JobFeatures:
    job = read_spec({"name": f"train-{number}", "run": "python train.py", **said})
    return JobFeatures(
        JobId(f"{job.name}-{number}"),
        spec.program_of(job),
        "ann",
        request_of(job, CLUSTER),
        float(number),
        spec.expected_s(job),
        spec.plain_name(job),
    )


def test_jobs_of_one_command_learn_from_each_other_under_any_name() -> None:
    estimates = LiveEstimates()
    for number in range(9):
        estimates.learn(asked(number), 40.0)

    found = estimates.estimate(asked(10, name="something-else", time={"expected": "2h"}))

    assert 30 < found.seconds < 60


def test_a_new_command_is_thought_to_run_as_its_user_expects() -> None:
    estimates = LiveEstimates()
    for number in range(9):
        estimates.learn(asked(number), 40.0)

    found = estimates.estimate(asked(10, run="python other.py", time={"expected": "2h"}))

    assert (found.seconds, found.low_s) == (7_200, 3_600)


def test_a_sweep_over_arguments_learns_by_its_name() -> None:
    estimates = LiveEstimates()
    for number in range(9):
        estimates.learn(asked(number, run=f"python train.py --seed {number}"), 40.0)
        estimates.learn(asked(number, name=f"long-{number}", run=f"./long {number}"), 90_000.0)

    sweep, long = (
        estimates.estimate(asked(99, name=name, run="new")) for name in ("train-99", "long-99")
    )

    assert 30 < sweep.seconds < 60
    assert 60_000 < long.seconds < 120_000


def test_a_group_is_learned_from_whatever_it_runs() -> None:
    estimates = LiveEstimates()
    for number in range(9):
        estimates.learn(asked(number, run=f"./go {number}", group="nightly"), 40.0)

    found = estimates.estimate(asked(99, name="x", run="./go 99", group="nightly"))

    assert 30 < found.seconds < 60
