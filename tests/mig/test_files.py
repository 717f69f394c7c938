"""Files of the planner: what is read, written and refused, value by value."""

from collections.abc import Callable

import pytest

from interlane.mig.demand import GpuOffer, LatencyRule, Service, SharedGpu
from interlane.mig.documents import outcome_document, plan_document, read_state
from interlane.mig.entries import MigFileSection
from interlane.mig.layouts import Rules
from interlane.mig.parted import parted_document, parted_stages
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan, SolvedPlan, StopReason
from interlane.mig.profiles import ProfileKind, gpu_model
from interlane.mig.services_file import (
    Pin,
    ServicesFile,
    full_table,
    kinds_of,
    problem_from,
    read_services,
    with_gpu,
)
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables import own
from interlane.mig.tables.rows import rows_of
from interlane.model import InvalidFile, InvalidInput, UnknownName

A100, A30 = "A100-80GB", "A30-24GB"


# -- entries ------------------------------------------------------------------------------


def entry(**values: object) -> MigFileSection:
    return MigFileSection("f.yaml", "service 1", values)


def test_values_come_with_their_types_and_defaults() -> None:
    one = entry(t="x", n=3, f=1.5, b=True, one="a", many=["a", "b"], empty=None)
    assert (one.text("t"), one.text("gone", "d"), one.text("gone", "")) == ("x", "d", "")
    assert (one.amount("n"), one.amount("f"), one.amount("gone", 2)) == (3.0, 1.5, 2.0)
    assert (one.whole("n"), one.whole("gone", 7)) == (3, 7)
    assert (one.claim("b"), one.claim("gone")) == (True, False)
    assert (one.texts("one"), one.texts("many"), one.texts("gone")) == (("a",), ("a", "b"), ())
    assert ("t" in one, "empty" in one, "gone" in one) == (True, False, False)
    assert one.first(("gone", "t", "n")) == "x"
    assert one.first(("gone",), 5) == 5


@pytest.mark.parametrize(
    ("take", "sentence"),
    [
        (lambda one: one.text("n"), "service 1: n is 3, but it must be text."),
        (lambda one: one.text("blank"), "blank is '', but it must be text."),
        (lambda one: one.text("gone"), "gone is missing; it must be text."),
        (lambda one: one.amount("b"), "b is True, but it must be a number."),
        (lambda one: one.amount("inf"), "inf is inf, but it must be a number."),
        (lambda one: one.amount("t"), "t is 'x', but it must be a number."),
        (lambda one: one.whole("f"), "f is 1.5, but it must be a whole number, 0 or more."),
        (
            lambda one: one.whole("n", least=4),
            "n is 3, but it must be a whole number, 4 or more.",
        ),
        (lambda one: one.whole("many_zeros"), "it must be a whole number"),
        (lambda one: one.whole("b"), "b is True, but it must be a whole number"),
        (lambda one: one.claim("n"), "n is 3, but it must be true or false."),
        (lambda one: one.texts("n"), "n is 3, but it must be a list of names."),
        (lambda one: one.texts("mixed"), "it must be a list of names."),
        (lambda one: one.entries("t"), "t is 'x', but it must be a list."),
        (lambda one: one.only(["t"]), "service 1 has the key 'n'; known are t."),
    ],
)
def test_a_value_that_is_wrong_is_named(
    take: Callable[[MigFileSection], object], sentence: str
) -> None:
    one = entry(
        t="x", n=3, f=1.5, b=True, blank="", inf=float("inf"), mixed=["a", 1], many_zeros=10**9
    )
    with pytest.raises(InvalidFile) as refused:
        take(one)
    assert sentence in str(refused.value)
    assert "f.yaml" in str(refused.value)


def test_entries_are_numbered_and_say_where_they_are() -> None:
    whole = MigFileSection("f", "the file", {"gpus": [{"instances": [{}, {}]}], "other": [{}]})
    (gpu,) = whole.entries("gpus")
    assert gpu.where == "GPU 1"
    assert [one.where for one in gpu.entries("instances")] == [
        "instance 1 of GPU 1", "instance 2 of GPU 1",
    ]  # fmt: skip
    assert [one.where for one in whole.entries("first", "other")] == ["other 1"]
    assert whole.entries("nothing") == []
    with pytest.raises(InvalidFile, match="GPU 1 is 5, but it must be keys with values"):
        MigFileSection("f", "the file", {"gpus": [5]}).entries("gpus")


# -- rows ---------------------------------------------------------------------------------


HEADER = "model,gpu,profile,batch,processes,throughput_per_s,latency_ms"
ROW = "net,A100-80GB,1g.10gb,4,1,10.5,20"


