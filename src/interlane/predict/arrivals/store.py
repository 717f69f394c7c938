"""Arrival models as data files (see ``predict.files``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from interlane.model import UnknownName
from interlane.predict import files
from interlane.predict.arrivals.chance import Chance
from interlane.predict.arrivals.compiled import FEATURES
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.series import must_be_slot
from interlane.predict.arrivals.size import Size
from interlane.predict.files import Arrays, Header, forest, must, packed_forest

Forecaster = Trees | LsLstm

FORECASTERS: Final[Mapping[str, Callable[[], Forecaster]]] = {"trees": Trees, "ls-lstm": LsLstm}
"""Name -> maker; the first is ours and the default."""

KIND: Final = files.ModelFileKind(
    "interlane-arrival-model",
    1,
    "arrival model",
    "interlane predict arrivals train",
    FORECASTERS,
    {"settings": dict, "trained_on": dict, "slot_s": (int, float)},
)


@dataclass(frozen=True)
class ArrivalModel:
    """A forecaster and what is known of its making."""

    forecaster: Forecaster
    slot_s: float
    """The width of the slots that it learned from; it serves no other."""
    trained_on: Mapping[str, object]
    sha256: str = ""

    @property
    def name(self) -> str:
        """The forecaster's name."""
        return next(name for name, made in FORECASTERS.items() if type(self.forecaster) is made)


def make_forecaster(name: str) -> Forecaster:
    """Return a forecaster that has learned nothing yet."""
    if name not in FORECASTERS:
        raise UnknownName("model", name, FORECASTERS)
    return FORECASTERS[name]()


def save(model: ArrivalModel, path: Path) -> str:
    """Write a model; return its hash."""
    settings, arrays = _packed(model.forecaster)
    header: dict[str, object] = {
        "model": model.name,
        "settings": settings,
        "slot_s": model.slot_s,
        "trained_on": dict(model.trained_on),
    }
    return files.write(path, KIND, header, arrays)


def load(path: Path) -> ArrivalModel:
    """Read a model; anything that is not one is refused in a sentence."""
    return files.read(path, KIND, _model)


def _model(header: Header, arrays: Arrays) -> ArrivalModel:
    unpack = _trees if header["model"] == "trees" else _ls_lstm
    slot_s = float(header["slot_s"])
    must_be_slot(slot_s)
    made: Forecaster = unpack(header["settings"], arrays)
    return ArrivalModel(made, slot_s, header["trained_on"], header["sha256"])


def _packed(forecaster: Forecaster) -> tuple[dict[str, object], Arrays]:
    if isinstance(forecaster, LsLstm):
        return files.settings(forecaster), dict(forecaster.weights_)
    parts = {"chance": forecaster.chance, "size": forecaster.size}
    settings: dict[str, object] = {name: files.settings(one) for name, one in parts.items()}
    return settings, {
        "knots": forecaster.chance.knots_,
        **packed_forest("chance", forecaster.chance.forest_),
        **packed_forest("size", forecaster.size.forest_),
    }


def _trees(settings: dict[str, Any], arrays: Arrays) -> Trees:
    knots = arrays["knots"].astype(np.float64)
    must(knots.ndim == 2 and len(knots) == 2, "the calibration has the wrong shape")
    must(bool(np.isfinite(knots).all()), "the calibration is no numbers")
    must(bool((np.diff(knots, axis=1) >= 0).all()), "the calibration does not rise")
    return Trees(
        Chance(**settings["chance"], forest_=forest("chance", arrays, FEATURES), knots_=knots),
        Size(**settings["size"], forest_=forest("size", arrays, FEATURES)),
    )


def _ls_lstm(settings: dict[str, Any], arrays: Arrays) -> LsLstm:
    model = LsLstm(**settings)
    shapes = model.shapes()
    must(set(arrays) == set(shapes), "the network has other layers")
    for name, shape in shapes.items():
        must(arrays[name].shape == shape, f"{name} has the wrong shape")
        must(bool(np.isfinite(arrays[name]).all()), f"{name} is no numbers")
    model.weights_ = {name: value.astype(np.float32) for name, value in arrays.items()}
    return model
