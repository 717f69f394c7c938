"""A worker of the test run that dies says how, so that nobody has to guess from its silence."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_a_worker_that_dies_says_by_which_signal_and_where(tmp_path: Path) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    dies = "import ctypes\n\n\ndef test_dies():\n    ctypes.string_at(0)\n"
    (tmp_path / "test_dies.py").write_text(dies)
    words = ("-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "test_dies.py")

    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1, ended.stderr
    assert "exit code -11" in ended.stdout
    assert "MiB at most before this test" in ended.stdout
    assert "in test_dies" in ended.stdout
