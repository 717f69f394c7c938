"""The machine over real HTTP: every route, its role, its errors."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from interlane.live.auth import Role
from interlane.live.driver import Driver
from interlane.live.http.access import RequiresRole
from interlane.live.http.app import ROUTERS
from interlane.model.lifecycle import JobState
from interlane.testing.live import clear, driving, make_service, serving
from interlane.testing.waiting import PATIENCE_S, until

JOB = {"name": "a", "run": "true", "resources": {"gpu": {"count": 1}}}
FOREVER = {**JOB, "name": "long", "run": "echo up; exec sleep 1000"}
OPEN_TO_ALL = {("GET", "/healthz"), ("GET", "/readyz")}

ROLES: Mapping[tuple[str, str], Role] = {
    ("POST", "/api/v1/jobs"): Role.USER,
    ("GET", "/api/v1/jobs"): Role.VIEWER,
    ("GET", "/api/v1/jobs/{job_id}"): Role.VIEWER,
    ("DELETE", "/api/v1/jobs/{job_id}"): Role.USER,
    ("PUT", "/api/v1/jobs/{job_id}/resolution/{how}"): Role.ADMIN,
    ("GET", "/api/v1/jobs/{job_id}/log"): Role.VIEWER,
    ("GET", "/api/v1/jobs/{job_id}/timeline"): Role.VIEWER,
    ("GET", "/api/v1/jobs/{job_id}/story"): Role.VIEWER,
    ("GET", "/api/v1/jobs/{job_id}/why"): Role.VIEWER,
    ("GET", "/api/v1/jobs/{job_id}/eta"): Role.VIEWER,
    ("POST", "/api/v1/plan"): Role.USER,
    ("GET", "/api/v1/gpus"): Role.VIEWER,
    ("GET", "/api/v1/machines"): Role.VIEWER,
    ("PUT", "/api/v1/machines/{machine_id}/drain"): Role.ADMIN,
    ("DELETE", "/api/v1/machines/{machine_id}/drain"): Role.ADMIN,
    ("GET", "/api/v1/summary"): Role.VIEWER,
    ("GET", "/api/v1/whoami"): Role.VIEWER,
    ("GET", "/api/v1/usage"): Role.VIEWER,
    ("PATCH", "/api/v1/jobs/{job_id}"): Role.USER,
    ("PUT", "/api/v1/jobs/{job_id}/hold"): Role.USER,
    ("DELETE", "/api/v1/jobs/{job_id}/hold"): Role.USER,
    ("GET", "/api/v1/trace"): Role.VIEWER,
    ("GET", "/api/v1/cluster"): Role.VIEWER,
    ("GET", "/api/v1/log"): Role.VIEWER,
    ("GET", "/api/v1/watch"): Role.VIEWER,
    ("GET", "/api/v1/openapi.json"): Role.VIEWER,
    ("POST", "/api/v1/tokens"): Role.ADMIN,
    ("GET", "/api/v1/tokens"): Role.ADMIN,
    ("DELETE", "/api/v1/tokens/{token_id}"): Role.ADMIN,
    ("POST", "/api/v1/tokens/{token_id}/rotate"): Role.ADMIN,
    ("GET", "/api/v1/audit"): Role.ADMIN,
    ("POST", "/api/v1/functions"): Role.USER,
    ("GET", "/api/v1/functions"): Role.VIEWER,
    ("GET", "/api/v1/functions/{name}"): Role.VIEWER,
    ("DELETE", "/api/v1/functions/{name}"): Role.USER,
    ("GET", "/api/v1/functions/{name}/log"): Role.VIEWER,
    ("POST", "/api/v1/functions/{name}/invoke"): Role.USER,
    ("GET", "/metrics"): Role.VIEWER,
}


@dataclass(frozen=True)
class Live:
    driver: Driver
    url: str
    tokens: Mapping[Role, str]

    def client(self, role: Role | None = Role.USER) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("state")
    with driving(folder) as driver, serving(driver) as (url, tokens):
        yield Live(driver, url, tokens)


@pytest.fixture
def live(machine: Live) -> Iterator[Live]:
    yield machine
    clear(machine.driver)


@pytest.fixture
def user(live: Live) -> Iterator[httpx.Client]:
    with live.client() as client:
        yield client


def problem(answer: httpx.Response, status: int) -> str:
    """The one sentence of a problem document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    sentence: str = said["detail"]
    assert "\n" not in sentence
    return sentence


# -- who may do what ----------------------------------------------------------------------


