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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidFile
from interlane.predict import compiled
from interlane.predict.trees import Forest

HEADER_MOST: Final = 1 << 16
"""A first line longer than this is not ours."""
UNPACKED_MOST: Final = 4 << 30
"""Arrays that would unpack to more than this are refused."""

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ModelFileKind:
    """One kind of model file."""

    format: str
    version: int
    noun: str
    """What messages call it, as in 'duration model'."""
    maker: str
    """The command that makes one."""
    models: Collection[str]
    """What ``model`` in the first line may be."""
    keys: Mapping[str, type | tuple[type, ...]]
    """What else the first line must have."""


def write(path: Path, kind: ModelFileKind, header: Mapping[str, object], arrays: Arrays) -> str:
    """Write a model; return its hash."""
    packed = BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    payload = packed.getvalue()
    line: dict[str, object] = {
        "format": kind.format,
        "version": kind.version,
        **header,
        "bytes": len(payload),
    }
    line["sha256"] = _hash(line, payload)
    try:
        path.write_bytes(json.dumps(line).encode() + b"\n" + payload)
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise InvalidFile(str(path), f"{why}; check the path and its permissions.") from None
    return str(line["sha256"])


def read(path: Path, kind: ModelFileKind, made: Callable[[Header, Arrays], Made]) -> Made:
    """Read a model; anything that is not one is refused in a sentence."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise InvalidFile(str(path), f"{why}; check the path.") from None
    line, _, payload = whole.partition(b"\n")
    header = _header(str(path), line, kind)
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
        return made(header, _arrays(payload))
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
        why = " ".join(str(error).split())[:120]
        raise InvalidFile(
            str(path), f"the model's contents do not fit together ({why}); train it again."
        ) from None


def _header(file: str, line: bytes, kind: ModelFileKind) -> Header:
    try:
        header = json.loads(line[:HEADER_MOST])
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != kind.format:
        raise InvalidFile(file, f"this is no {kind.noun}; make one with '{kind.maker}'.")
    if header.get("version") != kind.version:
        raise InvalidFile(
            file,
            f"the model has format version {header.get('version')}, but this interlane reads "
            f"version {kind.version}; train it again.",
        )
    if header.get("model") not in kind.models:
        raise InvalidFile(
            file, f"the model is a {header.get('model')!r}, which is not known; train it again."
        )
    needed = {**kind.keys, "bytes": int}
    if not all(isinstance(header.get(key), type_) for key, type_ in needed.items()):
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


# -- parts that several kinds have ----------------------------------------------------


def text(value: object) -> NDArray[np.uint8]:
    """Return something that JSON can say as an array."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def untext(array: NDArray[Any]) -> Any:  # noqa: ANN401 - JSON is what it is
    """Return what ``text`` was given."""
    return json.loads(np.asarray(array, np.uint8).tobytes())


def settings(model: object, learned: Collection[str] = ()) -> dict[str, object]:
    """Return the fields that are settings: those that nothing was learned into."""
    return {
        one.name: getattr(model, one.name)
        for one in fields(model)  # type: ignore[arg-type]
        if not one.name.endswith("_") and one.name not in learned
    }


def packed_forest(name: str, forest: Forest) -> Arrays:
    """Return a forest's arrays under a name."""
    return {
        f"{name}.{one.name}": np.asarray(getattr(forest, one.name)) for one in fields(forest)
    }


def forest(name: str, arrays: Arrays, features: int) -> Forest:
    """Return a forest whose every step stays inside and leads on, so that walks end."""
    kinds = {"roots": np.int32, "feature": np.int32, "left": np.int32, "right": np.int32}
    parts = {
        one.name: arrays[f"{name}.{one.name}"] for one in fields(Forest) if one.name != "start"
    }
    for key, kind in (kinds | {"missing_left": np.bool_}).items():
        must(parts[key].dtype == kind, f"{name}.{key} has the wrong type")
    nodes = len(parts["feature"])
    for key, column in parts.items():
        must(column.ndim == 1, f"{name}.{key} is no column")
        must(key == "roots" or len(column) == nodes, f"{name}.{key} has the wrong length")
    places = np.arange(nodes)
    inner = parts["feature"] != compiled.LEAF
    steps = [parts[key][inner] for key in ("left", "right")]
    must(bool((parts["feature"] < features).all()), f"{name} looks at an unknown column")
    must(bool((parts["feature"] >= compiled.LEAF).all()), f"{name} looks at no column")
    must(all(((s > places[inner]) & (s < nodes)).all() for s in steps), f"{name} leads astray")
    roots = parts["roots"]
    must(bool(((roots >= 0) & (roots < nodes)).all()), f"{name} starts nowhere")
    must(bool(np.isfinite(parts["value"]).all()), f"{name} answers no number")
    parts["threshold"] = parts["threshold"].astype(np.float64)
    parts["value"] = parts["value"].astype(np.float64)
    return Forest(float(arrays[f"{name}.start"]), **parts)


def must(holds: bool, what: str) -> None:  # noqa: FBT001 - an assertion in words
    """Refuse contents that cannot be."""
    if not holds:
        raise ValueError(what)
