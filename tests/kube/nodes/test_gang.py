"""A gang of real training processes on three nodes."""

import sys
from pathlib import Path

from tests.kube.nodes.conftest import Bench, said

from interlane.testing.kube_site import KubeSite


def test_three_nodes_train_one_model_together(
    site: KubeSite, bench: Bench, shared: Path
) -> None:
    """None can finish without the others, and no process of a gang takes turns."""
    program = shared / "gang.py"
    program.write_text(Path(__file__).with_name("gang.py").read_text())
    for rank, node in enumerate(site.nodes):
        command = (sys.executable, str(program), str(shared / "meet"))
        pod = site.host_pod(f"rank-{rank}", *command)
        world = {"RANK": str(rank), "WORLD_SIZE": "3", "GLOO_SOCKET_IFNAME": "eth0"}
        pod["spec"]["containers"][0]["env"] = [
            {"name": name, "value": value} for name, value in world.items()
        ]
        bench.place(pod, node.name, (rank % 2,), 600, size=3, rank=rank)

    found = []
    for rank in range(3):
        phase, output = bench.over(f"rank-{rank}")
        assert phase == "Succeeded", output
        found.append(said(output))
    assert [one["rank"] for one in found] == [0, 1, 2]
    assert found[0]["weights"] == found[1]["weights"] == found[2]["weights"]
    nodes = {bench.pod(f"rank-{rank}")["spec"]["nodeName"] for rank in range(3)}
    assert len(nodes) == 3
