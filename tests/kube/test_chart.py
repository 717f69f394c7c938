"""The chart renders to the very objects that ``kube manifests`` prints."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from interlane.engines.kubernetes.install.chart import chart_of
from interlane.engines.kubernetes.install.objects import Installation, objects_of

GO = shutil.which("go") or shutil.which("/usr/lib/go-1.19/bin/go")


@pytest.mark.skipif(GO is None, reason="Charts were not rendered: there is no Go here.")
@pytest.mark.parametrize("policy_api", ["policy/v1", "policy/v1beta1"])
def test_a_chart_renders_to_what_is_printed(policy_api: str, tmp_path: Path) -> None:
    wanted = Installation(
        "home", "image:1", "work", 3, "nvml", {"a": "b", "c": "true"}, policy_api
    )
    chart = chart_of(wanted)
    asked = {
        "Template": chart["templates/interlane.yaml"],
        "Values": yaml.safe_load(chart["values.yaml"]),
        "Release": {"Namespace": "home"},
        "Versions": [policy_api],
    }
    source = Path(__file__).with_name("render.go")
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "CGO_ENABLED": "0"}
    assert GO is not None
    done = subprocess.run(
        (GO, "run", str(source)),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )

    rendered = list(yaml.safe_load_all(done.stdout))
    assert rendered == [one for one in objects_of(wanted) if one["kind"] != "Namespace"]
