"""Every page of a real server with a thousand jobs, as people see it on a desk and in the hand.

Nothing is wider than the screen, nothing goes wrong in the browser (``open_page`` sees to
that), and axe finds no serious fault of accessibility, in light and in dark.  ``make pictures``
keeps the pictures in ``docs/pictures``; the test run takes them, too, and throws them away.
"""

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from interlane.live.auth import Role
from interlane.pages.catalogue import PAGES
from interlane.testing.waiting import until

from .conftest import Machine, Open
from .test_sweeps import swept

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
MANY = 1_000
SIZES = {"wide": (1400, 900), "phone": (390, 844)}
SERIOUS = ("serious", "critical")

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    wanted = os.environ.get("INTERLANE_PICTURES")
    return Path(wanted) if wanted else tmp_path


def _submit_all(machine: Machine) -> str:
    """Submit a thousand jobs of many kinds; return one that runs."""
    specs: list[dict[str, Any]] = [
        {
            "name": name,
            "run": TRAINS,
            "resources": {"gpu": gpu},
            "time": {"expected": f"{minutes}m"},
        }
        for minutes, (name, gpu) in enumerate(JOBS, 20)
    ]
    first = [machine.submit(**spec) for spec in specs]
    with machine.api(Role.USER) as api, ThreadPoolExecutor(16) as pool:
        rest = (specs[at % len(specs)] for at in range(MANY - len(first)))
        answers = list(pool.map(lambda spec: api.post("/jobs", json=spec), rest))
    assert {answer.status_code for answer in answers} == {201}
    until(lambda: machine.state_of(first[0]) == "running")
    return first[0]


def _size(picture: Path) -> tuple[int, int]:
    """Return width and height as the file's first chunk says."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def _faults(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


def test_every_page_is_fit_to_be_seen_with_a_thousand_jobs(
    machine: Machine, open_page: Open, pictures: Path
) -> None:
    sweep = "pictured"
    words = ("--set", "lr=1..3", "--gpus", "0.25", "--metric", "loss")
    done = swept(machine, sweep, *words, "--", "echo", "loss", "{lr}")
    assert done.returncode == 0, done.stderr
    job = _submit_all(machine)
    page = open_page("/")
    faults: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            for one in PAGES:
                path = one.path.replace("{job_id}", job).replace("{name}", sweep)
                page.goto(f"{machine.url}{path}")
                page.get_by_role("heading", level=1).wait_for()
                page.wait_for_timeout(300)  # charts and fonts settle; nothing is asserted of it
                at = f"{one.title.lower().replace(' ', '-')}-{size}-{scheme}"
                picture = pictures / f"{at}.png"
                page.screenshot(path=picture)
                assert _size(picture) == (width, height)
                across = page.evaluate("document.documentElement.scrollWidth")
                faults += [f"{at} is {across} wide"] if across > width else []
                if size == "wide" or scheme == "light":
                    faults += [f"{at} {fault}" for fault in _faults(page)]
    assert faults == []
