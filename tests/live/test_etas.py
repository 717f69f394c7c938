"""When a job will start is told in advance, and what was told is compared with what came."""

from collections.abc import Sequence
from pathlib import Path

from interlane.live.questions.etas import Etas
from interlane.model import JobId
from interlane.testing.live import driving, spec
from interlane.testing.waiting import until
from interlane.wiring import played_starts


def test_a_job_that_waits_has_a_band_and_one_that_runs_has_none(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        told = Etas(driver.snapshot, driver.store, played_starts)
        runs = driver.submit(spec("runs", "sleep 100", gpus=2), "ann").result()
        waits = driver.submit(spec("waits", gpus=2), "ann").result()

        band, none = told.document(waits), told.document(runs)
        for record in (waits, runs):
            driver.cancel(record.id, "ann").result()

    assert band["now_s"] <= band["low_s"] <= band["p50_s"] <= band["p90_s"] <= band["high_s"]
    assert none["p50_s"] is None


def test_bands_move_when_jobs_start_later_than_was_told(tmp_path: Path) -> None:
    def at_once(
        make: object, jobs: object, job_ids: Sequence[JobId], now_s: float
    ) -> dict[JobId, list[float]]:
        return {job_id: [now_s] for job_id in job_ids}

    with driving(tmp_path) as driver:
        told = Etas(driver.snapshot, driver.store, at_once, pause_s=0.05, kept_s=0.0)
        runs = driver.submit(spec("runs", "sleep 100", gpus=2), "ann").result()
        second = driver.submit(spec("second", "sleep 100", gpus=2), "ann").result()
        told.start()
        until(lambda: told.awaited == (second.id,), "a question of its own")
        third = driver.submit(spec("third", gpus=2), "ann").result()
        asked_s, before = driver.now_s(), told.bands([third.id])[third.id]
        driver.cancel(runs.id, "ann").result()
        until(lambda: second.id not in told.awaited, "the comparison")
        asked_again_s, after = driver.now_s(), told.bands([third.id])[third.id]
        told.close()

    assert after.p50_s - asked_again_s > before.p50_s - asked_s


def test_nothing_is_asked_in_the_background_while_very_many_wait(tmp_path: Path) -> None:
    asked: list[JobId] = []

    def noted(
        make: object, jobs: object, job_ids: Sequence[JobId], now_s: float
    ) -> dict[JobId, list[float]]:
        asked.extend(job_ids)
        return {}

    with driving(tmp_path) as driver:
        fewer, enough = (
            Etas(driver.snapshot, driver.store, noted, played_most=most) for most in (1, 2)
        )
        runs, waits = (
            driver.submit(spec(name, "sleep 100", gpus=2), "ann").result()
            for name in ("runs", "waits")
        )
        fewer._ask_about_the_newest()
        while_many = [*asked]
        enough._ask_about_the_newest()
        for record in (waits, runs):
            driver.cancel(record.id, "ann").result()

    assert while_many == []
    assert asked == [waits.id]
