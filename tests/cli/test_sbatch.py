"""Slurm's batch scripts: what their lines mean here."""

import subprocess
from typing import Any

import pytest

from interlane.cli.sbatch import is_script, limit_s, script_job
from interlane.live.files.job import read_spec
from interlane.model import InvalidInput

SCRIPT = """#!/bin/bash
#SBATCH --job-name=Train_BERT
#SBATCH --gres=gpu:a100:2   # two of them
#SBATCH -c 4 --ntasks 2
#SBATCH --mem=16G
#SBATCH -t 1-02:30
#SBATCH --array=0-9%2
#SBATCH --dependency=afterok:prep-3:prep-4,afterany:x-1
#SBATCH --mail-type=END
# a comment

echo "task $SLURM_ARRAY_TASK_ID of '$SLURM_JOB_NAME' $0"
#SBATCH --mem=99G
exit 3
"""


def test_a_script_is_a_job() -> None:
    found = script_job(SCRIPT, "file")

    job = found.document
    assert job["name"] == "train_bert"
    assert job["resources"] == {
        "gpu": {"count": 2, "type": "a100"},
        "cpu": 8,
        "memory": "16GiB",
    }
    assert job["time"] == {"limit": f"{26 * 3600 + 1800}s"}
    assert job["array"] == "0-9%2"
    assert job["after"] == [
        {"job": "prep-3", "when": "succeeded"},
        {"job": "prep-4", "when": "succeeded"},
        {"job": "x-1", "when": "ended"},
    ]
    assert found.ignored == ("--mail-type",)
    read_spec(job)  # the server understands it


def test_a_script_runs_under_its_own_interpreter() -> None:
    command = script_job(SCRIPT, "file").document["run"]
    env = {"INTERLANE_ARRAY_INDEX": "7", "INTERLANE_JOB_ID": "a-1", "PATH": "/usr/bin:/bin"}

    ran = subprocess.run(
        ["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=False
    )

    assert ran.stdout == "task 7 of 'train_bert' train_bert\n"
    assert ran.returncode == 3


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        (("-G 3",), {"resources": {"gpu": {"count": 3}, "cpu": 1}}),
        (("--gpus=h100:1",), {"resources": {"gpu": {"count": 1, "type": "h100"}, "cpu": 1}}),
        (("--gres=gpu",), {"resources": {"gpu": {"count": 1}, "cpu": 1}}),
        (("--begin=now+2hours",), {"time": {"start": "7200s"}}),
        (("--hold", "-p gpu_long"), {"hold": True, "queue": "gpu_long"}),
        (("--export=ALL,A=1,B=x",), {"env": {"A": "1", "B": "x"}}),
        (("-D /data",), {"workdir": "/data"}),
    ],
)
def test_other_lines(lines: tuple[str, ...], fields: dict[str, Any]) -> None:
    text = "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), "true"])

    job = script_job(text, "file").document

    assert {name: job[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("5:30", 330), ("2:0:1", 7201), ("1-0", 86_400), ("1-1:1:1", 90_061)],
)
def test_times_are_read_as_slurm_does(text: str, seconds: int) -> None:
    assert limit_s(text) == seconds


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nodes=2", "a script runs on one machine here"),
        ("--time=soon", "it must read like 2-12:00:00"),
        ("--dependency=singleton", "it must read like afterok:train-7"),
        ("--gpus=many", "it must be a number"),
        ("--mem=x", "it must read like 16G"),
        ("train.py", "is no option"),
        ("--array", "without a value"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(line: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        script_job(f"#!/bin/sh\n#SBATCH {line}\n", "file")


def test_yaml_is_no_script() -> None:
    assert not is_script("# a comment\nname: a\n")
