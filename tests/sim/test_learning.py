"""Estimates by a predictor that learns while the trace is played."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pytest

from interlane import cli
from interlane.kernel.scheduler import Scheduler
from interlane.model import Job, JobId
from interlane.policy.base import Key
from interlane.policy.order import Fifo
from interlane.policy.place import first_fit
from interlane.policy.policy import Policy
from interlane.predict.recall import Recall
from interlane.sim.engine import Simulator
from interlane.sim.learning import LearningScheduler, learning_on
from interlane.testing.build import cluster, machine
from interlane.traces.jobs import jobs_of
from interlane.traces.schema import Trace, canonical


@dataclass(frozen=True, slots=True)
class Watching(Fifo):
    """First come, first served; notes what was estimated of each job."""

    estimates: dict[JobId, float | None] = field(default_factory=dict)

    def key(self, job: Job, ran_s: float) -> Key:
        self.estimates[job.id] = job.duration_s_estimate
        return (job.submitted_s, 0.0)


def trace_of(*rows: tuple[str, float, float, str]) -> Trace:
    names, at_s, lengths_s, groups = zip(*rows, strict=True)
    columns = {
        "job_id": pl.Series(names),
        "submit_s": pl.Series(at_s, dtype=pl.Float64),
        "duration_s": pl.Series(lengths_s, dtype=pl.Float64),
        "group": pl.Series(groups),
        "gpus": pl.Series([1] * len(rows)),
    }
    return Trace("made", canonical(columns))


def estimated(trace: Trace, predictor: Recall | None = None) -> dict[JobId, float | None]:
    """Play a trace on two GPUs and return what was estimated of each job."""
    order = Watching()
    lab = cluster(machine(gpus=2))
    learning = learning_on(trace, predictor or Recall())
    scheduler = Scheduler(lab, Policy(order, first_fit()))
    learner = LearningScheduler(scheduler, learning)
    Simulator(scheduler, *jobs_of(trace, estimate=None), through=learner).run()
    return order.estimates


def test_an_elastic_gang_teaches_how_long_it_would_have_run_whole() -> None:
    trace = trace_of(
        ("other", 0, 400, "o"), ("gang", 0, 1_000, "a"), ("late", 3_000, 1_000, "a")
    )
    sizes = [1, 2, 2]
    rows = trace.frame.with_columns(
        pl.Series("instances", sizes), pl.Series("instances_min", [1, 1, 1])
    )

    # Half of the gang runs for 400 s and all of it for another 800 s.
    assert estimated(replace(trace, frame=rows))[JobId("late")] == pytest.approx(
        1_000, rel=0.01
    )


def test_a_job_is_estimated_from_those_that_have_ended_and_from_no_others() -> None:
    trace = trace_of(
        ("first", 0, 5_000, "a"), ("early", 4_999, 5_000, "a"), ("late", 5_001, 5_000, "a")
    )

    told = estimated(trace)

    assert told[JobId("first")] == told[JobId("early")] == pytest.approx(600)
    assert told[JobId("late")] == pytest.approx(5_000, rel=0.3)


def test_waiting_is_no_running() -> None:
    # Two GPUs: c waits for a until 1,000 s and then runs 100 s; d is estimated at 1,200 s.
    trace = trace_of(
        ("a", 0, 1_000, "x"), ("b", 0, 9_000, "y"), ("c", 0, 100, "c"), ("d", 1_200, 1, "c")
    )

    assert estimated(trace)[JobId("d")] == pytest.approx(100, rel=0.25)


def test_what_happens_later_changes_no_estimate() -> None:
    rows = [(f"j{n}", 100.0 * n, 50.0 + 40 * (n % 5), f"g{n % 3}") for n in range(60)]
    others = [
        (name, at, length * 7 if at >= 3_000 else length, g) for name, at, length, g in rows
    ]

    one, two = estimated(trace_of(*rows)), estimated(trace_of(*others))

    before = [JobId(name) for name, at, *_ in rows if at < 3_000]
    assert [one[name] for name in before] == [two[name] for name in before]
    assert one != two


def test_the_model_that_a_run_begins_with_stays_as_it_was() -> None:
    model = Recall()
    trace = trace_of(("a", 0, 5_000, "a"), ("b", 9_000, 5_000, "a"))

    assert estimated(trace, model) == estimated(trace, model)
    assert model.history_.places == {}


Call = Callable[..., dict[str, object]]


@pytest.fixture
def simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    trace = tmp_path / "jobs.csv"
    lines = [f"{n},{n * 60},{30 + 200 * (n % 3)},g{n % 3},1" for n in range(60)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,group,gpus", *lines]) + "\n")

    def run(estimate: object) -> dict[str, object]:
        words = [
            "simulate",
            trace,
            "--cluster",
            "pool:1",
            "--order",
            "sjf",
            "--estimate",
            estimate,
        ]
        code = cli.run([str(word) for word in [*words, "-o", "json"]])
        said = capsys.readouterr()
        answer: dict[str, object] = json.loads(said.out) if code == 0 else {"error": said.err}
        return answer

    return run


def test_a_model_file_or_learning_from_nothing_serves_as_a_estimate(
    simulated: Call, tmp_path: Path
) -> None:
    model = tmp_path / "m.ildur"
    train = ["predict", "duration", "train", str(tmp_path / "jobs.csv"), "--out", str(model)]
    assert cli.run(train) == 0

    learning, stored = simulated("learning"), simulated(model)

    assert learning["estimate"] == "learning"
    assert str(learning["policy"]).startswith("sjf(learning)/")
    assert learning["jobs"] == stored["jobs"] == 60
    assert stored["mean_jct_s"] == pytest.approx(simulated("duration")["mean_jct_s"], rel=0.05)


def test_a_model_that_does_not_learn_is_refused_in_a_sentence(
    simulated: Call, tmp_path: Path
) -> None:
    model = tmp_path / "m.ildur"
    train = ["predict", "duration", "train", str(tmp_path / "jobs.csv"), "--out", str(model)]
    assert cli.run([*train, "--model", "last-run"]) == 0

    assert "does not learn as jobs end" in str(simulated(model)["error"])
    assert "no such file" in str(simulated(tmp_path / "none.ildur")["error"])
