"""``interlane describe`` and ``interlane eta``: one job, in sections that people read."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlane.cli.beside import beside_told
from interlane.cli.client import ApiClient, ServerOptions, job_path
from interlane.cli.completion import LiveJob
from interlane.cli.listing import state_told
from interlane.cli.moments import clock, dated, length
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, flat, strong
from interlane.cli.ps import device_told, waited_s

Pairs = Iterator[tuple[str, object]]


@takes(ServerOptions)
def describe(
    job: LiveJob, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show everything about a job: request, times, place, why it waits, and its events.

    Examples:
      interlane describe train-7
      interlane describe train-7 -o json
    """
    client = ApiClient(options)
    found = client.get(job_path(job)).document()
    timeline = client.get(f"{job_path(job)}/timeline").document()["entries"]
    found.pop("guess", None)  # the name of its estimate in the version before
    why = client.get(f"{job_path(job)}/why").document() if _waits(found) else None
    eta = client.get(f"{job_path(job)}/eta").document() if _waits(found) else None
    told = _described(found, timeline, why, eta) if output is OutputFormat.TABLE else None
    emit({**found, "timeline": timeline}, output, told)


@takes(ServerOptions)
def eta(
    job: LiveJob, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Say when a job is likely to start, by playing what is known forward.

    Examples:
      interlane eta train-7
    """
    found = ApiClient(options).get(f"{job_path(job)}/eta").document()
    emit(found, output, eta_told(found))


def eta_told(found: Mapping[str, Any]) -> str:
    """Return when a job is likely to start, as people read it."""
    if found["state"] != "queued":
        return f"Job {found['id']} is {found['state']}; it does not wait for a place."
    if found["p50_s"] is None:
        return f"Job {found['id']} waits; nothing that is known would let it start."
    return (
        f"Job {found['id']} is likely to start {_start_told(found)}.\n"
        f"This rests on: {found['because']}."
    )


def _start_told(eta: Mapping[str, Any]) -> str:
    now_s = eta["now_s"]
    away_s, most_s = (max(0.0, eta[name] - now_s) for name in ("p50_s", "p90_s"))
    at = clock(eta["p50_s"], now_s)
    return f"in about {length(away_s)}, at {at} (at most {length(most_s)}, nine times in ten)"


def _waits(found: Mapping[str, Any]) -> bool:
    return bool(found["state"] == "queued")


def _described(
    job: Mapping[str, Any],
    timeline: Sequence[Mapping[str, Any]],
    why: Mapping[str, Any] | None,
    eta: Mapping[str, Any] | None,
) -> str:
    now_s = time.time()
    sections = [
        ("", _head(job)),
        ("Waits", _waiting(why, eta)),
        ("Times", _times(job, now_s)),
        ("Request", _request(job["spec"])),
        ("Placement", _placement(job)),
        ("Runs", _runs(job["spec"])),
        ("Use", iter((job["use"] or {}).items())),
    ]
    told = [line for name, pairs in sections for line in _section(name, list(pairs))]
    told += beside_told("functions", job["beside_functions"])
    told += ["", strong("Events"), *(_event(entry, now_s) for entry in timeline)]
    return "\n".join(told)


def _section(name: str, pairs: Sequence[tuple[str, object]]) -> Iterator[str]:
    if not pairs:
        return
    if name:
        yield ""
        yield strong(name)
    width = max(len(key) for key, _ in pairs) + 2
    for key, value in pairs:
        shown = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else None
        yield f"  {key.ljust(width)}{shown or flat(value)}"


def _head(job: Mapping[str, Any]) -> Pairs:
    yield "job", job["id"]
    yield "state", state_told(job["state"])
    because = job["reason"] or device_told(job)
    if because:
        yield "reason", because
    if job["exit_code"] is not None:
        yield "exit code", job["exit_code"]
    if job["cancelled_by"] is not None:
        yield "cancelled by", job["cancelled_by"]
    yield "user", job["user"]
    yield "queue", job["queue"]
    yield "priority", job["priority"]


def _waiting(why: Mapping[str, Any] | None, eta: Mapping[str, Any] | None) -> Pairs:
    if why is None or eta is None or why["tier"] is None:
        return
    yield "why", f"{why['tier']}: {why['why']}"
    yield "remedy", why["remedy"]
    yield "ahead of it", why["ahead_count"]
    if eta["p50_s"] is not None:
        yield "likely start", _start_told(eta)


def _times(job: Mapping[str, Any], now_s: float) -> Pairs:
    yield "submitted", dated(job["submitted_s"], now_s)
    if job["started_s"] is not None:
        yield "started", dated(job["started_s"], now_s)
    if job["ended_s"] is not None:
        yield "ended", dated(job["ended_s"], now_s)
    yield "waited", length(waited_s(job, now_s))
    if job["ran_s"]:
        yield "ran", length(job["ran_s"])
    if job["attempt"] > 1:
        yield "attempts", job["attempt"]
    said = job["estimate"]
    if said["seconds"]:
        band = f"{length(said['low_s'])} to {length(said['high_s'])}"
        yield "estimated", f"{length(said['seconds'])} ({band}; from {said['basis']})"


def _request(spec: Mapping[str, Any]) -> Pairs:
    for task in spec.get("tasks") or [{"role": "", "resources": spec.get("resources", {})}]:
        role = f"{task['role']} " if task["role"] else ""
        for name, value in (task.get("resources") or {}).items():
            yield f"{role}{name}", value if value != {} else "1"
    for name in ("gang", "share", "time", "selectors", "tolerations", "topology", "array"):
        if spec.get(name):
            yield name, spec[name]


def _placement(job: Mapping[str, Any]) -> Pairs:
    for spot in job["placement"] or ():
        gpus = "/".join(map(str, spot["gpus"])) or "none"
        times = f" ({spot['instances']} instances)" if spot["instances"] > 1 else ""
        yield spot["machine"], f"GPU {gpus}{times}"


def _runs(spec: Mapping[str, Any]) -> Pairs:
    for task in spec.get("tasks", ()):
        if task.get("run"):
            yield f"run ({task['role']})", task["run"]
    for name in ("run", "workdir", "env", "secrets", "checkpoint", "retries"):
        if spec.get(name):
            yield name, spec[name]


def _event(entry: Mapping[str, Any], now_s: float) -> str:
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", entry["kind"]).lower()
    what, detail = entry["what"] or {}, entry["detail"]
    said = detail.get("reason") or (what.get("why") if isinstance(what, dict) else None)
    return f"  {clock(entry['at_s'], now_s)}  {kind}{f'  {said}' if said else ''}"
