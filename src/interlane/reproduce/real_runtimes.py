"""Run times of real clusters side by side: PAI, Philly and Helios."""

from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting, checked, claim, figure
from interlane.reproduce.pai import data_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAI: Final = "pai-v2020/pai_real_4011jobs_requests.csv"
PHILLY: Final = "philly-jobs/philly.csv.gz"
PHILLY_BY_PAI: Final = "pai-v2020/philly_runtime.csv.gz"
HELIOS: Final = "helios-venus/venus_gpu_jobs.csv.gz"

RANKS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
ALIKE: Final = 0.2
"""Two extractions of one log differ by this much at most."""
DECADES: Final = 4.0
"""The paper: run times span four orders of magnitude."""


def _runtimes(setting: Setting) -> list[Row]:
    import numpy as np
    import polars as pl

    files = {
        "PAI": (PAI, "duration"),
        "Philly": (PHILLY, "duration"),
        "Philly, as PAI's authors cut it": (PHILLY_BY_PAI, "runtime"),
        "Helios": (HELIOS, "duration_s"),
    }
    found = {}
    for name, (file, column) in files.items():
        rows_of = pl.read_csv(data_file(setting, file))
        if name == "PAI":
            rows_of = rows_of.filter(pl.col("num_gpu") > 0)
        lengths_s = rows_of[column].drop_nulls()
        found[name] = lengths_s.filter(lengths_s > 0).to_numpy()
    at = {name: np.quantile(one, RANKS) for name, one in found.items()}
    rows = [
        figure(f"{name}, {len(found[name]):,} jobs: P{100 * rank:g}, s", round(float(value)))
        for name, values in at.items()
        for rank, value in zip(RANKS, values, strict=True)
    ]
    return [*rows, *_verdicts(at, _decades(found["PAI"]))]


def _decades(lengths_s: "NDArray[np.float64]") -> float:
    import numpy as np

    low, high = np.quantile(lengths_s, (0.001, 0.999))
    return float(np.log10(high / low))


def _verdicts(at: "dict[str, NDArray[np.float64]]", decades: float) -> list[Row]:
    import numpy as np

    pai, philly, again = (at[name] for name in list(at)[:3])
    apart = float(np.abs(again / philly - 1).max())
    middle = RANKS.index(0.5)
    longer = [
        f"P{100 * rank:g}" for rank, a, b in zip(RANKS, pai, philly, strict=True) if a > b
    ]
    shorter = "The paper's comparison would not hold on these rows."
    return [
        checked(
            "two extractions of Philly apart at any of these, %",
            round(100 * apart, 1),
            f"at most {100 * ALIKE:g}",
            apart <= ALIKE,
            "A file would be read in other units, or cut.",
        ),
        claim("PAI's median is shorter than Philly's", pai[middle] < philly[middle], shorter),
        claim("PAI's P99 is shorter than Philly's", pai[-1] < philly[-1], shorter),
        figure("where PAI's are longer than Philly's", ", ".join(longer) or "nowhere"),
        checked(
            "decades from PAI's P0.1 to its P99.9",
            round(decades, 1),
            f"about {DECADES:g}",
            abs(decades - DECADES) <= 0.5,
            shorter,
        ),
    ]


RUNTIMES: Final = Reproduction(
    "philly-runtimes",
    "PAI's run times span four decades and are shorter than Philly's: 3,821 real GPU jobs of "
    "PAI, 82,247 of Philly (and 83,154 as PAI's authors cut it), 125,303 of Helios.",
    "Run times would be read wrongly.",
    _runtimes,
    teaches="PAI's jobs are shorter than Philly's at the median and in the tail, but longer "
    "at P75 and P90: which trace is 'shorter' depends on the rank.",
    published=("interlane.reproduce.real_runtimes:DECADES",),
)
