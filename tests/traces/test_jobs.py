"""Sampling, arrivals, and the making of job objects."""

from random import Random

import polars as pl
import pytest

from interlane.model import Closeness, Demand, InvalidField, Request, Task, UnknownName
from interlane.traces.clusters import load_cluster
from interlane.traces.jobs import at_rate, jobs_of, resampled, sample
from interlane.traces.schema import Trace, canonical, is_estimate
from interlane.traces.synth import synthesize


def trace_of(ids: list[str], **columns: list[object]) -> Trace:
    given = {"submit_s": [0.0] * len(ids), "duration_s": [10.0] * len(ids)} | columns
    series = {name: pl.Series(name, values) for name, values in given.items()}
    frame = canonical({"job_id": pl.Series("job_id", ids), **series})
    return Trace("t", frame, ("duration", *filter(is_estimate, columns)))


def ids_of(trace: Trace) -> list[str]:
    return trace.frame["job_id"].to_list()


def test_a_sample_shuffles_the_first_ten_n_plus_one_jobs() -> None:
    trace = trace_of([str(i) for i in range(50)])

    drawn = sample(trace, 2, seed=42)

    # 10 x 2 + 1 = 21 jobs are read, shuffled in file order, and the first 2 kept.
    order = list(range(21))
    Random(42).shuffle(order)
    assert ids_of(drawn) == [str(i) for i in order[:2]]


def test_a_sample_of_all_jobs_is_shuffled_too() -> None:
    drawn = sample(trace_of(["a", "b", "c"]), 3, seed=1)

    order = [0, 1, 2]
    Random(1).shuffle(order)
    assert ids_of(drawn) == ["abc"[i] for i in order]


def test_a_sample_larger_than_the_trace_is_the_trace_in_file_order() -> None:
    assert ids_of(sample(trace_of(["b", "a"]), 3, seed=1)) == ["b", "a"]


def test_a_sample_takes_jobs_with_all_of_their_tasks() -> None:
    trace = trace_of(["a", "a", "b", "b"], role=["ps", "worker"] * 2)

    drawn = sample(trace, 1, seed=0)

    assert drawn.jobs == 1
    assert drawn.frame["role"].to_list() == ["ps", "worker"]


@pytest.mark.parametrize("n", [0, -1])
def test_a_sample_of_nothing_is_refused(n: int) -> None:
    with pytest.raises(InvalidField, match="sample is"):
        sample(trace_of(["a"]), n, seed=0)


def test_jobs_arrive_in_minutes_by_submission_then_serial() -> None:
    # By (submit, serial): 9 (at 1), then 3, 5, 7 (at 5, by number).
    trace = trace_of(["7", "3", "9", "5"], submit_s=[5.0, 5.0, 1.0, 5.0])

    arrivals = at_rate(trace, 2)

    assert ids_of(arrivals) == ["7", "3", "9", "5"]
    assert arrivals.frame["submit_s"].to_list() == [60, 0, 0, 60]
    assert arrivals.frame.columns == trace.frame.columns


def test_tasks_of_one_job_arrive_together() -> None:
    trace = trace_of(["1", "1", "2"], role=["ps", "worker", "worker"])

    assert at_rate(trace, 1).frame["submit_s"].to_list() == [0, 0, 60]


@pytest.mark.parametrize("rate", [0, -1000])
def test_a_rate_of_nothing_is_refused(rate: int) -> None:
    with pytest.raises(InvalidField, match="rate is"):
        at_rate(trace_of(["a"]), rate)


def test_jobs_come_in_order_with_their_true_durations() -> None:
    trace = trace_of(
        ["2", "1", "3"],
        submit_s=[5.0, 5.0, 0.0],
        duration_s=[20.0, 10.0, 30.0],
        user=["u", "v", "w"],
        queue=["q", "q", "q"],
        priority=[0, 7, 0],
    )

    jobs, durations_s = jobs_of(trace, estimate=None)

    assert [job.id for job in jobs] == ["3", "1", "2"]
    assert durations_s == [30, 10, 20]
    assert (jobs[1].serial, jobs[1].submitted_s, jobs[1].user) == (1, 5, "v")
    assert (jobs[1].queue, jobs[1].priority, jobs[1].duration_s_estimate) == ("q", 7, None)


def test_a_estimate_column_becomes_the_estimate_and_gaps_stay_gaps() -> None:
    trace = trace_of(["1", "2"], user_dur=[4.5, None])

    assert [job.duration_s_estimate for job in jobs_of(trace, estimate="user_dur")[0]] == [
        4.5,
        None,
    ]
    assert [job.duration_s_estimate for job in jobs_of(trace, estimate="duration")[0]] == [
        10,
        10,
    ]


