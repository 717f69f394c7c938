"""GPUs that PAI's work would need if nobody shared one (figure 8), hour by hour."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import (
    Basis,
    Excuse,
    Reproduction,
    Row,
    Setting,
    calibrated,
    checked,
)
from interlane.reproduce.pai_figures import DRAWN_FROM, SMALL, SMALL_SCALE, TOO_MANY_GPUS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlane.traces.synth_pai import TracePlan

HOUR_S: Final = 3600
PEAK_HOUR: Final = 10
WHOLE: Final = 100
"""Percent of a GPU."""

SAVED: Final = 50.0
PEAK_WITHOUT, PEAK_WITH, PEAK_SAVED = 5150, 2650, 2500
"""Read off figure 8."""

POINTS: Final = 2.0
"""Percentage points within which the saving agrees."""


def packed(asks: Mapping[int, int]) -> int:
    """Return the GPUs that shares need when packed: percent asked for -> instances.

    Largest first, each into the fullest GPU with room.
    """
    gpus, room = 0, Counter[int]()
    for ask in sorted(asks, reverse=True):
        left = asks[ask]
        if ask >= WHOLE:
            gpus += left * (ask // WHOLE)
            continue
        while left:
            free = min((one for one in room if one >= ask and room[one]), default=0)
            if not free:
                many = -(-left // (WHOLE // ask))
                gpus += many
                room[WHOLE] += many
                continue
            holds = free // ask
            many = min(room[free], max(1, left // holds))
            taken = min(holds, left)
            room[free] -= many
            room[free - taken * ask] += many
            left -= many * taken
    return gpus


def whole(asks: Mapping[int, int]) -> int:
    """Return the GPUs that instances need if each has its own."""
    return sum(count * -(-ask // WHOLE) for ask, count in asks.items())


def _reproduce(setting: Setting) -> list[Row]:
    import numpy as np

    from interlane.traces.synth_pai import Scope, plan
    from interlane.traces.synth_pai.shares import BEGIN_S, FULL_DAYS

    small = setting.choice == SMALL
    drawn = plan(Scope(scale=SMALL_SCALE if small else 1.0, seed=setting.seed))
    # The first day fills the cluster up, and after the last nothing comes any more.
    first, last = BEGIN_S // HOUR_S + 24, BEGIN_S // HOUR_S + 24 * FULL_DAYS
    hours = np.arange(first, last)
    alone, shared, impossible = np.zeros(len(hours)), np.zeros(len(hours)), 0
    for done, (kind_alone, kind_shared, least) in enumerate(_by_kind(drawn, hours), 1):
        alone += kind_alone
        shared += kind_shared
        impossible += int(((kind_shared < least) | (kind_shared > kind_alone)).sum())
        setting.progress(done, 5, "kinds of machines")
    return [*_rows(hours, alone, shared, small=small), _possible(impossible)]


def _possible(impossible: int) -> Row:
    return checked(
        "hours with fewer GPUs than shares add up to, or more than without sharing",
        impossible,
        None,
        impossible == 0,
        "Packing would count GPUs that are not there, or waste those that are.",
    )


def _by_kind(
    drawn: "TracePlan", hours: "NDArray[np.int64]"
) -> "Iterator[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]":
    """Yield GPUs needed at every full hour on each kind of machine.

    Alone, packed, and the least that any packing could need.
    """
    import numpy as np

    tasks = drawn.tasks
    for kind in np.unique(tasks.kind[tasks.gpu > 0]):
        on = (tasks.kind == kind) & (tasks.gpu > 0)
        running = {
            int(ask): _running(
                tasks.start_s[on & (tasks.gpu == ask)],
                (tasks.start_s + tasks.run_s)[on & (tasks.gpu == ask)],
                tasks.instances[on & (tasks.gpu == ask)],
                hours,
            )
            for ask in np.unique(tasks.gpu[on])
        }
        each = [
            {ask: int(counts[place]) for ask, counts in running.items()}
            for place in range(len(hours))
        ]
        yield (
            np.array([whole(asks) for asks in each], float),
            np.array([packed(asks) for asks in each], float),
            sum(ask * counts / WHOLE for ask, counts in running.items()) + np.zeros(len(hours)),
        )


def _running(
    start_s: "NDArray[np.int64]",
    end_s: "NDArray[np.int64]",
    instances: "NDArray[np.int64]",
    hours: "NDArray[np.int64]",
) -> "NDArray[np.int64]":
    """Return how many instances run at each full hour."""
    import numpy as np

    steps = np.zeros(len(hours) + 1, np.int64)
    for times_s, sign in ((start_s, 1), (end_s, -1)):
        at = np.clip(-(-times_s // HOUR_S) - hours[0], 0, len(hours))
        np.add.at(steps, at, sign * instances)
    return np.cumsum(steps)[:-1]


def _rows(
    hours: "NDArray[np.int64]",
    alone: "NDArray[np.float64]",
    shared: "NDArray[np.float64]",
    *,
    small: bool,
) -> list[Row]:
    import numpy as np

    from interlane.traces.synth_pai.shares import LOCAL_S

    of_day = (hours + LOCAL_S // HOUR_S) % 24
    profile = [
        (float(alone[of_day == hour].mean()), float(shared[of_day == hour].mean()))
        for hour in range(24)
    ]
    peak = int(np.argmax([one[0] for one in profile]))
    saved = float(100 * (1 - shared.sum() / alone.sum()))
    rows = [
        calibrated(
            "GPUs saved on average, %",
            round(saved, 1),
            SAVED,
            abs(saved - SAVED) <= POINTS,
            "synth_pai.shares.ASKS",
        ),
        calibrated(
            "hour of the day with most GPUs",
            peak,
            PEAK_HOUR,
            abs(peak - PEAK_HOUR) <= 1,
            "synth_pai.runs.HOURLY",
        ),
    ]
    if small:
        return rows
    without, needed = profile[PEAK_HOUR]
    at_peak, published_at_peak = (
        100 * (1 - few / many) for few, many in ((needed, without), (PEAK_WITH, PEAK_WITHOUT))
    )
    rows.append(
        calibrated(
            "GPUs saved at 10 o'clock, %",
            round(at_peak, 1),
            round(published_at_peak, 1),
            abs(at_peak - published_at_peak) <= POINTS,
            "synth_pai.shares.ASKS",
        )
    )
    for what, ours, published, known in (
        ("GPUs needed at 10 o'clock without sharing", without, PEAK_WITHOUT, (8200, 10_100)),
        ("GPUs needed at 10 o'clock, shares packed", needed, PEAK_WITH, (4150, 5150)),
        ("GPUs saved at 10 o'clock", without - needed, PEAK_SAVED, (4000, 5000)),
    ):
        near = abs(ours - published) <= 0.1 * published
        excuse = Excuse(TOO_MANY_GPUS, *known)
        rows.append(
            calibrated(what, round(ours), published, near, "synth_pai.shares.ASKS", excuse)
        )
    return rows


SHARING: Final = Reproduction(
    "pai-sharing",
    "Sharing GPUs halves the GPUs that PAI's work needs, most of all in the morning: a "
    "synthetic trace of the same size, hour by hour, whole GPUs against packed shares.",
    "The synthetic trace would ask for more or less of GPUs than PAI's users did, or at other "
    "times of the day.",
    _reproduce,
    needs_data=False,
    variants=(SMALL,),
    basis=Basis.FITTED,
    published=tuple(
        f"interlane.reproduce.pai_sharing:{name}"
        for name in ("SAVED", "PEAK_HOUR", "PEAK_WITHOUT", "PEAK_WITH", "PEAK_SAVED")
    ),
    fitted=DRAWN_FROM,
)
