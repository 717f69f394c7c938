"""Job files: what they mean, and one sentence for whatever they get wrong."""

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, none, tuples

from interlane.device.inventory import devices_of
from interlane.live.files.job import (
    JobSpec,
    gpu_memory,
    limit_s,
    plain_name,
    program_of,
    read_spec,
    request_of,
    stop_of,
)
from interlane.live.measure.slowdown import in_turns
from interlane.model import (
    MILLI,
    Closeness,
    Cluster,
    Demand,
    Device,
    InvalidInput,
    Machine,
    MachineId,
    amounts,
    with_devices,
)

MINIMAL = {"name": "train", "run": "python train.py"}
PS = {"role": "ps", "resources": {"cpu": 2}, "run": "python serve.py"}
WORKERS = {"role": "worker", "count": 3, "min": 2, "resources": {"gpu": {"memory": "4GiB"}}}
CARD_MIB = 16_384
CLUSTER = Cluster("one", (Machine(MachineId("a"), "T4", 4, 8_000, 65_536, CARD_MIB),))


def demand(spec: JobSpec) -> Demand:
    """What an instance of the only task asks for."""
    (task,) = request_of(spec, CLUSTER)
    return task.demand


def test_the_whole_file_is_understood() -> None:
    spec = read_spec(
        {
            "kind": "job",
            "name": "bert-finetune",
            "queue": "team-a",
            "priority": 70,
            "resources": {
                "gpu": {"count": 2, "type": ["A100", "A800"], "memory": "12GiB..20GiB"},
                "cpu": 4,
                "memory": "32GB..40GB",
            },
            "share": {"mode": "auto"},
            "gang": {"nodes": 2, "min": 1},
            "time": {"expected": "2h", "limit": "8h"},
            "checkpoint": {"interval": "15m", "signal": "SIGUSR1", "grace": "60s"},
            "run": "python train.py",
            "env": {"MODEL": "bert-base"},
            "secrets": ["HF_TOKEN"],
        }
    )

    asked = demand(spec)

    assert (asked.gpus, asked.gpu_memory_mib, asked.cpu_milli) == (2, 12_288, 4_000)
    assert asked.gpu_milli == 750  # 12 of 16 GiB, as no compute was asked for
    assert asked.memory_mib == 30_518
    assert asked.gpu_types == {"A100", "A800"}
    assert limit_s(spec) == 28_800
    assert (stop_of(spec).signal, stop_of(spec).grace_s) == (10, 60.0)


@pytest.mark.parametrize(
    ("share", "gpu", "milli"),
    [
        ({"mode": "exclusive"}, {"memory": "4GiB"}, 1000),
        ({}, {"memory": "4GiB"}, 250),
        ({}, {"memory": "4GiB", "compute": "300m..1000m"}, 300),
        ({}, {}, 1000),
        ({"max_slowdown": 1.15}, {"memory": "4GiB"}, 870),
        ({"max_slowdown": 8}, {"memory": "4GiB"}, 250),
        ({"max_slowdown": 2}, {}, 1000),
        ({"max_slowdown": 2}, {"memory": "4GiB", "compute": "300m"}, 500),
        ({"max_slowdown": 2, "mode": "spatial"}, {"memory": "4GiB"}, 1000),
        ({"max_slowdown": 2}, {"memory": "4GiB", "count": 2}, 1000),
    ],
)
def test_the_share_of_a_gpu_follows_from_what_was_asked(
    share: dict[str, object], gpu: dict[str, object], milli: int
) -> None:
    spec = read_spec({**MINIMAL, "share": share, "resources": {"gpu": gpu}})

    assert demand(spec).gpu_milli == milli


