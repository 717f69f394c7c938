"""Attacks on a server of this machine, each until its time is over.

    python -m benchmarks.attackers NAME URL TOKENS SECONDS

Attackers yield the CPU to everybody (they would be elsewhere), come from addresses of their own
and tell at the end, as JSON, what they were answered how often.
"""

import gzip
import http.client
import itertools
import json
import os
import random
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from urllib.parse import SplitResult, urlencode, urlsplit

API = "/api/v1"
HALF_OPEN, WATCHERS, WATCHERS_EACH = 600, 500, 16
ETA_PER_S, ETA_CLIENTS = 60, 12
FUNCTIONS, FUNCTIONS_EACH, FUNCTION_CLIENTS = 1_000, 100, 8
FUNCTION_USERS = FUNCTIONS // FUNCTIONS_EACH
AGAIN_S = 0.2
BOMB_LINES, BOMB_PARTS = 500_000, 1_000
"""Unpacked it has 2 GB."""

Failure = (OSError, http.client.HTTPException)


class Attack:
    """One attacker: where, as whom, and for how long."""

    def __init__(self, url: str, tokens: list[str], seconds: float) -> None:
        self.url: SplitResult = urlsplit(url)
        self.tokens = tokens
        self.answers: Counter[str] = Counter()
        self._end_s = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        """Tell whether its time is not over."""
        return time.monotonic() < self._end_s

    def connection(self, source: str) -> HTTPConnection:
        """Return a connection from an address of this machine."""
        return HTTPConnection(
            self.url.hostname or "", self.url.port, timeout=20, source_address=(source, 0)
        )

    def raw(self, source: str) -> socket.socket:
        """Connect without saying anything."""
        return socket.create_connection(
            (self.url.hostname, self.url.port), 5, source_address=(source, 0)
        )

    def ask(
        self,
        line: HTTPConnection,
        method: str,
        path: str,
        body: bytes | None = None,
        token: str | None = None,
        what: str = "",
    ) -> None:
        """Ask, and count how that was answered."""
        head = {
            "Authorization": f"Bearer {token or self.tokens[0]}",
            "Content-Type": "application/json",
        }
        try:
            line.request(method, path, body, head)
            answer = line.getresponse()
            answer.read()
            self.answers[f"{what} {answer.status}".strip()] += 1
        except Failure as error:
            self.answers[f"{what} {type(error).__name__}".strip()] += 1
            line.close()
            time.sleep(AGAIN_S)

    def together(self, work: Callable[[int], None], count: int) -> None:
        """Do the same in so many threads."""
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def half_open(attack: Attack) -> None:
    """Hold connections that begin a request and never end it, without a token."""
    held: list[socket.socket] = []
    while attack.goes_on:
        for one in held[:]:
            if not _is_open(one):
                held.remove(one)
                one.close()
                attack.answers["closed"] += 1
        for _ in range(min(50, HALF_OPEN - len(held))):
            try:
                made = attack.raw(f"127.0.0.{random.choice((11, 12, 13))}")
            except OSError:
                attack.answers["refused"] += 1
                continue
            held.append(made)
            try:
                made.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
                made.setblocking(False)
                attack.answers["opened"] += 1
            except OSError:
                attack.answers["refused"] += 1
        attack.answers["held at most"] = max(attack.answers["held at most"], len(held))
        time.sleep(AGAIN_S)


