"""Who gets in, and how far: every page, every role."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from interlane.live.auth import Role
from interlane.pages.catalogue import PAGES

from .conftest import Machine, Open

PART = re.compile(r"\{\w+\}")
"""What an address names."""

PATHS = [PART.sub("a-1", page.path) for page in PAGES]
ASSETS = ["/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/_nicegui/3/static/x.js", "/none"]


@pytest.mark.parametrize("path", [*PATHS, *ASSETS])
def test_nobody_sees_anything_without_a_session(machine: Machine, path: str) -> None:
    with machine.browserlike() as stranger:
        page = stranger.get(path)
        data = stranger.get(path, headers={"Accept": "*/*"})

    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert (data.status_code, data.text) == (401, "Unauthorized\n")


def test_a_websocket_needs_a_session(machine: Machine) -> None:
    head = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with machine.browserlike() as stranger, machine.browserlike(Role.VIEWER) as viewer:
        assert stranger.get(path, headers=head).status_code == 403
        elsewhere = {**head, "Origin": "http://evil.example"}
        assert viewer.get(path, headers=elsewhere).status_code == 403
        with viewer.stream("GET", path, headers=head) as answer:
            assert answer.status_code == 101


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_a_page_opens_for_its_role_and_those_above(
    machine: Machine, page: object, role: Role
) -> None:
    at = PAGES[[one is page for one in PAGES].index(True)]
    with machine.browserlike(role) as client:
        answer = client.get(PART.sub("no-such-one", at.path))

    if role < at.needs:
        assert answer.status_code == 403
        assert f"but this needs {at.needs.word}" in answer.text
    elif PART.search(at.path):
        assert answer.status_code == 404
    else:
        assert answer.status_code == 200


def test_the_cookie_is_for_this_site_and_for_no_script(machine: Machine) -> None:
    with machine.browserlike() as client:
        answer = client.post("/login", data={"token": machine.tokens[Role.USER]})

    cookie = answer.headers["set-cookie"]
    port = machine.url.rsplit(":", 1)[1]
    assert re.match(rf"interlane_{port}=[\w-]{{43}}; ", cookie)
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))


def test_a_wrong_token_is_told_so(machine: Machine) -> None:
    with machine.browserlike() as client:
        for token in ("", "il_0_x", "x" * 100_000, machine.tokens[Role.USER][:-1]):
            answer = client.post("/login", data={"token": token})
            assert answer.status_code == 401
            assert "This token is not valid." in answer.text
            assert "set-cookie" not in answer.headers


def test_no_other_site_may_speak_for_a_visitor(machine: Machine) -> None:
    with machine.browserlike(Role.ADMIN) as client:
        answer = client.get("/", headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        assert client.post("/logout", headers={"Origin": "null"}).status_code == 403
        assert client.get("/").status_code == 200


def test_a_link_lets_one_browser_in(machine: Machine) -> None:
    with machine.browserlike() as first, machine.browserlike() as second:
        token = {"Authorization": f"Bearer {machine.tokens[Role.USER]}"}
        path = first.post("/api/v1/pages", headers=token).json()["path"]
        ticket = parse_qs(urlsplit(path).query)["ticket"]
        for look in (first.head, first.get):  # as previews do
            shown = look(path)
            assert (shown.status_code, shown.headers.get("set-cookie")) == (200, None)
            assert shown.headers["cache-control"] == "no-store"
        assert "signs you in as <strong>user</strong>" in shown.text
        assert first.get("/").status_code == 303
        assert first.post("/login", data={"ticket": ticket}).status_code == 200
        assert first.get("/").status_code == 200
        again = second.post("/login", data={"ticket": ticket})
        assert (again.status_code, again.headers.get("set-cookie")) == (401, None)
        assert second.get(path).status_code == 401
        assert second.post("/api/v1/pages").status_code == 401


def test_a_token_opens_the_pages(machine: Machine, open_page: Open) -> None:
    page = open_page("/")
    page.context.clear_cookies()
    page.goto(f"{machine.url}/login")

    page.get_by_label("Token").fill(machine.tokens[Role.VIEWER])
    page.get_by_role("button", name="Sign in").click()

    page.wait_for_url(f"{machine.url}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_the_link_that_the_server_prints_opens_the_pages(
    machine: Machine, open_page: Open
) -> None:
    page = open_page("/")
    page.context.clear_cookies()

    page.goto(machine.link)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_an_open_page_ends_with_its_token(machine: Machine) -> None:
    head = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with machine.api() as api, machine.browserlike() as eve:
        made = api.post("/tokens", json={"name": "eve-page", "role": "viewer"}).json()
        assert eve.post("/login", data={"token": made["token"]}).status_code == 200
        with eve.stream("GET", path, headers=head) as answer:
            assert answer.status_code == 101
            line = answer.extensions["network_stream"]
            assert line.read(1 << 16, timeout=60)  # socket.io's first words
            assert api.delete(f"/tokens/{made['id']}").status_code == 204
            while line.read(1 << 16, timeout=60):  # until it ends
                pass


def test_a_revoked_token_ends_its_sessions(machine: Machine) -> None:
    with machine.api() as api:
        made = api.post("/tokens", json={"name": "gone", "role": "user"}).json()
        tokens = Machine(machine.url, "", {Role.USER: made["token"]})
        with tokens.browserlike(Role.USER) as client:
            assert client.get("/").status_code == 200
            api.delete(f"/tokens/{made['id']}")
            assert client.get("/").status_code == 303


def test_signing_out_ends_the_session(machine: Machine, open_page: Open) -> None:
    page = open_page("/")
    kept = {one["name"]: one["value"] for one in page.context.cookies()}

    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_label("Token")).to_be_visible()
    old = httpx.get(machine.url, cookies=kept, headers={"Accept": "text/html"})
    assert old.status_code == 303


def test_the_api_is_as_it_was(machine: Machine) -> None:
    with machine.browserlike(Role.ADMIN) as client:
        assert client.get("/healthz").text == "ok\n"
        assert client.get("/api/v1/summary").status_code == 401
        head = {"Authorization": f"Bearer {machine.tokens[Role.VIEWER]}"}
        missing = client.get("/api/v1/nothing", headers=head)
        assert missing.status_code == 404
        assert missing.headers["content-type"] == "application/problem+json"