@given(lists(tuples(none() | floats(1, 100), integers(1, 16)), min_size=1, max_size=16))
def test_no_company_that_fits_a_device_breaks_a_bound(
    wanted: list[tuple[float | None, int]],
) -> None:
    specs = [
        read_spec(
            {
                **MINIMAL,
                "share": {} if bound is None else {"max_slowdown": bound},
                "resources": {"gpu": {"memory": f"{memory}GiB"}},
            }
        )
        for bound, memory in wanted
    ]
    shares = [demand(one).gpu_milli for one in specs]
    while sum(shares) > MILLI:  # as many as the kernel would let in
        shares.pop()

    for at, (share, (bound, _)) in enumerate(zip(shares, wanted, strict=False)):
        slower = in_turns(share, shares[:at] + shares[at + 1 :], "fair")
        assert bound is None or slower <= bound + 1e-9


def test_memory_beyond_the_request_is_the_lanes() -> None:
    plain, ranged = (
        read_spec({**MINIMAL, "resources": {"gpu": {"memory": memory}}})
        for memory in ("4GiB", "4GiB..6GiB")
    )

    assert [
        (found.stays_mib, found.passes_mib)
        for found in map(gpu_memory, (plain, ranged))
        if found is not None
    ] == [(4096, 0), (4096, 2048)]


def test_ranks_cannot_take_turns() -> None:
    with pytest.raises(InvalidInput, match=r"share.mode is 'lanes', but only one process"):
        read_spec({**MINIMAL, "share": {"mode": "lanes"}, "gang": {"nodes": 2}})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nme": "x"}, "nme is not a field of a job; did you mean 'name'? known are: "),
        ({"resources": {"gpus": 1}}, "gpus is not a field of a job; did you mean 'gpu'?"),
        ({"resources": {"gpu": {"colour": 1}}}, "known are: compute, count, memory, type."),
        ({"name": None, "nme": "x"}, "nme is not a field"),
        ({"gang": 3}, "gang is 3, but it must have fields: min, nodes."),
        ({"priority": "high"}, "priority is 'high', but it must be a valid integer."),
        ({"name": None}, "name is None, but it must be a valid string"),
        ({"name": "../etc"}, "name is '../etc', but it must be 1 to 63 of a-z, 0-9"),
        ({"priority": 101}, "priority is 101, but it must be less than or equal to 100"),
        (
            {"resources": {"gpu": {"memory": "12"}}},
            "gpu.memory is '12', but its unit",
        ),
        ({"resources": {"gpu": {"memory": "9GB..8GB"}}}, "the limit must not be below"),
        ({"resources": {"gpu": {"compute": "1001m"}}}, "it must be 1m to 1000m of each GPU"),
        ({"resources": {"gpu": {"compute": "0m"}}}, "it must be 1m to 1000m of each GPU"),
        ({"resources": {"cpu": "many"}}, "resources.cpu is 'many', but it must read like"),
        ({"time": {"limit": "0s"}}, "time.limit is '0s', but it must be more than nothing"),
        ({"time": {"limit": "8 weeks"}}, "its unit must be one of ms, s, m, h, d"),
        ({"checkpoint": {"signal": "SIGKILL"}}, "it must be one of SIGTERM"),
        ({"checkpoint": {"grace": "2h"}}, "at most 3600 s"),
        ({"gang": {"nodes": 2, "min": 3}}, "gang.min is 3, but it must be 1 to gang.nodes, 2"),
        ({"workdir": "here"}, "workdir is 'here', but it must be an absolute path"),
        ({"env": {"A B": "x"}}, "it must be 1 to 128 of A-Z, a-z, 0-9 and _"),
        ({"env": {"A": "x\0y"}}, "it must not hold the character 0"),
        ({"env": {"T": "x"}, "secrets": ["T"]}, "secrets is 'T', but env gives it a value"),
        ({"kind": "service"}, "kind is 'service', but it must be 'job'."),
        ({"run": ""}, "run is '', but it must have at least 1 character"),
        ({"group": "a\nb"}, "group is 'a\\nb', but it must be printable: no line ends"),
        ({"group": "a\x1b[1m"}, "but it must be printable"),
        ({"group": " "}, "and no space at its ends"),
        ({"family": "\x00"}, "family is '\\x00', but it must be printable"),
        ({"image": "a b"}, "image is 'a b', but an image is named without spaces"),
        ({"tasks": [{"role": "ps"}]}, "tasks.0.resources is missing; a job needs it."),
        (
            {"tasks": [{"role": "ps", "resources": {}}]},
            "tasks.0.resources is {}, but task ps must ask for something: gpu, cpu or memory.",
        ),
        ({"tasks": [PS, PS]}, "tasks.1.role is 'ps', but another task has this role"),
        ({"tasks": [{**PS, "role": "P S"}]}, "tasks.0.role is 'P S', but it must be 1 to 31"),
        ({"tasks": [{**PS, "min": 2}]}, "tasks.0.min is 2, but it must be 1 to count, 1"),
        ({"tasks": [{**PS, "cout": 2}]}, "tasks.0.cout is not a field of a job; did you mean"),
        ({"tasks": [{**PS, "resources": 3}]}, "must have fields: cpu, gpu, memory."),
        ({"tasks": [PS, {"role": "w", "resources": {"cpu": "x"}}]}, "tasks.1.resources.cpu is"),
        ({"tasks": [PS], "gang": {"nodes": 2}}, "gang is {'nodes': 2}, but tasks is there too"),
        ({"tasks": [PS], "resources": {"cpu": 1}}, "resources is {'cpu': 1}, but tasks is"),
        ({"tasks": [PS, WORKERS], "share": {"mode": "lanes"}}, "only one process on one GPU"),
        ({"tasks": [{**PS, "env": {"T": ""}}], "secrets": ["T"]}, "env gives it a value"),
        ({"tasks": [WORKERS], "run": None}, "tasks.0.run is missing; task worker needs it"),
        ({"selectors": {"pool": ""}}, "selectors.pool is '', but it must be 1 to 63 of"),
        ({"tolerations": {"a|b": "x"}}, "but it must be 1 to 253 of"),
        ({"topology": {"near": "rack"}}, "known are: pack, same, spread."),
        (
            {"topology": {"pack": "rack", "spread": "zone"}},
            "topology.spread is 'zone', but pack wants the opposite; name one of them.",
        ),
        (
            {"topology": {"same": "rack", "spread": "rack"}},
            "topology.spread is 'rack', but same wants all in one of them",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_spec({**MINIMAL, **wrong})

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidInput, match="run is missing; a job needs it"):
        read_spec({"name": "a"})


