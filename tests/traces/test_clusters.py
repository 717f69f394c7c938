import gzip
from pathlib import Path

import pytest

from interlane.model import InvalidField, InvalidFile, InvalidInput, UnknownName
from interlane.traces.clusters import load_cluster
from interlane.traces.data import data_dir


def write(folder: Path, text: str, name: str = "lab.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_pool_is_one_machine_with_the_published_share_of_cpus() -> None:
    cluster = load_cluster("pool:6500")

    (pool,) = cluster.machines
    assert (pool.id, pool.gpu_type, pool.gpus, pool.pooled) == ("pool", "ANY", 6500, True)
    # round(23.22 x 6500) = 150,930
    assert pool.cpu_milli == 150_930_000
    assert cluster.clips_requests


@pytest.mark.parametrize("size", ["0", "-3", "many", "", "1.5", "9" * 30, "²"])
def test_a_pool_of_no_size_is_refused(size: str) -> None:
    with pytest.raises(InvalidField, match="a whole number of GPUs, as in pool:6500"):
        load_cluster(f"pool:{size}")


def test_a_fifth_of_pai_has_the_published_nodes_in_order() -> None:
    cluster = load_cluster("pai2020-1to5")

    assert (len(cluster), cluster.gpus, cluster.cpu_milli) == (380, 1352, 31_360_000)
    kinds = list(dict.fromkeys(machine.gpu_type for machine in cluster))
    assert kinds == ["CPU", "MISC", "T4", "P100", "V100"]
    assert all(machine.pooled for machine in cluster)
    names = [machine.id for machine in cluster]
    assert names == sorted(names)


def test_pai_has_the_machines_of_its_table() -> None:
    cluster = load_cluster("pai2020")

    assert (len(cluster), cluster.gpus, cluster.cpu_milli) == (1897, 6742, 156_576_000)
    kinds = list(dict.fromkeys(machine.gpu_type for machine in cluster))
    assert kinds == ["CPU", "MISC", "T4", "P100", "V100", "V100M32"]
    assert not any(machine.pooled for machine in cluster)
    assert cluster.machines[-1].gpu_memory_mib == 32 * 1024
    assert {m.memory_mib for m in cluster if m.gpu_type == "V100"} == {384 * 1024, 512 * 1024}


@pytest.mark.data
def test_openb_has_its_published_nodes(data: Path) -> None:
    cluster, everything = load_cluster("openb", data=data), load_cluster("openb-all", data=data)

    assert (len(cluster), cluster.gpus, cluster.cpu_milli) == (1213, 6212, 107_018_000)
    assert (len(everything), everything.gpus) == (1523, 6212)
    assert cluster.name == "openb"
    names = [machine.id for machine in cluster]
    assert names == sorted(names)


@pytest.mark.data
def test_the_machine_table_of_pai_is_a_cluster_file(data: Path) -> None:
    table = load_cluster(str(data / "pai-v2020/pai_machine_spec.csv"))
    built_in = load_cluster("pai2020")

    def kinds(cluster: str) -> list[tuple[str, int, int]]:
        machines = table if cluster == "table" else built_in
        return [(m.gpu_type, m.gpus, m.cpu_milli) for m in machines]

    assert kinds("table") == kinds("built-in")


@pytest.mark.parametrize("data", [None, Path("/nowhere")])
def test_openb_without_data_names_the_remedy(data: Path | None) -> None:
    with pytest.raises(InvalidInput, match="--data or INTERLANE_DATA"):
        load_cluster("openb", data=data)


def test_a_name_that_is_no_cluster_lists_the_built_in_ones() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'pai2020'.*openb, openb-all, pai2020"):
        load_cluster("pai2021")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidFile, match=r"lab\.yaml: there is no such cluster file"):
        load_cluster("nowhere/lab.yaml")


def test_a_cluster_file_gives_machines_in_its_order(tmp_path: Path) -> None:
    text = """
name: lab
machines:
  - {count: 2, name: a100, gpu_type: A100, gpus: 8, cpus: 96, memory_gib: 512}
  - {name: odd, gpu_type: K40, gpus: 4, cpus: 1.5, memory_gib: 0.5, gpu_memory_gib: 12}
  - {cpus: 32, memory_gib: 64}
"""
    cluster = load_cluster(write(tmp_path, text))

    assert cluster.name == "lab"
    assert [machine.id for machine in cluster] == ["a100-0", "a100-1", "odd", "cpu"]
    first, _, odd, bare = cluster.machines
    assert (first.gpus, first.gpu_memory_mib, first.memory_mib) == (8, 40_960, 524_288)
    assert (odd.cpu_milli, odd.memory_mib, odd.gpu_memory_mib) == (1500, 512, 12_288)
    assert (bare.gpus, bare.gpu_type, bare.cpu_milli) == (0, "CPU", 32_000)