def test_every_route_is_in_the_table(machine: Live) -> None:
    _, app = make_service(machine.driver)
    routes = [*(route for router in ROUTERS for route in router.routes), *app.routes]
    found = {
        (method, route.path): next(
            (
                d.call.role
                for d in route.dependant.dependencies
                if isinstance(d.call, RequiresRole)
            ),
            None,
        )
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    described = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }

    assert found == {**ROLES, **dict.fromkeys(OPEN_TO_ALL)}
    assert set(found) == described


@pytest.mark.parametrize(("method", "path"), ROLES)
def test_every_route_refuses_without_a_token_and_with_a_lesser_role(
    live: Live, method: str, path: str
) -> None:
    needed = ROLES[method, path]
    where = (
        path.replace("{job_id}", "no-1")
        .replace("{machine_id}", "none")
        .replace("{token_id}", "none")
        .replace("{name}", "none")
    )
    for header in ({}, {"Authorization": "Bearer il_x_y"}, {"Authorization": "Basic YQ=="}):
        with live.client(None) as nobody:
            answer = nobody.request(method, where, json=JOB, headers=header)
        assert "needs a token" in problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    for role in [role for role in Role if role < needed]:
        with live.client(role) as lesser:
            assert f"needs {needed.word}" in problem(
                lesser.request(method, where, json=JOB), 403
            )


def test_only_the_probes_are_open_to_all(live: Live) -> None:
    with live.client(None) as nobody:
        assert nobody.get("/healthz").text == "ok\n"
        assert nobody.get("/readyz").text == "ready\n"
        assert problem(nobody.get("/docs"), 404)


def test_a_job_belongs_to_whom_handed_it_in(live: Live, user: httpx.Client) -> None:
    made = user.post("/api/v1/jobs", json=FOREVER).json()
    with live.client(Role.ADMIN) as admin:
        other = admin.post("/api/v1/tokens", json={"name": "bob", "role": "user"}).json()
        headers = {"Authorization": f"Bearer {other['token']}"}
        refused = user.delete(f"/api/v1/jobs/{made['id']}", headers=headers)
        assert "only they or an admin" in problem(refused, 403)
        assert admin.delete(f"/api/v1/jobs/{made['id']}").status_code == 202


def test_a_name_has_one_token_unless_it_is_said_to_be_another(live: Live) -> None:
    ann = {"name": "ann-once", "role": "user"}
    with live.client(Role.ADMIN) as admin:
        first = admin.post("/api/v1/tokens", json=ann).json()
        assert "has a token already" in problem(admin.post("/api/v1/tokens", json=ann), 409)
        assert problem(admin.post("/api/v1/tokens", json={**ann, "role": "admin"}), 409)
        other = admin.post("/api/v1/tokens", json={**ann, "same_account": True})
        assert other.status_code == 201
        for one in (first, other.json()):
            assert admin.delete(f"/api/v1/tokens/{one['id']}").status_code == 204
        assert admin.post("/api/v1/tokens", json=ann).status_code == 201


