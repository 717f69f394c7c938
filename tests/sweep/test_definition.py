"""Sweeps as they are written, and the jobs that they mean."""

from typing import Any

import pytest

from interlane.model.errors import InvalidInput
from interlane.sweep.definition import command_line, job_name, of_job_name, sweep_of

SAID: dict[str, Any] = {
    "name": "tune",
    "job": {"run": "python train.py --lr {lr}", "workdir": "/tmp"},
    "set": {"lr": "0.1,0.01"},
    "metric": "loss",
}


def test_a_trial_is_a_job_with_its_values() -> None:
    sweep = sweep_of(SAID)

    assert [sweep.command(trial.number, 0) for trial in sweep.trials] == [
        "python train.py --lr 0.1",
        "python train.py --lr 0.01",
    ]
    job = sweep.job_of(1, 0)
    assert (job["name"], job["workdir"]) == ("tune-t1-r0", "/tmp")
    assert (job["sweep"]["name"], job["sweep"]["trial"]) == ("tune", 1)


def test_a_sweep_is_made_again_from_any_of_its_jobs() -> None:
    halved = {**SAID, "random": 2, "seed": 3, "halving": "1..9", "goal": "max"}
    sweep = sweep_of(halved)

    said = sweep.job_of(1, 0)["sweep"]
    again = sweep_of({**said["definition"], "name": said["name"], "job": said["job"]})

    assert again.trials == sweep.trials
    assert again.job_of(0, 0) == sweep.job_of(0, 0)


def test_values_are_quoted_for_the_shell_and_other_braces_stay() -> None:
    job = {"run": "awk '{print}' ${HOME}/{how} {how}", "env": {"HOW": "-{how}-"}}
    sweep = sweep_of({**SAID, "set": {"how": ["a b"]}, "job": job})

    made = sweep.job_of(0, 0)

    assert made["run"] == "awk '{print}' ${HOME}/'a b' 'a b'"
    assert made["env"] == {"HOW": "-a b-"}


def test_words_of_a_command_line_keep_places_for_values() -> None:
    words = ["python", "my train.py", "--lr={lr}", "{trial}"]

    assert command_line(words) == "python 'my train.py' --lr={lr} {trial}"
    assert command_line(["echo $HOME | cat"]) == "echo $HOME | cat"


def test_a_budget_in_the_command_makes_rounds() -> None:
    job = {"run": "train {lr} {budget}"}
    sweep = sweep_of({**SAID, "job": job, "halving": "1..10:3"})

    assert sweep.in_rounds
    assert [sweep.command(0, rung) for rung in range(sweep.rounds)] == [
        *("train 0.1 1", "train 0.1 3", "train 0.1 9", "train 0.1 10"),
    ]


def test_the_name_of_a_job_tells_its_trial_and_its_rung() -> None:
    assert of_job_name("tune", job_name("tune", 12, 3)) == (12, 3)
    assert of_job_name("tune", "other-t1-r1") is None
    assert of_job_name("tune", "tune-t1") is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "Tune It"}, "name is 'Tune It', but it must be 1 to 40 of a-z"),
        ({"metric": None}, "The sweep has no metric"),
        ({"metric": "0.5"}, "the word before the number"),
        ({"job": {}}, "The sweep has no command"),
        ({"job": "python"}, "job is 'python', but it must have fields"),
        ({"set": {"depth": "2..3"}}, "depth is not in the command; write {depth} where"),
        ({"set": {"trial": "1,2"}}, "this name has a meaning of its own"),
        ({"goal": "most"}, "goal is 'most', but it must be min or max"),
        ({"random": 0}, "random is 0, but a sweep has from 1 to 5,000 trials"),
        ({"random": 10_000}, "a sweep has from 1 to 5,000 trials"),
        ({"random": 5, "seed": "x"}, "seed is 'x', but it must be a whole number"),
        ({"halving": "27"}, "write budgets as 1..27"),
        ({"halving": "9..3"}, "it goes from 1 or more to more than that"),
        ({"halving": "1..9:1"}, "a factor of 2 or more"),
        ({"job": {"run": "train {lr} {budget}"}}, "which halving gives"),
        ({"trails": 3}, "field of a sweep 'trails' is not known"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_one_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        sweep_of({**SAID, **change})

    assert says in str(error.value)
