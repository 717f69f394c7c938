"""Which nodes a pod may be on, in the scheduler's words: labels that a machine must have.

The scheduler knows one kind of rule, that a label has a value.  What says more (a node affinity
with several terms, an empty value, an operator) becomes a label of our own, which exactly the
nodes have that fit: a machine's labels are computed here anyway.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from interlane.engines.kubernetes.annotations import DOMAIN
from interlane.live.files.job import ANY_VALUE
from interlane.model import InvalidInput

FITS: Final = f"{DOMAIN}/fits-"
YES: Final = "yes"
HARD: Final = ("NoSchedule", "NoExecute")
"""Effects that keep pods away; the third only wishes to."""
BY_CONDITION: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
CORDONED: Final = "node.kubernetes.io/unschedulable"
NOT_TAINTS: Final = frozenset({*BY_CONDITION, CORDONED})
"""Taints that say what a drained machine says already."""

Rule = Mapping[str, Any]


@dataclass
class FitRules:
    """Rules that were asked for, by the label that stands for them."""

    known: dict[str, Rule] = field(default_factory=dict)

    def selectors_of(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels that a node must have for a pod; may make a rule known."""
        spec = pod["spec"]
        _must_understand(spec.get("affinity") or {})
        plain = dict(spec.get("nodeSelector") or {})
        terms = _terms(spec.get("affinity") or {})
        empty = {key: value for key, value in plain.items() if not value}
        if not terms and not empty:
            return plain
        rule = {"labels": empty, "terms": terms}
        label = FITS + sha256(json.dumps(rule, sort_keys=True).encode()).hexdigest()[:16]
        self.known[label] = rule
        return {**{key: value for key, value in plain.items() if value}, label: YES}

    def labels_of(self, node: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels of our own that a node has."""
        return {label: YES for label, rule in self.known.items() if _fits(rule, node)}


def tolerations_of(pod: Mapping[str, Any], taints: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return which taints a pod tolerates: a key and a value, or any value.

    One that tolerates every key tolerates those that there are.
    """
    found: dict[str, str] = {}
    for one in pod["spec"].get("tolerations") or ():
        if one.get("effect") == "PreferNoSchedule" or one.get("key") in NOT_TAINTS:
            continue
        key, exists = one.get("key") or "", one.get("operator") == "Exists"
        if not key:
            found |= {there: ANY_VALUE for there, _ in taints} if exists else {}
        elif exists or not one.get("value") or found.get(key, one["value"]) != one["value"]:
            found[key] = ANY_VALUE
        else:
            found[key] = one["value"]
    return found


def taints_of(node: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the taints of a node that keep pods away."""
    taints = (node.get("spec") or {}).get("taints") or ()
    pairs = {
        (one["key"], one.get("value") or "")
        for one in taints
        if one.get("effect") in HARD and one["key"] not in NOT_TAINTS
    }
    return tuple(sorted(pairs))


def _must_understand(affinity: Mapping[str, Any]) -> None:
    """Refuse rules that would be broken in silence."""
    for kind in ("podAffinity", "podAntiAffinity"):
        asked = (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        if asked:
            raise InvalidInput(
                f"spec.affinity.{kind} requires something of other pods, which interlane does "
                "not know; use node affinity, a gang, or make it preferred."
            )


def _terms(affinity: Mapping[str, Any]) -> list[Any]:
    node = affinity.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


def _fits(rule: Rule, node: Mapping[str, Any]) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in rule["labels"].items()):
        return False
    terms = rule["terms"]
    return not terms or any(_fits_term(term, node, labels) for term in terms)


def _fits_term(
    term: Mapping[str, Any], node: Mapping[str, Any], labels: Mapping[str, str]
) -> bool:
    """Tell whether all of a term holds; an empty one holds nowhere."""
    by_label = term.get("matchExpressions") or ()
    by_field = term.get("matchFields") or ()
    fields = {"metadata.name": node["metadata"]["name"]}
    return bool(by_label or by_field) and (
        all(_holds(one, labels) for one in by_label)
        and all(_holds(one, fields) for one in by_field)
    )


def _holds(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(one["key"]), one.get("values") or ()
    match one["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as how:
            return _compares(how, value, values)
        case _:
            return False


def _compares(how: str, value: str | None, values: Iterable[str]) -> bool:
    try:
        found, bound = int(value or ""), int(next(iter(values), ""))
    except ValueError:
        return False
    return found > bound if how == "Gt" else found < bound
