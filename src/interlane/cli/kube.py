"""``interlane kube``: install in a Kubernetes cluster, look at it, and serve its nodes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from interlane.cli.options import LANE_ORDERS, SharingOption
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.model.errors import InvalidField, InvalidInput

app = typer.Typer(
    name="kube",
    help="Share the GPUs of a Kubernetes cluster.",
    no_args_is_help=True,
)

HOME: Final = "interlane"

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Which cluster, and as whom; inside a pod, its own account.",
        show_default="as kubectl finds it",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(help="Context of that file.", show_default="its current one"),
]
HomeOption = Annotated[str, typer.Option("--home", help="The scheduler's own namespace.")]
SealOption = Annotated[
    Path,
    typer.Option(metavar="FILE", help="The scheduler's key, of Secret interlane-seal."),
]
JobsOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Where jobs of `interlane submit` run.")
]


@app.command()
def manifests(
    image: Annotated[
        str | None,
        typer.Option(help="Image that has interlane.", show_default="interlane:VERSION"),
    ] = None,
    home: HomeOption = HOME,
    namespace: JobsOption = "default",
    replicas: Annotated[
        int, typer.Option(min=1, max=9, help="Schedulers; one leads, the others wait.")
    ] = 2,
    devices: Annotated[
        str,
        typer.Option(help="What agents share: nvml for all GPUs and slices, cpu:N emulated."),
    ] = "nvml",
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Nodes that get an agent; repeatable, and '' for all.",
            show_default="nvidia.com/gpu.present=true",
        ),
    ] = None,
    kubernetes: Annotated[
        str, typer.Option(metavar="VERSION", help="What the cluster runs, as in 1.20.")
    ] = "1.30",
    tls_secret: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Secret with tls.crt and tls.key by which the scheduler encrypts.",
            show_default="something in front of it encrypts",
        ),
    ] = "",
    helm: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a Helm chart into a new folder instead."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print all that is to be installed, for `kubectl apply -f -`.

    Least rights, no root but on nodes, read-only file systems, probes, metrics and a disruption
    budget.  Example: interlane kube manifests --image registry.example/interlane:1 | kubectl
    apply -f -
    """
    from interlane.wiring.kube import kube_chart, kube_objects

    words: dict[str, Any] = {
        "namespace": home,
        "jobs_namespace": namespace,
        "replicas": replicas,
        "devices": devices,
        "tls_secret": tls_secret,
        "policy_api": "policy/v1" if _version(kubernetes) >= (1, 21) else "policy/v1beta1",
    }
    if image is not None:
        words["image"] = image
    if node_selector is not None:
        words["node_selector"] = dict(map(_pair, filter(None, node_selector)))
    if helm is not None:
        _write(helm, kube_chart(words))
        say(f"wrote {helm}; helm install interlane {helm} -n {home} --create-namespace")
        return
    made = kube_objects(words)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}, indent=2))
        return
    import yaml

    typer.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise InvalidField("--kubernetes", text, "a version reads like 1.30")
    return int(major), int(minor)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidField("--node-selector", text, "a label reads like KEY=VALUE")
    return key, value


def _write(folder: Path, files: dict[str, str]) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty; name a new folder with --helm.")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@app.command()
def status(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    home: HomeOption = HOME,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show each GPU of a cluster and who holds it, and pods that wait.

    It asks the API server alone, so that it answers without a scheduler, too.  Example:
    interlane kube status --kubeconfig ~/.kube/config
    """
    from interlane.wiring.kube import kube_status

    found = kube_status(kubeconfig, context, home)
    emit(asdict(found), output, _told(found))


def _told(found: Any) -> str:  # noqa: ANN401 - of an engine, which we do not know
    rows = [
        (
            one.node,
            str(one.number),
            one.type,
            ", ".join(one.pods) or "-",
            f"{one.held_milli / 10:g} %",
            "-" if one.slowdown is None else f"{one.slowdown:.2f}x",
        )
        for one in found.gpus
    ]
    parts = [grid(("node", "GPU", "type", "pods", "held", "slowdown"), rows, left=4)]
    if found.waiting:
        parts += ["", grid(("waiting", "why"), found.waiting, left=2)]
    return "\n".join(parts)


@app.command()
def doctor(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    home: HomeOption = HOME,
    namespace: JobsOption = "default",
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Say what this cluster can and cannot do, and what this account may do there.

    Found by discovery and by asking for each right.  Exit code 1 if something is missing that
    nothing works without.  Example: interlane kube doctor --context staging
    """
    from interlane.wiring.kube import kube_findings

    found = kube_findings(kubeconfig, context, home, namespace)
    rows = [(one.name, "yes" if one.holds else "no", one.here, one.follows) for one in found]
    table = grid(("what", "", "here", "what follows"), rows, left=4)
    emit({"findings": [asdict(one) for one in found]}, output, table)
    return int(not all(one.holds for one in found if one.is_needed))


@app.command()
def agent(
    node: Annotated[str, typer.Option(help="Name of the node that this runs on.")],
    seal: SealOption,
    namespace: Annotated[str, typer.Option(help="Where it reports.")] = HOME,
    kubeconfig: KubeconfigOption = None,
    devices: Annotated[
        str,
        typer.Option(help="What is shared: nvml for all GPUs and slices, cpu:N emulated."),
    ] = "nvml",
    turns: Annotated[
        str, typer.Option(help=f"Whose turn it is on a GPU that pods share: {LANE_ORDERS}.")
    ] = "fair",
    sharing: SharingOption = "measured",
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the node that pods see parts of.")
    ] = Path("/var/lib/interlane"),
    kubelet: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the kubelet has its folders.")
    ] = Path("/var/lib/kubelet"),
    host: Annotated[str, typer.Option(help="Address of metrics and probes.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of these.")] = 9441,
    report_every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.5, help="How often the scheduler is told."),
    ] = 10.0,
) -> None:
    """Serve a node: hand out its GPUs, let pods take turns, measure and report.

    The DaemonSet of `interlane kube manifests` runs it.  Example: interlane kube agent --node
    gpu-1 --seal /etc/interlane/seal/key
    """
    import logging

    from interlane.wiring.kube import kube_agent

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    kube_agent(
        node,
        kubeconfig=kubeconfig,
        namespace=namespace,
        seal=seal,
        devices=devices,
        turns=turns,
        sharing=sharing,
        folder=folder,
        kubelet=kubelet,
        host=host,
        port=port,
        report_every_s=report_every,
    )


@app.command()
def extender(
    seal: SealOption,
    kubeconfig: KubeconfigOption = None,
    placer: Annotated[str, typer.Option(help="Where a pod goes; see `policies`.")] = "pack",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 7412,
) -> None:
    """Answer the scheduler of a cluster that keeps it: filter, prioritise and bind.

    For pods that ask for interlane.dev/gpu-share; not together with `up --engine kubernetes`.
    Example: interlane kube extender --seal /etc/interlane/seal/key --placer fgd
    """
    from interlane.wiring.kube import kube_extender

    kube_extender(
        placer,
        kubeconfig=kubeconfig,
        seal=seal,
        host=host,
        port=port,
        say=lambda where: say(f"Serving {where} for the cluster's scheduler."),
    )
