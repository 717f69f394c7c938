"""``interlane port-forward``: a port of a job, at a port of this machine."""

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.client import ApiClient, Failure, ServerOptions, job_path
from interlane.cli.completion import LiveJob
from interlane.cli.options import takes
from interlane.cli.output import say
from interlane.client.connection import heard
from interlane.model.errors import InterlaneError, InvalidInput

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

HERE: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 15
PORT_MAX: Final = 65_535


@takes(ServerOptions)
def port_forward(
    job: LiveJob,
    port: Annotated[
        str,
        typer.Argument(metavar="[LOCAL:]PORT", help="A port of the job, as 8888 or 9000:8888."),
    ],
    *,
    options: ServerOptions,
) -> None:
    """Reach a port at which a job listens, such as a notebook, at this machine.

    The job names its ports: `ports: [8888]`.  Only its owner and admins are led there.

    Examples:
      interlane port-forward notebook-7 8888
      interlane port-forward tensorboard-9 16006:6006
    """
    local, theirs = _ports(port)
    client = ApiClient(options)
    found = client.get(job_path(job)).document()
    named = found["spec"].get("ports", [])
    if theirs not in named:
        told = ", ".join(map(str, named)) or "none"
        raise InvalidInput(
            f"Job {job} names no port {theirs} (but: {told}); write 'ports: [{theirs}]' in its "
            "file."
        )
    with _listening(local) as listener:
        at = listener.getsockname()[1]
        say(f"http://{HERE}:{at} leads to port {theirs} of {job}; Control-C ends it.")
        while True:
            taken, _ = listener.accept()
            args = (client, f"{job_path(job)}/ports/{theirs}", taken)
            threading.Thread(target=_led, args=args, daemon=True).start()


def _ports(said: str) -> tuple[int, int]:
    """Return the port here and the port there."""
    local, colon, theirs = said.partition(":")
    words = (local, theirs) if colon else (local, local)
    if not all(one.isascii() and one.isdigit() and int(one) <= PORT_MAX for one in words):
        raise InvalidInput(f"The port {said!r} must read like 8888, or 9000:8888.")
    return int(words[0]), int(words[1])


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HERE, port))
    except OSError as error:
        raise InvalidInput(
            f"{HERE}:{port} cannot be listened on ({error.strerror}); choose another port, as "
            "in 9000:8888."
        ) from None


def _led(client: ApiClient, path: str, taken: socket.socket) -> None:
    """Pass one connection on, until one side ends it."""
    from websockets.exceptions import ConnectionClosed

    with taken:
        try:
            with client.dial(path) as line:
                back = threading.Thread(target=_back, args=(line, taken), daemon=True)
                back.start()
                while data := taken.recv(CHUNK_BYTES):
                    line.send(data)
        except (ConnectionClosed, OSError):
            pass
        except (Failure, InterlaneError) as error:
            say(f"interlane: {error}")


def _back(line: "ClientConnection", taken: socket.socket) -> None:
    from websockets.exceptions import ConnectionClosed

    try:
        for message in heard(line):
            taken.sendall(message if isinstance(message, bytes) else message.encode())
    except ConnectionClosed as closed:
        if closed.rcvd is not None and closed.rcvd.reason:
            say(f"interlane: {closed.rcvd.reason}")
    except OSError:
        pass
    with suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)
