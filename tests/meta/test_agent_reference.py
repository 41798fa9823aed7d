"""The page about the agent's Node lists every condition and period as in the code."""

from __future__ import annotations

import pytest

from bramley.agent.node import controller, host_probes, lease
from bramley.api.names import agent, conditions
from tests.meta.documents import ROOT

PAGE = (ROOT / "docs/reference/agent.md").read_text()
REASONS = [value for name, value in vars(agent).items() if name.startswith("NODE_")]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_documented(reason: str) -> None:
    assert f"`{reason}`" in PAGE


@pytest.mark.parametrize(
    "kind", [conditions.READY, conditions.DISK_PRESSURE, conditions.SLOT_LEAKED]
)
def test_every_condition_is_documented(kind: str) -> None:
    assert f"| `{kind}` |" in PAGE


def test_periods_match_the_code() -> None:
    periods = {
        "| Lease renewed | every 10 s": lease.Timings().every.total_seconds() == 10,
        "| Node written | every 30 s": controller.Timings().every.total_seconds() == 30,
        "disks probed | every minute": host_probes.SLOW.every.total_seconds() == 60,
        "every fifth time": host_probes.LIST_EVERY == 5,
        "| host's disk | every 30 s": host_probes.ProbeTimings().every.total_seconds() == 30,
        "| slots and images | every 10 s": host_probes.FAST.every.total_seconds() == 10,
        "probed again after 5 s": host_probes.ProbeTimings().recheck.total_seconds() == 5,
    }

    assert {text for text in periods if text not in PAGE} == set()
    assert all(periods.values())