def test_rows_are_read_by_the_names_of_their_columns() -> None:
    swapped = ["gpu, model", "", "a, b"]
    (row,) = rows_of(swapped, "f", ["model", "gpu"])
    assert (row.text("gpu"), row.text("model")) == ("a", "b")
    table = own.read([HEADER, ROW, "", ROW.replace("1g.10gb", "2g.20gb")], "f")
    assert next(iter(table)) == Measurement("net", A100, "1g.10gb", 4, 1, 10.5, 20.0)
    assert list(own.write(table)) == [HEADER, ROW, ROW.replace("1g.10gb", "2g.20gb")]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([HEADER], "the table has no rows"),
        ([], "the column model is missing"),
        ([HEADER.replace("batch,", ""), ROW], "the column batch is missing"),
        ([HEADER, ROW + ",9"], "the row has 8 fields, the header 7"),
        ([HEADER, ROW.replace("net", " ")], "model is '', but it must not be empty"),
        (
            [HEADER, ROW.replace("10.5", "fast")],
            "throughput_per_s is 'fast', but it must be a n",
        ),
        ([HEADER, ROW.replace("10.5", "nan")], "throughput_per_s is 'nan'"),
        (
            [HEADER, ROW.replace(",4,", ",4.5,")],
            "batch is '4.5', but it must be a whole number",
        ),
        ([HEADER, ROW.replace(",4,", ",0,")], "batch of net on A100-80GB 1g.10gb is 0"),
        ([HEADER, ROW.replace("1g.10gb", "9g.1gb")], "profile of A100-80GB"),
        ([HEADER, ROW.replace("A100", "Z1")], "GPU model of the measurements of net"),
    ],
)
def test_a_row_that_is_wrong_is_named(lines: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        own.read(lines, "t.csv")
    assert sentence in str(refused.value)
    assert "t.csv" in str(refused.value)


def test_a_wrong_field_is_named_by_its_line() -> None:
    with pytest.raises(InvalidFile, match=r"t.csv.*3"):
        own.read([HEADER, ROW, ROW.replace("20", "slow")], "t.csv")


# -- services -----------------------------------------------------------------------------


def test_a_services_file_is_read_whole() -> None:
    found = read_services(
        {
            "services": [
                {"name": "a", "model": "net", "rate_per_s": 5, "latency_ms": 50,
                 "min_replicas": 2, "profiles": "1g.10gb", "max_processes": 3},
            ],
            "gpus": [{"model": A30, "price": 0.5, "limit": 4, "spare": 1}, {"model": A100}],
            "table": "t.csv",
            "options": {"max_processes": 2, "latency_share": 0.5, "kinds": ["media"],
                        "forbid_4g3g": True, "survive_gpu_loss": True},
            "pinned": [{"gpu": "g", "profile": "1g.6gb", "start": 1, "service": "a"}],
            "shared": [{"name": "s", "services": [
                {"service": "a", "throughput_per_s": 1, "latency_ms": 2}]}],
        },
        "f",
    )  # fmt: skip
    assert found == ServicesFile(
        (Service("a", "net", 5.0, 50.0, 2, ("1g.10gb",), 3),),
        (GpuOffer(A30, 0.5, 4, 1), GpuOffer(A100)),
        "t.csv",
        Rules(frozenset({ProfileKind.BASE, ProfileKind.MEDIA}), forbid_4g3g=True),
        LatencyRule(0.5),
        2,
        True,
        (Pin("g", A30, "1g.6gb", 1, "a"),),
        (SharedGpu("s", A30, (Member("a", 1.0, 2.0),)),),
    )


MINIMAL = {
    "services": [{"name": "a", "model": "synth-bert", "rate_per_s": 5, "latency_ms": 500}]
}


def test_what_is_left_out_has_its_default() -> None:
    found = read_services(MINIMAL, "f")
    assert found == ServicesFile((Service("a", "synth-bert", 5.0, 500.0),), (GpuOffer(A100),))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"services": []}, "services must be a list with at least one entry"),
        ({"sevices": []}, "the file has the key 'sevices'"),
        ({"services": [{"name": "a"}]}, "service 1: model is missing"),
        ({"services": [{**MINIMAL["services"][0], "rate": 1}]}, "service 1 has the key 'rate'"),
        (
            {"services": [{**MINIMAL["services"][0], "rate_per_s": 0}]},
            "service 1: rate_per_s of service a is 0.0",
        ),
        ({"gpus": [{"model": "Z9"}]}, "GPU 1: "),
        ({"gpus": [{"model": A30, "cost": 1}]}, "GPU 1 has the key 'cost'"),
        ({"options": {"max_processes": 49}}, "max_processes is 49, but .* 1 to 48"),
        ({"options": {"max_processes": 0}}, "1 or more"),
        ({"options": {"latency_share": 2}}, "options: latency_share is 2.0"),
        ({"options": {"kinds": ["huge"]}}, "options: .*huge"),
        ({"options": {"speed": 1}}, "options has the key 'speed'"),
        ({"pinned": [{"gpu": "g", "profile": "x", "start": -1}]}, "pinned 1: start is -1"),
        (
            {"shared": [{"name": "s", "services": [{"service": "a"}]}]},
            "throughput_per_s is miss",
        ),
    ],
)
def test_a_services_file_that_is_wrong_is_refused(
    more: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_services(MINIMAL | more, "f.yaml")


def test_most_processes_are_forty_eight() -> None:
    assert read_services(MINIMAL | {"options": {"max_processes": 48}}, "f").max_processes == 48
    assert kinds_of([]) == {ProfileKind.BASE}
    with pytest.raises(UnknownName, match="kind of profile"):
        kinds_of(["base", "huge"])


def test_one_gpu_model_is_taken_under_its_own_terms() -> None:
    asked = ServicesFile((Service("a", "m", 1, 1),), (GpuOffer(A30, 0.5), GpuOffer(A100)))
    assert with_gpu(asked, A30).offers == (GpuOffer(A30, 0.5),)
    assert with_gpu(asked, "A100-40GB").offers == (GpuOffer("A100-40GB"),)


def test_synthetic_rows_fill_what_was_not_measured() -> None:
    asked = read_services(MINIMAL, "f")
    made = full_table(asked, None)
    assert made.models == ("synth-bert",)
    measured = PerformanceTable([Measurement("net", A100, "1g.10gb", 1, 1, 5.0, 5.0)], "mine")
    both = full_table(asked, measured)
    assert (both.name, both.models) == ("mine", ("net", "synth-bert"))
    own_bert = PerformanceTable([Measurement("synth-bert", A100, "1g.10gb", 1, 1, 5.0, 5.0)])
    assert len(list(full_table(asked, own_bert))) == 1
    unknown = ServicesFile((Service("a", "nobody", 1, 1),), asked.offers)
    with pytest.raises(InvalidInput, match="the model 'nobody', which no table measures"):
        full_table(unknown, None)


def test_pins_are_as_fast_as_their_profile_can_be_and_noted_where_that_is_too_slow() -> None:
    rows = [Measurement("net", A100, "1g.10gb", 1, 1, 5.0, 20.0),
            Measurement("net", A100, "2g.20gb", 1, 1, 9.0, 90.0)]  # fmt: skip
    asked = ServicesFile(
        (Service("a", "net", 5.0, 50.0),),
        (GpuOffer(A100),),
        pins=(
            Pin("g", A100, "2g.20gb", 2, "a"),
            Pin("g", A100, "1g.10gb", 0, "a"),
            Pin("h", A100, "1g.10gb", 0),
        ),
    )
    problem, terms = problem_from(asked, PerformanceTable(rows))
    served = Instance("1g.10gb", 0, "a", 1, 1, 5.0, 20.0)
    assert problem.pinned == terms.pinned
    assert problem.pinned == (
        GpuPlan("g", A100, (served, Instance("2g.20gb", 2, "a"))),
        GpuPlan("h", A100, (Instance("1g.10gb", 0),)),
    )
    *_, note = problem.notes
    assert note.startswith("a stays on g, 2g.20gb at 2, where no measurement keeps its target")
    stranger = ServicesFile(
        asked.services, asked.offers, pins=(Pin("g", A100, "1g.10gb", 0, "b"),)
    )
    with pytest.raises(UnknownName, match="service pinned on g"):
        problem_from(stranger, PerformanceTable(rows))


# -- states and plans ---------------------------------------------------------------------


def test_listings_of_nvidia_smi_and_plans_of_our_own_are_read() -> None:
    found = read_state(
        {
            "gpus": [
                {"index": 3, "model": A100, "mig_devices": [
                    {"name": "MIG 3g.40gb", "placement": "4:4", "service": "b"},
                    {"profile": "1g.10gb", "placement": {"start": 0, "size": 1}, "x": "kept"},
                    {"profile": "2g.20gb", "start": 2, "service": "a", "batch": 8,
                     "processes": 2, "throughput_per_s": 5, "latency_ms": 7}]},
                {"shared_by": [{"service": "a", "throughput_per_s": 1, "latency_ms": 2}]},
            ]
        },
        "f",
        A30,
    )  # fmt: skip
    assert found == PartitionPlan(
        (
            GpuPlan(
                "gpu-3",
                A100,
                (
                    Instance("1g.10gb", 0),
                    Instance("2g.20gb", 2, "a", 8, 2, 5.0, 7.0),
                    Instance("3g.40gb", 4, "b"),
                ),
            ),
            GpuPlan("gpu-1", A30, members=(Member("a", 1.0, 2.0),)),
        )
    )
    assert read_state({"gpus": plan_document(found)}, "f") == found


@pytest.mark.parametrize(
    ("gpu", "sentence"),
    [
        ({}, "GPU 1: model is missing"),
        ({"model": "Z9"}, "GPU 1: .*Z9"),
        (
            {"model": A100, "instances": [{"start": 0}]},
            "instance 1 of GPU 1: profile is missing",
        ),
        ({"model": A100, "instances": [{"profile": "1g.10gb"}]}, "placement is missing"),
        (
            {"model": A100, "instances": [{"profile": "1g.10gb", "placement": "x:1"}]},
            "placement is 'x:1', but it must be start:size",
        ),
        ({"model": A100, "instances": [{"profile": "1g.10gb", "start": True}]}, "start:size"),
        (
            {"model": A100, "instances": [{"profile": "2g.20gb", "start": 1}]},
            "gpu-0 is impossible on A100-80GB: start",
        ),
        (
            {"model": A100, "instances": [{"profile": "1g.10gb", "start": 0, "batch": 0}]},
            "batch",
        ),
    ],
)
def test_a_state_that_no_gpu_could_be_is_refused(gpu: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_state({"gpus": [gpu]}, "f")


def test_an_outcome_is_written_with_all_that_is_known_of_it() -> None:
    plan = PartitionPlan((GpuPlan("g", A100, (Instance("3g.40gb", 4, "a", 8, 1, 5.0, 7.0),)),))
    written = outcome_document(
        SolvedPlan("x", plan, 4.0, 3.0, StopReason.TIME, 1.23456, ("note",))
    )
    gpus = written.pop("gpus")
    assert written == {
        "optimiser": "x", "gpus_used": 1, "cost": 4.0, "lower_bound": 3.0, "gap": 1.0,
        "optimal": False, "why_stopped": "time limit", "seconds": 1.235, "notes": ["note"],
    }  # fmt: skip
    assert gpus == [
        {"id": "g", "model": A100, "instances": [
            {"profile": "3g.40gb", "placement": "4:4", "service": "a", "batch": 8,
             "processes": 1, "throughput_per_s": 5.0, "latency_ms": 7.0}]}
    ]  # fmt: skip


def test_mig_parted_counts_profiles_node_by_node() -> None:
    one, two = Instance("1g.10gb", 0, "a"), Instance("1g.10gb", 1, "b")
    plan = PartitionPlan(
        (
            GpuPlan("a", A100, (one, two)),
            GpuPlan("b", A30),
            GpuPlan("c", A100, (two, one)),
            GpuPlan("d", A100),
        )
    )
    found = parted_document(plan, gpus_a_node=2)
    cut = {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}
    off = {"devices": [0], "mig-enabled": False, "mig-devices": {}}
    assert found["mig-configs"] == {"node-0": [cut], "node-1": [off], "node-2": [off]}
    nine = parted_document(PartitionPlan(tuple(GpuPlan(f"g{n}", A30) for n in range(9))))
    assert [one[0]["devices"] for one in nine["mig-configs"].values()] == [[*range(8)], [0]]
    stages = parted_stages([("first", plan), ("last", PartitionPlan(plan.gpus[3:]))])
    assert stages["mig-configs"]["last"] == [off | {"mig-enabled": True}]
    assert len(stages["mig-configs"]["first"]) == 2
    assert stages["version"] == "v1"


def test_profiles_know_the_whole_and_the_smallest() -> None:
    for name, whole, smallest in ((A100, "7g.80gb", "1g.10gb"), (A30, "4g.24gb", "1g.6gb")):
        gpu = gpu_model(name)
        assert (gpu.whole.name, gpu.smallest.name) == (whole, smallest)
    with pytest.raises(UnknownName, match="profile of A30-24GB"):
        gpu_model(A30).profile("7g.80gb")


@pytest.mark.parametrize("field", ["throughput_per_s", "latency_ms"])
def test_a_state_that_gives_less_than_nothing_is_refused(field: str) -> None:
    instance = {"profile": "1g.10gb", "start": 0, "service": "a", field: -5}
    gpu = {"model": A100, "instances": [instance]}

    with pytest.raises(InvalidFile, match=f"{field} is -5, but it must be a number, 0 or more"):
        read_state({"gpus": [gpu]}, "f")


def test_a_service_without_any_profile_is_refused() -> None:
    service = {"name": "a", "model": "net", "rate_per_s": 1, "latency_ms": 1, "profiles": []}

    with pytest.raises(InvalidFile, match=r"profiles is \[\], but it must be a list with at"):
        read_services({"services": [service]}, "f")
