"""A job at the door: it asks a daemon for its place, and waits for it."""

import os
import socket
from collections.abc import Callable
from io import FileIO
from math import inf
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Final

from interlane.device import wire
from interlane.device.link import ADMITTED_WITH, Link, NoDaemon, connected, received
from interlane.device.page import map_page
from interlane.device.talk import say
from interlane.device.wire import Frame, FrameKind
from interlane.model.errors import Rejected

BACKOFF_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Pauses between attempts to connect again; the last one repeats."""


def admitted_in_time(path: Path, hello: Frame, patience_s: float) -> Link:
    """Ask to be admitted, and again while there is no daemon and patience lasts.

    A job that a daemon has queued waits for the next one as long as jobs that run do.
    """
    end_ns = monotonic_ns() + patience_s * 1e9
    is_queued = False

    def queued(why: str) -> None:
        nonlocal is_queued
        is_queued = True
        say_queued(why)

    while True:
        try:
            return admitted(path, hello, queued)
        except NoDaemon:
            if is_queued:
                say("the device daemon is gone; the job waits for a new one")
                is_queued, end_ns = False, inf
            elif monotonic_ns() >= end_ns:
                raise
            sleep(BACKOFF_S[-1])


def say_queued(why: str) -> None:
    """Tell people why the job is not admitted yet."""
    say(f"queued: {why}")


def admitted(path: Path, hello: Frame, on_queued: Callable[[str], None]) -> Link:
    """Connect, ask, and wait until the daemon admits the job."""
    line = connected(path)
    try:
        line.send(wire.packed(hello))
        link = link_of(line, on_queued)
    except ConnectionError:
        link = None
    except BaseException:
        line.close()
        raise
    if link is None:
        line.close()
        raise NoDaemon(path)
    return link


def link_of(line: socket.socket, on_queued: Callable[[str], object] = str) -> Link | None:
    """Wait on a line that has said HELLO for admission; None when the daemon is gone."""
    while True:
        message, descriptors = received(line)
        frame = wire.read(message)
        if frame is None:
            return None
        if frame.kind is FrameKind.REJECT:
            raise Rejected(frame.text)
        if frame.kind is FrameKind.QUEUED:
            on_queued(frame.text)
        if frame.kind is FrameKind.ADMIT and len(descriptors) == ADMITTED_WITH:
            memory, bell, baton = descriptors
            try:
                return Link(line, frame, map_page(memory), bell, FileIO(baton))
            finally:
                os.close(memory)
