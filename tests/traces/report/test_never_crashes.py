"""Whatever the files hold, a report comes out or one sentence says why not."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.model import InvalidInput
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.report.page import render
from interlane.traces.report.report import FIGURES, Report, read, report_on

FIELDS = st.one_of(
    st.sampled_from(["", "j1", "j2", "w", "m", "g", "0", "1", "100", "V100", "ctr", "-5"]),
    st.sampled_from(["1e308", "nan", "-inf", "1e-300", "99999999999999999999", "0.5", " 7 "]),
    st.text(max_size=6),
)


def figures_in_json(report: Report) -> int:
    """Return how many figures come through JSON, which has no NaN."""
    return len(json.loads(json.dumps(report.as_dict(), allow_nan=False))["figures"])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, bytes]:
    """Draw some of the seven tables with rows of likely and unlikely fields."""
    files = {}
    for name, columns in TABLES.items():
        if name != "pai_task_table" and draw(st.booleans()):
            continue
        width = len(columns)
        row = st.one_of(
            st.lists(FIELDS, min_size=width, max_size=width),
            st.lists(FIELDS, max_size=width + 2),
        )
        rows = draw(st.lists(row, max_size=6))
        text = "\n".join(",".join(row) for row in rows)
        files[name] = text.encode("utf-8", "surrogatepass") + draw(st.binary(max_size=3))
    return files


@settings(max_examples=40)
@given(files=tables())
def test_any_tables_give_a_report_or_a_sentence(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, contents in files.items():
            (Path(folder) / f"{name}.csv").write_bytes(contents)
        try:
            report = report_on(read(Path(folder)))
        except InvalidInput:
            return

    assert figures_in_json(report) == len(FIGURES)
    assert render(report).endswith("</html>\n")


def test_huge_and_tiny_numbers_do_not_overflow(tmp_path: Path) -> None:
    rows = [
        "j,worker,1e300,T,1e300,1e308,1e308,1e308,1e308,V100",
        "j,worker,1e14,T,1e14,1e14,1e14,1e14,1e14,V100",
        "j,ps,1,T,5,1e9,1e-300,1e-300,1e-300,V100",
    ]
    (tmp_path / "pai_task_table.csv").write_text("\n".join(rows))
    (tmp_path / "pai_job_table.csv").write_text("j,i,u,T,1,1e14\n")
    (tmp_path / "pai_instance_table.csv").write_text("j,ps,n,w,i,T,5,9e9,m\n")

    report = report_on(read(tmp_path))

    assert figures_in_json(report) == len(FIGURES)
    assert render(report).endswith("</html>\n")


def test_jobs_that_are_ages_apart_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,1,1\nb,999999999999,999999999999,1\n")

    report = report_on(read(path))

    assert figures_in_json(report) == len(FIGURES)
