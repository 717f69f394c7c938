"""Duration models as data files (see ``files``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interlane.predict import compiled, files
from interlane.predict.cart import KEYS, Cart
from interlane.predict.catalogue import PREDICTORS, name_of
from interlane.predict.estimates import DurationPredictor, EstimateBasis
from interlane.predict.files import Arrays, Header, forest, must, packed_forest, text, untext
from interlane.predict.history import RunHistory
from interlane.predict.naive import LastRun, MeanPerUser
from interlane.predict.recall import FEATURES, Recall

FORMAT: Final = "interlane-duration-model"
VERSION: Final = 1
KIND: Final = files.ModelFileKind(
    FORMAT,
    VERSION,
    "duration model",
    "interlane predict duration train",
    PREDICTORS,
    {"settings": dict, "trained_on": dict},
)


@dataclass(frozen=True)
class DurationModel:
    """A predictor and what is known of its making."""

    predictor: DurationPredictor
    trained_on: Mapping[str, object]
    """The trace, its jobs, groups and users, and the time they span."""
    sha256: str = ""

    @property
    def name(self) -> str:
        """The predictor's name."""
        return name_of(self.predictor)


def save(model: DurationModel, path: Path) -> str:
    """Write a model; return its hash."""
    header: dict[str, object] = {
        "model": model.name,
        "settings": files.settings(model.predictor, learned={"fallback_s"}),
        "fallback_s": model.predictor.fallback_s,
        "trained_on": dict(model.trained_on),
    }
    return files.write(path, KIND, header, _PACK[model.name](model.predictor))


def load(path: Path) -> DurationModel:
    """Read a model; anything that is not one is refused in a sentence."""
    return files.read(path, KIND, _model)


def _model(header: Header, arrays: Arrays) -> DurationModel:
    predictor = _UNPACK[header["model"]](header["settings"], arrays)
    return DurationModel(predictor, header["trained_on"], header["sha256"])


def _offsets(arrays: Arrays) -> NDArray[np.float64]:
    found = arrays["offsets"].astype(np.float64)
    must(found.shape == (len(EstimateBasis), 2), "the bands have the wrong shape")
    must(bool(np.isfinite(found).all()), "the bands are no numbers")
    return found


def _seconds(arrays: Arrays) -> float:
    found = float(arrays["fallback_s"])
    must(np.isfinite(found) and found >= 0, "the fallback is no length of time")
    return found


# -- each predictor -------------------------------------------------------------------


def _pack_recall(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    history: RunHistory = model.history_
    count = len(history.places)
    return {
        "keys": text(list(history.places)),
        "rings": history.rings[:count],
        "seen": history.seen[:count],
        "typical": np.array(model.typical_),
        "offsets": model.offsets_,
        **packed_forest("middle", model.middle_),
        **packed_forest("low", model.low_),
        **packed_forest("high", model.high_),
    }


def _unpack_recall(settings: dict[str, Any], arrays: Arrays) -> Recall:
    keys = untext(arrays["keys"])
    rings, seen = arrays["rings"], arrays["seen"]
    must(len(set(keys)) == len(keys) == len(rings) == len(seen), "keys and rings differ")
    must(rings.shape == (len(keys), compiled.DEPTH), "the rings have the wrong size")
    must(bool(np.isfinite(rings).all() and (seen >= 0).all()), "the rings are no numbers")
    must(bool(np.isfinite(arrays["typical"])), "the middle is no number")
    return Recall(
        **settings,
        history_=RunHistory(
            {str(key): place for place, key in enumerate(keys)},
            rings.astype(np.float32),
            seen.astype(np.int64),
        ),
        middle_=forest("middle", arrays, FEATURES),
        low_=forest("low", arrays, FEATURES),
        high_=forest("high", arrays, FEATURES),
        offsets_=_offsets(arrays),
        typical_=float(arrays["typical"]),
    )


def _pack_cart(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    return {
        "codes": text(model.codes_),
        "offsets": model.offsets_,
        "fallback_s": np.array(model.fallback_s),
        **packed_forest("tree", model.tree_),
    }


def _unpack_cart(settings: dict[str, Any], arrays: Arrays) -> Cart:
    codes = {
        column: {str(name): float(code) for name, code in names.items()}
        for column, names in untext(arrays["codes"]).items()
    }
    model = Cart(**settings)
    tree = forest("tree", arrays, len(KEYS[model.keys]))
    model.tree_, model.codes_ = tree, codes
    model.offsets_, model.fallback_s = _offsets(arrays), _seconds(arrays)
    return model


def _pack_naive(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    return {
        "by_group": text(model.by_group_),
        "by_user": text(model.by_user_),
        "offsets": model.offsets_,
        "fallback_s": np.array(model.fallback_s),
    }


def _unpack_naive(
    maker: Callable[..., DurationPredictor],
) -> Callable[[dict[str, Any], Arrays], DurationPredictor]:
    def unpack(settings: dict[str, Any], arrays: Arrays) -> DurationPredictor:
        return maker(
            **settings,
            by_group_=_tally(arrays["by_group"]),
            by_user_=_tally(arrays["by_user"]),
            offsets_=_offsets(arrays),
            fallback_s=_seconds(arrays),
        )

    return unpack


def _tally(array: NDArray[Any]) -> dict[str, list[float]]:
    return {str(key): [float(one) for one in kept] for key, kept in untext(array).items()}


_PACK: Final[Mapping[str, Callable[[Any], Arrays]]] = {
    "recall": _pack_recall,
    "cart": _pack_cart,
    "mean-per-user": _pack_naive,
    "last-run": _pack_naive,
}
_UNPACK: Final[Mapping[str, Callable[[dict[str, Any], Arrays], DurationPredictor]]] = {
    "recall": _unpack_recall,
    "cart": _unpack_cart,
    "mean-per-user": _unpack_naive(MeanPerUser),
    "last-run": _unpack_naive(LastRun),
}
