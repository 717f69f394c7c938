"""Entries of a YAML file: keys with values that are taken with their types checked.

Every fault is one sentence that names the file, the place in it, the key, what it is and what
it must be.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from interlane.model import InvalidFile, InvalidInput
from interlane.model.gpu import GPU_MEMORY_MIB
from interlane.model.units import MIB_PER_GIB

MOST_WHOLE: Final = 10**5
MOST_AMOUNT: Final = 2.0**40

Made = TypeVar("Made")


class FileSection:
    """Keys with values at one place of a file."""

    def __init__(self, file: str, where: str, values: object, known: tuple[str, ...]) -> None:
        if not isinstance(values, Mapping):
            raise InvalidFile(file, f"{where} is {values!r}, but it must be keys with values.")
        for key in values:
            if key not in known:
                rule = f"known are {', '.join(known)}"
                raise InvalidFile(file, f"{where} has the key {key!r}; {rule}.")
        self.file = file
        self.where = where
        self.values: Mapping[str, object] = values

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def inside(self, place: str, values: object, known: tuple[str, ...]) -> "FileSection":
        """Return an entry within this one."""
        return FileSection(self.file, f"{self.where}, {place}", values, known)

    def whole(self, key: str, *, default: int | None = None, least: int = 0) -> int:
        """Return a whole number."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"a whole number from {least} to {MOST_WHOLE}")
        if not least <= value <= MOST_WHOLE:
            raise self.wrong(key, f"a whole number from {least} to {MOST_WHOLE}")
        return value

    def amount(self, key: str, *, default: float | None = None) -> float:
        """Return a number, 0 or more."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number")
        if not 0 <= value <= MOST_AMOUNT:
            raise self.wrong(key, "0 or more")
        return float(value)

    def text(self, key: str, *, default: str | None = None) -> str:
        """Return text that is not empty."""
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "text")
        return value

    def claim(self, key: str) -> bool:
        """Return true or false; false where nothing is said."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def listed(self, key: str) -> list[object]:
        """Return a list, empty where nothing is said."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def card_mib(self, key: str, kind: str) -> int:
        """Return the memory of one GPU: as given, or as known of its type."""
        if key not in self.values and kind in GPU_MEMORY_MIB:
            return GPU_MEMORY_MIB[kind]
        return round(self.amount(key) * MIB_PER_GIB)

    def made(self, make: Callable[[], Made]) -> Made:
        """Return what is made; where it breaks a rule of its own, name the place."""
        try:
            return make()
        except InvalidFile:
            raise
        except InvalidInput as error:
            raise self.fault(str(error)) from None

    def wrong(self, key: str, rule: str) -> InvalidFile:
        """Return the fault that a key breaks a rule."""
        value = self.values.get(key)
        given = "missing" if value is None else repr(value)
        return self.fault(f"{key} is {given}, but it must be {rule}.")

    def fault(self, what: str) -> InvalidFile:
        """Return a fault at this place."""
        return InvalidFile(self.file, f"{self.where}: {what}")
