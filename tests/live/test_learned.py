"""What was learned, on disk: it comes back, and what is damaged costs nobody else."""

from pathlib import Path

import numpy as np
import pytest

from interlane.live.measure.learned import LearnedFiles


def test_what_is_kept_comes_back_by_function(tmp_path: Path) -> None:
    kept = LearnedFiles(tmp_path / "learned")
    assert kept.read() == {}

    kept.write({"": {"names": np.array(["a", "b"])}, "f": {"x": np.arange(3.0)}})
    kept.write({"f": {"x": np.arange(4.0)}, "g": {"y": np.ones((2, 2))}})
    found = LearnedFiles(tmp_path / "learned").read()

    assert found.keys() == {"", "f", "g"}
    assert found[""]["names"].tolist() == ["a", "b"]
    assert found["f"]["x"].tolist() == [0.0, 1.0, 2.0, 3.0]
    kept.drop("f")
    kept.drop("never there")
    assert kept.read().keys() == {"", "g"}


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 nonsense", b"\x80\x04N."])
def test_a_damaged_file_begins_anew_and_is_said(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept = LearnedFiles(tmp_path)
    kept.write({"f": {"x": np.ones(1)}, "g": {"x": np.ones(1)}})
    (tmp_path / "f.npz").write_bytes(data)

    assert kept.read().keys() == {"g"}
    assert "begins anew" in caplog.text


def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "learned").write_text("in the way")

    LearnedFiles(tmp_path / "learned").write({"f": {"x": np.ones(1)}})

    assert "cannot be kept" in caplog.text
