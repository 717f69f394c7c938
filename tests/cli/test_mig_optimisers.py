import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.mig.optimise import OPTIMISERS

Call = Callable[..., Any]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "services.yaml"


@pytest.mark.parametrize("name", list(OPTIMISERS))
def test_every_optimiser_plans_the_example_in_its_time(call: Call, name: str) -> None:
    said = call(
        *("mig", "plan", "-f", EXAMPLE, "--optimiser", name),
        *("--seed", "7", "--time-limit", "5", "-o", "json"),
    )

    assert said.code == 0
    answer = json.loads(said.out)
    assert answer["optimiser"] == name
    assert answer["lower_bound"] <= 6 <= answer["gpus_used"]
