"""The pictures of the documentation: real pages of a real server at work.

``make pictures`` writes them to ``docs/pictures``; the test run takes them, too, and throws
them away.
"""

import os
import struct
from pathlib import Path

import pytest

from interlane.testing.waiting import until

from .conftest import Machine, Open

TRAINS = "echo epoch 1; exec sleep 1000"
JOBS = (
    ("resnet50", {"count": 1}),
    ("bert-tune", {"memory": "8GB"}),
    ("notebook", {"memory": "4GB"}),
    ("gpt-small", {"count": 2}),
    ("eval-nightly", {"memory": "12GB"}),
    ("whisper", {"count": 1}),
    ("llama-lora", {"count": 4}),
    ("detr", {"count": 1}),
)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    wanted = os.environ.get("INTERLANE_PICTURES")
    return Path(wanted) if wanted else tmp_path


def _size(picture: Path) -> tuple[int, int]:
    """Return width and height as the file's first chunk says."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_the_pages_are_shown_at_work(machine: Machine, open_page: Open, pictures: Path) -> None:
    ids = [
        machine.submit(name=name, run=TRAINS, resources={"gpu": gpu}, time={"expected": "2h"})
        for name, gpu in JOBS
    ]
    until(lambda: machine.state_of(ids[0]) == "running")
    until(lambda: machine.state_of(ids[-2]) == "queued")
    page = open_page("/")
    page.set_viewport_size({"width": 1400, "height": 900})
    page.emulate_media(color_scheme="light")

    for path, heading, name in (("/", "Overview", "overview"), ("/queue", "Queue", "queue")):
        page.goto(f"{machine.url}{path}")
        page.get_by_role("heading", name=heading, level=1).wait_for()
        page.get_by_text("llama-lora").first.wait_for()
        page.wait_for_timeout(1_500)  # charts and fonts settle; nothing is asserted of it
        page.screenshot(path=pictures / f"{name}.png")

        assert _size(pictures / f"{name}.png") == (1400, 900)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400
