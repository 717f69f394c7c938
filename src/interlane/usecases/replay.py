"""The log of a server, played through fresh schedulers."""

from pathlib import Path

from interlane.live.archive import Archive
from interlane.live.replay import Replayed, replay
from interlane.live.store.store import Store
from interlane.live.up import ARCHIVE_FOLDER, database_of
from interlane.model import InvalidInput
from interlane.wiring import live_scheduler_maker


def replay_log(state: Path, database_url: str | None = None) -> Replayed:
    """Play the log of a state folder; its server may run meanwhile."""
    if database_url is None and not (state / "state.db").exists():
        raise InvalidInput(f"There is no log in {state}; name the folder with --state.")
    past = Archive(state / ARCHIVE_FOLDER)
    store = Store(database_of(state, database_url), past, only_reads=True)
    try:
        return replay(store.whole_log(), live_scheduler_maker, store.whole_from())
    finally:
        store.close()
