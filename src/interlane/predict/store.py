r"""Models as data files: a line of JSON about the model, then its arrays.

::

    {"format": "interlane-duration-model", "version": 1, "model": "recall", ...}\n
    <npz>

The line holds the length of what follows and a SHA-256 of everything but itself.  Arrays are
read with pickling forbidden and checked before use, so that a file from elsewhere can be
wrong, but cannot run anything.
"""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidFile
from interlane.predict import compiled
from interlane.predict.cart import KEYS, Cart
from interlane.predict.catalogue import PREDICTORS, name_of
from interlane.predict.guesses import Basis, Predictor
from interlane.predict.history import History
from interlane.predict.naive import LastRun, MeanPerUser
from interlane.predict.recall import FEATURES, Recall
from interlane.predict.trees import Forest

FORMAT: Final = "interlane-duration-model"
VERSION: Final = 1
HEADER_MOST: Final = 1 << 16
"""A first line longer than this is not ours."""
UNPACKED_MOST: Final = 4 << 30
"""Arrays that would unpack to more than this are refused."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Model:
    """A predictor and what is known of its making."""

    predictor: Predictor
    trained_on: Mapping[str, object]
    """The trace, its jobs, groups and users, and the time they span."""
    sha256: str = ""

    @property
    def name(self) -> str:
        """The predictor's name."""
        return name_of(self.predictor)


def save(model: Model, path: Path) -> str:
    """Write a model; return its hash."""
    name = model.name
    packed = BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **_PACK[name](model.predictor))
    payload = packed.getvalue()
    header: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "model": name,
        "settings": _settings(model.predictor),
        "fallback_s": model.predictor.fallback_s,
        "trained_on": dict(model.trained_on),
        "bytes": len(payload),
    }
    header["sha256"] = _hash(header, payload)
    try:
        path.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise InvalidFile(str(path), f"{why}; check the path and its permissions.") from None
    return str(header["sha256"])


