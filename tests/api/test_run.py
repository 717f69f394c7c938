"""``import interlane as il``: runs as frames, plots and tables."""

import subprocess
import sys
from pathlib import Path
from random import Random

import polars as pl
import pytest

import interlane as il
from interlane.model import Job, Placement, Refusal
from interlane.policy.base import ClusterView, TypeRule
from interlane.policy.sketch import place_by

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS, LAB = EXAMPLES / "jobs.csv", EXAMPLES / "lab.yaml"


class LastFirst:
    """Fill the last machines first."""

    types = TypeRule.EXACT

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        return place_by(job, view, lambda sketch: -sketch.machine.index)


def test_the_public_names_are_these_and_no_others() -> None:
    # Programs of others name them: one that goes is announced a version before.
    assert sorted(il.__all__) == [
        "AsyncClient", "AsyncLiveJob", "Client", "Comparison", "InterlaneError",
        "InvalidInput", "LiveJob", "Simulation", "Unreachable", "__version__", "compare",
        "simulate",
    ]  # fmt: skip
    assert all(getattr(il, name) is not None for name in il.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        il.simulat  # type: ignore[attr-defined]  # noqa: B018


def test_a_run_says_what_the_command_says() -> None:
    run = il.simulate(JOBS, LAB)

    # As on the page "Quick start".
    assert run.policy == "fifo/pack/skip"
    assert run.summary["mean_wait_s"] == 700
    assert run.summary["makespan_s"] == 12_301
    assert repr(run) == "<Simulation of 12 jobs on lab under fifo/pack/skip: mean wait 700 s>"


def test_a_frame_has_a_row_per_job() -> None:
    frame = il.simulate(JOBS, LAB).frame()

    pretrain = frame.row(by_predicate=pl.col("job_id") == "pretrain", named=True)
    wish = frame.row(by_predicate=pl.col("job_id") == "wish", named=True)
    assert frame.height == 13
    assert (pretrain["started_s"], pretrain["wait_s"], pretrain["gpus"]) == (6900, 6780, 8)
    assert wish["refused"]
    assert wish["started_s"] is None
    assert frame["wait_s"].mean() == 700


def test_events_come_in_order_with_the_machines_they_are_about() -> None:
    events = il.simulate(JOBS, LAB).events()

    started = events.row(
        by_predicate=(pl.col("job_id") == "pretrain") & (pl.col("event") == "started"),
        named=True,
    )
    assert events["at_s"].is_sorted()
    assert (started["at_s"], started["machines"]) == (6900, "a100-0,a100-1")


def test_frames_and_mappings_do_for_files() -> None:
    machine = {"name": "m", "gpu_type": "T4", "gpus": 2, "cpus": 8, "memory_gib": 64}
    lab = {"name": "two", "machines": [machine]}
    jobs = pl.DataFrame(
        {
            "job_id": ["a", "b"],
            "submit_s": [0, 0],
            "duration_s": [10, 10],
            "gpus": [2, 2],
            "cpu_milli": [1000, 1000],
        }
    )

    assert il.simulate(jobs, lab).frame()["wait_s"].to_list() == [0, 10]


def test_policies_are_compared_and_the_best_named() -> None:
    found = il.compare(JOBS, LAB, ["order=fifo,queue=strict", "order=srtf"])

    assert found.frame()["policy"].to_list() == ["fifo/pack/strict", "srtf(oracle)/pack/skip"]
    assert found.leads["mean_wait_s"] == ["srtf(oracle)/pack/skip"]
    assert found.runs[1].summary["mean_wait_s"] == 590


def test_a_class_of_ones_own_places_jobs() -> None:
    found = il.compare(JOBS, LAB, ["order=fifo", LastFirst])
    events = found.runs[1].events()

    first = events.row(
        by_predicate=(pl.col("job_id") == "tune-1") & (pl.col("event") == "started"), named=True
    )
    assert found.runs[1].policy == "fifo/lastfirst/skip"
    assert first["machines"] == "a100-1"


def test_a_placer_is_taken_from_a_file_with_its_settings() -> None:
    word = f"{EXAMPLES / 'my_placer.py'}:Thrifty"

    plain = il.simulate(JOBS, LAB, placer=word)
    spared = il.simulate(JOBS, LAB, placer=f"{word}:spare=T4")

    assert plain.policy == "fifo/my_placer.py:Thrifty/skip"
    assert plain.summary["mean_wait_s"] == 830
    assert spared.frame()["started_s"].to_list() != plain.frame()["started_s"].to_list()


@pytest.mark.parametrize(
    ("text", "word", "sentence"),
    [
        ("x = 1", "Mine", "it has no Mine"),
        ("class Mine: pass", "Mine", "has no method 'place"),
        ("1 / 0", "Mine", "it cannot be loaded (ZeroDivisionError: division by zero)"),
        (None, "Mine", "there is no such file"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    text: str | None, word: str, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)

    with pytest.raises(il.InvalidInput) as caught:
        il.simulate(JOBS, LAB, placer=f"{file}:{word}")
    assert sentence in str(caught.value)


def test_notebooks_show_tables_and_plots() -> None:
    found = il.compare(JOBS, LAB, ["order=fifo,queue=strict", "order=srtf"])

    assert "<b>590</b>" in found._repr_html_()
    assert "mean wait s" in found.runs[0]._repr_html_()
    assert [trace.name for trace in found.plot().data] == [run.policy for run in found.runs]
    used = found.runs[0].plot().data[0]
    assert max(used.y) <= 14
    assert used.name == "GPUs in use (of 14)"


def test_importing_the_package_loads_no_numbers_and_no_compiler() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import interlane, sys; print('numpy' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "False"
