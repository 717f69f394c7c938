import pytest

from interlane.mig.profiles import gpu_model, gpu_models
from interlane.mig.table import PerformanceTable
from interlane.mig.tables import migperf, own, parvagpu, read_table, synthetic
from interlane.mig.workloads import HALF, drawn_services
from interlane.model import InvalidFile, UnknownName

A100 = "A100-80GB"
PARVA = """model,slices,batch,processes,throughput_per_process,throughput_total,latency_s,ran
bert,1,1,2,52.42,104.84,0.019,1
bert,7,1,1,100.0,100.0,0.010,1
bert,1,128,5,0,0,0,0
"""
MIGPERF = """task,folder,figure,metric,x_axis,x,gi_memory_label,value,title
infer,bert,a.svg,throughput(/s),batch size,8,5g,557,t
infer,bert,b.svg,latency(ms),batch size,8,5g,14.4,t
infer,bert,b.svg,latency(ms),sequence length,32,5g,9.0,t
finetune,moco,c.svg,throughput(/s),batch size,8,5g,20,t
"""


def test_parvagpu_counts_all_processes_and_leaves_out_what_did_not_run() -> None:
    table = read_table(PARVA.splitlines(), "parva.csv")

    assert [(row.profile, row.processes, row.throughput_per_s) for row in table] == [
        ("1g.10gb", 2, 104.84),
        ("7g.80gb", 1, 100.0),
    ]
    assert next(iter(table)).latency_ms == pytest.approx(19.0)


def test_parvagpu_scenarios_leave_out_absent_models() -> None:
    found = parvagpu.scenarios(["100,N/A", "80,60"], ["19,N/A", "7,9"], ["vgg", "bert"], "slo")

    assert [[(one.name, one.rate_per_s, one.latency_ms) for one in each] for each in found] == [
        [("bert", 19.0, 100.0)],
        [("bert", 7.0, 80.0), ("vgg", 9.0, 60.0)],
    ]


def test_migperf_brings_throughput_and_latency_together() -> None:
    (row,) = read_table(MIGPERF.splitlines(), "migperf.csv")

    assert (row.model, row.gpu, row.profile, row.batch) == ("bert", "A100-40GB", "1g.5gb", 8)
    assert (row.throughput_per_s, row.latency_ms) == (557.0, 14.4)


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (
            parvagpu.read,
            PARVA.replace("bert,7", "bert,5"),
            "line 3: slices is '5', but it must",
        ),
        (migperf.read, MIGPERF.replace("5g,557", "6g,557"), "line 2: gi_memory_label is '6g'"),
    ],
)
def test_slices_that_no_gpu_has_are_refused(read: object, text: str, sentence: str) -> None:
    assert callable(read)
    with pytest.raises(InvalidFile, match=sentence):
        list(read(text.splitlines(), "file.csv"))


def test_our_own_table_reads_what_it_writes() -> None:
    made = synthetic.table_of([synthetic.family("synth-bert")], ["A30-24GB", A100])

    back = own.read(own.write(made), "table.csv")

    assert [(row.gpu, row.profile, row.batch, row.processes) for row in back] == [
        (row.gpu, row.profile, row.batch, row.processes) for row in made
    ]
    assert [row.latency_ms for row in back] == pytest.approx([row.latency_ms for row in made])


# -- the shapes of synthetic tables ---------------------------------------------------


@pytest.fixture(scope="module")
def made() -> PerformanceTable:
    return synthetic.table_of(synthetic.FAMILIES.values(), [A100])


def rate(made: PerformanceTable, model: str, profile: str, batch: int) -> float:
    (row,) = [
        one
        for one in made.measured(model, A100, profile)
        if (one.batch, one.processes) == (batch, 1)
    ]
    return row.throughput_per_s


def test_at_batch_1_small_slices_are_nearly_as_fast_as_the_whole_gpu(
    made: PerformanceTable,
) -> None:
    small, whole = (rate(made, "synth-encoder", one, 1) for one in ("1g.10gb", "7g.80gb"))

    assert small > 0.85 * whole


def test_at_large_batches_throughput_follows_the_slice(made: PerformanceTable) -> None:
    small, whole = (rate(made, "synth-encoder", one, 128) for one in ("1g.10gb", "7g.80gb"))

    assert small < 0.25 * whole


def test_3g_is_the_sweet_spot_of_models_bound_by_memory(made: PerformanceTable) -> None:
    sizes = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}
    each = {size: rate(made, "synth-vgg", name, 64) / size for size, name in sizes.items()}

    assert max(each, key=lambda size: each[size]) == 3


def test_a_model_larger_than_a_slice_has_no_row_there(made: PerformanceTable) -> None:
    assert made.measured("synth-llm", A100, "1g.10gb") == ()
    assert made.measured("synth-llm", A100, "1g.20gb") != ()


def test_processes_hide_launches_until_the_slice_is_busy(made: PerformanceTable) -> None:
    rows = {
        (row.batch, row.processes): row
        for row in made.measured("synth-mobile", A100, "3g.40gb")
    }

    assert rows[1, 2].throughput_per_s > 1.9 * rows[1, 1].throughput_per_s
    assert rows[128, 3].throughput_per_s < 1.5 * rows[128, 1].throughput_per_s
    assert rows[128, 3].latency_ms > 2 * rows[128, 1].latency_ms


@pytest.mark.parametrize("gpu", gpu_models())
def test_every_gpu_model_has_a_synthetic_table(gpu: str) -> None:
    rows = synthetic.table_of([synthetic.family("synth-mobile")], [gpu])

    assert {row.profile for row in rows} == {one.name for one in gpu_model(gpu).profiles}


def test_the_same_seed_draws_the_same_models() -> None:
    assert synthetic.drawn(5, seed=3) == synthetic.drawn(5, seed=3)
    assert synthetic.drawn(5, seed=3) != synthetic.drawn(5, seed=4)


def test_drawn_services_need_about_the_gpus_that_were_named(made: PerformanceTable) -> None:
    services = drawn_services(made, gpu=A100, count=24, gpus=100, shape="normal", seed=0)

    # At the best throughput a slice, 97 of 100 GPUs of seven slices are full.
    slices = 0.0
    for one in services:
        best = max(
            row.throughput_per_s / profile.compute_slices
            for profile in gpu_model(A100).of_kinds({profile.kind for profile in BASE})
            for row in made.measured(one.model, A100, profile.name)
            if row.processes == 1 and HALF.admits(row.latency_ms, one)
        )
        slices += one.rate_per_s / best
    assert slices / 7 == pytest.approx(97, rel=1e-4)


BASE = [gpu_model(A100).profile("1g.10gb")]


def test_an_unknown_shape_is_refused(made: PerformanceTable) -> None:
    with pytest.raises(UnknownName, match="shape of demand 'flat'"):
        drawn_services(made, gpu=A100, count=1, gpus=1, shape="flat")
