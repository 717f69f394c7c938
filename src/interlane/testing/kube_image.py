"""Container images for tests, made here of what this machine has: no registry is asked.

``BUSYBOX`` has a shell.  ``HOST`` is empty and made to be filled: with this machine's ``/usr``
mounted into it (``host_mounts``) it runs this machine's Python and all that is installed.
"""

import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

PAUSE: Final = "interlane.test/pause:1"
BUSYBOX: Final = "interlane.test/busybox:1"
HOST: Final = "interlane.test/host:1"
LINKS: Final = ("bin", "sbin", "lib", "lib64")
FOLDERS: Final = ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var", "opt", "root")
SHELL_WORDS: Final = ("sh", "sleep", "cat", "echo", "env", "ls", "touch", "true", "false", "dd")


class BusyboxMissing(Exception):
    """There is no shell that runs without libraries."""


def write_images(path: Path) -> None:
    """Write an archive with all images, as ``ctr images import`` reads it."""
    found = shutil.which("busybox")
    if found is None:
        raise BusyboxMissing("There is no busybox; 'apt-get install busybox-static' brings it.")
    shell = _shell_layer(Path(found).read_bytes())
    with tarfile.open(path, "w") as archive:
        listed = [
            _image(archive, PAUSE, shell, ["/bin/sleep", "2147483647"]),
            _image(archive, BUSYBOX, shell, ["/bin/sh"]),
            _image(archive, HOST, _host_layer(), ["/bin/sh"]),
        ]
        _add(archive, "manifest.json", json.dumps(listed).encode())


def _image(
    archive: tarfile.TarFile, name: str, layer: bytes, command: Sequence[str]
) -> dict[str, Any]:
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    said = json.dumps(config).encode()
    file, inside = f"{hashlib.sha256(said).hexdigest()}.json", f"{digest}/layer.tar"
    if inside not in archive.getnames():
        _add(archive, inside, layer)
    if file not in archive.getnames():
        _add(archive, file, said)
    return {"Config": file, "RepoTags": [name], "Layers": [inside]}


def _shell_layer(busybox: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as layer:
        for folder in ("bin", "tmp", "proc", "sys", "dev", "etc", "run"):
            _folder(layer, folder)
        _add(layer, "bin/busybox", busybox, mode=0o755)
        for word in SHELL_WORDS:
            _link(layer, f"bin/{word}", "busybox")
    return made.getvalue()


def _host_layer() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as layer:
        for folder in FOLDERS:
            _folder(layer, folder)
        for link in LINKS:
            _link(layer, link, f"usr/{link}")
    return made.getvalue()


def _folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def host_mounts(*more: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return volumes and mounts with which ``HOST`` runs this Python; ``more`` can be written.

    Everything lies where it lies on this machine.
    """
    source = Path(__file__).resolve().parents[2]
    python = (Path(sys.prefix), Path(sys.base_prefix))
    read_only = dict.fromkeys((Path("/usr"), *python, source))
    volumes, mounts = [], []
    for at, path in enumerate([*read_only, *more]):
        volumes.append({"name": f"host-{at}", "hostPath": {"path": str(path)}})
        mounts.append(
            {
                "name": f"host-{at}",
                "mountPath": str(path),
                "readOnly": path in read_only,
            }
        )
    return volumes, mounts