@pytest.mark.parametrize("column", ["limit_estimate", "limit_dur", "predicted_limit"])
def test_a_plain_word_names_a_column_of_estimates(column: str) -> None:
    estimates: dict[str, list[object]] = {column: [4.5]}

    trace = trace_of(["1"], **estimates)

    assert jobs_of(trace, estimate="limit")[0][0].duration_s_estimate == 4.5


def test_an_unknown_estimate_column_names_the_known_ones() -> None:
    with pytest.raises(
        UnknownName, match=r"estimate column 'usr_dur'.*did you mean 'user_dur'"
    ):
        jobs_of(trace_of(["1"], user_dur=[4.5]), estimate="usr_dur")


def test_a_row_says_all_that_a_task_asks_for() -> None:
    trace = trace_of(
        ["1"],
        role=["ps"],
        instances=[4],
        instances_min=[2],
        gpus=[2],
        gpu_milli=[1000],
        gpu_memory_mib=[512],
        cpu_milli=[3000],
        memory_mib=[2048],
        gpu_types=["P100|T4"],
        same_machine=[True],
    )

    jobs, _ = jobs_of(trace, estimate=None)

    demand = Demand(2, 1000, 512, 3000, 2048, frozenset({"P100", "T4"}))
    assert jobs[0].request == Request((Task(demand, 4, 2, same_machine=True, role="ps"),))


def test_a_row_says_on_which_machines_and_how_close() -> None:
    trace = trace_of(
        ["1", "1", "2"],
        role=["ps", "worker", "worker"],
        selectors=["disk=ssd|zone=a", "", ""],
        tolerations=["", "team=x", ""],
        topology=["same=rack", "same=rack", ""],
    )

    (close, anywhere), _ = jobs_of(trace, estimate=None)

    ps, worker = close.request.tasks
    assert ps.demand.selectors == {("disk", "ssd"), ("zone", "a")}
    assert worker.demand.tolerations == {("team", "x")}
    assert close.request.closeness == Closeness(same="rack")
    assert anywhere.request == Request((Task(Demand()),))


def test_jobs_that_want_to_be_elsewhere_do_not_share_a_request() -> None:
    trace = trace_of(["1", "2", "3"], topology=["spread=rack", "same=rack", "spread=rack"])

    (a, b, c), _ = jobs_of(trace, estimate=None)

    assert a.request is c.request
    assert a.request != b.request


def test_a_gang_that_needs_everyone_says_so_in_one_way() -> None:
    jobs, _ = jobs_of(trace_of(["1"], instances=[4]), estimate=None)

    assert jobs[0].request.tasks[0].instances_min is None


def test_equal_requests_are_one_object() -> None:
    trace = trace_of(["1", "2", "3"], gpus=[1, 2, 1])

    (a, b, c), _ = jobs_of(trace, estimate=None)

    assert a.request is c.request
    assert a.request != b.request


def test_tasks_of_one_job_are_one_request() -> None:
    trace = trace_of(["1", "1", "2", "2", "3"], role=["ps", "w", "ps", "w", "w"])

    (a, b, c), durations_s = jobs_of(trace, estimate=None)

    assert [task.role for task in a.request] == ["ps", "w"]
    assert a.request is b.request
    assert len(c.request.tasks) == 1
    assert durations_s == [10, 10, 10]


def test_adapting_is_asked_once_per_request_and_pods() -> None:
    trace = trace_of(["1", "2", "3", "4"], gpus=[1, 1, 1, 2], pods=[1, 5, 1, 1])
    asked: list[tuple[int, int]] = []

    def adapt(request: Request, pods: int) -> Request:
        asked.append((request.gpu_milli, pods))
        return Request((Task(Demand(gpus=1)),))

    jobs, _ = jobs_of(trace, estimate=None, adapt=adapt)

    assert asked == [(1000, 1), (1000, 5), (2000, 1)]
    assert len({id(job.request) for job in jobs}) == 1


def test_a_trace_drawn_anew_has_as_many_jobs_in_order_and_each_with_its_tasks() -> None:
    trace = synthesize(jobs=200, cluster=load_cluster("pai2020-1to5"), load=0.8, seed=3)

    drawn = resampled(trace, seed=1)

    assert drawn.jobs == trace.jobs
    assert drawn.frame["submit_s"].is_sorted()
    came = trace.frame.select("job_id", "role", "gpus", "duration_s").unique()
    source = drawn.frame.with_columns(pl.col("job_id").str.split("/").list.first())
    assert source.join(came, on=["job_id", "role", "gpus", "duration_s"], how="anti").is_empty()
    assert not drawn.frame.equals(resampled(trace, seed=2).frame)
    assert drawn.frame.equals(resampled(trace, seed=1).frame)
    # Blocks keep the load about as it was.
    last_s = trace.frame["submit_s"].max()
    assert isinstance(last_s, float)
    assert 0.5 * last_s < float(drawn.frame["submit_s"].max()) < 2 * last_s  # type: ignore[arg-type]
