"""Guests whose environment names a dispatch endpoint: they poll it for their job, as processes and under virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bramley.sim.tart import guest_process
from tests.contract.tart.guest_scripts import guest, reported, run, shares
from tests.contract.tart.targets import (
    REAL,
    VIRTUAL,
    Started,
    Tart,
    VirtualTimeDriver,
    both,
    on,
    run_case,
)
from tests.dispatch_peer import DispatchPeer

TOKEN = "token.of.one"
JIT = "eyJhIjoxfQ=="


@contextlib.asynccontextmanager
async def polling(
    tart: Tart, *, variables: str = "", **script: Any
) -> AsyncIterator[tuple[DispatchPeer, tuple[str, ...]]]:
    """Yield an endpoint and the shares of a VM that polls it."""
    guest(tart, **script)
    await tart.a_vm()
    words = shares(tart)
    peer = DispatchPeer(authenticate={TOKEN: "one"}.get)
    with contextlib.ExitStack() as stack:
        if isinstance(tart.driver, VirtualTimeDriver):
            url = "http://peer/api/internal/runners/dispatch"
            tart.driver.mac.tart.http = peer.answer
        else:
            url = stack.enter_context(peer.serve())
        env = tart.home.parent / "shares/env"
        (env / "sa_token").write_text(TOKEN)
        (env / "tuist.env").write_text(f"TUIST_RUNNER_DISPATCH_URL={url}\n{variables}")
        yield peer, words


async def started(tart: Tart, peer: DispatchPeer, words: tuple[str, ...]) -> Started:
    """Run the VM until its guest has polled."""
    running = await tart.running("one", *words)
    await tart.until(lambda: bool(peer.polls_of("one")))
    return running


def script_processes(tart: Tart) -> list[int]:
    """Return the processes of pollers of this machine, by the folder in their environment."""
    own = os.fsencode(tart.home / "vms")
    variable = b"DISPATCH_POLL_FOLDER=" + own
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable in (each / "environ").read_bytes():
                found.append(int(each.name))
    return found


@both
async def test_drained_guest_reports_success_and_halts(tart: Tart) -> None:
    async with polling(tart, code=5, then="stay") as (peer, words):
        running = await started(tart, peer, words)
        peer.is_drained = lambda pod: pod == "one"
        ended = await running.end()

    assert (ended.code, ended.stdout) == (0, "guest has stopped the virtual machine\n")
    assert reported(tart, "runner-rc") == "0\n"


@both
async def test_guest_runs_the_job_that_it_is_handed(tart: Tart) -> None:
    async with polling(tart, lines=["on {HOSTNAME}"], code=3, writes_bytes=1) as (peer, words):
        running = await started(tart, peer, words)
        peer.jobs["one"] = JIT
        await running.end()

    assert reported(tart, "runner-rc") == "3\n"
    assert "on one\n" in reported(tart, "runner.log")
    assert peer.jobs == {}


@on(VIRTUAL)
async def test_guest_with_a_refused_token_fails(tart: Tart) -> None:
    async with polling(tart) as (peer, words):
        peer.authenticate = lambda _: None
        await run(tart, *words)

    assert reported(tart, "runner-rc") == "1\n"
    assert len(peer.requests) == 31


@both
async def test_job_s_end_is_that_of_its_script(tart: Tart) -> None:
    async with polling(tart, then="crash", code=None) as (peer, words):
        peer.jobs["one"] = JIT
        _, out, _ = await run(tart, *words)

    assert "due to error" in out
    assert not (tart.home.parent / "shares/status/runner-rc").exists()


@both
async def test_hostile_guest_that_polls_leaves_links(tart: Tart) -> None:
    async with polling(tart, plants={"runner.log": "link:/etc/passwd"}) as (peer, words):
        peer.answers["one"] = 410
        await run(tart, *words)

    assert (tart.home.parent / "shares/status/runner.log").is_symlink()


@both
async def test_idle_runner_is_terminated(tart: Tart) -> None:
    idle = "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS=50\n"
    async with polling(tart, variables=idle, wait=100_000, code=5) as (peer, words):
        peer.jobs["one"] = JIT
        await run(tart, *words)

    assert reported(tart, "runner-rc") == "0\n"


@both
async def test_polling_guest_shuts_down_on_request(tart: Tart) -> None:
    async with polling(tart) as (peer, words):
        running = await started(tart, peer, words)
        await tart.done("exec", "one", "sudo", "shutdown", "-h", "now")
        ended = await running.end()

    assert ended.stdout == "guest has stopped the virtual machine\n"
    assert reported(tart, "runner-rc") == "143\n"


@both
async def test_working_guest_that_polled_shuts_down_on_request(tart: Tart) -> None:
    async with polling(tart, work=100_000) as (peer, words):
        peer.jobs["one"] = JIT
        running = await started(tart, peer, words)
        log = tart.home.parent / "shares/status/runner.log"
        await tart.until(lambda: "job started" in log.read_text())
        await tart.done("exec", "one", "sudo", "shutdown", "-h", "now")
        await running.end()

    assert reported(tart, "runner-rc") == "143\n"


@pytest.mark.parametrize("script", [{"polls": False}, {"has_address": False}], ids=str)
def test_guest_that_cannot_poll_stays(script: dict[str, Any], tmp_path: Path) -> None:
    async def case(tart: Tart) -> None:
        async with polling(tart, **script) as (peer, words):
            await tart.running("one", *words)
            await asyncio.sleep(3600)
            assert (peer.requests, len(tart.driver.guests())) == ([], 1)

    run_case(case, VIRTUAL, tmp_path)


@on(VIRTUAL)
async def test_guest_polls_every_two_seconds_once_it_is_ready(tart: Tart) -> None:
    async with polling(tart, ready=32) as (peer, words):
        peer.now = tart.driver.now
        began = tart.driver.now()
        await tart.running("one", *words)
        await asyncio.sleep(60)

    times = [each.at for each in peer.requests]
    assert 32 <= times[0] - began <= 34
    assert {round(b - a, 3) for a, b in itertools.pairwise(times)} == {2.0}


@on(VIRTUAL)
async def test_endpoint_that_does_not_answer_in_time_is_polled_again(tart: Tart) -> None:
    async def hang(*_: object) -> tuple[int, bytes]:
        calls.append(tart.driver.now())
        await asyncio.sleep(3600)
        return 410, b""

    calls: list[float] = []
    async with polling(tart) as (_, words):
        assert isinstance(tart.driver, VirtualTimeDriver)
        tart.driver.mac.tart.http = hang
        await tart.running("one", *words)
        await asyncio.sleep(60)

    assert round(calls[1] - calls[0], 3) == 12


@on(REAL)
async def test_poller_ends_with_a_vm_that_is_powered_off(tart: Tart) -> None:
    async with polling(tart) as (peer, words):
        running = await started(tart, peer, words)
        assert script_processes(tart)
        running.send(signal.SIGINT)
        await running.end()
        await tart.until(lambda: not script_processes(tart))

    assert not (tart.home.parent / "shares/status/runner-rc").exists()


@on(REAL)
async def test_poller_ends_with_a_guest_that_is_killed(tart: Tart) -> None:
    async with polling(tart) as (peer, words):
        await started(tart, peer, words)
        [pid] = tart.driver.guests()
        os.kill(pid, signal.SIGKILL)
        try:
            await tart.until(lambda: not script_processes(tart), 30)
        finally:
            for left in script_processes(tart):
                os.kill(left, signal.SIGKILL)


def test_script_of_the_repository_is_found() -> None:
    path = Path(guest_process.script_path())

    assert path.parts[-3:] == ("images", "runner", "dispatch-poll.sh")
    assert path.is_file()
