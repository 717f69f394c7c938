"""What jobs do over time: kept in files, thinned out, and read again by the next server."""

from pathlib import Path

from interlane.live.measure.job_series import POINTS_MAX, JobLook, JobSeries, SeriesFiles
from interlane.model import JobId

JOB = JobId("train-7")


def look(iterations: int) -> JobLook:
    return JobLook(float(iterations), iterations, 0.5, 1.0, 100, 60, 90 + iterations)


def test_what_was_kept_is_read_by_the_next_server(tmp_path: Path) -> None:
    files = SeriesFiles(tmp_path / "series")
    for iterations in range(3):
        files.append(JOB, look(iterations))

    found = SeriesFiles(tmp_path / "series").read(JOB)

    assert found is not None
    assert found.looks == [look(0), look(1), look(2)]
    assert files.read(JobId("other-8")) is None


def test_a_line_that_a_dying_server_left_unfinished_is_passed_over(tmp_path: Path) -> None:
    files = SeriesFiles(tmp_path)
    files.append(JOB, look(1))
    (path,) = tmp_path.iterdir()
    with path.open("a") as file:
        file.write('[2.0, 2, 0.5\n{"x": 1}\n')
    files.append(JOB, look(3))

    found = files.read(JOB)

    assert found is not None
    assert found.looks == [look(1), look(3)]


def test_a_long_job_is_thinned_out_from_its_beginning_to_its_end() -> None:
    series = JobSeries()
    same = [series.add(look(one)) for one in range(4 * POINTS_MAX)]

    assert len(series.looks) <= POINTS_MAX
    assert series.looks[0] == look(0)
    assert series.looks[-1].iterations >= 4 * POINTS_MAX - 8
    assert same.count(False) >= 2


def test_an_attempt_that_begins_anew_begins_its_series_anew() -> None:
    series = JobSeries()
    series.add(look(50))

    assert not series.add(look(3))
    assert series.looks == [look(3)]


def test_a_disk_that_takes_nothing_costs_the_curve_alone(tmp_path: Path) -> None:
    (tmp_path / "series").write_text("in the way")
    files = SeriesFiles(tmp_path / "series")

    files.append(JOB, look(1))

    assert files.read(JOB) is None


def test_the_oldest_files_make_way(tmp_path: Path) -> None:
    files = SeriesFiles(tmp_path, most=2, swept_every=1)
    for number in range(4):
        files.append(JobId(f"job-{number}"), look(1))

    assert len(list(tmp_path.iterdir())) == 3
    assert files.read(JobId("job-3")) is not None
    assert files.read(JobId("job-0")) is None
