"""The same objects as a Helm chart: what differs from cluster to cluster becomes a value.

The chart is made of the objects, so that there is one place that knows them: each value is put
in as a word that nothing else contains, and the word is replaced by the template's expression.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from interlane import __version__
from interlane.engines.kubernetes.install.objects import Installation, objects_of

_WORD: Final = "zz{}zz"
_POLICY: Final = (
    '{{ if .Capabilities.APIVersions.Has "policy/v1" }}policy/v1'
    "{{ else }}policy/v1beta1{{ end }}"
)
_REPLICAS: Final = 987_654
"""A number cannot be a word; nothing else has this one."""


def chart_of(wanted: Installation) -> dict[str, str]:
    """Return the files of a chart by path; what is wanted becomes the values' defaults."""
    words = {
        _word("namespace"): "{{ .Release.Namespace }}",
        _word("image"): "{{ .Values.image }}",
        _word("jobs"): "{{ .Values.jobsNamespace }}",
        _word("devices"): "{{ .Values.devices }}",
        _word("policy"): _POLICY,
        str(_REPLICAS): "{{ .Values.replicas }}",
        f"{_word('selector')}: {_word('selector')}": (
            "{{- toYaml .Values.nodeSelector | nindent 8 }}"
        ),
    }
    marked = Installation(
        _word("namespace"),
        _word("image"),
        _word("jobs"),
        _REPLICAS,
        _word("devices"),
        {_word("selector"): _word("selector")},
        _word("policy"),
        wanted.tls_secret,
        wanted.scheduler_options,
    )
    # Helm makes the namespace by itself (--create-namespace).
    made = [one for one in objects_of(marked) if one["kind"] != "Namespace"]
    return {
        "Chart.yaml": _dumped(
            {
                "apiVersion": "v2",
                "name": "interlane",
                "description": "Share GPUs of a cluster in space and in time.",
                "version": __version__,
                "appVersion": __version__,
            }
        ),
        "values.yaml": _dumped(
            {
                "image": wanted.image,
                "jobsNamespace": wanted.jobs_namespace,
                "replicas": wanted.replicas,
                "devices": wanted.devices,
                "nodeSelector": dict(wanted.node_selector),
            }
        ),
        "templates/interlane.yaml": _replaced(
            "---\n".join(_dumped(one) for one in made), words
        ),
    }


def _word(name: str) -> str:
    return _WORD.format(name)


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for word, expression in words.items():
        text = text.replace(word, expression)
    return text


def _dumped(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=1000)
    return text
