"""The log of a server, played through fresh schedulers."""

from collections.abc import Mapping
from pathlib import Path

from interlane.live.driver.state import MakeScheduler
from interlane.live.replay import Replayed, replay
from interlane.live.store.store import Store
from interlane.live.up import database_of
from interlane.model import InvalidInput
from interlane.wiring import live_scheduler_maker


def replay_log(state: Path, database_url: str | None = None) -> Replayed:
    """Play the log of a state folder; its server may run meanwhile."""
    if database_url is None and not (state / "state.db").exists():
        raise InvalidInput(f"There is no log in {state}; name the folder with --state.")
    store = Store(database_of(state, database_url), only_reads=True)
    try:
        return replay(store.whole_log(), _maker_of)
    finally:
        store.close()


def _maker_of(settings: Mapping[str, str]) -> MakeScheduler:
    return live_scheduler_maker(settings)
