"""Processes are told apart by what they do: nothing, something, or waiting for a core."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from interlane.device.activity import Activity, activity_of, ancestors_of
from interlane.testing.waiting import until


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def seen(pid: int) -> Activity:
    found = activity_of(pid)
    assert found is not None
    return found


def test_a_process_that_sleeps_is_still() -> None:
    with running("import time; print(flush=True); time.sleep(1000)") as process:
        before = seen(process.pid)

        until(lambda: seen(process.pid).at_s > before.at_s + 0.3)

        assert seen(process.pid).is_still_since(before)


def test_a_process_that_wakes_up_now_and_then_is_still_even_if_it_waits_for_cores() -> None:
    code = "import time; print(flush=True)\nwhile True: time.sleep(0.05)"
    busy = "print(flush=True)\nwhile True: pass"
    with running(code) as process, running(busy), running(busy), running(busy), running(busy):
        before = seen(process.pid)

        until(lambda: seen(process.pid).at_s > before.at_s + 1)

        assert seen(process.pid).is_still_since(before)


def test_a_process_that_computes_is_not_even_if_others_have_the_cores() -> None:
    busy = "print(flush=True)\nwhile True: pass"
    with running(busy) as process, running(busy), running(busy), running(busy):
        before = seen(process.pid)

        until(lambda: seen(process.pid).at_s > before.at_s + 0.3)

        assert not seen(process.pid).is_still_since(before)


def test_a_process_that_starves_is_not_still() -> None:
    starves = Activity(1.0, 5.0, is_runnable=True)

    assert not replace(starves, at_s=2.0).is_still_since(starves)
    assert replace(starves, at_s=2.0, is_runnable=False).is_still_since(starves)


def test_a_process_that_was_stopped_is_no_process_that_waits() -> None:
    with running("import time; print(flush=True); time.sleep(1000)") as process:
        before = seen(process.pid)
        process.send_signal(signal.SIGSTOP)

        until(lambda: seen(process.pid).is_stopped)

        assert not seen(process.pid).is_still_since(before)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    with running("print(flush=True)") as process:
        process.wait()

    assert activity_of(process.pid) is None
    assert ancestors_of(process.pid) == frozenset()


def test_a_process_descends_from_whoever_started_those_that_started_it() -> None:
    code = "import subprocess, sys\nprint(flush=True)\n"
    code += "subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(1000)'])"
    with running(code) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text().split())
        (child,) = map(int, children.read_text().split())

        assert {process.pid, os.getpid()} <= ancestors_of(child)
        assert child not in ancestors_of(child)
        os.kill(child, signal.SIGKILL)
