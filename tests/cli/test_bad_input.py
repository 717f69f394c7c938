import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


WORDS = {
    "an unknown cluster": (("--cluster", "pai2021"), "did you mean 'pai2020'"),
    "a cluster file that is not there": (("--cluster", "x.yaml"), "no such cluster file"),
    "an empty pool": (("--cluster", "pool:0"), "whole number of GPUs"),
    "an unknown order": (("--order", "sfj"), "did you mean 'sjf'"),
    "an unknown placer": (("--placer", "packk"), "did you mean 'pack'"),
    "an unknown queue": (("--queue", "lazy"), "skip, strict"),
    "an unknown estimate": (("--estimate", "nope"), "known are: duration, user_dur"),
    "an unknown weight": (("--weight", "gpu"), "known are: instance, job"),
    "an unknown type rule": (("--gpu-types", "some"), "known are: any, exact, v100"),
    "an unknown format": (("--format", "csv"), "trace format 'csv'"),
    "no jobs a minute": (("--arrivals", "0"), "jobs per minute"),
    "a sample of none": (("--sample", "0"), "1 or more"),
    "a negative sample": (("--sample", "-4"), "1 or more"),
    "a word for a number": (("--sample", "many"), "valid integer"),
    "an unknown type's speed": (("--speed", "H900=2"), "GPU type 'H900'"),
    "a speed without a number": (("--speed", "T4=fast"), "it must be a number"),
    "a speed of zero": (("--speed", "T4=0"), "above 0"),
    "a speed that is no pair": (("--speed", "2"), "'T4=0.5'"),
    "an unknown slowdown": (("--slowdown", "some"), "known are: cpu, none, share:0.1"),
    "a negative slowdown": (("--slowdown", "share:-1"), "0 or more"),
    "failures without pause": (("--failures", "0"), "10 s or more"),
    "a repair in words": (("--failures", "100:soon"), "it must be a number"),
    "a negative protection": (("--preempt-min-run", "-1"), "0 or more"),
    "an unknown setting": (("--order", "priority:size=2"), "age_s, preemptive" ),
    "a setting out of range": (("--order", "priority:age_s=0"), "above 0"),
    "a setting in words": (("--placer", "d-choices:choices=two"), "whole number"),
    "a setting without value": (("--order", "priority:age_s"), "priority:age_s=600"),
    "a log that is no Parquet": (("--log", "log.csv"), ".parquet"),
    "a log in no directory": (("--log", "no/log.parquet"), "directory is not there"),
    "an unknown option": (("--ordr", "fifo"), "No such option"),
    "an option without value": (("--order",), "requires an argument"),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_words_that_mean_nothing_end_in_one_sentence(
    call: Call, trace: Path, lab: Path, case: str
) -> None:
    words, hint = WORDS[case]

    said = call(
        "simulate", trace, *(() if "--cluster" in words else ("--cluster", lab)), *words
    )

    assert hint in said.error


def test_a_missing_trace_is_named(call: Call, lab: Path) -> None:
    assert "nowhere.csv" in call("simulate", "nowhere.csv", "--cluster", lab).error


def test_a_truncated_gzip_is_named(call: Call, trace: Path, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    whole = gzip.compress(trace.read_bytes() * 50)
    path.write_bytes(whole[: len(whole) // 2])

    assert "cut.csv.gz" in call("simulate", path, "--cluster", lab).error


@pytest.mark.parametrize("text", ["", "\n", "job_id,submit_s,duration_s\n"])
def test_an_empty_trace_is_named(call: Call, tmp_path: Path, lab: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)

    assert "empty.csv" in call("simulate", path, "--cluster", lab).error


ROWS_THAT_ARE_BAD = {
    "a negative time": "d,-5,10,1,1000,1000,eve,0,10",
    "a duration of zero": "d,5,0,1,1000,1000,eve,0,10",
    "a negative request": "d,5,10,-1,1000,1000,eve,0,10",
    "an impossible share": "d,5,10,1,2000,1000,eve,0,10",
    "a name used twice": "a,5,10,1,1000,1000,eve,0,10",
    "words for numbers": "d,five,10,1,1000,1000,eve,0,10",
    "no number at all": "d,nan,10,1,1000,1000,eve,0,10",
}


@pytest.mark.parametrize("case", ROWS_THAT_ARE_BAD)
def test_bad_rows_are_named_by_file_and_line(
    call: Call, trace: Path, tmp_path: Path, lab: Path, case: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(trace.read_text() + ROWS_THAT_ARE_BAD[case])

    assert "bad.csv, line 5" in call("simulate", path, "--cluster", lab).error


def test_an_unknown_gpu_type_is_named(call: Call, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,gpu_types\na,0,1,1,T900\n")

    assert "types.csv, line 2" in call("simulate", path, "--cluster", lab).error


def test_a_command_that_is_not_there_is_a_usage_error(call: Call) -> None:
    assert "simulat" in call("simulat").error


def test_a_missing_argument_is_a_usage_error(call: Call) -> None:
    assert "TRACE" in call("simulate").error


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "{trace}", "--policy", "sjf"),
        ("compare", "{trace}", "--policy", "rank=sjf"),
        ("compare", "{trace}", "--policy", "order="),
        ("compare", "{trace}", "--processes", "0"),
        ("compare", "{trace}", "--policy", "order=sjf,estimate=nope", "--processes", "1"),
        ("explain", "z", "--trace", "{trace}", "--at", "5"),
        ("explain", "a", "--trace", "{trace}", "--at", "nan"),
        ("explain", "a", "--trace", "{trace}"),
        ("timeline", "z", "--trace", "{trace}"),
        ("reproduce", "pai-fifo-1001"),
        ("reproduce",),
        ("reproduce", "pai-sjf", "--list", "other"),
        ("reproduce", "pai-sjf", "--data", "nowhere"),
    ],
)
def test_other_commands_refuse_in_one_sentence_too(
    call: Call, trace: Path, words: tuple[str, ...]
) -> None:
    filled = [word.format(trace=trace) for word in words]

    assert call(*filled).error


def test_a_fault_in_a_worker_is_one_sentence(call: Call, trace: Path, lab: Path) -> None:
    policies = ("--policy", "order=fifo", "--policy", "order=sjf,estimate=nope")

    said = call("compare", trace, "--cluster", lab, *policies, "--processes", "2")

    assert "estimate column 'nope'" in said.error
