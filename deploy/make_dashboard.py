"""Write ``grafana.json``, a dashboard of ``/metrics``: ``python make_dashboard.py``."""

import json
from pathlib import Path
from typing import Any, Final

RATE: Final = "$__rate_interval"
PANELS: Final = (
    ("GPUs allocated", "stat", "percentunit", [("interlane_gpu_allocated_ratio", "held")]),
    ("Longest wait now", "stat", "s", [("interlane_longest_wait_seconds", "waits")]),
    ("Jobs that wait", "stat", "short", [('interlane_jobs{state="queued"}', "queued")]),
    ("Server", "stat", "short", [("interlane_ready", "ready")]),
    (
        "GPUs: allocated and busy",
        "timeseries",
        "percentunit",
        [
            ("interlane_gpu_allocated_ratio", "allocated"),
            ("avg(interlane_device_busy_ratio)", "busy"),
        ],
    ),
    (
        "Who waits, and why",
        "timeseries",
        "short",
        [("sum by (reason) (interlane_pending_jobs)", "{{reason}}")],
    ),
    (
        "Waits of jobs that started",
        "timeseries",
        "s",
        [
            (
                f"histogram_quantile({part}, "
                f"sum by (le) (rate(interlane_wait_seconds_bucket[{RATE}])))",
                name,
            )
            for part, name in ((0.5, "half"), (0.95, "19 of 20"))
        ],
    ),
    ("GPUs by user", "timeseries", "short", [("interlane_user_gpus", "{{user}}")]),
    (
        "GPU-hours by user in the range",
        "bargauge",
        "h",
        [("increase(interlane_user_gpu_seconds_total[$__range]) / 3600", "{{user}}")],
    ),
    (
        "Jobs that ended",
        "timeseries",
        "short",
        [
            (
                "sum by (state) (increase(interlane_jobs_ended_total[$__rate_interval]))",
                "{{state}}",
            )
        ],
    ),
    (
        "Slowdown beside others",
        "timeseries",
        "short",
        [("max by (kind) (interlane_job_slowdown_ratio)", "{{kind}}")],
    ),
    (
        "Memory of devices",
        "timeseries",
        "bytes",
        [("interlane_device_used_bytes", "{{device}} used")],
    ),
    (
        "Requests of functions",
        "timeseries",
        "reqps",
        [(f"rate(interlane_function_requests_total[{RATE}])", "{{function}}")],
    ),
    (
        "Latency of functions, 19 of 20",
        "timeseries",
        "s",
        [
            (
                "histogram_quantile(0.95, sum by (function, le) "
                f"(rate(interlane_function_latency_seconds_bucket[{RATE}])))",
                "{{function}}",
            )
        ],
    ),
    (
        "Cold starts",
        "timeseries",
        "short",
        [(f"increase(interlane_function_cold_starts_total[{RATE}])", "{{function}}")],
    ),
    (
        "Replicas",
        "timeseries",
        "short",
        [("sum by (state) (interlane_function_replicas)", "{{state}}")],
    ),
    (
        "Notifications",
        "timeseries",
        "short",
        [
            (
                "sum by (result) (increase(interlane_notifications_total[$__rate_interval]))",
                "{{result}}",
            )
        ],
    ),
    (
        "Restarts of jobs",
        "timeseries",
        "short",
        [("increase(interlane_restarts_total[$__rate_interval])", "restarts")],
    ),
)


def panel(number: int, title: str, kind: str, unit: str, asked: list[tuple[str, str]]) -> Any:  # noqa: ANN401 - JSON
    """Return one panel: four small ones in the first row, then two a row."""
    small = number < 4
    width = 6 if small else 12
    x = width * (number % (4 if small else 2))
    y = 0 if small else 4 + 8 * ((number - 4) // 2)
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"h": 4 if small else 8, "w": width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(65 + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(asked)
        ],
    }


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    return {
        "title": "interlane",
        "uid": "interlane",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [panel(number, *one) for number, one in enumerate(PANELS)],
    }


def text() -> str:
    """Return it as the file has it."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("grafana.json").write_text(text(), encoding="utf-8")
