"""What a pod asks for, added up as Kubernetes adds it up.

Containers run together, so that what they ask for is summed.  Init containers run before them,
one at a time: of these the largest counts.  One that restarts always (a side-car) goes on
beside all that come after it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from interlane.engines.kubernetes.quantities import number

Amounts = dict[str, Decimal]


def asked_by(pod: Mapping[str, Any]) -> Amounts:
    """Return what a pod asks for in all, by resource."""
    spec = pod["spec"]
    sidecars: Counter[str] = Counter()
    peak: Amounts = {}
    for one in spec.get("initContainers") or ():
        asked = _of(one)
        if one.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            _raise(peak, sidecars)
        else:
            beside = Counter(sidecars)
            _add(beside, asked)
            _raise(peak, beside)
    together = Counter(sidecars)
    for one in spec["containers"]:
        _add(together, _of(one))
    _raise(peak, together)
    for name, text in (spec.get("overhead") or {}).items():
        peak[name] = peak.get(name, Decimal(0)) + number(f"overhead.{name}", text)
    return peak


def each_of(pod: Mapping[str, Any]) -> Iterable[tuple[str, Amounts]]:
    """Yield the name of each container that runs, and what it asks for."""
    for one in pod["spec"]["containers"]:
        yield one["name"], _of(one)


def _of(container: Mapping[str, Any]) -> Amounts:
    """Return what a container asks for; where it names a limit only, that."""
    resources = container.get("resources") or {}
    said = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    where = f"container {container.get('name')}"
    return {name: number(f"{name} of {where}", text) for name, text in said.items()}


def _add(to: "Counter[str]", asked: Mapping[str, Decimal]) -> None:
    for name, amount in asked.items():
        to[name] += amount  # type: ignore[assignment]


def _raise(peak: Amounts, to: Mapping[str, Any]) -> None:
    for name, amount in to.items():
        peak[name] = max(peak.get(name, Decimal(0)), Decimal(amount))
