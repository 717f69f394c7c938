"""Plans and transitions with a fault never leave, whoever asks for them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from interlane import cli
from interlane.mig import optimise
from interlane.model import InterlaneError, InvalidInput, UnknownName
from interlane.pages.planner import PastedDemand, planned
from interlane.testing.faulty_mig import MAKERS
from interlane.usecases import mig, mig_transition
from interlane.usecases.documents import Document
from interlane.usecases.mig import MigDemand
from interlane.usecases.mig_transition import JOINT, METHODS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "services.yaml"
FACTORS = (0.4, 1.6, 0.7, 1.3, 1.0, 2.0, 0.6)

Asks = Callable[[], object]


@pytest.fixture(scope="module")
def morning() -> str:
    return EXAMPLE.read_text()


@pytest.fixture(scope="module")
def evening(morning: str) -> str:
    """The same services at other rates."""
    document = yaml.safe_load(morning)
    for service, factor in zip(document["services"], FACTORS, strict=True):
        service["rate_per_s"] *= factor
    return yaml.safe_dump(document)


@pytest.fixture(scope="module")
def now(morning: str) -> str:
    """What runs now: the plan of the morning."""
    return json.dumps(mig.plan(MigDemand(Document("morning", morning))).document)


def by_use_case(evening: str, now: str) -> None:
    mig_transition.transition(MigDemand(Document("evening", evening)), Document("now", now))


def by_page(evening: str, now: str) -> None:
    planned(PastedDemand(evening, None, "", now, 30.0))


@pytest.mark.parametrize("asks", [by_use_case, by_page])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_transition_that_the_verifier_rejects_is_never_shown(
    asks: Callable[[str, str], None],
    maker: str,
    evening: str,
    now: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks(evening, now)  # the right maker passes
    monkeypatch.setitem(METHODS, JOINT, MAKERS[maker])

    with pytest.raises(InterlaneError, match="The transition does not hold: "):
        asks(evening, now)


@pytest.mark.parametrize("maker", MAKERS)
def test_the_command_prints_and_saves_nothing_of_a_transition_that_is_rejected(
    maker: str,
    evening: str,
    now: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"now.json": now, "evening.yaml": evening}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(METHODS, JOINT, MAKERS[maker])
    monkeypatch.chdir(tmp_path)

    code = cli.run(
        [
            "mig",
            "transition",
            "--from",
            "now.json",
            "--to",
            "evening.yaml",
            "--save",
            "way.json",
        ]
    )

    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert "The transition does not hold: " in said.err
    assert not (tmp_path / "way.json").exists()


@pytest.mark.parametrize(
    ("maker", "said"),
    {
        "restarts_a_service": "below its floor",
        "restarts_and_lies_about_floors": "below its floor",
        "stops_early": "Its actions do not lead to its target",
        "cuts_nothing": "Impossible to ",
        "aims_too_low": "gets",
    }.items(),
)
def test_a_refusal_names_the_fault(
    maker: str, said: str, evening: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, JOINT, MAKERS[maker])

    with pytest.raises(InterlaneError, match=said):
        by_use_case(evening, now)


@pytest.mark.parametrize(
    "asks",
    [
        lambda text: mig.plan(MigDemand(Document("morning", text))),
        lambda text: planned(PastedDemand(text, None, "", "", 30.0)),
    ],
    ids=["use case", "page"],
)
def test_a_plan_that_the_checker_rejects_is_never_shown(
    asks: Callable[[str], object], morning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = ("interlane.testing.faulty_mig", "LosesAGpu")
    monkeypatch.setitem(optimise._WHERE, optimise.DEFAULT, faulty)

    with pytest.raises(
        InterlaneError, match="Optimiser columns made a plan that does not hold"
    ):
        asks(morning)


def test_pages_and_commands_plan_the_same(morning: str) -> None:
    found = mig.plan(MigDemand(Document("morning", morning)))

    assert planned(PastedDemand(morning, None, "", "", 30.0)).plan == found.plan


def test_an_unknown_method_is_named_with_the_known_ones(evening: str, now: str) -> None:
    with pytest.raises(UnknownName, match="exchange-and-compact"):
        mig_transition.transition(
            MigDemand(Document("evening", evening)), Document("now", now), method="magic"
        )


def test_a_pasted_demand_may_not_name_a_file() -> None:
    text = "table: t.csv\nservices: [{name: a, model: b, rate_per_s: 1, latency_ms: 1}]"

    with pytest.raises(InvalidInput, match="files cannot be read here"):
        mig.plan(MigDemand(Document("pasted", text)))


PINNED = """\
gpus: [{model: A100-80GB}]
services:
  - {name: search, model: synth-encoder, rate_per_s: 9000, latency_ms: 60}
  - {name: chat, model: synth-llm, rate_per_s: 700, latency_ms: 80}
pinned: [{gpu: gpu-9, profile: 3g.40gb, start: 4, service: search}]
"""


@pytest.mark.parametrize("first", ["old-0", "gpu-9"], ids=["gone", "still there"])
def test_a_pinned_gpu_keeps_its_name_whatever_runs_now(first: str) -> None:
    demand = MigDemand(Document("pinned", PINNED))
    alone = mig.plan(demand)
    there = alone.document
    for number, gpu in enumerate(there["gpus"]):
        gpu["id"] = f"old-{number}" if number else first

    found = mig.plan(demand, Document("now", json.dumps(there)))

    assert "gpu-9" in {gpu.id for gpu in found.plan.gpus}
    assert {gpu.id for gpu in found.plan.gpus} >= {"old-1", "old-2"}
    assert found.matched is not None
    assert (found.matched.kept == found.matched.running) == (first == "gpu-9")
