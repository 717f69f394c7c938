"""Times a handler in this process, batch by batch; one line of JSON for each.

It loads at full speed, and enters the slice that is measured then.  The first calls do not
count; a call that raises ends that batch only.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from interlane.device.backends.cpu import CpuBackend
from interlane.engines.local.attempt_group import AttemptGroup
from interlane.engines.local.functions.replica import Handler, ReplicaOrder, loaded

WARM_CALLS: Final = 3
WINDOWS: Final = 3
"""In which a batch is timed; the one in the middle counts."""


def main() -> None:
    """Do what the settings say that come as JSON on the first line."""
    said = json.loads(sys.stdin.readline())
    if said["memory_bytes"] is not None:
        CpuBackend().limit(said["memory_bytes"])
    try:
        handler = loaded(_order(said))
    except BaseException as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)
        raise SystemExit(1) from None
    if said["group"] is not None:
        AttemptGroup(said["group"]).join()
    for batch in said["batches"]:
        print(json.dumps({"batch": batch, **_timed(handler, said, batch)}), flush=True)


def _order(said: Mapping[str, Any]) -> ReplicaOrder:
    return ReplicaOrder(said["handler"], said["load"], said["path"], 1, True, 0, 0, {})


def _timed(handler: Handler, said: Mapping[str, Any], batch: int) -> dict[str, Any]:
    payload = said["payload"]
    asked = [payload] * batch if said["in_batches"] else payload
    pace = said["pace"]
    try:
        for _ in range(WARM_CALLS):
            handler(asked)
        least_s = said["seconds"] / WINDOWS
        windows = [_window(handler, asked, least_s, pace) for _ in range(WINDOWS)]
    except (Exception, MemoryError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    # What else the machine does in some of them does not count.
    calls, took_s = sorted(windows, key=lambda one: one[0] / one[1])[WINDOWS // 2]
    return {"calls": calls, "seconds": took_s}


def _window(handler: Handler, asked: object, least_s: float, pace: int) -> tuple[int, float]:
    """Call a handler for some time; return how often, and how long that took."""
    calls, begin_s = 0, time.perf_counter()
    while not calls or time.perf_counter() - begin_s < least_s:
        began_s = time.perf_counter()
        handler(asked)
        if pace:  # nobody else holds us to our part of the cores
            time.sleep((time.perf_counter() - began_s) * (1000 / pace - 1))
        calls += 1
    return calls, time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
