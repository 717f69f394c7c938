"""A replica: load a handler once, call it many times.

It runs in a fork of a fork server and imports the standard library only, apart from what the
handler wants.  Calls come one at a time, or to as many threads as the function allows.
"""

import asyncio
import inspect
import json
import mmap
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Final

from interlane.engines.local.functions.wire import (
    Item,
    Reader,
    ReplicaFrame,
    ReplicaFrameKind,
    Status,
    packed,
)

CHUNK_BYTES: Final = 1 << 18
SAID_MAX: Final = 2_000
"""Characters of an exception that are passed on."""

Handler = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """What a replica is told before it exists."""

    handler: str
    """``module:callable``."""
    load: str | None
    """``module:callable`` that makes what the handler gets first."""
    path: str | None
    concurrency: int
    in_batches: bool
    """The handler takes a list and returns one."""
    answer_bytes: int
    """What an answer may be at most."""
    answers_bytes: int
    """What the answers to one call may be together."""
    env: Mapping[str, str]


def run(order: ReplicaOrder, line: socket.socket, page: int) -> None:
    """Load, say so, and answer calls until nobody asks any more."""
    begin_s = time.perf_counter()
    try:
        handler = loaded(order)
    except BaseException as error:
        traceback.print_exc()
        line.sendall(packed(ReplicaFrameKind.FAILED, 0, [(Status.RAISED, _said(error))]))
        raise SystemExit(1) from None
    took = json.dumps(time.perf_counter() - begin_s).encode()
    line.sendall(packed(ReplicaFrameKind.READY, 0, [(Status.GOOD, took)]))
    answer = _in_batches(handler) if order.in_batches else _one_by_one(handler)
    bounded = _bounded(answer, order.answer_bytes, order.answers_bytes)
    _serve(bounded, line, shared_numbers(page, order.concurrency))


def shared_numbers(page: int, count: int) -> memoryview:
    """Return numbers that all processes see that hold this descriptor; all are 0 at first."""
    os.ftruncate(page, 4 * count)
    return memoryview(mmap.mmap(page, 4 * count)).cast("I")


def loaded(order: ReplicaOrder) -> Handler:
    """Load a handler, and what it gets first."""
    os.environ.update(order.env)
    if order.path is not None:
        sys.path.insert(0, order.path)
        os.chdir(order.path)
    handler = _named(order.handler)
    if inspect.iscoroutinefunction(handler):
        handler = _awaited(handler)
    if order.load is None:
        return handler
    model = _named(order.load)()
    return lambda asked: handler(model, asked)


def _named(words: str) -> Callable[..., Any]:
    module, _, name = words.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    if not callable(found):
        raise TypeError(f"{words} cannot be called")
    return found


def _awaited(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function that runs a coroutine function on its thread's own loop."""
    here = threading.local()

    def call(*arguments: object) -> object:
        if not hasattr(here, "runner"):
            here.runner = asyncio.Runner()
        return here.runner.run(handler(*arguments))

    return call


# -- calls ----------------------------------------------------------------------------

Answer = Callable[[list[Item]], list[tuple[int, bytes]]]


def _one_by_one(handler: Handler) -> Answer:
    def answer(items: list[Item]) -> list[tuple[int, bytes]]:
        return [_answered(handler, item.data) for item in items]

    return answer


def _answered(handler: Handler, data: bytes) -> tuple[int, bytes]:
    try:
        asked = json.loads(data)
    except Exception as error:  # brackets without end are no ValueError
        return Status.NOT_JSON, _said(error)
    try:
        return Status.GOOD, _as_json(handler(asked))
    except Exception as error:
        traceback.print_exc()
        return Status.RAISED, _said(error)


def _in_batches(handler: Handler) -> Answer:
    def answer(items: list[Item]) -> list[tuple[int, bytes]]:
        answers: list[tuple[int, bytes] | None] = []
        asked = []
        for item in items:
            try:
                asked.append(json.loads(item.data))
                answers.append(None)
            except Exception as error:
                answers.append((Status.NOT_JSON, _said(error)))
        given = iter(_together(handler, asked))
        return [next(given) if one is None else one for one in answers]

    return answer


def _together(handler: Handler, asked: list[Any]) -> list[tuple[int, bytes]]:
    """Answer a batch; if that fails, every input by itself, so that one spoils no other."""
    try:
        given = list(handler(asked)) if asked else []
        if len(given) != len(asked):
            raise ValueError(f"{len(asked)} inputs gave {len(given)} outputs")
    except Exception as error:
        traceback.print_exc()
        if len(asked) == 1:
            return [(Status.RAISED, _said(error))]
        return [reply for one in asked for reply in _together(handler, [one])]
    return [_written(one) for one in given]


def _written(given: object) -> tuple[int, bytes]:
    try:
        return Status.GOOD, _as_json(given)
    except Exception as error:
        return Status.RAISED, _said(error)


def _bounded(answer: Answer, bytes_max: int, together_max: int) -> Answer:
    """Replace answers that are too long, each or together, by a sentence."""

    def bounded(items: list[Item]) -> list[tuple[int, bytes]]:
        left, replies = together_max, []
        for status, data in answer(items):
            if len(data) > min(left, bytes_max):
                most = f"at most {bytes_max:,} in one and {together_max:,} in a batch"
                said = f"Its answer is {len(data):,} bytes; {most} may be sent."
                status, data = Status.RAISED, said.encode()
            left -= len(data)
            replies.append((status, data))
        return replies

    return bounded


def _as_json(given: object) -> bytes:
    return json.dumps(given, allow_nan=False, separators=(",", ":")).encode()


def _said(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(text.split())[:SAID_MAX].encode(errors="replace")


# -- the loop -------------------------------------------------------------------------


def _serve(answer: Answer, line: socket.socket, begun: memoryview) -> None:
    if len(begun) == 1:
        for frame in _frames(line):
            begun[0] = frame.number
            line.sendall(packed(ReplicaFrameKind.ANSWER, frame.number, answer(frame.items)))
        return
    waiting: SimpleQueue[ReplicaFrame] = SimpleQueue()
    lock = threading.Lock()

    def work(place: int) -> None:
        while True:
            frame = waiting.get()
            begun[place] = frame.number
            told = packed(ReplicaFrameKind.ANSWER, frame.number, answer(frame.items))
            with lock:
                line.sendall(told)

    for place in range(len(begun)):
        threading.Thread(target=work, args=(place,), daemon=True).start()
    for frame in _frames(line):
        waiting.put(frame)


def _frames(line: socket.socket) -> Any:  # noqa: ANN401 - an iterator of frames
    reader = Reader()
    while data := line.recv(CHUNK_BYTES):
        yield from reader.take(data)