def test_a_token_is_rotated_and_expires(live: Live) -> None:
    with live.client(Role.ADMIN) as admin:

        def works(token: str) -> bool:
            head = {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{live.url}/api/v1/summary", headers=head).status_code == 200

        made = admin.post(
            "/api/v1/tokens", json={"name": "rob", "role": "viewer", "expires": "30d"}
        ).json()
        assert made["expires_s"] - live.driver.now_s() == pytest.approx(30 * 86_400, abs=600)
        path = f"/api/v1/tokens/{made['id']}/rotate"
        second = admin.post(path, params={"grace": "1h", "expires": "1s"}).json()
        third = admin.post(path).json()
        assert (second["name"], third["name"]) == ("rob", "rob")
        assert not works(made["token"])
        assert works(third["token"])
        until(lambda: not works(second["token"]), "the end of the token")
        assert problem(admin.post(path), 404)
        for wrong in ("-1s", "0s", "soon", "999999d"):
            asked = admin.post(
                "/api/v1/tokens", json={"name": "x", "role": "user", "expires": wrong}
            )
            assert problem(asked, 422)
        listed = {
            one["id"]: one["valid"] for one in admin.get("/api/v1/tokens").json()["tokens"]
        }
        assert [listed[one["id"]] for one in (made, second, third)] == [False, False, True]


def test_a_revoked_token_counts_no_longer(live: Live) -> None:
    with live.client(Role.ADMIN) as admin:
        made = admin.post("/api/v1/tokens", json={"name": "eve", "role": "viewer"}).json()
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert admin.get("/api/v1/jobs", headers=headers).status_code == 200
        assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        assert problem(admin.get("/api/v1/jobs", headers=headers), 401)
        assert problem(admin.delete(f"/api/v1/tokens/{made['id']}"), 404)

        listed = admin.get("/api/v1/tokens").text

    assert made["token"] not in listed
    assert "digest" not in listed


# -- jobs ---------------------------------------------------------------------------------


def test_a_job_is_handed_in_and_shown(live: Live, user: httpx.Client) -> None:
    made = user.post("/api/v1/jobs", json=JOB)
    job_id = made.json()["id"]
    until(lambda: user.get(f"/api/v1/jobs/{job_id}").json()["state"] == "succeeded")

    shown = user.get(made.headers["location"])
    timeline = user.get(f"/api/v1/jobs/{job_id}/timeline").json()["entries"]

    assert made.status_code == 201
    assert shown.json()["spec"]["run"] == "true"
    assert shown.json()["user"] == "user"
    assert [entry["kind"] for entry in timeline][-1] == "Finished"
    again = user.get(shown.url, headers={"If-None-Match": shown.headers["etag"]})
    assert again.status_code == 304


def test_a_key_hands_in_once(user: httpx.Client) -> None:
    key = {"Idempotency-Key": "k-1"}

    one = user.post("/api/v1/jobs", json=JOB, headers=key)
    two = user.post("/api/v1/jobs", json=JOB, headers=key)
    other = user.post("/api/v1/jobs", json=FOREVER, headers=key)

    assert one.json()["id"] == two.json()["id"]
    assert "use a new key" in problem(other, 422)


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "either-way"}])
def test_the_short_way_and_the_long_one_answer_alike(
    user: httpx.Client, key: dict[str, str]
) -> None:
    short, long = (
        user.post(
            "/api/v1/jobs", content=json.dumps(JOB), headers={**key, "Content-Type": kind}
        )
        for kind in ("application/json", "application/json; charset=utf-8")
    )

    assert short.status_code == long.status_code == 201
    assert short.headers.keys() == long.headers.keys()
    for answer in (short, long):
        assert answer.headers["location"] == f"/api/v1/jobs/{answer.json()['id']}"
    assert short.json().keys() == long.json().keys()
    assert (short.json()["id"] == long.json()["id"]) is bool(key)


def test_a_stale_etag_changes_nothing(user: httpx.Client) -> None:
    made = user.post("/api/v1/jobs", json=FOREVER)
    where = made.headers["location"]
    until(lambda: user.get(where).json()["state"] == "running")

    stale = user.delete(where, headers={"If-Match": made.headers["etag"]})
    odd = user.delete(where, headers={"If-Match": '"x"'})
    fresh = user.delete(where, headers={"If-Match": user.get(where).headers["etag"]})

    assert "look at it again" in problem(stale, 412)
    assert problem(odd, 412)
    assert (fresh.status_code, fresh.json()["state"]) == (202, "stopping")
    until(lambda: user.get(where).json()["state"] == "cancelled")
    assert "already" in problem(user.delete(where), 409)


def test_pages_follow_one_another(user: httpx.Client) -> None:
    wide = {**JOB, "resources": {"gpu": {"count": 2}}}
    ids = [user.post("/api/v1/jobs", json=wide).json()["id"] for _ in range(5)]

    first = user.get("/api/v1/jobs", params={"limit": 3}).json()
    second = user.get(
        "/api/v1/jobs", params={"limit": 3, "cursor": first["next_cursor"]}
    ).json()

    shown = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert shown[:5] == ids[::-1]
    assert "spec" not in first["jobs"][0]


def test_the_queue_answers_why_plan_and_gpus(user: httpx.Client) -> None:
    whole = {**FOREVER, "resources": {"gpu": {"count": 2}}}
    holder = user.post("/api/v1/jobs", json=whole).json()["id"]
    waits = user.post("/api/v1/jobs", json=whole).json()["id"]

    why = user.get(f"/api/v1/jobs/{waits}/why").json()
    plan = user.post("/api/v1/plan", json=JOB).json()
    never = user.post("/api/v1/plan", json={**JOB, "resources": {"gpu": {"count": 3}}}).json()
    gpus = user.get("/api/v1/gpus").json()["gpus"]
    entries = user.get("/api/v1/log", params={"limit": 500}).json()["entries"]

    assert (why["tier"], why["ahead"]) == ("capacity", [])
    assert (plan["answer"], plan["tier"]) == ("waits", "capacity")
    assert (never["answer"], never["tier"]) == ("never", "never fits")
    assert [gpu["jobs"][0]["id"] for gpu in gpus] == [holder, holder]
    assert all(gpu["emulated"] and gpu["held_milli"] == 1000 for gpu in gpus)
    assert "planned" not in {entry["job_id"] for entry in entries}


