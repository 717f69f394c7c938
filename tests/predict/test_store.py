import json
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from interlane.model import InvalidFile
from interlane.predict.recall import Recall
from interlane.predict.store import DurationModel, load, save
from interlane.testing.runs import recurring


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "m.ildur"
    save(
        DurationModel(
            Recall(rounds=3, least_runs=100).fit(recurring(500, seed=1)), {"jobs": 500}
        ),
        path,
    )
    return path.read_bytes()


def changed(contents: bytes, **fields: object) -> bytes:
    """Change fields of the first line and leave the hash as it was."""
    line, _, payload = contents.partition(b"\n")
    return json.dumps(json.loads(line) | fields).encode() + b"\n" + payload


def forged(contents: bytes, **arrays: object) -> bytes:
    """Change arrays, and make length and hash agree: what somebody else could have written."""
    line, _, payload = contents.partition(b"\n")
    kept = dict(np.load(BytesIO(payload)))
    out = BytesIO()
    np.savez(out, **kept | {key: np.asarray(value) for key, value in arrays.items()})
    header = json.loads(line) | {"bytes": len(out.getvalue())}
    del header["sha256"]
    signed = json.dumps(header, sort_keys=True).encode() + b"\n" + out.getvalue()
    header["sha256"] = sha256(signed).hexdigest()
    return json.dumps(header).encode() + b"\n" + out.getvalue()


def looping(contents: bytes) -> bytes:
    arrays = dict(np.load(BytesIO(contents.partition(b"\n")[2])))
    left = arrays["middle.left"].copy()
    left[0] = 0
    return forged(contents, **{"middle.left": left})


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "an empty file": (lambda _: b"", "no duration model"),
    "a picture": (lambda _: b"\x89PNG\r\n\x1a\n" + bytes(99), "no duration model"),
    "a pickle": (lambda _: b"\x80\x04\x95\x10\x00\x00\x00", "no duration model"),
    "JSON of another kind": (lambda _: b'{"format": "other"}\n', "no duration model"),
    "JSON that is no mapping": (lambda _: b"[1]\n", "no duration model"),
    "another version": (lambda all_: changed(all_, version=2), "format version 2, but"),
    "an unknown kind": (lambda all_: changed(all_, model="oracle"), "'oracle'"),
    "half a first line": (lambda all_: changed(all_, settings=None), "incomplete"),
    "a file cut short": (lambda all_: all_[:-100], "cut short"),
    "a file with more": (lambda all_: all_ + b"x", "cut short or was changed"),
    "another fallback": (lambda all_: changed(all_, fallback_s=1.0), "the hash"),
    "a flipped bit": (lambda all_: all_[:-9] + bytes([all_[-9] ^ 1]) + all_[-8:], "the hash"),
    "no arrays": (lambda all_: changed(all_, bytes=0).partition(b"\n")[0] + b"\n", "the hash"),
    "a tree that loops": (looping, "leads astray"),
    "a tree elsewhere": (
        lambda all_: forged(all_, **{"low.roots": np.array([9**6], np.int32)}),
        "nowhere",
    ),
    "bands of another shape": (lambda all_: forged(all_, offsets=[1.0]), "wrong shape"),
    "no middle": (lambda all_: forged(all_, typical=float("nan")), "no number"),
    "keys without rings": (lambda all_: forged(all_, seen=[1]), "differ"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_no_sound_model_is_refused_in_a_sentence(
    case: str, whole: bytes, tmp_path: Path
) -> None:
    spoil, expected = BAD[case]
    path = tmp_path / "bad.ildur"
    path.write_bytes(spoil(whole))

    with pytest.raises(InvalidFile) as caught:
        load(path)

    sentence = str(caught.value)
    assert expected in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_objects_in_the_arrays_are_never_unpickled(whole: bytes, tmp_path: Path) -> None:
    line, _, _ = whole.partition(b"\n")
    out = BytesIO()
    np.savez(out, keys=np.array([{"run": "me"}], dtype=object), allow_pickle=True)
    header = json.loads(line) | {"bytes": len(out.getvalue())}
    del header["sha256"]
    signed = json.dumps(header, sort_keys=True).encode() + b"\n" + out.getvalue()
    header["sha256"] = sha256(signed).hexdigest()
    path = tmp_path / "evil.ildur"
    path.write_bytes(json.dumps(header).encode() + b"\n" + out.getvalue())

    with pytest.raises(InvalidFile, match="do not fit together"):
        load(path)


def test_a_missing_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"no such file or directory; check the path\.$"):
        load(tmp_path / "none.ildur")


def test_the_same_model_gives_the_same_bytes(whole: bytes, tmp_path: Path) -> None:
    again = tmp_path / "again.ildur"
    save(
        DurationModel(
            Recall(rounds=3, least_runs=100).fit(recurring(500, seed=1)), {"jobs": 500}
        ),
        again,
    )
    assert again.read_bytes() == whole
