"""Job files: what they mean, and one sentence for whatever they get wrong."""

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, none, tuples

from interlane.engines.local.devices import devices_of
from interlane.live.files.job import (
    demand_of,
    gpu_memory,
    limit_s,
    program_of,
    read_spec,
    stop_of,
)
from interlane.live.measure.slowdown import in_turns
from interlane.model import MILLI, InvalidInput

MINIMAL = {"name": "train", "run": "python train.py"}
CARD_MIB = 16_384


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

    demand = demand_of(spec, CARD_MIB)

    assert (demand.gpus, demand.gpu_memory_mib, demand.cpu_milli) == (2, 12_288, 4_000)
    assert demand.gpu_milli == 750  # 12 of 16 GiB, as no compute was asked for
    assert demand.memory_mib == 30_518
    assert demand.gpu_types == {"A100", "A800"}
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

    assert demand_of(spec, CARD_MIB).gpu_milli == milli


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
    shares = [demand_of(one, CARD_MIB).gpu_milli for one in specs]
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
        ({"kind": "service"}, "kind is 'service', but it must match pattern '^job$'"),
        ({"run": ""}, "run is '', but it must have at least 1 character"),
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


def test_what_recurs_is_the_name_without_its_number() -> None:
    assert program_of(read_spec({**MINIMAL, "name": "bert-17"})) == "bert"
    assert program_of(read_spec({**MINIMAL, "name": "17"})) == "17"


def test_emulated_devices_say_that_they_are() -> None:
    found = devices_of("cpu:4:8GiB")

    (machine,) = found.cluster
    assert found.emulated
    assert (machine.gpus, machine.gpu_type, machine.gpu_memory_mib) == (4, "EMULATED", 8_192)


@pytest.mark.parametrize("word", ["cpu", "cpu:0", "cpu:63", "gpu:2", "cpu:2:x", "cpu:2:1GB:3"])
def test_devices_that_make_no_sense_are_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="devices"):
        devices_of(word)
