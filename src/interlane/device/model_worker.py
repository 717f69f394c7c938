"""The process in which the models of a ``ModelHost`` live."""

import importlib
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

_STICKY: Final = ("AcceleratorError", "CUDA error", "cuDNN error", "device-side assert")
"""What names or texts of errors say after which a CUDA context is of no use."""


def main() -> None:
    """Answer messages until the supervisor is gone."""
    line: Connection[Any, Any] = Connection(int(sys.argv[1]))
    models: dict[str, Callable[..., Any]] = {}
    while True:
        try:
            received = line.recv_bytes()
        except (EOFError, ConnectionError):
            # Models may have threads that would wait for one another.
            os._exit(0)
        line.send_bytes(_pickled(_answer(received, models)))


def _answer(received: bytes, models: dict[str, Callable[..., Any]]) -> tuple[str, Any]:
    try:
        kind, name, content = pickle.loads(received)
    except Exception as error:
        return "error", _words(error)
    return _done(kind, name, content, models)


def _done(
    kind: str,
    name: str,
    content: Any,  # noqa: ANN401 - as it was sent
    models: dict[str, Callable[..., Any]],
) -> tuple[str, Any]:
    try:
        match kind:
            case "hello":
                sys.path[:] = content
            case "add":
                models[name] = _factory(content)()
            case "remove":
                models.pop(name, None)
            case _:
                return "ok", models[name](*content)
        return "ok", None
    except BaseException as error:
        return "sticky" if _is_sticky(error) else "error", _words(error)


def _factory(told: str | Callable[[], Callable[..., Any]]) -> Callable[[], Callable[..., Any]]:
    if not isinstance(told, str):
        return told
    module, _, function = told.partition(":")
    found: Callable[[], Callable[..., Any]] = getattr(importlib.import_module(module), function)
    return found


def _pickled(answer: tuple[str, Any]) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps(("error", f"its answer cannot be pickled ({error})"))


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}".rstrip(": .")


def _is_sticky(error: BaseException) -> bool:
    words = f"{type(error).__name__} {error}"
    return any(sign in words for sign in _STICKY)


if __name__ == "__main__":
    main()
