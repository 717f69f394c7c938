"""The replay with real replicas, in small."""

from interlane.predict.arrivals.live import Trees
from interlane.reproduce.live_prewarm import _as_long, _fed, _generated, _replayed


def test_the_keep_alive_that_is_compared_is_warm_at_least_as_long() -> None:
    arrivals = _generated(seed=1, replayed=600)

    chosen = [_as_long(arrivals, warm, 600) for warm in (0.05, 0.3, 0.6, 0.89)]

    assert chosen == sorted(chosen)
    assert chosen[0] == 1
    assert len(set(chosen)) == 4


def test_a_replay_answers_everything_and_counts_what_was_cold() -> None:
    arrivals = _generated(seed=1, replayed=24)
    few = arrivals.only([number < 3 for number in range(len(arrivals))])
    forecasts = [_fed(Trees(), one, slots=24) for one in few]

    found = _replayed(few, forecasts, None, seed=1, slots=24)

    assert found.failed == 0
    assert 0 <= found.cold <= found.requests
    assert found.requests > 10
    assert 0 < found.warm < 1.01
