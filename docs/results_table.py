"""README's table of results, made from what the entries last gave (docs/results/*.json).

Every number in it is one of a stored run: ``{o:...}`` is ours and ``{p:...}`` the published
value of the only row whose name contains these words.  A row whose entry has other code by now
than when it was run says so.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.reproduce.stored import is_stale

RESULTS: Final = Path(__file__).resolve().parent / "results"
BASES: Final = ("real trace", "public measurements", "this machine", "drawn", "fitted")
"""In the order in which rows are shown: what is drawn never stands first."""

STALE: Final = " (run before its code changed)"
CONTENDED: Final = "|start61 days, 0.25 of the machines, seed 42: mean wait down"
PUBLISHED_LOAD: Final = "seed 42: reserving: mean wait down"
PLACE: Final = re.compile(r"\{([op]):([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    result: str
    entry: str
    published: str
    ours: str
    basis: str = ""
    """What it rests on, where that is not what the entry rests on."""


LINES: Final = (
    Line(
        "1,000 PAI jobs, FIFO, 380 machines: jobs that start in the published second",
        "pai-fifo-1000",
        "{p:published second}",
        "{o:published second}",
    ),
    Line(
        "the same: mean completion and mean wait per instance, s",
        "pai-fifo-1000",
        "{p:mean JCT}, {p:mean wait}",
        "{o:mean JCT}, {o:mean wait}",
    ),
    Line(
        "openb filled to 130 %: GPUs allocated by FGD, %; by our `lookahead`",
        "fgd-openb",
        "{p:allocated, %, fgd}",
        "{o:allocated, %, fgd}; {o:lookahead, beside}",
    ),
    Line(
        "GPUs saved by sharing, openb's own starts and ends, %",
        "sharing-openb",
        "{p:GPUs saved on average} (PAI)",
        "**{o:GPUs saved on average}**",
    ),
    Line(
        "GPU time saved by sharing, 810 PAI jobs, %; if only instances are counted",
        "sharing-classes",
        "{p:instance by instance}",
        "**{o:instance by instance}**; {o:if all ran at once}",
    ),
    Line(
        "run times within 25 %, in the order of time, % of jobs, ours (the better of tree and "
        "last two runs): PAI, Philly, Helios",
        "prediction-by-time",
        "78 (PAI, random split)",
        "**{o:PAI: within 25 %, % of jobs, recall, learning} "
        "({o:PAI: within 25 %, % of jobs, last-two, learning}), "
        "{o:Philly: within 25 %, % of jobs, recall, learning} "
        "({o:Philly: within 25 %, % of jobs, cart}), "
        "{o:Helios: within 25 %, % of jobs, recall, learning} "
        "({o:Helios: within 25 %, % of jobs, cart})**",
    ),
    Line(
        "median and P75 of run times, s: PAI, Philly",
        "philly-runtimes",
        "PAI's are shorter",
        "{o:PAI, 3,821 jobs: P50} and {o:PAI, 3,821 jobs: P75}, "
        "{o:Philly, 82,247 jobs: P50} and {o:Philly, 82,247 jobs: P75}",
    ),
    Line(
        "Helios' Venus: mean wait in truth, s; played as one pool; with runs cut at 48 h three "
        "times as long",
        "helios-queue",
        "-",
        "{o:in truth: mean wait}; {o:played, fifo/skip: mean wait, s}; "
        "{o:3 times as long: mean wait, s}",
    ),
    Line(
        "openb's pods on 40 GPUs as they failed and were cancelled: mean wait, s; without "
        "those that failed (2 % of GPU time)",
        "openb-failures",
        "-",
        "{o:as it happened, 40 GPUs: mean wait}; "
        "{o:without those that fail, 40 GPUs: mean wait}",
    ),
    Line(
        "recommendation models on machines with 8 GPUs and 96 CPUs: GPUs that would idle, %",
        "dlrm-disaggregated",
        "-",
        "{o:would idle}",
    ),
    Line(
        "what FGD is worth over random, GPUs allocated, %: openb; 4,278 spot machines",
        "spot-nodes",
        "-",
        "{o:openb: GPUs allocated when 120 % has arrived, %, fgd} over "
        "{o:openb: GPUs allocated when 120 % has arrived, %, random}; "
        "{o:spot2026: GPUs allocated when 120 % has arrived, %, fgd} over "
        "{o:spot2026: GPUs allocated when 120 % has arrived, %, random}",
    ),
    Line(
        "Azure Functions: idle-warm share at the cold rate of a 10-minute keep-alive",
        "smore-prewarm",
        "-",
        "{o:azure: ours, idle-warm}",
    ),
    Line(
        "ParvaGPU's two largest scenarios: A100s, proven optimal",
        "mig-parvagpu",
        "{p:scenario 5, 11 services: GPUs, to be}, {p:scenario 6, 11 services: GPUs, to be}",
        "{o:scenario 5, 11 services: GPUs, to be}, {o:scenario 6, 11 services: GPUs, to be}",
    ),
    Line(
        "slowdown of unseen pairs from a fifth of them, Lucid / Gavel: mean absolute error",
        "smore-pairs",
        "-",
        "{o:lucid, unseen pairs, 20% learned: mae, beside random} / "
        "{o:gavel, unseen pairs, 20% learned: mae, beside random}",
    ),
    Line(
        "a loss within 10 % promised: pairs that keep it; by the estimate, as SMore",
        "smore-admission",
        "-",
        "{o:admitted by the bound}; {o:admitted by the estimate}",
    ),
    Line(
        "eight engines on a GPU from curves of four: largest error, %; plain sum",
        "smore-multiway",
        "-",
        "{o:Qwen2.5-0.5B/fits, up to 8 engines: largest error, %|end}; "
        "{o:Qwen2.5-0.5B/fits, up to 8 engines: largest error, %, plain sum}",
    ),
    Line(
        "functions beside training, 8 and 1,024 GPUs: gain in use, points",
        "smore-utilisation",
        "3 to 34",
        "{o:|start8 GPUs: gain in use} and {o:1024 GPUs: gain in use}",
    ),
    Line(
        "the same: training hours that lose over 10 %, part; SMore's rule",
        "smore-utilisation",
        "-",
        "{o:|start8 GPUs: job-hours that lost} and {o:1024 GPUs: job-hours that lost}; "
        "{p:|start8 GPUs: job-hours that lost} and {p:1024 GPUs: job-hours that lost}",
    ),
    Line(
        "avoiding CPUs where GPUs are what is shared: mean completion over packing's",
        "pai-contention",
        "-",
        "**{o:seed 42: mean completion over}** (worse)",
    ),
    Line(
        "42 models: devices alone / memory cut in parts / lanes",
        "salus-inference",
        "{p:one model each} / {p:memory cut} / {p:one process for all}",
        "{o:one model each} / {o:memory cut} / {o:one process for all}",
    ),
    Line(
        "300 real processes queue for 4 devices: start within the band of `eta` (later "
        "runs under heavier load: [85.8 % and 51.1 %](docs/results/live.md#does-eta-hold))",
        "live-eta",
        "-",
        "{o:started within the band}",
    ),
    Line(
        "Azure Functions with real replicas: cold-start rate, prewarming and keep-alive",
        "live-prewarm",
        "-",
        "{o:cold-start rate}",
    ),
    Line(
        "two jobs that fill a device and two that half-fill it: time of always turns, and of "
        "always beside, over that of who measures",
        "share-beside",
        "-",
        "{o:turns / measured}, {o:beside / measured}",
    ),
    Line(
        "the published *program* and ours on one drawn file of ours, 20,000 jobs, 6,500 GPUs: "
        "mean completion, s: SJF / FIFO",
        "pai-sjf",
        "{p:mean JCT, SJF, 6500} / {p:mean JCT, FIFO, 6500}",
        "{o:mean JCT, SJF, 6500} / {o:mean JCT, FIFO, 6500}",
    ),
    Line(
        "a simulated week: start within the band of `eta`, FIFO, SJF, FIFO with EASY",
        "eta-simulated",
        "-",
        "{o:fifo/skip: started within}, {o:sjf/skip: started within}, "
        "{o:fifo/easy: started within}",
    ),
    Line(
        "run times of a drawn trace in the order of time, % of jobs: the paper's tree / ours",
        "pai-prediction",
        "-",
        "{o:synthetic, by time: within 25 %, % of jobs, cart|end} / "
        "{o:synthetic, by time: within 25 %, % of jobs, recall, learning}",
        "drawn",
    ),
    Line(
        "24 services on 20 to 1,000 GPUs: saved over whole GPUs, at most, %",
        "mig-heuristics",
        "{p:over whole ones, most}",
        "{o:over whole ones, most}, proven optimal",
    ),
    Line(
        "24 services on 100 GPUs, rates changed by 0.3: instances left in place; minutes with "
        "slow steps",
        "mig-transition",
        "-; under 30",
        "{o:|startnormal, rates changed by 0.3: instances left}; "
        "{o:|startnormal, rates changed by 0.3: minutes, slow}",
    ),
    Line(
        "Salus' 100 jobs on one device: mean completion, FIFO / SRTF (trace not public)",
        "salus-table1",
        "{p:production-like: fifo / srtf, within}",
        "{o:production-like: fifo / srtf, within} ({o:fifo / srtf of all traces})",
    ),
    Line(
        "SJF by predictions: mean completion lower than FIFO's, 6,500 GPUs, %: best, by user",
        "pai-sjf-paper",
        "{p:6500 GPUs: lower than FIFO, %, SJF by group+user+gpu}, "
        "{p:6500 GPUs: lower than FIFO, %, SJF by user}",
        "{o:6500 GPUs: lower than FIFO, %, SJF by group+user+gpu}, "
        "{o:6500 GPUs: lower than FIFO, %, SJF by user}",
    ),
    Line(
        "reserving strong GPUs: mean wait down, all / V100 tasks, %, where they are contended",
        "pai-reserve",
        f"{{p:{CONTENDED}, all}} / {{p:{CONTENDED}, V100}}",
        f"{{o:{CONTENDED}, all}} / {{o:{CONTENDED}, V100}}",
    ),
    Line(
        "the same **at PAI's published load**",
        "pai-reserve",
        f"{{p:{CONTENDED}, all}} / {{p:{CONTENDED}, V100}}",
        f"**{{o:{PUBLISHED_LOAD}, all}} / {{o:{PUBLISHED_LOAD}, V100}}**",
    ),
    Line(
        "300 tuning jobs in lanes over one at a time, heavy and light model; the light one's "
        "use of the device is set from the result",
        "salus-hpo",
        "{p:heavy: gain}, {p:light: gain}",
        "{o:heavy: gain}, {o:light: gain}",
    ),
    Line(
        "PAI's published figures, dealt out again by a draw that was set from them",
        "pai-figures",
        "-",
        "{o:numbers within 10%} near",
    ),
    Line(
        "the same draw: GPUs saved by sharing, %",
        "pai-sharing",
        "{p:GPUs saved on average}",
        "{o:GPUs saved on average}",
    ),
)


def table() -> str:
    """Return the table in Markdown, real first and fitted last.

    A result whose entry has no stored run is not shown, but named below.
    """
    shown = [line for line in LINES if (RESULTS / f"{line.entry}.json").exists()]
    waiting = sorted({line.entry for line in LINES} - {line.entry for line in shown})
    rows = sorted(shown, key=lambda line: BASES.index(_basis(line)))
    lines = [
        "| result | rests on | published | ours | command |",
        "|---|---|---|---|---|",
        *(_line(row) for row in rows),
    ]
    if waiting:
        named = ", ".join(f"`{name}`" for name in waiting)
        lines += ["", f"Not run since rows have kinds, and so without a row here: {named}."]
    return "\n".join(lines)


def unmarked(page: str) -> str:
    """Return a page without marks of rows that are stale: code changes before it is run."""
    return page.replace(STALE, "")


def reserving() -> str:
    """Return what reserving is worth where strong GPUs are contended, and where not."""
    entry = "pai-reserve"
    if not (RESULTS / f"{entry}.json").exists():
        return BEFORE
    return _filled(RESERVING, _stored(entry))


BEFORE: Final = (
    "Reserving strong GPUs shortens mean waits by 77 % (V100 tasks: 92 %; the paper: 45 and 68 "
    "%) where they are contended,\nwhich a load of 1.4 times the published one and a threshold "
    "were chosen for; **at PAI's published load by 39 %\n(V100 tasks: 29 %)**. All of it is on "
    "drawn jobs, and was run before runs were stored: [reserving](docs/results/pai-reserve.md),"
    "\n`interlane reproduce pai-reserve`."
)
"""What its page has, until a run is stored."""
RESERVING: Final = (
    f"Reserving strong GPUs shortens mean waits by {{o:{CONTENDED}, all}} % (V100 tasks: "
    f"{{o:{CONTENDED}, V100}} %; the paper: {{p:{CONTENDED}, all}} and "
    f"{{p:{CONTENDED}, V100}} %) where they are contended,\nwhich a load of 1.4 times the "
    "published one and a threshold were chosen for; **at PAI's published load by "
    f"{{o:{PUBLISHED_LOAD}, all}} %\n(V100 tasks: {{o:{PUBLISHED_LOAD}, V100}} %)**. All of "
    "it is on drawn jobs: [reserving](docs/results/pai-reserve.md), `interlane reproduce "
    "pai-reserve`."
)


def _basis(line: Line) -> str:
    return line.basis or str(_stored(line.entry)["basis"])


def _line(line: Line) -> str:
    stored = _stored(line.entry)
    cells = (
        line.result,
        _basis(line),
        _filled(line.published, stored),
        _filled(line.ours, stored),
        f"`interlane reproduce {line.entry}`{STALE if is_stale(stored) else ''}",
    )
    return f"| {' | '.join(cells)} |"


def _stored(entry: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{entry}.json").read_text(encoding="utf-8"))
    return found


def _filled(text: str, stored: dict[str, Any]) -> str:
    def value(match: "re.Match[str]") -> str:
        key = "ours" if match[1] == "o" else "published"
        return _shown(_row(stored, match[2])[key])

    return PLACE.sub(value, text)


def _row(stored: dict[str, Any], words: str) -> dict[str, Any]:
    """Return the only row whose name contains these words, or begins or ends with them."""
    if words.startswith("|start"):
        fits = [row for row in stored["rows"] if row["what"].startswith(words[6:])]
    elif words.endswith("|end"):
        fits = [row for row in stored["rows"] if row["what"].endswith(words[:-4])]
    else:
        fits = [row for row in stored["rows"] if words in row["what"]]
    if len(fits) != 1:
        raise LookupError(f"{stored['name']} has {len(fits)} rows with {words!r}")
    return dict(fits[0])


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
