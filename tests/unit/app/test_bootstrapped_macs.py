"""The Macs of `bramley up --bootstrap`, in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bramley.app.bootstrapped_macs import Fleet, _endpoints, describe
from bramley.base import errors
from bramley.host import claim
from bramley.host.step import Step
from bramley.host.steps.sleep import Sleep
from bramley.sim.macos.connection import ModelConnection
from tests import virtual_time
from tests.unit.host.steps import fixtures


class InProcess(Fleet):
    """A fleet whose Macs are reached without SSH, and have one step."""

    async def steps(self, served: Any, name: str) -> list[Step]:  # noqa: ARG002 - part of the seam
        return [Sleep()]

    def connected(self, served: Any, name: str) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002 - part of the seam
        @asynccontextmanager
        async def connection() -> AsyncIterator[ModelConnection]:
            yield served.connection

        return connection()


class NoNodes:
    async def get(self, *_: object) -> None:
        raise errors.Forbidden("no requests are expected")


async def test_a_mac_is_claimed_while_it_is_bootstrapped(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    kube: Any = NoNodes()
    nothing: Any = None
    fleet = InProcess(kube, nothing, nothing, virtual_time.clock(), lambda _: None)
    served: Any = SimpleNamespace(mac=connection.mac, connection=connection)

    with pytest.raises(errors.Forbidden):
        await fleet.bootstrap(served, "mac-1", within=timedelta(seconds=5))

    assert connection.done
    assert connection.mac.files.exists(claim.CLAIM_FILE.path)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "No space left on device (/data)"),
        (OSError(13, "Permission denied", "/data/x"), "Permission denied (/data/x)"),
        (errors.TimedOut("too late"), "too late"),
    ],
)
def test_error_is_described_with_a_path(error: Exception, message: str) -> None:
    assert describe(error, Path("/data")) == message


def test_agent_ports_are_not_ephemeral_and_stay_the_same(tmp_path: Path) -> None:
    endpoints = _endpoints(tmp_path / "ports")

    # Ephemeral ports start at 32768 on Linux and at 49152 on macOS.
    assert all(1024 < int(one.rpartition(":")[2]) < 32768 for one in endpoints)
    assert len(set(endpoints)) == 3
    assert _endpoints(tmp_path / "ports") == endpoints
