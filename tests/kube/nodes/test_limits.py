"""What a pod may have of CPU and memory is what the kernel lets it have."""

import sys

from tests.kube.nodes.conftest import Bench, said

from interlane.testing.kube_site import KubeSite

SPIN = """
import json, time
begin_s, used_s = time.monotonic(), time.process_time()
while time.monotonic() < begin_s + 6:
    sum(range(10_000))
wall_s, cpu_s = time.monotonic() - begin_s, time.process_time() - used_s
quota = int(open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read())
period = int(open("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read())
print(json.dumps({"cores": quota / period, "cpu_s": cpu_s, "wall_s": wall_s}))
"""
GROW = "x = b'1' * (250 << 20); print(len(x))"


def limited(site: KubeSite, name: str, script: str, **limits: str) -> dict[str, object]:
    pod = site.host_pod(name, sys.executable, "-c", script)
    pod["spec"]["containers"][0]["resources"] = {"limits": dict(limits)}
    return pod


def test_a_pod_has_no_more_cpu_than_its_limit(site: KubeSite, bench: Bench) -> None:
    bench.place(limited(site, "spin", SPIN, cpu="200m", memory="200Mi"), "real-2", (0,), 100)
    phase, output = bench.over("spin")

    assert phase == "Succeeded", output
    found = said(output)
    assert found["cores"] == 0.2
    # Two periods of a tenth of a second may be begun on credit.
    assert found["cpu_s"] <= 0.2 * found["wall_s"] + 0.1


def test_a_pod_that_takes_more_memory_than_its_limit_is_killed(
    site: KubeSite, bench: Bench
) -> None:
    bench.place(limited(site, "grow", GROW, cpu="1", memory="150Mi"), "real-2", (0,), 100)
    phase, output = bench.over("grow")

    assert phase == "Failed"
    assert output == ""
    (ended,) = bench.pod("grow")["status"]["containerStatuses"]
    assert ended["state"]["terminated"]["reason"] == "OOMKilled"

    bench.place(limited(site, "fits", GROW, cpu="1", memory="800Mi"), "real-2", (0,), 100)
    assert bench.over("fits") == ("Succeeded", f"{250 << 20}\n")
