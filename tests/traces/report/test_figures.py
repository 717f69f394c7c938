"""Every figure on tables so small that the right answer can be counted by hand.

The tables are in ``conftest.py``: ten instances of five tasks of four jobs of two users.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from interlane.traces.report.tables import TraceTables, read_tables

Numbers = Callable[[TraceTables, str], Mapping[str, float | None]]


def test_the_heaviest_users_are_counted_by_instances(
    tables: TraceTables, numbers: Numbers
) -> None:
    skew = numbers(tables, "user_skew")

    # ann has 4 + 2 + 1 + 1 instances, bob 2; 5 % of two users is one of them.
    assert skew["users"] == 2
    assert skew["top_5_percent_share"] == 80
    assert skew["top_5_percent_least"] == 8
    assert skew["bottom_half_most"] == 2


def test_gangs_are_tasks_of_several_instances(tables: TraceTables, numbers: Numbers) -> None:
    gangs = numbers(tables, "gangs")

    # Gangs of 4, 2 and 2 among ten; GPUs 4 x 0.5 + 2 x 1 + 2 x 2 = 8 of 8.25.
    assert gangs["gang_share_of_instances"] == 80
    assert gangs["gang_share_of_gpus"] == pytest.approx(100 * 8 / 8.25)
    assert gangs["at_most_2"] == 60
    assert gangs["at_most_10"] == 100
    assert gangs["largest_gang"] == 4
    assert gangs["share_in_gangs_of_100"] == 0


def test_a_gang_is_local_when_one_machine_ran_all_of_it(
    tables: TraceTables, numbers: Numbers
) -> None:
    local = numbers(tables, "locality")

    # j2 names a type, for both of its tasks; j1 and j4 stayed on one machine, j2 did not.
    assert local["tasks_naming_gpu_type"] == 40
    assert local["gangs_on_one_machine"] == pytest.approx(100 * 2 / 3)


def test_submissions_fall_into_hours_of_utc_plus_8(
    tables: TraceTables, numbers: Numbers
) -> None:
    hours = numbers(tables, "submissions")

    # Four tasks in hour 0 (08:00 there), one 25 hours later, which is 09:00 of the next day.
    assert hours["tasks_per_hour_most"] == 4
    assert hours["instances_per_hour_most"] == 8
    assert hours["gpus_per_hour_most"] == pytest.approx(4 * 0.5 + 2 * 1 + 0.25)
    assert hours["tasks_per_hour_least"] == 0
    assert hours["peak_hour"] == 8


def test_run_times_are_those_of_instances(tables: TraceTables, numbers: Numbers) -> None:
    run = numbers(tables, "run_times")

    # Sorted: 900, six times 1000, 5990, twice 10000.
    assert run["p10"] == 900
    assert run["p50"] == 1000
    assert run["p75"] == 5990
    assert run["p90"] == 10_000
    assert run["p50_cpu_only"] == 900
    assert run["p50_several"] == 10_000


def test_a_job_waits_until_the_first_of_its_tasks_starts(
    tables: TraceTables, numbers: Numbers
) -> None:
    wait = numbers(tables, "queueing")

    # j1 100 s, j2 1100 s for both tasks, j3 10 s, j4 nothing.
    assert wait["shared_p90"] == 100
    assert wait["whole_p90"] == 1100
    assert wait["several_p90"] == 0
    assert wait["cpu_only_p50"] == 1100
    assert (wait["v100_p50"], wait["v100_p90"]) == (0, 1100)
    assert (wait["misc_p50"], wait["misc_p90"]) == (100, 100)
    # Short (1000 s or less): seven instances, of which three waited 1100 of 2100 s.
    assert wait["short_means"] == 1000
    assert wait["short_waiting_half"] == pytest.approx(100 * 3 / 7)
    assert wait["long_waiting_half"] == 0


def test_requests_are_counted_by_instances(tables: TraceTables, numbers: Numbers) -> None:
    asked = numbers(tables, "requests")

    # CPUs: 2 once, 6 five times, 8 twice, 12 twice.
    assert (asked["cpu_p50"], asked["cpu_p95"]) == (6, 12)
    # GPUs of nine that ask: 0.25 once, 0.5 four times, 1 twice, 2 twice.
    assert (asked["gpu_p50"], asked["gpu_p95"]) == (0.5, 2)
    assert asked["gpu_0_25"] == pytest.approx(100 / 9)
    assert asked["gpu_0_5"] == pytest.approx(400 / 9)
    assert asked["gpu_1"] == pytest.approx(200 / 9)
    assert asked["gpu_above_1"] == pytest.approx(200 / 9)
    assert asked["gpu_below_0_25"] == asked["gpu_at_most_0_1"] == 0
    assert asked["memory_p50"] == 29


def test_use_is_what_sensors_measured(tables: TraceTables, numbers: Numbers) -> None:
    used = numbers(tables, "use")

    # Seven measured: CPUs 1, four times 3, 11, 13; GPUs 0, four times 0.5, 0.8, 1.
    assert used["cpu_p50"] == 3
    assert used["gpu_p50"] == 0.5
    assert used["memory_p50"] == 3
    assert used["gpu_never_used"] == pytest.approx(100 / 7)


def test_over_use_is_more_than_was_asked_for(tables: TraceTables, numbers: Numbers) -> None:
    over = numbers(tables, "over_use")

    # CPU: w20 used 13 of 12; the task's mean, 12 of 12, is not above.  Memory: w20 60 of 59.
    assert over["instances_over_cpu"] == pytest.approx(100 / 7)
    assert over["tasks_over_cpu"] == 0
    assert over["instances_over_gpu"] == 0
    assert over["instances_over_memory"] == pytest.approx(100 / 7)


def test_machine_use_is_the_median_over_time_of_a_machine(
    tables: TraceTables, numbers: Numbers
) -> None:
    busy = numbers(tables, "machine_use")

    # Two machines of 8 GPUs: 40 and 60 % CPU, 80 and 40 % GPU; one of 2 GPUs: 20 and 30 %.
    assert busy["cpu_p90_8_gpu_machines"] == 60
    assert busy["gpu_p90_8_gpu_machines"] == 80
    assert busy["cpu_p90_2_gpu_machines"] == busy["cpu_p50_2_gpu_machines"] == 20
    assert busy["gpu_p50_2_gpu_machines"] == 30
    assert busy["memory_p90_below_60"] == 100


def test_waiting_for_disks_is_compared_with_work(tables: TraceTables, numbers: Numbers) -> None:
    network = numbers(tables, "network_io")

    # Work is (20 + 40 + 60) / 3 = 40 %, waiting 0.02 %: a factor of 2000.
    assert network["iowait_orders_below"] == pytest.approx(3.301, abs=1e-3)
    assert network["net_receive_p50"] == pytest.approx(1.0)
    assert network["net_receive_p99"] == pytest.approx(2.0)


def test_without_sharing_every_instance_takes_whole_gpus(
    tables: TraceTables, numbers: Numbers
) -> None:
    needed = numbers(tables, "sharing")

    # At 3600 s: j2 takes 2 and j3 1 instead of 2.25; at 7200 s: j3 1 instead of 0.25; at
    # 90,000, 93,600 and 97,200 s: j4 4.  So 3 + 1 + 12 = 16 against 14.5.
    assert needed["saved_mean"] == pytest.approx(100 * (1 - 14.5 / 16))


def test_busy_gpus_are_looked_at_at_full_hours(tables: TraceTables, numbers: Numbers) -> None:
    busy = numbers(tables, "contention")

    # At 3600 s three GPUs are in use, at 80, 100 and 0 %; at 7200 s one, at 0 %.
    assert busy["busy"] == 25
    assert busy["busy_hosting_several"] == 0
    assert busy["idle"] == 50


def test_recurrence_counts_the_jobs_of_a_group(tables: TraceTables, numbers: Numbers) -> None:
    again = numbers(tables, "recurrence")

    # g1 ran three times and has four of the five tasks, g2 once.
    assert again["groups"] == 2
    assert again["at_most_1"] == 20
    assert again["at_most_2"] == 20
    assert again["at_most_10"] == 100
    assert again["run_5_times"] == 0


def test_workloads_are_known_by_their_names(tables: TraceTables, numbers: Numbers) -> None:
    named = numbers(tables, "workloads")

    # bert: two tasks of five; ctr: two of five, whose five instances used 0.5 and once 0.
    assert named["nlp"] == 40
    assert named["ctr"] == 40
    assert named["named"] == 80
    assert named["ctr_little_gpu"] == 20
    assert named["nlp_large_memory"] == 100
    assert named["nlp_whole_gpu_well_used"] == 100


def test_cpus_per_gpu_of_machines_and_of_requests(
    tables: TraceTables, numbers: Numbers
) -> None:
    ratio = numbers(tables, "cpu_per_gpu")

    assert ratio["machines_all"] == pytest.approx((96 + 64 + 96 + 96) / 18)
    assert ratio["machines_8"] == 12
    assert ratio["machines_2"] == 32
    # 4 x 6 + 2 x 12 + 2 + 6 + 2 x 8 = 72 CPUs for 8.25 GPUs.
    assert ratio["requests_all"] == pytest.approx(72 / 8.25)
    assert ratio["requests_2"] == pytest.approx((4 * 6 + 6) / (4 * 0.5 + 0.25))
    assert ratio["requests_8"] == pytest.approx((2 * 12 + 2 * 8) / (2 + 4))


def test_allocation_is_held_time_of_all_time(tables: TraceTables, numbers: Numbers) -> None:
    held = numbers(tables, "allocation")

    # From 1,100 to 100,000 s: 98,900 s.  m2 has 64 CPUs and 2 GPUs.
    span_s = 98_900
    assert held["misc_cpu"] == pytest.approx(100 * (4 * 6 * 1000 + 6 * 5990) / (64 * span_s))
    assert held["misc_gpu"] == pytest.approx(
        100 * (4 * 0.5 * 1000 + 0.25 * 5990) / (2 * span_s)
    )
    assert held["v100_gpu"] == pytest.approx(100 * (2 * 1000 + 4 * 10_000) / (16 * span_s))
    assert held["two_gpu_cpu"] == held["misc_cpu"]
    assert held["two_gpu_cpu_used"] == pytest.approx(
        100 * (4 * 3 * 1000 + 1 * 5990) / (64 * span_s)
    )


def test_delayed_instances_are_compared_with_their_own_program(
    write: Callable[..., Path], numbers: Numbers
) -> None:
    # Six runs of a program: four take 100 s, one twice and one half as long.
    lengths_s = (100, 100, 100, 100, 200, 50)
    cpu = (10, 10, 10, 10, 60, 5)
    jobs = [(f"j{n}", f"i{n}", "ann", "T", 1000, 2000) for n in range(6)]
    tasks = [(f"j{n}", "worker", 1, "T", 1100, 2000, 600, 29, 50, "T4") for n in range(6)]
    instances = [
        (f"j{n}", "worker", "n", f"w{n}", f"i{n}", "T", 1100, 1100 + lengths_s[n], "m")
        for n in range(6)
    ]
    metrics = [(f"w{n}", "m", 1100, 1200, 0, 0, 0, 50, 1, 1, 1, cpu[n]) for n in range(6)]
    tags = [(f"i{n}", "ann", "", "g", "ctr") for n in range(6)]

    ran = numbers(
        read_tables(write(job=jobs, task=tasks, instance=instances, metric=metrics, tag=tags)),
        "cpu_bottleneck",
    )

    assert (ran["delayed"], ran["accelerated"]) == (1, 1)
    assert ran["delayed_above_24_percent_cpu"] == 100
    assert ran["accelerated_above_24_percent_cpu"] == 0
    assert (ran["delayed_cpu_p50"], ran["accelerated_cpu_p50"]) == (60, 5)
