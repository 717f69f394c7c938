"""Racks, taints, drains and lost GPUs, from the files to the sentences."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

Call = Callable[..., Any]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MACHINES = """
topology: [rack]
machines:
  - {count: 4, name: m, gpu_type: T4, gpus: 2, cpus: 8, memory_gib: 64,
     labels: {rack: {prefix: r, size: 2}}}
  - {name: own, gpu_type: A10, gpus: 1, cpus: 8, memory_gib: 64,
     labels: {rack: r1}, taints: {team: a}}
"""
HEADER = "job_id,submit_s,duration_s,instances,gpus,gpu_types,selectors,tolerations,topology"


@pytest.fixture
def racks(tmp_path: Path) -> Callable[..., tuple[object, ...]]:
    """Return the words that name a trace of these rows on two racks with these events."""

    def made(*rows: str, events: str = "") -> tuple[object, ...]:
        trace, cluster = tmp_path / "jobs.csv", tmp_path / "racks.yaml"
        trace.write_text("\n".join((HEADER, *rows)) + "\n")
        cluster.write_text(f"{MACHINES}{events}")
        return "--trace", trace, "--cluster", cluster

    return made


def test_a_run_plays_the_events_of_its_cluster_file(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    words = ("--cluster", EXAMPLES / "racks.yaml", "--log", log, "--paranoid", "-o", "json")

    answer = json.loads(call("simulate", EXAMPLES / "racks.csv", *words).out)

    # The machine with H100s joins as the last job comes.
    assert answer["unfinished"] == 0
    frame = pl.read_parquet(log)
    joined = frame.filter(pl.col("kind") == "MachineJoined")
    assert joined["machine_id"].to_list() == ["h100"]
    served = frame.filter(pl.col("job_id") == "serve", pl.col("kind") == "Start")
    machine = pl.col("what").str.json_path_match("$.placement.spots[0].machine")
    assert served.select(machine).to_series().to_list() == ["h100"]


def test_a_fault_of_an_event_is_one_sentence(
    call: Call, racks: Callable[..., tuple[object, ...]]
) -> None:
    words = racks("a,0,10,1,1,,,,", events="events: [{at: 1h, drain: nobody}]")

    said = call("explain", "a", *words, "--at", 5)

    assert "event 1: machine 'nobody' is not there at that time" in said.error


def test_a_drained_machine_is_named(
    call: Call, racks: Callable[..., tuple[object, ...]]
) -> None:
    words = racks(
        "a,5,10,1,2,,rack=r1,,", events="events: [{at: 1, drain: m-2}, {at: 1, drain: m-3}]"
    )

    told = call("explain", "a", *words, "--at", 5).out

    assert "m-2" in told
    assert "drained" in told


def test_a_gang_of_one_rack_is_told_that_no_rack_has_room(
    call: Call, racks: Callable[..., tuple[object, ...]]
) -> None:
    busy = ("x,0,100,1,2,T4,rack=r0,,", "y,0,200,1,2,T4,rack=r1,,")
    words = racks(*busy, "gang,5,10,2,2,T4,,,same=rack")

    told = call("explain", "gang", *words, "--at", 50).out

    assert "waits, since 5 s" in told
    assert "rack" in told
    # One machine of each rack is free, and it starts when the first rack is.
    assert "started after waiting 95 s" in call("timeline", "gang", *words).out


def test_a_gang_that_lost_a_gpu_is_told_so(
    call: Call, racks: Callable[..., tuple[object, ...]]
) -> None:
    lost = "events: [{at: 10, lose_device: {machine: m-0, gpu: 1}}]"
    words = racks("gang,0,100,2,2,,rack=r0,,same=rack", events=lost)

    timeline = call("timeline", "gang", *words).out
    told = call("explain", "gang", *words, "--at", 20).out

    assert "lost its place after running 10 s: Machine m-0 changed" in timeline
    assert "waits, since 10 s" in told


def test_a_taint_that_is_not_tolerated_is_named(
    call: Call, racks: Callable[..., tuple[object, ...]]
) -> None:
    words = racks("a,0,10,1,1,A10,,,", "b,0,10,1,1,A10,,team=a,")

    assert "team=a" in call("explain", "a", *words, "--at", 5).out
    assert "runs, since 0 s, on own." in call("explain", "b", *words, "--at", 5).out
