"""Reports of Pods that stopped: the end of a failed VM's log is kept and shown, within limits; a log that cannot be read costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bramley.api.pod import Pod
from bramley.base import errors
from bramley.kube.transport import Request, Response, Stream
from tests.dispatch_world import DispatchWorld, a_dispatch_world

MAX_LOG_BYTES = 64 * 1024


@dataclass(slots=True)
class WithLog:
    """The API whose Pods have this log; None hangs, an error is raised."""

    inner: Any
    log: bytes | errors.BramleyError | None

    async def send(self, request: Request) -> Response:
        response: Response = await self.inner.send(request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        if not request.path.endswith("/log"):
            async with self.inner.stream(request) as stream:
                yield stream
            return
        if isinstance(self.log, errors.BramleyError):
            raise self.log
        yield Stream(200, {}, self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.log is None:
            await asyncio.get_running_loop().create_future()
        content = self.log if isinstance(self.log, bytes) else b""
        for start in range(0, len(content), 10_000):
            yield content[start : start + 10_000]

    async def close(self) -> None:
        await self.inner.close()


async def log_of_a_pod(
    world: DispatchWorld, log: bytes | errors.BramleyError | None, phase: str
) -> tuple[Response, float]:
    """Return the kept log of a job whose Pod ended in this phase, and the seconds of the report."""
    world.wrap = lambda transport: WithLog(transport, log)
    await world.start()
    pod: Pod = await world.a_pod()
    job = world.queue_job()
    await asyncio.sleep(1)
    assert (await world.poll(await world.a_token(pod))).status == 200
    start = world.clock.monotonic()
    await world.end(pod, phase)
    seconds = world.clock.monotonic() - start
    token = world.world.token
    return await world.send(f"/api/v1/jobs/{job.id}/log", method="GET", token=token), seconds


async def test_log_of_a_failed_vm_is_kept(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        kept, _ = await log_of_a_pod(world, b"line 1\nno \x1b[2Jdisk\n", "Failed")

        assert (kept.status, kept.body.decode()) == (200, "line 1\nno \ufffd[2Jdisk\n")
        assert kept.headers["content-type"] == "text/plain; charset=utf-8"


async def test_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        kept, _ = await log_of_a_pod(world, b"\xff" * 200_000 + b"the cause", "Failed")

        assert len(kept.body) <= MAX_LOG_BYTES
        assert kept.body.endswith(b"the cause")


async def test_no_log_is_kept_of_a_vm_that_succeeded(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        kept, _ = await log_of_a_pod(world, b"fine", "Succeeded")

        assert kept.status == 404


@pytest.mark.parametrize(
    "log", [None, errors.ApiUnavailable("refused")], ids=["hangs", "unavailable"]
)
async def test_log_that_cannot_be_read_does_not_hold_the_report(
    tmp_path: Path, log: errors.BramleyError | None
) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        kept, seconds = await log_of_a_pod(world, log, "Failed")

        assert kept.status == 404
        # The pool controller gives its report up after five seconds.
        assert seconds < 5
        assert all(each.claim.ended_at for each in await world.store.live_claims())
