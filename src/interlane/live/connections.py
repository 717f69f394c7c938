"""Connections have bounds: how many there are, and how long a request or an answer may take.

The server takes connections up itself, one by one, so that they are counted before anything is
read of them.  Where there are too many, an idle one makes way: the oldest of whoever has most,
so that who opens many only loses their own.  Where those who have many are busy with all of
them, because they watch or wait for answers, the newest of whoever has most makes way: nobody
keeps others out by being busy.
"""

import asyncio
import logging
import resource
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address, ip_address
from time import monotonic
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlane.live.auth import Caller
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import CALLER
from interlane.live.rates import RateLimit

HEADER_BYTES_MAX: Final = 1 << 16
BODY_BYTES_PER_S: Final = 1 << 18
"""How fast bodies come at least, once their time has passed."""

IN_A_ROW_S: Final = 5.0
"""Of how many seconds an address may open its connections at once."""

AT_ONCE: Final = 64
"""Connections that are taken up in one turn of the loop, at most: one alone would be too few of
a loop that has much to do, and all who wait too many for those who have one."""

FEW: Final = 4
"""Connections that nobody loses, idle or not, while others have more."""

AHEAD: Final = 32
"""Connections that are chosen at a time to make way for those who come."""

LOOK_S: Final = 0.1
"""Seconds for which that choice counts: an owner may have fewer by then."""

SHORT_S: Final = 0.1
"""Seconds to wait where the system has no descriptors left."""

