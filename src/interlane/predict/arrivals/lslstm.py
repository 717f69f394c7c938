"""SMore's forecaster: one LSTM over the last slots, one over the last day, one answer.

The paper names the two branches, training on a trace and updates while serving.  It does
not give window lengths, sizes or the loss; those here are ours.  Two heads tell the
probability of a request and the next count.  Counts are logarithms, relative to the
function's own level so far.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidInput
from interlane.predict.arrivals.series import Arrivals, Floats, Series, split_at

if TYPE_CHECKING:
    from torch import Tensor, nn

CHANNELS: Final = 2
"""What an LSTM sees of a slot: its count and whether there was a request."""
CLOCK: Final = 2
"""What the heads see of the time of day."""
CHUNK: Final = 4_096
"""Windows that are looked at at once."""
ONLINE: Final = 0.1
"""How fast it learns while it serves, of how fast it learned the trace."""
LOWEST_LEVEL: Final = float(np.log(2.0))

Singles = NDArray[np.float32]
Places = NDArray[np.int64]
Weights = dict[str, Singles]
Tell = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False)
class Windows:
    """What comes before some slots of a function, as the LSTMs see it."""

    short: Singles
    long: Singles
    clock: Singles
    level: Floats
    """By what counts are divided."""


@dataclass
class LsLstm:
    """Two LSTMs, over a short and a long past."""

    hidden: int = 32
    short: int = 60
    """Slots that the short branch looks back."""
    long: int = 96
    """Steps of the long branch, which together are a day."""
    epochs: int = 5
    windows: int = 20_000
    """Windows drawn in an epoch."""
    batch: int = 128
    rate: float = 3e-3
    seed: int = 0

    weights_: Weights = field(default_factory=dict, repr=False)

    # -- learning ---------------------------------------------------------------------

    def fit(self, arrivals: Arrivals, tell: Tell = silent) -> Self:
        """Forget everything and learn from a trace."""
        torch = _torch()
        torch.manual_seed(self.seed)
        network = _network(self.hidden)
        rng = np.random.default_rng(self.seed)
        pasts = [_Past.of(one, arrivals, self.short, self.long) for one in arrivals]
        for epoch in range(self.epochs):
            rate = self.rate * (1 - epoch / self.epochs)
            drawn = _drawn(pasts, self.windows, rng)
            self.learn(network, drawn.batches(self.batch), rate)
            tell(epoch + 1, self.epochs)
        self.weights_ = weights_of(network)
        return self

    def learn(
        self, network: "nn.Module", batches: Iterable[tuple[Windows, Floats]], rate: float
    ) -> None:
        """Go once over some windows and the counts that followed, batch by batch."""
        torch = _torch()
        optimiser = torch.optim.Adam(network.parameters(), lr=rate)
        network.train()
        for told, counts in batches:
            arrival, size = network(*_tensors(told))
            active = torch.from_numpy((counts > 0).astype(np.float32))
            log_size = torch.from_numpy((np.log1p(counts) / told.level).astype(np.float32))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(arrival, active)
            loss = loss + torch.nn.functional.l1_loss(size, log_size)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()

    # -- telling ----------------------------------------------------------------------

    def predict(self, series: Series, arrivals: Arrivals) -> tuple[Floats, Floats]:
        """Return for each slot the probability of a request and the expected count."""
        past = _Past.of(series, arrivals, self.short, self.long)
        return _told(self.network(), past, np.arange(len(series)))

    def follow(
        self, arrivals: Arrivals, part: float, updates: int = 10, tell: Tell = silent
    ) -> list[tuple[Floats, Floats]]:
        """Tell all slots, learning on ``updates`` times on the way after the known part.

        What was learned is forgotten afterwards.
        """
        network = self.network()
        rng = np.random.default_rng(self.seed)
        pasts = [_Past.of(one, arrivals, self.short, self.long) for one in arrivals]
        bounds = [
            np.linspace(split_at(one, part), len(one), updates + 1).astype(np.int64)
            for one in arrivals
        ]
        told = [(np.zeros(len(one)), np.zeros(len(one))) for one in arrivals]
        for past, bound, (chance, size) in zip(pasts, bounds, told, strict=True):
            known = np.arange(bound[0])
            chance[known], size[known] = _told(network, past, known)
        for step in range(updates):
            spans = [np.arange(bound[step], bound[step + 1]) for bound in bounds]
            for past, span, (chance, size) in zip(pasts, spans, told, strict=True):
                chance[span], size[span] = _told(network, past, span)
            few = max(self.batch, self.windows // updates)
            drawn = _drawn(pasts, few, rng, spans)
            self.learn(network, drawn.batches(self.batch), self.rate * ONLINE)
            tell(step + 1, updates)
        return told

    def network(self) -> "nn.Module":
        """Return a network with what was learned; it learns on without changing it."""
        torch = _torch()
        torch.manual_seed(self.seed)
        network = _network(self.hidden)
        if self.weights_:
            network.load_state_dict(
                {name: torch.from_numpy(value) for name, value in self.weights_.items()}
            )
        return network

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the weights must have."""
        found = _network(self.hidden).state_dict()
        return {name: tuple(value.shape) for name, value in found.items()}


