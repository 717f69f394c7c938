"""A cluster as a value."""

import pickle

from interlane.model import Cluster, Machine, MachineId


def test_a_cluster_goes_to_another_process_whatever_was_asked_of_it() -> None:
    cluster = Cluster("lab", (Machine(MachineId("a"), "T4", 2, gpu_memory_mib=16_000),))
    assert cluster.gpu_memory_mib == {"T4": 16_000}

    copy = pickle.loads(pickle.dumps(cluster))

    assert copy == cluster
    assert copy.gpu_memory_mib == cluster.gpu_memory_mib