M = "cpus: 4, memory_gib: 8"
FAULTS = {
    "not YAML": ("machines: [{", "line 1: this is not YAML"),
    "a list": ("- 1", "holds the keys name and machines"),
    "nothing": ("", "holds the keys name and machines"),
    "no machines": ("name: lab", "machines must be a list with at least one entry"),
    "an unknown key": (f"nmae: lab\nmachines: [{{{M}}}]", "the file has the key 'nmae'"),
    "a name that is a number": (f"name: 3\nmachines: [{{{M}}}]", "name is 3"),
    "an entry that is a number": ("machines: [3]", "machine entry 1 is 3"),
    "an unknown key of a machine": (
        f"machines: [{{{M}}}, {{{M}, gpu: 3}}]",
        "machine entry 2 has the key 'gpu'; known are count, name",
    ),
    "no machines of a kind": (f"machines: [{{count: 0, {M}}}]", "entry 1: count is 0"),
    "too many machines": (f"machines: [{{count: 99999999, {M}}}]", "count is 99999999"),
    "words for a number": ("machines: [{cpus: four, memory_gib: 8}]", "cpus is 'four'"),
    "a negative number": ("machines: [{cpus: -4, memory_gib: 8}]", "cpus is -4"),
    "true for a number": (f"machines: [{{gpus: true, {M}}}]", "gpus is True"),
    "no CPUs": ("machines: [{memory_gib: 8}]", "cpus is missing, but it must be a number"),
    "GPUs of no type": (f"machines: [{{gpus: 1, {M}}}]", "gpu_type is missing"),
    "an unknown card without memory": (
        f"machines: [{{gpus: 1, gpu_type: K40, {M}}}]",
        "gpu_memory_gib is missing",
    ),
    "more GPUs than are told apart": (
        f"machines: [{{gpus: 63, gpu_type: T4, {M}}}]",
        "machine entry 1: gpus of machine t4 is 63",
    ),
    "two machines of one name": (f"machines: [{{{M}}}, {{{M}}}]", "each machine needs its own"),
    "a pool of words": (f"machines: [{{pooled: maybe, {M}}}]", "pooled is 'maybe'"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_cluster_file_is_one_clear_sentence(tmp_path: Path, case: str) -> None:
    text, what = FAULTS[case]
    path = write(tmp_path, text)

    with pytest.raises(InvalidFile) as caught:
        load_cluster(path)

    assert str(caught.value).startswith(path)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_list_is_a_cluster_file_in_name_order(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nb,64000,1024,2,P100\na,32000,512,0,\n"
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))

    a, b = load_cluster(str(path)).machines

    assert (a.id, a.gpu_type, a.gpus) == ("a", "CPU", 0)
    assert (b.id, b.gpu_type, b.gpus, b.gpu_memory_mib) == ("b", "P100", 2, 16_384)


CSV_FAULTS = {
    "no machine list": ("a,b\n1,2\n", "neither a node list"),
    "no rows": ("sn,cpu_milli,memory_mib,gpu,model\n", "has no machines"),
    "a negative number": (
        "sn,cpu_milli,memory_mib,gpu,model\na,-1,1,0,\n",
        "line 2: cpu_milli",
    ),
}


@pytest.mark.parametrize("case", CSV_FAULTS)
def test_a_faulty_node_list_is_one_clear_sentence(tmp_path: Path, case: str) -> None:
    text, what = CSV_FAULTS[case]

    with pytest.raises(InvalidFile, match=what):
        load_cluster(write(tmp_path, text, "nodes.csv"))


def test_the_directory_of_traces_is_the_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLANE_DATA", "/nowhere")

    assert data_dir(tmp_path) == tmp_path
    assert data_dir(None) == Path("/nowhere")


def test_without_a_name_the_directory_beside_is_taken_if_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLANE_DATA", raising=False)
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")

    assert data_dir(None) is None
    (tmp_path / "shared/data").mkdir(parents=True)
    assert data_dir(None) == tmp_path / "shared/data"


def test_a_node_table_of_spot_gpus_is_a_cluster_file(tmp_path: Path) -> None:
    rows = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nH800,8,192,7\n"

    cluster = load_cluster(write(tmp_path, rows, "nodes.csv"))

    assert [(one.id, one.gpu_type, one.gpus, one.cpu_milli) for one in cluster] == [
        ("node-0000", "A10", 1, 128_000),
        ("node-0007", "H800", 8, 192_000),
    ]