def test_amounts_read_as_people_write_them() -> None:
    assert amounts.memory_mib("m", "1GB") == 954
    assert amounts.memory_mib("m", "1.5GiB") == 1_536
    assert amounts.milli("c", "300m") == 300
    assert amounts.milli("c", 2) == 2_000
    assert amounts.seconds("t", "1.5h") == 5_400
    assert amounts.seconds("t", 90) == 90


def test_jobs_of_one_command_recur_whatever_they_are_called() -> None:
    first, second = (read_spec({**MINIMAL, "name": name}) for name in ("bert", "other-17"))
    longer = read_spec({**MINIMAL, "run": "python train.py --epochs 9"})

    assert program_of(first) == program_of(second)
    assert program_of(first).startswith("train.py-")
    assert program_of(longer) != program_of(first)


def test_a_group_says_what_recurs_whatever_is_run() -> None:
    one, other = (
        read_spec({"name": "a", "run": f"./go {seed}", "group": "sweep of Ann"})
        for seed in (1, 2)
    )

    assert program_of(one) == program_of(other) == "sweep of Ann"


@pytest.mark.parametrize(
    ("run", "shows"),
    [
        ("python /home/ann/train.py --lr 1", "train.py-"),
        ("cd x && exec ./go.sh", "go.sh-"),
        ("/usr/bin/sleep 3", "sleep-"),
        ("(:)", ""),
    ],
)
def test_a_program_shows_its_script_or_its_first_word(run: str, shows: str) -> None:
    program = program_of(read_spec({"name": "a", "run": run}))

    assert program.startswith(shows)
    assert program.isprintable()


