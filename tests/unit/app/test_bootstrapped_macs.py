"""The Macs of `bramley up --bootstrap`, in process: whoever works on one says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bramley.app.bootstrapped_macs import Fleet, _endpoints, why
from bramley.base import errors, virtual_time
from bramley.host import claim
from bramley.host.step import Step
from bramley.host.steps.sleep import Sleep
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import wanted


class InProcess(Fleet):
    """A fleet whose Macs are reached without SSH, and have one step."""

    async def steps(self, served: Any, name: str) -> list[Step]:  # noqa: ARG002 - part of the seam
        return [Sleep()]

    def connected(self, served: Any, name: str) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002 - part of the seam
        @asynccontextmanager
        async def line() -> AsyncIterator[ModelConnection]:
            yield served.line

        return line()


class NoNodes:
    async def get(self, *_: object) -> None:
        raise errors.Forbidden("nobody is asked here")


async def test_a_mac_is_claimed_while_it_is_bootstrapped(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    kube: Any = NoNodes()
    nothing: Any = None
    fleet = InProcess(kube, nothing, nothing, virtual_time.clock(), lambda _: None)
    served: Any = SimpleNamespace(mac=line.mac, line=line)

    with pytest.raises(errors.Forbidden):
        await fleet.bootstrap(served, "mac-1", within=timedelta(seconds=5))

    assert line.done
    assert line.mac.files.exists(claim.CLAIM_FILE.path)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "No space left on device (/data)"),
        (OSError(13, "Permission denied", "/data/x"), "Permission denied (/data/x)"),
        (errors.TimedOut("too late"), "too late"),
    ],
)
def test_what_went_wrong_is_told_with_its_place(error: Exception, told: str) -> None:
    assert why(error, Path("/data")) == told


def test_an_agent_listens_where_nobody_is_put_by_chance_and_stays_there(tmp_path: Path) -> None:
    chosen = _endpoints(tmp_path / "ports")

    # Linux hands out those from 32768 on, macOS those from 49152 on.
    assert all(1024 < int(one.rpartition(":")[2]) < 32768 for one in chosen)
    assert len(set(chosen)) == 3
    assert _endpoints(tmp_path / "ports") == chosen
