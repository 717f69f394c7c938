"""What a job leaves behind is removed, however it was left, and costs nobody else anything."""

import os
import sys
from pathlib import Path

import pytest

from interlane.engines.local.trees import remove_tree
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, spec
from interlane.testing.waiting import PATIENCE_S

DEEP = 3_000


def deep(folder: Path, depth: int) -> None:
    """Make a folder in a folder in a folder, deeper than any path can say."""
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    for _ in range(depth):
        Path("d" * 20).mkdir()
        os.chdir("d" * 20)
    Path("file").touch()
    os.chdir(here)
    os.close(here)


def test_a_tree_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    top, kept = tmp_path / "top", tmp_path / "kept"
    for folder in (top, kept, top / "wide"):
        folder.mkdir()
    (kept / "diary").write_text("private")
    for number in range(50):
        (top / "wide" / f"file-{number}").touch()
    (top / "link").symlink_to(kept)
    (top / "wide" / "link").symlink_to(kept / "diary")
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    deep(top, DEEP)

    remove_tree(top)

    assert not top.exists()
    assert (kept / "diary").read_text() == "private"


def test_a_tree_that_is_a_link_or_not_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "none")

    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    "leaves",
    [
        f"cd $TMPDIR && {sys.executable} -I -S -c "
        f"\"import os\nfor _ in range({DEEP}): os.mkdir('d'); os.chdir('d')\"",
        "mkfifo $TMPDIR/fifo; ln -s / $TMPDIR/all; mkdir -m 0 $TMPDIR/closed",
        "mkdir -p ../../²; touch ../../²/claim; touch ../log.x ../log.² ../log.; ls ..",
        "rm -rf ../group; mkdir ../group",
        "rm -rf ../claim; mkdir ../claim",
        "rm -rf ../ended; mkdir -p ../ended.new",
    ],
    ids=["deep", "odd", "names", "group", "claim", "ended"],
)
def test_whatever_a_job_leaves_others_end_and_new_ones_begin(
    tmp_path: Path, leaves: str
) -> None:
    with driving(tmp_path / "state", gpus=2) as driver:
        eve = driver.submit(spec("eve", f"{leaves}; true"), "eve").result(PATIENCE_S)
        before = driver.submit(spec("ann", "true"), "ann").result(PATIENCE_S)
        assert ended(driver, before).state is JobState.SUCCEEDED
        ended(driver, eve)
        after = driver.submit(spec("bob", "echo well"), "bob").result(PATIENCE_S)
        assert ended(driver, after).state is JobState.SUCCEEDED
    with driving(tmp_path / "state", gpus=2) as driver:
        again = driver.submit(spec("ann", "true"), "ann").result(PATIENCE_S)
        assert ended(driver, again).state is JobState.SUCCEEDED
