"""Reproductions by name; each module is imported when it is asked for, not before."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from interlane.model import UnknownName
from interlane.reproduce.base import Reproduction

_WHERE: Final = {
    "pai-fifo-1000": ("interlane.reproduce.pai", "FIFO_1000"),
    "pai-sjf": ("interlane.reproduce.pai", "SJF"),
    "pai-prediction": ("interlane.reproduce.pai_prediction", "PREDICTION"),
    "pai-sjf-paper": ("interlane.reproduce.pai_sjf", "SJF_PAPER"),
    "pai-figures": ("interlane.reproduce.pai_figures", "FIGURES"),
    "pai-sharing": ("interlane.reproduce.pai_sharing", "SHARING"),
    "pai-reserve": ("interlane.reproduce.pai_reserve", "RESERVE"),
    "pai-contention": ("interlane.reproduce.pai_contention", "CONTENTION"),
    "sharing-openb": ("interlane.reproduce.real_sharing", "SHARING_OPENB"),
    "sharing-classes": ("interlane.reproduce.real_sharing", "SHARING_CLASSES"),
    "philly-runtimes": ("interlane.reproduce.real_runtimes", "RUNTIMES"),
    "prediction-by-time": ("interlane.reproduce.real_prediction", "BY_TIME"),
    "helios-queue": ("interlane.reproduce.helios_queue", "HELIOS_QUEUE"),
    "openb-failures": ("interlane.reproduce.openb_failures", "FAILURES"),
    "dlrm-disaggregated": ("interlane.reproduce.real_clusters", "DISAGGREGATED"),
    "spot-nodes": ("interlane.reproduce.real_clusters", "SPOT_NODES"),
    "fgd-openb": ("interlane.reproduce.fgd", "OPENB"),
    "smore-prewarm": ("interlane.reproduce.smore_prewarm", "PREWARM"),
    "mig-parvagpu": ("interlane.reproduce.mig", "PARVAGPU"),
    "mig-heuristics": ("interlane.reproduce.mig", "HEURISTICS"),
    "smore-pairs": ("interlane.reproduce.smore", "PAIRS"),
    "smore-admission": ("interlane.reproduce.smore", "ADMISSION"),
    "smore-multiway": ("interlane.reproduce.smore", "MULTIWAY"),
    "smore-utilisation": ("interlane.reproduce.smore_utilisation", "UTILISATION"),
    "mig-transition": ("interlane.reproduce.mig_transition", "TRANSITION"),
    "salus-table1": ("interlane.reproduce.salus", "TABLE1"),
    "salus-hpo": ("interlane.reproduce.salus", "TUNING"),
    "salus-inference": ("interlane.reproduce.salus", "INFERENCE"),
    "live-eta": ("interlane.reproduce.live_eta", "ETA"),
    "eta-simulated": ("interlane.reproduce.eta_simulated", "ETA"),
    "live-prewarm": ("interlane.reproduce.live_prewarm", "LIVE"),
    "share-beside": ("interlane.reproduce.share_beside", "BESIDE"),
}
"""Name -> module and attribute."""


def where(name: str) -> tuple[str, str]:
    """Return the module of an entry, and what it is called there."""
    if name not in _WHERE:
        raise UnknownName("reproduction", name, _WHERE)
    return _WHERE[name]


class _Catalogue(Mapping[str, Reproduction]):
    """Loads an entry on first use."""

    def __getitem__(self, name: str) -> Reproduction:
        module, attribute = where(name)
        entry = getattr(import_module(module), attribute)
        assert isinstance(entry, Reproduction)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


REPRODUCTIONS: Final[Mapping[str, Reproduction]] = _Catalogue()
"""All published results that can be run by name."""