def _is_open(line: socket.socket) -> bool:
    """Tell whether a connection that was left half open still is."""
    try:
        return line.recv(1000) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def watchers(attack: Attack) -> None:
    """Watch as often as may be, with many tokens; who is refused tries again at once."""

    def watch(number: int) -> None:
        token = attack.tokens[number // WATCHERS_EACH % len(attack.tokens)]
        while attack.goes_on:
            try:
                with attack.raw(f"127.0.0.{4 + number % 2}") as line:
                    head = f"GET {API}/watch?after=0 HTTP/1.1\r\nHost: x\r\n"
                    line.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
                    attack.answers[line.recv(12)[9:].decode()] += 1
                    while line.recv(1 << 16) and attack.goes_on:
                        pass
            except OSError as error:
                attack.answers[type(error).__name__] += 1
            time.sleep(AGAIN_S)

    attack.together(watch, WATCHERS)


def eta(attack: Attack) -> None:
    """Ask sixty times a second when jobs will start, and hang up on half of the answers."""

    def ask(number: int) -> None:
        line = attack.connection("127.0.0.6")
        due_s = time.monotonic() + number / ETA_PER_S
        while attack.goes_on:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s += ETA_CLIENTS / ETA_PER_S
            job = f"waits-{random.randint(2, 500)}"
            if random.random() < 0.5:
                with suppress(OSError), attack.raw("127.0.0.6") as left:
                    head = f"GET {API}/jobs/{job}/eta HTTP/1.1\r\nHost: x\r\n"
                    said = f"{head}Authorization: Bearer {attack.tokens[0]}\r\n\r\n"
                    left.sendall(said.encode())
                    attack.answers["left"] += 1
            else:
                attack.ask(line, "GET", f"{API}/jobs/{job}/eta")

    attack.together(ask, ETA_CLIENTS)


def garbage(attack: Attack) -> None:
    """Send what is no job: noise, brackets without end, impossible numbers, no HTTP at all."""
    bodies = [
        b"[" * 500_000,
        random.randbytes(500_000),
        b'{"name": "a", "run": "true", "resources": {"memory": "999999999999999TB"}}',
        b'{"name": "a", "run": "true", "env": {' + b'"A": "' + b"x" * 900_000 + b'"}}',
        json.dumps({"name": "a", "run": "true", "gang": {"nodes": 10**9}}).encode(),
        json.dumps({"name": "a", "run": "true", "tasks": [{"n": 1}] * 80_000}).encode(),
    ]

    def send(number: int) -> None:
        line = attack.connection("127.0.0.7")
        while attack.goes_on:
            body = random.choice(bodies)
            attack.ask(line, "POST", f"{API}/jobs", body, random.choice(attack.tokens))
            if random.random() < 0.2:
                with suppress(OSError), attack.raw("127.0.0.7") as noise:
                    noise.sendall(random.randbytes(10_000))
                    noise.recv(1000)
                    attack.answers["noise"] += 1
            time.sleep(AGAIN_S)

    attack.together(send, 4)


def jobs(attack: Attack) -> None:
    """Submit jobs that fork without end, and that take more memory than they asked for."""
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    hog = "x = []\nwhile True: x.append(bytearray(8 << 20))"
    asks = {"cpu": "100m", "memory": "64MB"}
    line = attack.connection("127.0.0.8")
    while attack.goes_on:
        for name, program in (("bomb", bomb), ("hog", hog)):
            run = f"exec {sys.executable} -I -S -c '{program}'"
            limit = {"expected": "5s", "limit": "5s"}
            job = {"name": name, "run": run, "resources": asks, "time": limit}
            attack.ask(line, "POST", f"{API}/jobs", json.dumps(job).encode())
        time.sleep(4.0)


def functions(attack: Attack) -> None:
    """Deploy a thousand functions that share nothing, as ten users, call them, and go on."""
    numbers = itertools.count()

    def deploy(client: int) -> None:
        line = attack.connection("127.0.0.9")
        while attack.goes_on:
            number = next(numbers)
            token = attack.tokens[number // FUNCTIONS_EACH % FUNCTION_USERS]
            spec = {"name": f"f{number}", "handler": "json:dumps", "env": {"N": str(number)}}
            path = f"{API}/functions"
            attack.ask(line, "POST", path, json.dumps(spec).encode(), token, "deploy")
            if number % 10 == 0:
                path = f"{path}/f{random.randrange(min(number + 1, FUNCTIONS))}/invoke"
                attack.ask(line, "POST", path, b'"x"', token, "call")
            if number > FUNCTIONS:
                time.sleep(AGAIN_S)

    attack.together(deploy, FUNCTION_CLIENTS)


def uploads(attack: Attack) -> None:
    """Upload small files that are large once they are unpacked."""
    part = gzip.compress(b"0,0\n" * BOMB_LINES)
    bomb = gzip.compress(b"job_id,submit_time\n") + part * BOMB_PARTS

    def upload(number: int) -> None:
        line = attack.connection("127.0.0.10")
        seen: dict[str, str] = {}
        while attack.goes_on:
            try:
                seen = seen or _signed_in(attack, line, attack.tokens[number])
                attack.answers[f"upload {_uploaded(line, seen, bomb)}"] += 1
            except (*Failure, LookupError) as error:
                attack.answers[f"failed: {error!r}"[:60]] += 1
                line.close()
                time.sleep(1.0)

    attack.together(upload, 6)


def pages(attack: Attack) -> None:
    """Open pages again and again, and look at none of them."""

    def look(number: int) -> None:
        line = attack.connection("127.0.0.14")
        seen: dict[str, str] = {}
        while attack.goes_on:
            try:
                seen = seen or _signed_in(attack, line, attack.tokens[1 + number])
                line.request("GET", "/", headers={**seen, "Accept": "text/html"})
                answer = line.getresponse()
                answer.read()
                attack.answers[str(answer.status)] += 1
            except (*Failure, LookupError) as error:
                attack.answers[f"failed: {error!r}"[:60]] += 1
                line.close()
                time.sleep(1.0)

    attack.together(look, 4)


def _signed_in(attack: Attack, line: HTTPConnection, token: str) -> dict[str, str]:
    """Sign in as a browser does; return what it sends from then on."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    line.request("POST", "/login", urlencode({"token": token}), form)
    answer = line.getresponse()
    answer.read()
    cookie, found, _ = str(answer.headers["set-cookie"]).partition(";")
    if not found:
        raise LookupError(f"no session, but {answer.status}")
    return {"Cookie": cookie, "Origin": attack.url.geturl()}


def _uploaded(line: HTTPConnection, seen: dict[str, str], bomb: bytes) -> int:
    """Upload a file to a page that was opened for it; return the status of the answer."""
    line.request("GET", "/traces", headers={**seen, "Accept": "text/html"})
    answer = line.getresponse()
    page = answer.read().decode()
    found = re.search(r"/_nicegui/client/[-0-9a-f]+/upload/\d+", page)
    if found is None:
        raise LookupError(f"no page to upload to, but {answer.status}")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="t.csv.gz"'
        b"\r\nContent-Type: application/gzip\r\n\r\n" + bomb + b"\r\n--b--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=b", **seen}
    line.request("POST", found.group(), body, kind)
    answer = line.getresponse()
    answer.read()
    return answer.status


ATTACKS: dict[str, Callable[[Attack], None]] = {
    "half-open": half_open,
    "watchers": watchers,
    "eta": eta,
    "garbage": garbage,
    "jobs": jobs,
    "functions": functions,
    "uploads": uploads,
    "pages": pages,
}


def main() -> None:
    os.nice(15)
    name, url, tokens, seconds = sys.argv[1:]
    attack = Attack(url, tokens.split(","), float(seconds))
    ATTACKS[name](attack)
    print(json.dumps(attack.answers))


if __name__ == "__main__":
    main()
