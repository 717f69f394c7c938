"""What ran before, in layers: by group and request, group, user and request, and so on."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.predict import compiled
from interlane.predict.estimates import EstimateBasis
from interlane.predict.runs import Floats, Ints, Runs

LAYERS: Final = len(EstimateBasis)
_PART: Final = "\x1f"
"""Parts the words of a key; traces do not use it."""


@dataclass
class RunHistory:
    """The latest run times of every key; grows as runs are noted."""

    places: dict[str, int] = field(default_factory=dict)
    """Key -> its row in the two tables below."""
    rings: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((16, compiled.DEPTH), np.float32)
    )
    seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(16, np.int64))
    """Runs that each key has had."""

    def keys(self, runs: Runs, *, grow: bool) -> Ints:
        """Return the rows of every run's keys, one column per layer; -1 where there is none.

        With ``grow``, keys that are new get a row.
        """
        columns = [self._column(words, grow=grow) for words in _words(runs)]
        if grow:
            self._make_room()
        return np.stack(columns, axis=1)

    def _column(self, words: list[str], *, grow: bool) -> Ints:
        places = self.places
        if grow:
            for word in words:
                if word and word not in places:
                    places[word] = len(places)
        return np.fromiter((places.get(word, -1) for word in words), np.int64, len(words))

    def _make_room(self) -> None:
        short = len(self.places) - len(self.seen)
        if short > 0:
            more = max(short, len(self.seen))
            self.rings = np.vstack([self.rings, np.zeros((more, compiled.DEPTH), np.float32)])
            self.seen = np.concatenate([self.seen, np.zeros(more, np.int64)])

    def replay(self, runs: Runs) -> Floats:
        """Note runs as they end; return what was known at each submission.

        The answer has a row of ``compiled.WIDTH`` numbers for each run and layer.  A run that
        ends in the moment of a submission counts as known.
        """
        said = np.empty((len(runs), LAYERS, compiled.WIDTH))
        keys = self.keys(runs, grow=True)
        compiled.replay(self.rings, self.seen, keys, runs.log_s, events_of(runs), said)
        return said

    def ask(self, runs: Runs) -> Floats:
        """Return what is known now, for each run and layer."""
        said = np.empty((len(runs), LAYERS, compiled.WIDTH))
        keys = self.keys(runs, grow=False)
        compiled.ask_all(self.rings, self.seen, keys, said)
        return said

    def note_one(self, run: Runs, log_s: float) -> None:
        """Note that a run has ended, after so long."""
        keys = self.keys(run, grow=True)
        compiled.note(self.rings, self.seen, keys[0], log_s)


def events_of(runs: Runs) -> Ints:
    """Return submissions (n) and ends (n + jobs) in the order of time, ends first."""
    jobs = len(runs)
    ended = np.flatnonzero(~np.isnan(runs.duration_s))
    times_s = np.concatenate([runs.submit_s, runs.finish_s[ended]])
    is_submission = np.concatenate([np.ones(jobs, bool), np.zeros(len(ended), bool)])
    events = np.concatenate([np.arange(jobs), ended + jobs])
    return events[np.lexsort((events, is_submission, times_s))]


def _words(runs: Runs) -> tuple[list[str], ...]:
    """Return the key of every run in each layer; empty where the trace says nothing."""
    groups, users, shapes = runs.group, runs.user, runs.shape
    return (
        [
            f"g{group}{_PART}{shape}" if group else ""
            for group, shape in zip(groups, shapes, strict=True)
        ],
        [f"g{group}" if group else "" for group in groups],
        [
            f"u{user}{_PART}{shape}" if user else ""
            for user, shape in zip(users, shapes, strict=True)
        ],
        [f"u{user}" if user else "" for user in users],
        [f"s{shape}" for shape in shapes],
        ["*"] * len(runs),
    )
