"""Entries of a document (YAML, JSON), whose values are taken with their types checked."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from interlane.model import InvalidFile


class MigFileSection:
    """Keys with values, somewhere in a file."""

    def __init__(self, file: str, where: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise InvalidFile(file, f"{where} is {values!r}, but it must be keys with values.")
        self.file = file
        self.where = where
        self._values = values

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def only(self, known: Sequence[str]) -> None:
        """Refuse keys that are not known."""
        for key in self._values:
            if key not in known:
                raise InvalidFile(
                    self.file,
                    f"{self.where} has the key {key!r}; known are {', '.join(known)}.",
                )

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty, unless the default is."""
        value = self._values.get(key, default)
        if isinstance(value, str) and (value or value == default):
            return value
        raise self.wrong(key, "text")

    def amount(
        self, key: str, default: float | None = None, least: float | None = None
    ) -> float:
        """Return a number."""
        value = self._values.get(key, default)
        rule = "a number" if least is None else f"a number, {least:g} or more"
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.wrong(key, rule)
        if least is not None and value < least:
            raise self.wrong(key, rule)
        return float(value)

    def whole(self, key: str, default: int | None = None, least: int = 0) -> int:
        """Return a whole number."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 10**9:
            raise self.wrong(key, f"a whole number, {least} or more")
        return value

    def claim(self, key: str) -> bool:
        """Return true or false; false if it is missing."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, or one text as a list of it; nothing if it is missing."""
        value = self._values.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise self.wrong(key, "a list of names")
        return tuple(listed)

    def entries(self, *keys: str) -> list["MigFileSection"]:
        """Return the list of entries under the first of some keys that is there."""
        key = next((one for one in keys if one in self._values), keys[0])
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        inside = "" if self.where == "the file" else f" of {self.where}"
        return [
            MigFileSection(self.file, f"{_singular(key)} {number}{inside}", one)
            for number, one in enumerate(value, 1)
        ]

    def first(self, keys: Iterable[str], default: object = None) -> object:
        """Return the value of the first of some keys that is there."""
        return next((self._values[key] for key in keys if key in self._values), default)

    def wrong(self, key: str, rule: str) -> InvalidFile:
        """Return the error for a value that breaks a rule."""
        value = self._values.get(key)
        if value is None:
            return self.error(f"{key} is missing; it must be {rule}.")
        return self.error(f"{key} is {value!r}, but it must be {rule}.")

    def error(self, what: str) -> InvalidFile:
        """Return an error that names the entry."""
        return InvalidFile(self.file, f"{self.where}: {what}")


def _singular(key: str) -> str:
    return {"gpus": "GPU", "services": "service", "instances": "instance"}.get(key, key)
