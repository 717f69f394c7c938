"""Every page in a real browser: nothing goes wrong, and nothing comes from elsewhere."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import expect

from interlane.live.auth import Role
from interlane.pages.catalogue import PAGES
from interlane.testing.waiting import until

from .conftest import Machine, Open

SLEEPS: dict[str, Any] = {
    "run": "echo begun; exec sleep 1000",
    "resources": {"gpu": {"count": 1}},
}

NAMELESS = """() => [...document.querySelectorAll('a, button, input, textarea, svg, iframe')]
  .filter(one => one.checkVisibility() && one.type !== 'file')
  .filter(one => !one.closest('[aria-hidden=true]'))
  .filter(one => !(one.labels?.length || one.ariaLabel || one.title || one.textContent.trim()
    || one.getAttribute('aria-labelledby')))
  .map(one => one.outerHTML.slice(0, 200))"""
"""What can be used or looked at, and does not say what it is."""


def test_the_menu_leads_to_every_page(machine: Machine, open_page: Open) -> None:
    machine.submit(name="train", **SLEEPS)
    page = open_page("/")
    for one in PAGES:
        if one.in_menu:
            page.get_by_role("link", name=one.title, exact=True).click()
            heading = page.get_by_role("heading", name=one.title, level=1)
            expect(heading).to_be_visible()
            current = page.locator("nav [aria-current=page]")
            expect(current).to_have_text(one.title)
            assert page.evaluate(NAMELESS) == [], one.path
            page.wait_for_timeout(300)  # lets the page speak up, were it to


def test_a_viewer_is_not_led_where_they_may_not_go(open_page: Open) -> None:
    page = open_page("/", Role.VIEWER)

    expect(page.get_by_role("link", name="Queue")).to_be_visible()
    expect(page.get_by_role("link", name="Tokens")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_switched(
    open_page: Open, scheme: Literal["light", "dark"]
) -> None:
    page = open_page("/")
    page.emulate_media(color_scheme=scheme)
    backs = {"light": "rgb(246, 247, 249)", "dark": "rgb(16, 19, 23)"}
    body = expect(page.locator("body"))
    body.to_have_css("background-color", backs[scheme])

    page.get_by_role("button", name="Theme: auto").click()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    body.to_have_css("background-color", backs["light"])
    page.get_by_role("button", name="Theme: light").click()
    page.get_by_role("button", name="Theme: dark").wait_for()
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    body.to_have_css("background-color", backs["dark"])


def test_pages_fit_a_telephone(machine: Machine, open_page: Open) -> None:
    job = machine.submit(name="train", **SLEEPS)
    page = open_page("/")
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/", "/queue", "/devices", "/tokens", f"/jobs/{job}"):
        page.goto(f"{machine.url}{path}")
        page.get_by_role("heading", level=1).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_the_keyboard_reaches_the_content(open_page: Open) -> None:
    page = open_page("/queue")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Search")).to_be_focused()


# -- what users write -----------------------------------------------------------------

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_nothing_that_users_write_becomes_part_of_a_page(
    machine: Machine, open_page: Open
) -> None:
    with machine.api() as api:
        name = "<img src=x onerror=alert(1)>"
        made = api.post("/tokens", json={"name": name, "role": "user"}).json()
    evil = Machine(machine.url, "", {Role.USER: made["token"]})
    runs = evil.submit(name="evil", run=f"cat <<'E'\n{EVIL}\nE\nsleep 1000", env={"A": EVIL})
    fails = evil.submit(name="fails", run="exit 3")
    until(lambda: machine.state_of(fails) == "failed")

    page = open_page("/")
    for path in ("/", "/queue?show=running", "/queue?show=ended", "/tokens", f"/jobs/{runs}"):
        page.goto(f"{machine.url}{path}")
        page.get_by_text(name).first.wait_for()
        assert page.locator("img[src=x]").count() == 0, path
        assert "owned" not in page.title()
    expect(page.get_by_role("log")).to_contain_text(EVIL)
    user = f'"><script>alert(1)</script>{EVIL}'[:64]
    page.goto(f"{machine.url}/queue?user={user}&show={EVIL}&page={EVIL}&before=-1")
    expect(page.get_by_label("User")).to_have_value(user)
    assert "owned" not in page.title()


# -- following ------------------------------------------------------------------------


def test_a_jobs_page_follows_it_to_its_end(machine: Machine, open_page: Open) -> None:
    run = "echo first; while [ ! -e go ]; do sleep 0.1; done; echo last"
    job = machine.submit(name="follow", run=run, time={"expected": "1m"})
    page = open_page(f"/jobs/{job}")
    expect(page.get_by_role("log")).to_contain_text("first")
    expect(page.get_by_text("Why here")).to_be_visible()

    with machine.api() as api:
        api.delete(f"/jobs/{job}")

    expect(page.locator(".details .state")).to_have_text("cancelled")
    expect(page.get_by_role("cell", name="by admin").first).to_be_visible()


def test_a_user_cancels_their_own_job_and_nobody_elses(
    machine: Machine, open_page: Open
) -> None:
    own = machine.submit(name="own", **SLEEPS)
    admins = machine.submit(Role.ADMIN, name="other", **SLEEPS)

    page = open_page(f"/jobs/{admins}", Role.USER)
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.goto(f"{machine.url}/jobs/{own}")
    page.get_by_role("button", name=f"Cancel {own}").click()
    page.get_by_role("button", name="Cancel job").last.click()

    until(lambda: machine.state_of(own) == "cancelled")
    assert machine.state_of(admins) == "running"


def test_a_function_shows_its_calls_and_where_it_is(
    machine: Machine, open_page: Open, tmp_path: Path
) -> None:
    (tmp_path / "greet.py").write_text("def hello(asked): return {'hello': asked}\n")
    spec = {
        "name": "hello",
        "handler": "greet:hello",
        "path": str(tmp_path),
        "memory": "100MB",
        "env": {"A": EVIL},
    }
    with machine.api(Role.USER) as api:
        assert api.post("/functions", json=spec).status_code == 201
        for _ in range(5):
            assert api.post("/functions/hello/invoke", json=EVIL).status_code == 200

        page = open_page("/functions", Role.VIEWER)
        expect(page.get_by_role("heading", name="hello")).to_be_visible()
        expect(page.get_by_text("Latency of 5 answers")).to_be_visible()
        expect(page.get_by_role("cell", name="idle")).to_be_visible()
        page.get_by_text("As deployed").click()
        expect(page.get_by_text(EVIL)).to_be_visible()
        page.goto(f"{machine.url}/devices")
        expect(page.get_by_text("1 replica")).to_be_visible()
        page.goto(machine.url)
        expect(page.locator(".tile").filter(has_text="Cold starts")).to_contain_text("%")
        api.delete("/functions/hello")


def test_a_token_is_shown_once_and_revoked(machine: Machine, open_page: Open) -> None:
    page = open_page("/tokens")
    page.get_by_label("Name").fill("bob")
    page.get_by_role("button", name="Make token").click()
    token = page.locator(".token").inner_text()
    bob = Machine(machine.url, "", {Role.USER: token})
    bob.submit(name="bobs", run="true")

    page.reload()
    row = page.get_by_role("row").filter(has_text="bob")
    expect(row).to_contain_text("valid")
    assert token not in page.content()
    row.get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()

    expect(row).to_contain_text("ended")
    with bob.api(Role.USER) as api:
        assert api.get("/summary").status_code == 401