def test_a_plan_says_beside_whom(user: httpx.Client) -> None:
    shared = {**FOREVER, "resources": {"gpu": {"count": 1, "memory": "4GiB"}}}
    holder = user.post("/api/v1/jobs", json=shared).json()["id"]

    plan = user.post("/api/v1/plan", json=shared).json()

    assert (plan["answer"], plan["beside"]) == ("starts now", [holder])
    assert plan["placement"][0]["gpus"] == [0]


def test_logs_are_read_from_where_one_was(user: httpx.Client) -> None:
    run = {**JOB, "run": "printf '<script>alert(1)</script>'"}
    job_id = user.post("/api/v1/jobs", json=run).json()["id"]
    until(lambda: user.get(f"/api/v1/jobs/{job_id}").json()["state"] == "succeeded")

    first = user.get(f"/api/v1/jobs/{job_id}/log", params={"limit": 8})
    rest = user.get(
        f"/api/v1/jobs/{job_id}/log", params={"offset": first.headers["x-next-offset"]}
    )
    tail = user.get(f"/api/v1/jobs/{job_id}/log", params={"offset": -9})

    assert first.text + rest.text == "<script>alert(1)</script>"
    assert tail.text == "</script>"
    assert first.headers["content-type"] == "text/plain; charset=utf-8"
    assert first.headers["x-content-type-options"] == "nosniff"


def test_a_watcher_sees_what_is_written(live: Live, user: httpx.Client) -> None:
    seen: list[str] = []
    listening = threading.Event()

    def watch() -> None:
        with live.client(Role.VIEWER) as viewer, viewer.stream("GET", "/api/v1/watch") as news:
            listening.set()
            for line in news.iter_lines():
                if line.startswith("data: "):
                    entry = json.loads(line.removeprefix("data: "))
                    seen.append(entry["kind"])
                    if entry["kind"] == "Finished":
                        return

    thread = threading.Thread(target=watch)
    thread.start()
    assert listening.wait(PATIENCE_S)
    user.post("/api/v1/jobs", json=JOB)
    thread.join(PATIENCE_S)

    assert seen == ["Submitted", "Start", "Started", "Finished"]


def test_a_watcher_goes_on_from_where_it_was(live: Live, user: httpx.Client) -> None:
    user.post("/api/v1/jobs", json=JOB)
    clear(live.driver)
    last = live.driver.store.ends().seq

    with user.stream("GET", "/api/v1/watch", headers={"Last-Event-ID": str(last - 1)}) as news:
        first = next(line for line in news.iter_lines() if line.startswith("id: "))

    assert first == f"id: {last}"


def test_metrics_count_jobs(live: Live, user: httpx.Client) -> None:
    user.post("/api/v1/jobs", json=FOREVER)

    page = user.get("/metrics").text

    assert 'interlane_jobs{state="cancelled"}' in page
    assert "interlane_gpu_allocated_ratio 0.5" in page
    assert "interlane_ready 1.0" in page


def test_metrics_tell_waits_reasons_and_users(live: Live, user: httpx.Client) -> None:
    ran = user.post("/api/v1/jobs", json=JOB).json()["id"]
    until(lambda: user.get(f"/api/v1/jobs/{ran}").json()["ended_s"] is not None)
    for _ in range(3):
        user.post("/api/v1/jobs", json=FOREVER)

    page = user.get("/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")

    name = user.get(f"/api/v1/jobs/{ran}").json()["user"]
    assert figures['interlane_pending_jobs{queue="default",reason="capacity"}'] == "1.0"
    assert float(figures["interlane_wait_seconds_count"]) >= 3
    assert float(figures["interlane_longest_wait_seconds"]) >= 0
    assert figures[f'interlane_user_gpus{{user="{name}"}}'] == "2.0"
    assert figures[f'interlane_user_jobs{{state="queued",user="{name}"}}'] == "1.0"
    assert float(figures[f'interlane_user_gpu_seconds_total{{user="{name}"}}']) > 0
    ended = f'interlane_jobs_ended_total{{state="succeeded",user="{name}"}}'
    assert float(figures[ended]) >= 1


