"""Salus' experiments in simulation."""

import pytest

from interlane.reproduce import salus
from interlane.reproduce.base import Setting
from interlane.reproduce.catalogue import REPRODUCTIONS
from interlane.reproduce.salus_workloads import (
    JOBS,
    P100,
    TOTAL_MIN,
    WORKLOADS,
    Lengths,
    hundred_jobs,
    production_like,
    three_lengths,
)


@pytest.mark.parametrize("lengths", [production_like, three_lengths])
def test_the_hundred_jobs_have_the_published_amount_of_work(lengths: Lengths) -> None:
    jobs = hundred_jobs(lengths, seed=3)

    total_min = sum(job.startup_s + job.device_s for job in jobs) / 60
    assert len(jobs) == JOBS
    # Jobs shorter than their start-up take a little longer than they were drawn.
    assert total_min == pytest.approx(TOTAL_MIN, rel=0.1)
    assert jobs == hundred_jobs(lengths, seed=3)


def test_the_published_table_has_33_workloads_that_all_fit() -> None:
    assert len(WORKLOADS) == 33
    assert all(row.demand.peak_bytes <= P100.usable_bytes for row in WORKLOADS)


def test_the_hundred_jobs_end_sooner_under_srtf_and_switching_costs_little() -> None:
    rows = salus._hundred(Setting(None, seed=salus.TABLE1.seed), traces=2)

    assert [row.what for row in rows if row.fails] == []
    (typical,) = (row.ours for row in rows if "within 30 %" in row.what)
    assert isinstance(typical, float)
    assert typical > 2.5


def test_42_models_need_one_device_with_lanes_and_several_without() -> None:
    rows = salus.INFERENCE.run(Setting(None, seed=0))

    assert not any(row.fails for row in rows)
    devices = [row.ours for row in rows if row.what.startswith("devices")]
    assert devices == [42, 5, 3, 1]


def test_a_tuning_run_of_light_jobs_gains_and_one_of_heavy_jobs_hardly() -> None:
    rows = {row.what: row for row in salus.TUNING.run(Setting(None, seed=0))}

    assert not any(row.fails for row in rows.values())
    assert float(rows["light: gain"].ours) > 2 * float(rows["heavy: gain"].ours)


def test_the_reproductions_are_in_the_catalogue() -> None:
    assert {"salus-table1", "salus-hpo", "salus-inference"} <= set(REPRODUCTIONS)
