"""Pages that compute: plans, simulations and reports."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from interlane.live.auth import Role
from interlane.model import InvalidInput
from interlane.pages.planner import PastedDemand, planned
from interlane.pages.whatif import LIMIT_S
from interlane.testing.waiting import until

from .conftest import Machine, Open

JOBS = (
    "job_id,submit_s,duration_s,gpus,user\n"
    "a,0,60,1,<img src=x onerror=alert(1)>\n"
    "b,30,90,2,ann\n"
)


def test_services_are_planned_and_the_way_from_one_plan_to_the_next(open_page: Open) -> None:
    page = open_page("/mig", Role.USER)
    page.get_by_role("button", name="Plan", exact=True).click()
    plan = page.get_by_role("heading", name="GPUs", exact=True)
    expect(plan).to_be_visible()
    expect(page.get_by_text("proven optimal")).to_be_visible()
    expect(page.get_by_role("heading", name="Steps")).to_have_count(0)
    assert page.locator("svg.gpu rect").count() > 3

    page.get_by_role("button", name="Take the plan").click()
    services = page.get_by_label("Services (YAML)")
    services.fill(services.input_value().replace("rate_per_s: 9000", "rate_per_s: 14000"))
    page.get_by_role("button", name="Plan", exact=True).click()

    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    expect(page.get_by_text("running instances stay where they are")).to_be_visible()
    expect(page.get_by_role("cell", name="create search").first).to_be_visible()


@pytest.mark.parametrize(
    ("services", "said"),
    {
        "no YAML": ("services: [", "services, line 1: this is not YAML"),
        "an unknown key": ("a: 1", "services: the file has the key 'a'; known are"),
        "a file": (
            "table: /etc/passwd\nservices: [{name: a, model: b, rate_per_s: 1, latency_ms: 1}]",
            "services: files cannot be read here; give the table itself",
        ),
    }.values(),
    ids=lambda case: case[:12],
)
def test_services_that_cannot_be_planned_are_told_why(services: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        planned(PastedDemand(services, None, "", "", 1.0))


def test_a_refusal_is_shown_and_stays_text(open_page: Open) -> None:
    page = open_page("/mig")
    page.get_by_label("Services (YAML)").fill("<img src=x onerror=alert(1)>: 1")
    page.get_by_role("button", name="Plan", exact=True).click()

    alert = page.get_by_role("alert").filter(has_text="services")
    expect(alert).to_contain_text("'<img src=x onerror=alert(1)>'")
    assert page.locator("img").count() == 0


def test_the_machines_jobs_are_played_under_other_policies(
    machine: Machine, open_page: Open
) -> None:
    jobs = [machine.submit(name="past", run="true") for _ in range(5)]
    until(lambda: all(machine.state_of(job) == "succeeded" for job in jobs))
    page = open_page("/whatif", Role.USER)

    page.get_by_role("button", name="Compare").click()

    figures = page.get_by_role("heading", name="Figures")
    expect(figures).to_be_visible(timeout=1_000 * (LIMIT_S + 30))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("fifo/pack/skip")
    assert page.locator("path.line").count() == 6


def test_a_trace_is_uploaded_and_reported(
    machine: Machine, open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "<b>jobs.csv"
    file.write_text(JOBS)
    page = open_page("/traces", Role.USER)
    page.set_input_files("input[type=file]", file)

    report = page.frame_locator("iframe.report")
    expect(report.get_by_role("heading", level=1)).to_contain_text(file.name)
    expect(report.locator(".main-svg").first).to_be_visible()
    address = page.locator("iframe.report").get_attribute("src")
    with machine.browserlike() as stranger, machine.browserlike(Role.USER) as user:
        assert stranger.get(f"{address}").status_code == 303
        answer = user.get(f"{address}")
        assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
        assert user.get(f"{address}x").status_code == 404


def test_a_trace_that_cannot_be_read_is_told_why(open_page: Open, tmp_path: Path) -> None:
    page = open_page("/traces")
    file = tmp_path / "bad.csv"
    file.write_text("a,b\n1,2\n")
    page.set_input_files("input[type=file]", file)

    alert = page.get_by_role("alert").filter(has_text="csv")
    expect(alert).to_be_visible()
