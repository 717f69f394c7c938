"""A replica answers what it is asked over its line, whatever else is in the same batch."""

import os
import socket
import threading
from collections.abc import Iterator

from interlane.engines.local.functions.replica import ReplicaOrder, run
from interlane.engines.local.functions.wire import (
    Item,
    Reader,
    ReplicaFrame,
    ReplicaFrameKind,
    Status,
    packed,
)

DEEP = b"[" * 100_000
PATIENCE_S = 180.0


def frames(line: socket.socket) -> Iterator[ReplicaFrame]:
    """What a replica says, until it has ended."""
    reader = Reader()
    while data := line.recv(1 << 16):
        yield from reader.take(data)


def answers(
    *bodies: bytes, handler: str, in_batches: bool, together_max: int = 1_000
) -> list[Item]:
    """What a replica answers to one call."""
    order = ReplicaOrder(handler, None, None, 1, in_batches, 100, together_max, {})
    ours, theirs = socket.socketpair()
    page = os.memfd_create("page")

    def replica() -> None:
        with theirs:
            run(order, theirs, page)

    thread = threading.Thread(target=replica, daemon=True)
    thread.start()
    with ours:
        ours.settimeout(PATIENCE_S)
        said = frames(ours)
        assert next(said).kind == ReplicaFrameKind.READY
        ours.sendall(packed(ReplicaFrameKind.CALL, 7, [(Status.GOOD, one) for one in bodies]))
        found = next(said)
        ours.shutdown(socket.SHUT_WR)
        thread.join()
    os.close(page)
    assert (found.kind, found.number) == (ReplicaFrameKind.ANSWER, 7)
    return found.items


def test_brackets_without_end_spoil_no_other_member_of_a_batch() -> None:
    first, deep, last = answers(b"1", DEEP, b"2", handler="builtins:list", in_batches=True)

    assert (first, last) == ((Status.GOOD, b"1"), (Status.GOOD, b"2"))
    assert deep.status == Status.NOT_JSON


def test_brackets_without_end_are_no_json_where_calls_come_one_by_one() -> None:
    (found,) = answers(DEEP, handler="builtins:str", in_batches=False)

    assert found.status == Status.NOT_JSON


def test_an_answer_that_is_too_long_is_replaced_by_a_sentence() -> None:
    short, long = answers(
        b'"ab"', b'"%s"' % (b"x" * 200), handler="builtins:list", in_batches=True
    )

    assert short == (Status.GOOD, b'"ab"')
    assert long.status == Status.RAISED
    assert b"202 bytes" in long.data


def test_answers_to_one_call_are_bounded_together() -> None:
    body = b'"%s"' % (b"x" * 90)
    found = answers(*[body] * 3, handler="builtins:list", in_batches=True, together_max=200)

    assert [one.status for one in found] == [Status.GOOD, Status.GOOD, Status.RAISED]
