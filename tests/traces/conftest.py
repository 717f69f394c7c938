import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of published traces, which is not part of the project."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("INTERLANE_DATA", beside))
    if not path.is_dir():
        pytest.skip("needs the published traces; set INTERLANE_DATA")
    return path