log = logging.getLogger("interlane.live")


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection, from the moment that it was taken up."""

    address: str
    socket: socket.socket
    protocol: "BoundedProtocol | None" = None
    """None as long as the two sides have not agreed on how to encrypt."""

    @property
    def owner(self) -> str:
        """Whose it is: the caller's whose token was seen on it, else the address's."""
        known = None if self.protocol is None else self.protocol.owner
        return self.address if known is None else f"token {known}"

    @property
    def is_stranger(self) -> bool:
        """Whether no token was seen on it."""
        return self.protocol is None or self.protocol.owner is None

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0 and not (
            self.protocol is not None and self.protocol.is_closing
        )

    @property
    def is_idle(self) -> bool:
        """Whether no request is in hand; a websocket that has ended counts, too."""
        return self.protocol is None or self.protocol.is_idle or not self.is_open

    def close(self) -> None:
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """All connections of a server."""

    def __init__(self, bounds: ServerBounds, *, count_addresses: bool = True) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.bounds = bounds
        self.most = max(1, min(bounds.connections, descriptors // 2))
        self._count_addresses = count_addresses
        """Not behind a proxy, whose address they all have."""
        self._all: dict[_Connection, None] = {}
        """In the order in which they came."""
        self._by_address: Counter[str] = Counter()
        self._next: dict[str | None, tuple[bool, deque[_Connection]]] = {}
        """Who makes way next, of an address or of all, as of the last look."""
        self._looked_s = 0.0
        per_s = bounds.connections_per_s
        self._rate = RateLimit(per_s, IN_A_ROW_S * per_s)

    def admit(self, taken: socket.socket, address: str) -> _Connection | None:
        """Return a new connection, if there is room or others make way."""
        if self._count_addresses and self._rate.wait_s(address):
            return None
        most = self.bounds.connections_per_address
        if self._count_addresses and self._by_address[address] >= most:
            if not self._make_way(address):
                return None
        elif len(self._all) >= self.most and not self._make_way(None):
            return None
        made = _Connection(address, taken)
        self._all[made] = None
        self._by_address[address] += 1
        return made

    def leave(self, one: _Connection) -> None:
        """Forget a connection that has ended."""
        if one not in self._all:
            return
        del self._all[one]
        self._by_address[one.address] -= 1
        if not self._by_address[one.address]:
            del self._by_address[one.address]

    def _make_way(self, address: str | None) -> bool:
        """Close one of an address, or of all; return whether there was one to be closed."""
        if monotonic() > self._looked_s + LOOK_S:
            self._next.clear()
        for is_new in (False, True):
            if is_new:
                self._next[address] = self._looked(address)
                self._looked_s = monotonic()
            is_idle, ahead = self._next.get(address, (True, deque()))
            while ahead:
                one = ahead.popleft()
                if one in self._all and (one.is_idle or not is_idle):
                    one.close()
                    self.leave(one)
                    return True
        return False

    def _looked(self, address: str | None) -> tuple[bool, deque[_Connection]]:
        """Return who makes way next, and whether for being idle: first of whoever has most.

        All connections are looked at for it, so that is done once for several who come.
        """
        among = [one for one in self._all if address in (None, one.address)]
        owners = {one: one.owner for one in among}
        held = Counter(owners.values())
        idle = [one for one in among if one.is_idle]
        is_idle, may, few = True, idle, 0
        if address is None:
            is_idle, may, few = _crowd(among, idle, lambda one: held[owners[one]])
        theirs: dict[str, deque[_Connection]] = {}
        for one in may:
            theirs.setdefault(owners[one], deque()).append(one)
        found: deque[_Connection] = deque()
        while theirs and len(found) < AHEAD:
            most = max(theirs, key=held.__getitem__)  # the first of equals is oldest
            if held[most] <= few:
                break
            found.append(theirs[most].popleft())
            held[most] -= 1
            if not theirs[most]:
                del theirs[most]
        return is_idle, found


class BoundedProtocol(HttpToolsProtocol):
    """Speaks HTTP, and ends connections that take too long."""

    def __init__(
        self,
        bounds: ServerBounds,
        on_lost: Callable[[], None],
        **settings: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(**settings)
        self._bounds = bounds
        self._on_lost = on_lost
        self._reading: asyncio.TimerHandle | None = None
        """Until then the header or the body must have come."""
        self._writing: asyncio.TimerHandle | None = None
        self._in_header = True
        self._header_bytes = 0
        self._is_upgraded = False
        self._caller: str | None = None
        """Whose request was answered on it last."""

    @property
    def owner(self) -> str | None:
        """Whose token was seen on it: that of the request in hand, else of the last one."""
        cycle: Any = self.cycle  # None before the first request
        known: Caller | None = None if cycle is None else cycle.scope.get(CALLER)
        return self._caller if known is None else known.name

    @property
    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in hand."""
        if self._is_upgraded:
            return False
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header."""
        super().connection_made(transport)
        self._expect(self._bounds.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._on_lost()
        self._expect(None)
        self._cancel_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        if self._in_header:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_upgraded or self.transport.is_closing():
            return
        if self._in_header and self._header_bytes > HEADER_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._reading is None and self.is_idle:
            self._expect(self._bounds.header_s)  # a line that begins no request counts, too

    def on_message_begin(self) -> None:
        """Wait for the header of a request."""
        super().on_message_begin()
        self._in_header, self._header_bytes = True, 0
        if self._reading is None:
            self._expect(self._bounds.header_s)

    def on_headers_complete(self) -> None:
        """Wait for the body of a request."""
        self._in_header, self._header_bytes = False, 0
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        length_s = int(length) / BODY_BYTES_PER_S if length.isdigit() else 0.0
        self._expect(self._bounds.body_s + length_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for nothing: the request has come."""
        self._expect(None)
        self._in_header = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note whose request it was."""
        known: Caller | None = self.cycle.scope.get(CALLER)  # type: ignore[assignment]
        if known is not None:
            self._caller = known.name
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to another protocol."""
        self._expect(None)
        self._is_upgraded = True
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """Wait for the other side to read."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self._bounds.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._cancel_writing()
        super().resume_writing()

    def _cancel_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _expect(self, within_s: float | None) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if within_s is not None:
            self._reading = self.loop.call_later(within_s, self._give_up)

    def _give_up(self) -> None:
        self._reading = None
        if self.is_idle and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.abort()  # an answer may be half written

    def _refuse(self, status: HTTPStatus) -> None:
        self.transport.write(_answer(status))
        self.transport.close()


def _answer(status: HTTPStatus) -> bytes:
    said = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    return f"{said}connection: close\r\n\r\n".encode()


class BoundedServer(uvicorn.Server):
    """Takes up connections as long as there is room for them."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._held = connections
        self._accepting: list[asyncio.Task[None]] = []
        self._beginning: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and take up connections."""
        await super().startup(sockets=[])  # nobody else listens
        for listener in sockets or ():
            listener.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listener)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take up no more, and end."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("A connection could not be taken up: %s", error)
                await asyncio.sleep(SHORT_S)
                continue
            for taken, peer in (found, *_waiting(listener)):
                try:
                    self._take_up(taken, peer)
                except Exception as error:  # no reason to take up nobody any more
                    log.error("A connection could not be taken up.", exc_info=error)
                    taken.close()

    def _take_up(self, taken: socket.socket, peer: tuple[Any, ...]) -> None:
        """Let a connection begin, or turn it away."""
        found = self._held.admit(taken, _group(peer))
        if found is None:
            _turn_away(taken, is_encrypted=self.config.is_ssl)
            return
        task = asyncio.create_task(self._begin(found))
        self._beginning.add(task)
        task.add_done_callback(partial(self._begun, found))

    def _begun(self, found: _Connection, task: "asyncio.Task[None]") -> None:
        self._beginning.discard(task)
        if task.cancelled():  # perhaps before it did anything
            found.socket.close()
            self._held.leave(found)

    async def _begin(self, found: _Connection) -> None:
        """Let a connection speak HTTP."""
        bounds = self._held.bounds
        handshake = {"ssl_handshake_timeout": bounds.header_s} if self.config.is_ssl else {}
        try:
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(found), found.socket, ssl=self.config.ssl, **handshake
            )
        except Exception as error:
            log.debug("A connection could not begin: %s", error)
            found.socket.close()
            self._held.leave(found)
        else:
            found.protocol = protocol

    def _protocol(self, found: _Connection) -> BoundedProtocol:
        return BoundedProtocol(
            self._held.bounds,
            lambda: self._held.leave(found),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )


def _crowd(
    among: list[_Connection], idle: list[_Connection], held: Callable[[_Connection], int]
) -> tuple[bool, list[_Connection], int]:
    """Return of whom some make way, whether for being idle, and how many each of them keeps.

    Strangers who have said nothing do first, then who is idle on one of many, then who is busy
    on many.
    """
    strangers = [one for one in idle if one.is_stranger and held(one) > 1]
    if strangers:
        return True, strangers, 1
    many = [one for one in idle if held(one) > FEW]
    if many:
        return True, many, FEW
    busy = [one for one in reversed(among) if held(one) > FEW]
    return (False, busy, FEW) if busy else (True, idle, 0)


def _waiting(listener: socket.socket) -> Iterator[tuple[socket.socket, tuple[Any, ...]]]:
    """Yield connections that wait to be taken up."""
    for _ in range(AT_ONCE - 1):
        try:
            taken, peer = listener.accept()
        except OSError:  # none waits; whatever else it is, the next turn sees it, too
            return
        taken.setblocking(False)
        yield taken, peer


def _turn_away(taken: socket.socket, *, is_encrypted: bool) -> None:
    with taken, suppress(OSError):
        taken.setblocking(False)
        if not is_encrypted:
            taken.send(_answer(HTTPStatus.SERVICE_UNAVAILABLE))


def _group(peer: tuple[Any, ...]) -> str:
    """Return what counts as one address: of IPv6, the network of one customer."""
    address = ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else address.exploded[:19]
