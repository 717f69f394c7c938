"""The list of planted bugs: it is up to date and covers what it must; some are planted."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from interlane.testing import faults
from interlane.testing.planted import changed
from interlane.testing.planted_bug import PlantedBug, Scripts
from interlane.testing.planted_bugs import PLANTED

ROOT = Path(__file__).parents[2]
AREAS = (
    "interlane.kernel",
    "interlane.kernel.ledger",
    "interlane.lanes",
    "interlane.live.store",
    "interlane.engines.local.shim",
    "interlane.mig.transition",
    "interlane.device",
    "interlane.live.functions",
)


def test_every_bug_can_be_planted_and_names_who_notices() -> None:
    assert len(PLANTED) >= 25
    for bug in PLANTED:
        target, text = changed(bug)
        compile(text, str(target.path), "exec")
        if isinstance(bug.noticed_by, Scripts):
            assert bug.noticed_by.part in faults.PARTS
        else:
            assert all((ROOT / test.partition("::")[0]).exists() for test in bug.noticed_by)


def test_every_area_has_bugs_and_no_bug_is_listed_twice() -> None:
    for area in AREAS:
        assert sum(bug.module.startswith(area) for bug in PLANTED) >= 2
    assert max(Counter((bug.module, bug.old, bug.new) for bug in PLANTED).values()) == 1


def test_a_text_that_is_not_there_once_is_refused() -> None:
    bug = PlantedBug("interlane.lanes.domain", "nothing", "self", "it", "Nothing.", ())

    with pytest.raises(SystemExit, match="a text that is there once"):
        changed(bug)


def test_a_few_bugs_are_noticed_and_none_is_where_none_is_planted() -> None:
    command = [sys.executable, "-m", "interlane.testing.planted", "--only", "lanes.memory"]

    planted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    whole = subprocess.run(
        [*command, "--unplanted"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert planted.stdout.count("  caught  ") == 2
    assert "2 of 2 as they should be." in planted.stdout
    assert planted.returncode == 0
    # Both are noticed by the same tests, which run once where nothing is planted.
    assert whole.stdout.count("  NOT caught  ") == 1
    assert "1 of 1 as they should be." in whole.stdout
    assert whole.returncode == 0
