from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.providers.threads import Threads

pytestmark = pytest.mark.real_time

LONG, SHORT = timedelta(seconds=30), timedelta(seconds=0.1)
HANGING = """
import asyncio, threading
from datetime import timedelta
from bramley.base import errors
from bramley.providers.threads import Threads

async def main():
    try:
        await Threads().run("zone", threading.Event().wait, deadline=timedelta(seconds=0.1), about="call")
    except errors.TimedOut as error:
        print(error)

asyncio.run(main())
"""


async def test_result_and_error_of_the_function_are_those_of_the_call() -> None:
    threads = Threads()

    assert await threads.run("a", lambda: 1, deadline=LONG, about="call") == 1
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", lambda: 1 / 0, deadline=LONG, about="call")


async def test_hanging_threads_hold_their_own_scope_only_and_until_they_end() -> None:
    threads, release = Threads(per_scope=2), threading.Event()
    hanging = [
        threads.run("a", release.wait, deadline=SHORT, about=f"call {number}")
        for number in range(4)
    ]

    ends = await asyncio.gather(*hanging, return_exceptions=True)

    assert [type(end) for end in ends] == [errors.TimedOut] * 4
    assert str(ends[0]) == "call 0: no response within 0.1 s"
    assert await threads.run("b", lambda: 1, deadline=LONG, about="call") == 1
    started: list[int] = []
    with pytest.raises(errors.TimedOut):
        await threads.run("a", lambda: started.append(1), deadline=SHORT, about="call")
    assert started == []
    release.set()
    assert await threads.run("a", lambda: 1, deadline=LONG, about="call") == 1


async def test_number_of_threads_is_bounded() -> None:
    threads, running, most = Threads(per_scope=3), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    calls = (threads.run("a", work, deadline=LONG, about="call") for _ in range(12))
    await asyncio.gather(*calls)

    assert most[0] == 3


def test_process_ends_while_a_thread_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout == "call: no response within 0.1 s\n"
    assert done.stderr == ""


def test_importing_the_provider_does_not_load_the_sdk() -> None:
    code = "import sys, bramley.providers.scaleway; print({'scaleway', 'scaleway_core', 'requests'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