@dataclass(frozen=True, eq=False)
class _Past:
    """A function's counts, made ready to cut windows from."""

    logs: Singles
    """Counts and activity, after as many zeros as a window is long."""
    sums: Floats
    levels: Floats
    counts: Floats
    first: int
    day: int
    short: int
    long: int

    @classmethod
    def of(cls, series: Series, arrivals: Arrivals, short: int, long: int) -> "_Past":
        """Prepare a function."""
        logs = np.log1p(series.seen)
        both = np.column_stack([logs, series.active.astype(np.float64)])
        wide = max(1, round(arrivals.day / long))
        before = np.zeros((max(short, long * wide), CHANNELS))
        whole = np.concatenate([before, both])
        sums = np.concatenate([np.zeros((1, CHANNELS)), np.cumsum(whole, axis=0)])
        total, cases = np.cumsum(logs), np.cumsum(series.active)
        level = np.append(0.0, total / np.maximum(cases, 1))[:-1]
        return cls(
            whole.astype(np.float32),
            sums,
            np.maximum(level, LOWEST_LEVEL),
            series.seen,
            series.first,
            arrivals.day,
            short,
            long,
        )

    def windows(self, slots: Places) -> Windows:
        """Return what comes before these slots."""
        ends = slots + len(self.logs) - len(self.counts)
        level = self.levels[slots]
        scale = np.column_stack([level, np.ones(len(slots))])[:, None, :]
        wide = max(1, round(self.day / self.long))
        edges = ends[:, None] - wide * np.arange(self.long, -1, -1)
        means = np.diff(self.sums[edges], axis=1) / wide
        angle = 2 * np.pi * ((self.first + slots) % self.day) / self.day
        return Windows(
            (self.logs[ends[:, None] + np.arange(-self.short, 0)] / scale).astype(np.float32),
            (means / scale).astype(np.float32),
            np.column_stack([np.sin(angle), np.cos(angle)]).astype(np.float32),
            level,
        )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Windows drawn from several functions, in the order in which they are learned."""

    pasts: Sequence[_Past]
    function: Places
    slot: Places

    def batches(self, size: int) -> Iterator[tuple[Windows, Floats]]:
        """Yield windows and the counts that followed, some at a time."""
        for begin in range(0, len(self.slot), size):
            functions = self.function[begin : begin + size]
            slots = self.slot[begin : begin + size]
            parts, counts = [], []
            for one in np.unique(functions):
                here = slots[functions == one]
                parts.append(self.pasts[one].windows(here))
                counts.append(self.pasts[one].counts[here])
            yield _joined(parts), np.concatenate(counts)


def _drawn(
    pasts: Sequence[_Past],
    count: int,
    rng: np.random.Generator,
    spans: Sequence[Places] | None = None,
) -> _Drawn:
    """Draw slots of all functions, each as likely as any other."""
    spans = spans or [np.arange(len(past.counts)) for past in pasts]
    function = np.repeat(np.arange(len(spans)), [len(span) for span in spans])
    slot = np.concatenate([*spans, np.zeros(0, np.int64)])
    few = rng.permutation(len(slot))[:count]
    return _Drawn(pasts, function[few], slot[few])


def _joined(parts: Sequence[Windows]) -> Windows:
    return Windows(
        np.concatenate([one.short for one in parts]),
        np.concatenate([one.long for one in parts]),
        np.concatenate([one.clock for one in parts]),
        np.concatenate([one.level for one in parts]),
    )


def _told(network: "nn.Module", past: _Past, slots: Places) -> tuple[Floats, Floats]:
    chance, size = np.zeros(len(slots)), np.zeros(len(slots))
    for begin in range(0, len(slots), CHUNK):
        here = slice(begin, begin + CHUNK)
        chance[here], size[here] = tell_of(network, past.windows(slots[here]))
    return chance, size


# -- the network ----------------------------------------------------------------------


def tell_of(network: "nn.Module", windows: Windows) -> tuple[Floats, Floats]:
    """Return the probability of a request after each window, and the expected count."""
    torch = _torch()
    network.eval()
    with torch.no_grad():
        arrival, log_size = network(*_tensors(windows))
    logs = np.clip(log_size.numpy() * windows.level, 0.0, 30.0)
    return torch.sigmoid(arrival).numpy().astype(np.float64), np.expm1(logs)


def _torch() -> Any:  # noqa: ANN401 - a module
    try:
        import torch
    except ImportError:
        raise InvalidInput(
            "The LS-LSTM needs torch; install it with 'pip install interlane[torch]'."
        ) from None
    torch.set_num_threads(1)
    return torch


def _network(hidden: int) -> "nn.Module":
    torch = _torch()

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Both branches and both heads."""

        def __init__(self) -> None:
            super().__init__()
            self.short = torch.nn.LSTM(CHANNELS, hidden, batch_first=True)
            self.long = torch.nn.LSTM(CHANNELS, hidden, batch_first=True)
            self.joined = torch.nn.Linear(2 * hidden + CLOCK, hidden)
            self.heads = torch.nn.Linear(hidden, 2)

        def forward(
            self, short: "Tensor", long: "Tensor", clock: "Tensor"
        ) -> "tuple[Tensor, Tensor]":
            near, far = self.short(short)[1][0][0], self.long(long)[1][0][0]
            both = torch.relu(self.joined(torch.cat([near, far, clock], dim=1)))
            told = self.heads(both)
            return told[:, 0], told[:, 1]

    return Network()


def _tensors(windows: Windows) -> "tuple[Tensor, Tensor, Tensor]":
    torch = _torch()
    short, long, clock = map(torch.from_numpy, (windows.short, windows.long, windows.clock))
    return short, long, clock


def weights_of(network: "nn.Module") -> Weights:
    """Return the weights of a network by name."""
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}
