"""Pages that act: what is submitted, held, moved up, run again and cancelled from a browser."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from interlane.live.auth import Role
from interlane.testing.waiting import until

from .conftest import GPUS, Machine, Open

SLEEPS: dict[str, Any] = {"run": "exec sleep 1000", "resources": {"gpu": {"count": 1}}}


def _tick(page: Page, *jobs: str) -> None:
    for job in jobs:
        page.get_by_label(f"Pick {job}", exact=True).check()


def _fill(machine: Machine) -> None:
    """Let somebody hold every device, so that whoever comes waits."""
    full = machine.submit(
        Role.ADMIN, name="full", run="exec sleep 1000", resources={"gpu": GPUS}
    )
    until(lambda: machine.state_of(full) == "running")


def test_a_job_is_planned_while_it_is_written_and_submitted(
    machine: Machine, open_page: Open
) -> None:
    page = open_page("/submit", Role.USER)
    page.get_by_label("Name").fill("typed")
    page.get_by_label("Command").fill("exec sleep 1000")
    expect(page.get_by_text("It would start now")).to_be_visible()
    page.get_by_label("GPUs", exact=True).fill(str(GPUS + 1))
    expect(page.get_by_text("It could never run here.")).to_be_visible()
    page.get_by_label("GPUs", exact=True).fill("2")
    page.get_by_label("More fields").fill("priority: sixty")
    expect(page.get_by_role("alert")).to_contain_text("priority is 'sixty'")
    page.get_by_label("More fields").fill("priority: 60\nenv: {SEED: 7}")
    expect(page.get_by_text("It would start now")).to_be_visible()

    page.get_by_role("button", name="Submit job").click()

    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("typed-")
    with machine.api() as api:
        job = api.get(f"/jobs/{heading.inner_text()}").json()
    assert job["user"] == "user"
    assert job["spec"]["priority"] == 60
    assert job["spec"]["env"] == {"SEED": "7"}
    assert job["spec"]["resources"]["gpu"]["count"] == 2


def test_a_job_is_copied_without_what_is_somebody_elses(
    machine: Machine, open_page: Open
) -> None:
    job = machine.submit(
        Role.ADMIN, name="origin", env={"TOKEN": "theirs"}, priority=70, **SLEEPS
    )
    page = open_page(f"/jobs/{job}", Role.USER)
    expect(page.get_by_role("button", name="Run again")).to_have_count(0)
    page.get_by_role("button", name="Copy").click()

    expect(page.get_by_label("Name")).to_have_value("origin")
    expect(page.get_by_label("Command")).to_have_value("exec sleep 1000")
    more = page.get_by_label("More fields").input_value()
    assert "priority: 70" in more
    assert "TOKEN" not in more


def test_jobs_are_held_moved_up_released_and_cancelled_together(
    machine: Machine, open_page: Open
) -> None:
    _fill(machine)
    jobs = [machine.submit(name="bulk", **SLEEPS) for _ in range(3)]
    other = machine.submit(Role.ADMIN, name="other", **SLEEPS)
    page = open_page("/queue", Role.USER)

    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_text("No job is picked")).to_be_visible()
    _tick(page, *jobs[:2])
    page.get_by_role("button", name="Hold").click()
    until(lambda: [machine.state_of(job) for job in jobs] == ["held", "held", "queued"])
    page.get_by_role("button", name="Release").click()
    until(lambda: machine.state_of(jobs[0]) == machine.state_of(jobs[1]) == "queued")
    page.get_by_label("Priority").fill("90")
    page.get_by_role("button", name="Set priority").click()
    with machine.api() as api:
        until(lambda: api.get(f"/jobs/{jobs[1]}").json()["priority"] == 90)

    _tick(page, other)
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel 3 jobs")
    page.get_by_role("button", name="Cancel jobs").click()

    until(lambda: machine.state_of(jobs[0]) == machine.state_of(jobs[1]) == "cancelled")
    expect(page.get_by_text("only they or an admin may cancel it")).to_be_visible()
    assert machine.state_of(jobs[2]) == "queued"
    assert machine.state_of(other) == "queued"


def test_what_is_ticked_stays_with_its_job_when_rows_move(
    machine: Machine, open_page: Open
) -> None:
    _fill(machine)
    first, second, third = (machine.submit(name="row", **SLEEPS) for _ in range(3))
    page = open_page("/queue", Role.USER)
    _tick(page, second)

    with machine.api() as api:
        api.delete(f"/jobs/{first}")
    expect(page.get_by_label(f"Pick {first}", exact=True)).to_have_count(0)

    expect(page.get_by_label(f"Pick {second}", exact=True)).to_be_checked()
    expect(page.get_by_label(f"Pick {third}", exact=True)).not_to_be_checked()


def test_a_job_runs_again_and_goes_first_by_its_own_page(
    machine: Machine, open_page: Open
) -> None:
    _fill(machine)
    job = machine.submit(name="own", **SLEEPS)
    page = open_page(f"/jobs/{job}", Role.USER)
    page.get_by_label("Priority").fill("80")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_text("Priority 80.")).to_be_visible()
    page.get_by_role("button", name="Hold").click()
    expect(page.locator(".details .state")).to_have_text("held")
    page.get_by_role("button", name="Release").click()
    expect(page.locator(".details .state")).to_have_text("queued")

    page.get_by_role("button", name="Run again").click()

    expect(page.get_by_role("heading", level=1)).not_to_have_text(job)
    expect(page.get_by_role("heading", level=1)).to_contain_text("own-")


def test_the_queue_is_searched_filtered_and_sorted(machine: Machine, open_page: Open) -> None:
    _fill(machine)
    machine.submit(name="alpha", priority=10, **SLEEPS)
    machine.submit(name="beta", priority=90, **SLEEPS)
    machine.submit(Role.ADMIN, name="gamma", queue="night", **SLEEPS)
    page = open_page("/queue", Role.VIEWER)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)

    page.get_by_role("link", name="job", exact=True).click()
    expect(rows.first).to_contain_text("alpha")
    page.get_by_role("link", name="job ▲").click()
    expect(rows.first).to_contain_text("gamma")
    page.get_by_role("link", name="prio", exact=True).click()
    expect(rows.first).to_contain_text("beta")
    page.get_by_label("Queue", exact=True).select_option("night")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(1)
    page.get_by_label("Queue", exact=True).select_option("")
    page.get_by_label("Search").fill("bet")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("beta")

    why = rows.first.locator("summary")
    expect(why).to_have_text("capacity")
    sentence = rows.first.locator("details div")
    expect(sentence).to_contain_text("needs room")
    expect(sentence).to_be_hidden()
    why.click()
    expect(sentence).to_be_visible()


def test_a_jobs_page_says_how_to_reach_it(machine: Machine, open_page: Open) -> None:
    job = machine.submit(name="lab", run="exec sleep 1000", ports=[8888])
    page = open_page(f"/jobs/{job}", Role.VIEWER)

    expect(page.get_by_text(f"interlane port-forward {job} 8888")).to_be_visible()


def test_events_name_who_did_what(machine: Machine, open_page: Open) -> None:
    job = machine.submit(name="told", run="exit 3")
    until(lambda: machine.state_of(job) == "failed")
    page = open_page(f"/events?q={job}", Role.VIEWER)

    first = page.locator("tbody tr").first
    expect(first).to_contain_text("finished")
    expect(first).to_contain_text("exit code 3")
    expect(page.get_by_role("cell", name="submitted")).to_be_visible()


def test_usage_tells_what_was_held_and_wasted(machine: Machine, open_page: Open) -> None:
    job = machine.submit(name="waste", run="sleep 1; exit 1", resources={"gpu": {"count": 1}})
    until(lambda: machine.state_of(job) == "failed")
    page = open_page("/usage", Role.VIEWER)

    row = page.get_by_role("row").filter(has_text="user").last
    expect(row).to_be_visible()
    page.get_by_role("link", name="by queue").click()
    expect(page.get_by_role("cell", name="default")).to_be_visible()


def test_charts_say_what_they_show_where_one_points(machine: Machine, open_page: Open) -> None:
    _fill(machine)
    page = open_page("/?span=10+minutes", Role.VIEWER)
    plot = page.locator(".plot").first.locator("svg")
    box = plot.bounding_box()
    assert box is not None
    expect(page.locator(".x-axis time").last).not_to_be_empty()

    page.mouse.move(box["x"] + 0.999 * box["width"], box["y"] + box["height"] / 2)

    expect(page.locator(".tip")).to_contain_text("allocated 100 %")
    page.get_by_role("link", name="week", exact=True).click()
    expect(page.get_by_role("heading", name="The last week")).to_be_visible()


@pytest.mark.parametrize("path", ["/nowhere", "/jobs/none-1"])
def test_what_is_not_there_leads_on(machine: Machine, path: str) -> None:
    with machine.browserlike(Role.VIEWER) as browser:
        answer = browser.get(path)
    assert answer.status_code == 404
    if path == "/nowhere":
        assert 'href="/queue"' in answer.text
