"""The round trips of a bootstrap: one for most steps with something to do, and one for a Mac that is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.host import converge
from bramley.sim.macos.fresh_install import Settings
from tests.scenarios.host_bootstrap.macs import steps
from tests.unit.host.steps.interruption import MacTemplate, new_claim

# 295 with a round trip for each command, each check of the claim and each step's facts.
MOST = 60


@pytest.mark.parametrize("uid", [501, 503])
async def test_bootstrap_takes_few_round_trips_and_a_second_run_one(
    uid: int, tmp_path: Path
) -> None:
    planned = steps(tmp_path / "files")
    connection = (await MacTemplate.make(tmp_path / "macs", settings=Settings(uid=uid))).copy("mac")
    connection.trips = 0

    await converge.apply(connection, planned, claim=new_claim("first"))
    assert connection.trips <= MOST
    first, connection.trips = connection.trips, 0

    report = await converge.apply(connection, planned, claim=new_claim("second"))
    assert (report.is_changed, connection.trips) == (False, 1), first
    assert (await converge.plan(connection, planned)).is_converged
    assert connection.trips == 2