def load(path: Path) -> Model:
    """Read a model; anything that is not one is refused in a sentence."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise InvalidFile(str(path), f"{why}; check the path.") from None
    line, _, payload = whole.partition(b"\n")
    header = _header(str(path), line)
    if len(payload) != header["bytes"]:
        raise InvalidFile(
            str(path),
            f"the model has {len(payload)} bytes after its first line, but should have "
            f"{header['bytes']}; the file is cut short or was changed, fetch it again.",
        )
    if _hash(header, payload) != header.get("sha256"):
        raise InvalidFile(
            str(path),
            "the model does not have the hash that its first line names; the file is "
            "damaged or was changed, train it again.",
        )
    try:
        predictor = _UNPACK[header["model"]](header["settings"], _arrays(payload))
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
        why = " ".join(str(error).split())[:120]
        raise InvalidFile(
            str(path), f"the model's contents do not fit together ({why}); train it again."
        ) from None
    return Model(predictor, header["trained_on"], header["sha256"])


def _header(file: str, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line[:HEADER_MOST])
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidFile(
            file,
            "this is no duration model; make one with 'interlane predict duration train'.",
        )
    if header.get("version") != VERSION:
        raise InvalidFile(
            file,
            f"the model has format version {header.get('version')}, but this interlane reads "
            f"version {VERSION}; train it again.",
        )
    if header.get("model") not in PREDICTORS:
        raise InvalidFile(
            file, f"the model is a {header.get('model')!r}, which is not known; train it again."
        )
    kinds = {"settings": dict, "trained_on": dict, "bytes": int}
    if not all(isinstance(header.get(key), kind) for key, kind in kinds.items()):
        raise InvalidFile(file, "the model's first line is incomplete; train it again.")
    return header


def _hash(header: Mapping[str, object], payload: bytes) -> str:
    signed = {key: value for key, value in header.items() if key != "sha256"}
    return sha256(json.dumps(signed, sort_keys=True).encode() + b"\n" + payload).hexdigest()


def _arrays(payload: bytes) -> Arrays:
    with zipfile.ZipFile(BytesIO(payload)) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > UNPACKED_MOST:
            raise ValueError("it would unpack to more than memory should hold")
    with np.load(BytesIO(payload), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _settings(predictor: Predictor) -> dict[str, object]:
    """Return the fields that are settings: those that nothing was learned into."""
    learned = {"fallback_s"}
    return {
        one.name: getattr(predictor, one.name)
        for one in fields(predictor)  # type: ignore[arg-type]
        if not one.name.endswith("_") and one.name not in learned
    }


# -- texts and trees as arrays --------------------------------------------------------


def _text(value: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _untext(array: NDArray[Any]) -> Any:  # noqa: ANN401 - JSON is what it is
    return json.loads(np.asarray(array, np.uint8).tobytes())


def _packed_forest(name: str, forest: Forest) -> Arrays:
    return {
        f"{name}.{one.name}": np.asarray(getattr(forest, one.name)) for one in fields(forest)
    }


def _forest(name: str, arrays: Arrays, features: int) -> Forest:
    """Return a forest whose every step stays inside and leads on, so that walks end."""
    kinds = {"roots": np.int32, "feature": np.int32, "left": np.int32, "right": np.int32}
    parts = {
        one.name: arrays[f"{name}.{one.name}"] for one in fields(Forest) if one.name != "start"
    }
    for key, kind in (kinds | {"missing_left": np.bool_}).items():
        _must(parts[key].dtype == kind, f"{name}.{key} has the wrong type")
    nodes = len(parts["feature"])
    for key, column in parts.items():
        _must(column.ndim == 1, f"{name}.{key} is no column")
        _must(key == "roots" or len(column) == nodes, f"{name}.{key} has the wrong length")
    places = np.arange(nodes)
    inner = parts["feature"] != compiled.LEAF
    steps = [parts[key][inner] for key in ("left", "right")]
    _must(bool((parts["feature"] < features).all()), f"{name} looks at an unknown column")
    _must(bool((parts["feature"] >= compiled.LEAF).all()), f"{name} looks at no column")
    _must(all(((s > places[inner]) & (s < nodes)).all() for s in steps), f"{name} leads astray")
    roots = parts["roots"]
    _must(bool(((roots >= 0) & (roots < nodes)).all()), f"{name} starts nowhere")
    _must(bool(np.isfinite(parts["value"]).all()), f"{name} answers no number")
    parts["threshold"] = parts["threshold"].astype(np.float64)
    parts["value"] = parts["value"].astype(np.float64)
    return Forest(float(arrays[f"{name}.start"]), **parts)


def _must(holds: bool, what: str) -> None:  # noqa: FBT001 - an assertion in words
    if not holds:
        raise ValueError(what)


def _offsets(arrays: Arrays) -> NDArray[np.float64]:
    found = arrays["offsets"].astype(np.float64)
    _must(found.shape == (len(Basis), 2), "the bands have the wrong shape")
    _must(bool(np.isfinite(found).all()), "the bands are no numbers")
    return found


def _seconds(arrays: Arrays) -> float:
    found = float(arrays["fallback_s"])
    _must(np.isfinite(found) and found >= 0, "the fallback is no length of time")
    return found


# -- each predictor -------------------------------------------------------------------


def _pack_recall(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    history: History = model.history_
    count = len(history.places)
    return {
        "keys": _text(list(history.places)),
        "rings": history.rings[:count],
        "seen": history.seen[:count],
        "typical": np.array(model.typical_),
        "offsets": model.offsets_,
        **_packed_forest("middle", model.middle_),
        **_packed_forest("low", model.low_),
        **_packed_forest("high", model.high_),
    }


def _unpack_recall(settings: dict[str, Any], arrays: Arrays) -> Recall:
    keys = _untext(arrays["keys"])
    rings, seen = arrays["rings"], arrays["seen"]
    _must(len(set(keys)) == len(keys) == len(rings) == len(seen), "keys and rings differ")
    _must(rings.shape == (len(keys), compiled.DEPTH), "the rings have the wrong size")
    _must(bool(np.isfinite(rings).all() and (seen >= 0).all()), "the rings are no numbers")
    _must(bool(np.isfinite(arrays["typical"])), "the middle is no number")
    return Recall(
        **settings,
        history_=History(
            {str(key): place for place, key in enumerate(keys)},
            rings.astype(np.float32),
            seen.astype(np.int64),
        ),
        middle_=_forest("middle", arrays, FEATURES),
        low_=_forest("low", arrays, FEATURES),
        high_=_forest("high", arrays, FEATURES),
        offsets_=_offsets(arrays),
        typical_=float(arrays["typical"]),
    )


def _pack_cart(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    return {
        "codes": _text(model.codes_),
        "offsets": model.offsets_,
        "fallback_s": np.array(model.fallback_s),
        **_packed_forest("tree", model.tree_),
    }


def _unpack_cart(settings: dict[str, Any], arrays: Arrays) -> Cart:
    codes = {
        column: {str(name): float(code) for name, code in names.items()}
        for column, names in _untext(arrays["codes"]).items()
    }
    model = Cart(**settings)
    tree = _forest("tree", arrays, len(KEYS[model.keys]))
    model.tree_, model.codes_ = tree, codes
    model.offsets_, model.fallback_s = _offsets(arrays), _seconds(arrays)
    return model


def _pack_naive(model: Any) -> Arrays:  # noqa: ANN401 - the table below says which
    return {
        "by_group": _text(model.by_group_),
        "by_user": _text(model.by_user_),
        "offsets": model.offsets_,
        "fallback_s": np.array(model.fallback_s),
    }


def _unpack_naive(
    maker: Callable[..., Predictor],
) -> Callable[[dict[str, Any], Arrays], Predictor]:
    def unpack(settings: dict[str, Any], arrays: Arrays) -> Predictor:
        return maker(
            **settings,
            by_group_=_tally(arrays["by_group"]),
            by_user_=_tally(arrays["by_user"]),
            offsets_=_offsets(arrays),
            fallback_s=_seconds(arrays),
        )

    return unpack


def _tally(array: NDArray[Any]) -> dict[str, list[float]]:
    return {str(key): [float(one) for one in kept] for key, kept in _untext(array).items()}


_PACK: Final[Mapping[str, Callable[[Any], Arrays]]] = {
    "recall": _pack_recall,
    "cart": _pack_cart,
    "mean-per-user": _pack_naive,
    "last-run": _pack_naive,
}
_UNPACK: Final[Mapping[str, Callable[[dict[str, Any], Arrays], Predictor]]] = {
    "recall": _unpack_recall,
    "cart": _unpack_cart,
    "mean-per-user": _unpack_naive(MeanPerUser),
    "last-run": _unpack_naive(LastRun),
}
