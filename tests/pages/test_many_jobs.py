"""The queue page with a thousand jobs."""

from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

from interlane.live.auth import Role

from .conftest import GPUS, Machine, Open

JOBS = 1_000


def test_a_thousand_jobs_are_paged_explained_and_forecast(
    machine: Machine, open_page: Open
) -> None:
    spec = {
        "name": "many",
        "run": "exec sleep 1000",
        "resources": {"gpu": {"count": 1}},
        "time": {"expected": "5m"},
    }
    with machine.api(Role.USER) as api, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: api.post("/jobs", json=spec), range(JOBS)))
    assert {answer.status_code for answer in answers} == {201}

    page = open_page("/queue", Role.VIEWER)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(page.get_by_role("link", name=f"Waiting {JOBS - GPUS:,}")).to_be_visible()
    expect(rows.first.locator("summary")).to_have_text("capacity")
    expect(rows.first).to_contain_text("Task worker needs room")
    expect(rows.first.locator("td").nth(6)).to_contain_text("min")
    page.get_by_role("link", name="Last").click()
    last = page.locator("tbody tr").last
    expect(last.locator("td").first).to_have_text(f"{JOBS - GPUS:,}")
    page.get_by_role("link", name=f"Running {GPUS}").click()
    expect(page.locator("tbody tr")).to_have_count(GPUS)
