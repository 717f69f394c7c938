"""Runs before the first line of every Python program that ``interlane share run`` starts.

It runs in whatever Python the job has, so it is written for old ones, too, and does nothing but
wait for ``import torch``.  A ``sitecustomize`` of the user's own runs as if this one were not
here.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - quick to start
_PACKAGE = os.environ.get("INTERLANE_SHARE_HOME", "")
_FAILED = 1


class _AfterTorch:
    """Loads torch as it would be loaded anyway, and then shares the device."""

    def __init__(self) -> None:
        self.loader: Any = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ANN401
        """Step in for torch, once."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:  # noqa: ANN401
        """Leave this to the real loader."""
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:  # noqa: ANN401
        """Run torch, step out of the way, and share."""
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            _own_code().share(module)
        except Exception as error:
            # A job that cannot be gated must not run: others count on it.
            sys.stderr.write(f"interlane: error: the job cannot share the device: {error!r}\n")
            sys.stderr.flush()
            os._exit(_FAILED)


def _own_code() -> Any:  # noqa: ANN401
    """Return our code, of the version that started the job, without a change to its path."""
    if "interlane" not in sys.modules:
        start = os.path.join(_PACKAGE, "__init__.py")  # noqa: PTH118
        spec: Any = importlib.util.spec_from_file_location(
            "interlane", start, submodule_search_locations=[_PACKAGE]
        )
        module = sys.modules["interlane"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return importlib.import_module("interlane.device.inject")


def _run_the_users_own() -> None:
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != _HERE]  # noqa: PTH100
    spec: Any = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if _PACKAGE:
    sys.meta_path.insert(0, _AfterTorch())
_run_the_users_own()
