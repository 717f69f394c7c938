"""Sweeps as the read side shows them: found among jobs, with curves and the best."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.live.driver import Driver
from interlane.live.files.job import read_spec
from interlane.live.http.documents import shown_spec
from interlane.live.store.record import JobRecord
from interlane.live.view import View
from interlane.pages.sweep_index import Sweeps
from interlane.pages.sweeps import all_markup, one_markup
from interlane.sweep.definition import NoSuchSweep, Sweep, sweep_of
from interlane.testing.live import driving, ended, view_of

RUN = "echo loss={n}; echo loss=$(({n} * {n}))"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("state")) as made:
        yield made


@pytest.fixture(scope="module")
def view(driver: Driver) -> View:
    return view_of(driver)


def sweep(name: str, run: str = RUN) -> Sweep:
    job = {"run": run, "env": {"KEY": "secret"}}
    return sweep_of({"name": name, "job": job, "set": {"n": "3,1,2"}, "metric": "loss"})


def begun(driver: Driver, sweep: Sweep) -> list[JobRecord]:
    jobs = [read_spec(sweep.job_of(trial.number, 0)) for trial in sweep.trials]
    made = [driver.submit(job, "ann").result() for job in jobs]
    return [ended(driver, record) for record in made]


def test_sweeps_are_found_among_jobs_and_read(driver: Driver, view: View) -> None:
    driver.submit(read_spec({"name": "other", "run": "true"}), "ann").result()
    begun(driver, sweep("tune"))
    index = Sweeps(view)

    status = index.status("tune")

    assert ("tune", "ann") in index.names()
    assert [run.reports for run in status.ordered()] == [(1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]
    assert status.best is not None
    assert (status.best.trial, status.is_over) == (1, True)
    again = begun(driver, sweep("later"))
    assert index.names()[0] == ("later", "ann")
    assert [one.id for one in view.jobs(10, sweep="later")] == [one.id for one in again][::-1]
    assert view.jobs(10, sweep="lat") == []


def test_a_page_draws_every_trial_and_marks_the_best(driver: Driver, view: View) -> None:
    begun(driver, sweep("drawn"))
    index = Sweeps(view)

    page, listed = one_markup(index.status("drawn")), all_markup(index)

    assert page.count('class="line faint"') == 2
    assert page.count('class="line first"') == 1
    assert "trial 1, the best" in page
    assert '<a class="job" href="/sweeps/drawn">drawn</a>' in listed


def test_a_sweep_without_reports_says_why(driver: Driver, view: View) -> None:
    begun(driver, sweep("mute", "true {n}"))

    page = one_markup(Sweeps(view).status("mute"))

    assert "No trial printed loss" in page
    assert "ended without printing loss" in page


def test_a_sweep_that_nobody_began_is_an_error(view: View) -> None:
    with pytest.raises(NoSuchSweep, match="There is no sweep 'none'"):
        Sweeps(view).status("none")


def test_variables_of_the_job_behind_a_sweep_are_for_its_owner(tmp_path: Path) -> None:
    document = read_spec(sweep("tune").job_of(0, 0)).document

    assert shown_spec(document, whole=True)["sweep"]["job"]["env"] == {"KEY": "secret"}
    assert "secret" not in str(shown_spec(document, whole=False))
