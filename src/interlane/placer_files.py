"""Placers of users' own, named by a file: ``my_placer.py:Mine``, ``...:Mine:setting=value``."""

import re
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Signature, signature
from pathlib import Path
from typing import Final

from interlane.model import InvalidFile
from interlane.policy.base import Placer
from interlane.policy.catalogue import PlacerMaker

_WORD: Final = re.compile(r"(?P<file>[^:]+\.py):(?P<name>[A-Za-z_]\w*)(?P<settings>(:.*)?)")


@dataclass(frozen=True, slots=True)
class PlacerFile:
    """Makes the placers of one class in a file; loads it where it is, in any process."""

    path: Path
    name: str

    def __call__(self, **settings: object) -> Placer:
        """Make one."""
        return self._maker()(**settings)

    @property
    def __signature__(self) -> Signature:
        """What it may be told, for whoever asks ``inspect``."""
        return signature(self._maker())

    def _maker(self) -> PlacerMaker:
        module = f"interlane_placer_{sha256(str(self.path).encode()).hexdigest()[:16]}"
        if module not in sys.modules:
            _load(module, self.path)
        found: PlacerMaker | None = getattr(sys.modules[module], self.name, None)
        if found is None:
            raise InvalidFile(str(self.path), f"it has no {self.name}; name a class of it.")
        if not callable(getattr(found, "place", None)):
            raise InvalidFile(
                str(self.path), f"{self.name} has no method 'place(job, view, rng)'."
            )
        return found


def placer_file_of(word: str) -> tuple[str, PlacerFile, str] | None:
    """Return the name, the maker and the settings of a word that names a file; else None."""
    found = _WORD.fullmatch(word)
    if found is None:
        return None
    name = f"{Path(found['file']).name}:{found['name']}"
    return name, PlacerFile(Path(found["file"]).absolute(), found["name"]), found["settings"]


def absolute(word: str) -> str:
    """Return a placer's word so that it means the same in any folder."""
    found = placer_file_of(word)
    return word if found is None else f"{found[1].path}:{found[1].name}{found[2]}"


def _load(module: str, path: Path) -> None:
    spec = spec_from_file_location(module, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidFile(str(path), "there is no such file of Python.")
    sys.modules[module] = loaded = module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
    except Exception as error:
        del sys.modules[module]
        raise InvalidFile(
            str(path), f"it cannot be loaded ({type(error).__name__}: {error})."
        ) from error