def test_values_of_variables_are_for_owners_and_admins(live: Live) -> None:
    secret = {"WANDB_KEY": "s3cr3t"}
    tasks = [{"role": "w", "run": "true", "resources": {"cpu": 1}, "env": {"OTHER": "s3cr3t"}}]
    jobs = ({**JOB, "env": secret}, {"name": "roles", "tasks": tasks})
    with live.client(Role.USER) as user:
        ids = [user.post("/api/v1/jobs", json=one).json()["id"] for one in jobs]
        own = [user.get(f"/api/v1/jobs/{one}").text.count("s3cr3t") for one in ids]
        timeline = user.get(f"/api/v1/jobs/{ids[1]}/timeline").text
    assert (own, timeline.count("s3cr3t")) == ([1, 1], 1)
    paths = [f"/api/v1/jobs/{one}{part}" for one in ids for part in ("", "/why", "/timeline")]
    log = "/api/v1/log?limit=500"
    with live.client(Role.VIEWER) as viewer, live.client(Role.ADMIN) as admin:
        for path in (*paths, log, "/api/v1/jobs"):
            found = viewer.get(path)
            assert found.status_code == 200
            assert "s3cr3t" not in found.text
        assert "(hidden)" in viewer.get(log).text
        assert "WANDB_KEY" in viewer.get(paths[0]).text
        assert all("s3cr3t" in admin.get(path).text for path in (*paths, log))
        watched = ""
        with viewer.stream("GET", "/api/v1/watch", params={"after": 0}) as news:
            for line in news.iter_lines():
                watched += line
                if ids[1] in line:
                    break
    assert "s3cr3t" not in watched


# -- bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({**JOB, "nme": 1}, "nme is not a field of a job"),
        ({**JOB, "name": "../../etc/passwd"}, "name is '../../etc/passwd', but"),
        ({**JOB, "resources": {"gpu": {"memory": "lots"}}}, "resources.gpu.memory is 'lots'"),
        ({**JOB, "secrets": ["NONE"]}, "secrets names 'NONE', which has no value"),
        ([], "the job is [], but"),
    ],
)
def test_what_is_wrong_with_a_job_is_one_sentence(
    user: httpx.Client, body: object, says: str
) -> None:
    assert says in problem(user.post("/api/v1/jobs", json=body), 422)


def test_what_is_not_json_is_said_to_be(user: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    said = problem(user.post("/api/v1/jobs", content=b"{", headers=headers), 422)
    assert said.startswith("This is not JSON (")
    assert said.endswith("; send a job as JSON.")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "bob"}, "role is missing; a token needs it"),
        ({"name": "bob", "role": "king"}, "role is 'king', but it must be 'viewer', 'user' or"),
        ({"name": "bob", "rôle": "user", "role": "user"}, "did you mean 'role'?"),
    ],
)
def test_what_is_wrong_with_a_token_is_one_sentence(
    live: Live, body: object, says: str
) -> None:
    with live.client(Role.ADMIN) as admin:
        assert says in problem(admin.post("/api/v1/tokens", json=body), 422)


def test_bodies_have_a_limit(user: httpx.Client) -> None:
    large = {**JOB, "env": {f"V{n}": "x" * 60_000 for n in range(20)}}

    assert "at most" in problem(user.post("/api/v1/jobs", json=large), 413)


@pytest.mark.parametrize("job_id", ["none-1", "..%2f..%2fetc%2fpasswd", "%00", "a" * 200])
def test_jobs_that_are_not_there_are_not_found(user: httpx.Client, job_id: str) -> None:
    for part in ("", "/log", "/timeline", "/why", "/eta"):
        answer = user.get(f"/api/v1/jobs/{job_id}{part}")
        assert answer.status_code in (404, 422), answer.text


def test_a_database_that_fails_is_said_to(
    live: Live, user: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(live.driver), "is_ready", property(lambda self: False))

    assert "try again" in problem(user.post("/api/v1/jobs", json=JOB), 503)
    assert problem(user.get("/readyz"), 503)


def test_restarting_keeps_tokens_and_jobs(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, serving(driver) as (url, tokens):
        headers = {"Authorization": f"Bearer {tokens[Role.USER]}"}
        job_id = httpx.post(f"{url}/api/v1/jobs", json=JOB, headers=headers).json()["id"]
        until(lambda: driver.open_record(job_id) is None)

    with driving(tmp_path) as driver, serving(driver) as (url, _):
        found = httpx.get(f"{url}/api/v1/jobs/{job_id}", headers=headers).json()

    assert found["state"] == JobState.SUCCEEDED