def test_the_plain_name_lacks_the_number_at_its_end() -> None:
    assert plain_name(read_spec({**MINIMAL, "name": "bert-17"})) == "bert"
    assert plain_name(read_spec({**MINIMAL, "name": "17"})) == "17"


def test_every_role_has_its_own_demand_and_count() -> None:
    job = read_spec({**MINIMAL, "tasks": [PS, WORKERS]})

    ps, workers = request_of(job, CLUSTER, spans_machines=True, grows=True)

    assert (ps.role, ps.instances, ps.demand.cpu_milli, ps.demand.gpus) == ("ps", 1, 2_000, 0)
    assert (workers.role, workers.instances, workers.least) == ("worker", 3, 2)
    assert (workers.demand.gpus, workers.demand.gpu_milli) == (1, 250)
    assert workers.grows
    assert [job.command(task) for task in job.roles] == ["python serve.py", "python train.py"]


def test_a_file_without_roles_means_one_task_of_workers() -> None:
    resources = {"gpu": {"memory": "4GiB"}}
    plain = read_spec({**MINIMAL, "resources": resources, "gang": {"nodes": 3, "min": 2}})
    named = read_spec({**MINIMAL, "tasks": [{**WORKERS, "resources": resources}]})

    assert request_of(plain, CLUSTER) == request_of(named, CLUSTER)
    assert plain.roles == named.roles
    assert program_of(plain) == program_of(named)


def test_where_jobs_do_not_span_machines_all_roles_are_on_one() -> None:
    job = read_spec({**MINIMAL, "tasks": [PS, WORKERS], "topology": {"spread": "zone"}})

    request = request_of(job, CLUSTER, grows=True)

    assert all(task.same_machine for task in request)
    assert request.closeness == Closeness(same="machine")
    assert not request.grows


def test_a_gang_grows_only_where_the_engine_lets_it() -> None:
    job = read_spec({**MINIMAL, "gang": {"nodes": 4, "min": 2}})

    assert [
        request_of(job, CLUSTER, spans_machines=True, grows=grows).grows
        for grows in (False, True)
    ] == [False, True]
    assert request_of(job, CLUSTER, spans_machines=True).is_elastic


def test_labels_and_topology_reach_the_kernel() -> None:
    job = read_spec(
        {
            **MINIMAL,
            "selectors": {"pool": "train", "topology.kubernetes.io/zone": "b"},
            "tolerations": {"dedicated": "team-a"},
            "topology": {"same": "zone", "pack": "rack"},
        }
    )

    request = request_of(job, CLUSTER, spans_machines=True)

    (task,) = request
    assert task.demand.selectors == {("pool", "train"), ("topology.kubernetes.io/zone", "b")}
    assert task.demand.tolerations == {("dedicated", "team-a")}
    assert request.closeness == Closeness(same="zone", pack="rack")


@pytest.mark.parametrize(
    ("types", "milli"), [([], 100), ("A100", 100), ("T4", 500), (["T4", "A100"], 100)]
)
def test_memory_is_a_share_of_the_largest_gpu_that_will_do(types: object, milli: int) -> None:
    mixed = with_devices(MachineId("a"), [Device("T4", 16_384), Device("A100", 81_920)])
    gpu = {"memory": "8GiB", "type": types}

    (task,) = request_of(
        read_spec({**MINIMAL, "resources": {"gpu": gpu}}), Cluster("mixed", (mixed,))
    )

    assert task.demand.gpu_milli == milli


def test_emulated_devices_say_that_they_are() -> None:
    found = devices_of("cpu:4:8GiB")

    (machine,) = Cluster("one", (found.machine,))
    assert found.emulated
    assert (machine.gpus, machine.gpu_type, machine.gpu_memory_mib) == (4, "EMULATED", 8_192)


@pytest.mark.parametrize("word", ["cpu", "cpu:0", "cpu:63", "gpu:2", "cpu:2:x", "cpu:2:1GB:3"])
def test_devices_that_make_no_sense_are_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="devices"):
        devices_of(word)
