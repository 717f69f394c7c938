"""A scheduler for a cluster as a process of its own, to be measured and killed.

    python -m interlane.testing.kube_server --kubeconfig F --state DIR

It is the driver of ``interlane up`` on its real store and engine, without pages and API.  At
its end it writes how long its decisions took.
"""

import argparse
import json
import resource
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.engine import KubernetesEngine, KubeSettings
from interlane.engines.kubernetes.explaining import Explaining
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan
from interlane.live.driver.warmup import warm_up
from interlane.live.port import Wanted
from interlane.live.questions.etas import Etas
from interlane.live.store.store import Store
from interlane.live.view import View
from interlane.model import Cluster, Machine, MachineId
from interlane.usecases.compiling import compile_all
from interlane.wiring import live_scheduler_maker, played_starts

SERVING = "Serving"
TOLD = "figures.json"


class TimedDriver(Driver):
    """Notes how long decisions took, from a cycle's first event until all of it was stored."""

    spans_s: list[float]
    """One for each pod that came: what its cycle took."""
    spans_cpu_s: list[float]
    """The same as CPU time of the scheduler's thread, which others do not lengthen."""

    def _cycle(self, items: list) -> None:  # type: ignore[type-arg]
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
        came = sum(isinstance(one, Wanted) for one in items)
        super()._cycle(items)
        self.spans_s += [time.perf_counter() - begin_s] * came
        self.spans_cpu_s += [time.thread_time() - begin_cpu_s] * came


def main() -> None:
    """Serve until told to end."""
    arguments = _arguments()
    if arguments.clock_ahead_s:
        right = time.time
        time.time = lambda: right() + arguments.clock_ahead_s
    named = {"order": arguments.order, "placer": arguments.placer, "queue": arguments.queue}
    compile_all()  # a server that compiles while it leads is late for everything
    plan = SchedulerPlan(live_scheduler_maker(named), named)
    server = replace(server_of(arguments.kubeconfig), namespace="default")
    settings = KubeSettings(
        PodSettings("default", image="played"), arguments.identity, arguments.lease_s
    )
    engine = KubernetesEngine(server, settings)
    warm_up(plan.make(Cluster("any", (Machine(MachineId("any"), "ANY", 1),)), ()))
    engine.lead(lambda holder: print(f"Standing by: {holder} leads.", flush=True))
    arguments.state.mkdir(parents=True, exist_ok=True)
    store = Store(f"sqlite:///{arguments.state / 'state.db'}")
    driver = TimedDriver(store, plan, engine)
    driver.spans_s, driver.spans_cpu_s = [], []
    ended = threading.Event()
    driver.on_give_up = ended.set
    driver.start()
    if arguments.explains:
        etas = Etas(driver.snapshot, store, played_starts)
        Explaining(View(driver, etas), engine, every_s=1.0).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"{SERVING} {time.monotonic():.3f}", flush=True)
    ended.wait()
    driver.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "spans_s": driver.spans_s,
        "spans_cpu_s": driver.spans_cpu_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_mib": used.ru_maxrss // 1024,
    }
    (arguments.state / TOLD).write_text(json.dumps(told))
    sys.exit(0 if driver.stopped_because is None else 3)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--identity")
    parser.add_argument("--lease-s", type=float, default=15.0)
    parser.add_argument("--order", default="fifo")
    parser.add_argument("--placer", default="pack")
    parser.add_argument("--queue", default="skip")
    parser.add_argument("--explains", action="store_true")
    parser.add_argument(
        "--clock-ahead-s", type=float, default=0.0, help="how wrong its clock is"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
