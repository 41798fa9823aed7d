"""The page about the agent's Node lists every condition and period as in the code."""

from __future__ import annotations

import re

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


def test_intervals_match_the_code() -> None:
    _, _, section = PAGE.partition("\n## Intervals\n")
    documented = re.findall(r"^\| [^|]+ \| (?:every|after) (\d+) s\b", section, re.MULTILINE)

    intervals = [
        lease.Timings().every,
        controller.Timings().every,
        host_probes.SLOW.every,
        host_probes.SLOW.every * host_probes.LIST_EVERY,
        host_probes.ProbeTimings().every,
        host_probes.FAST.every,
        host_probes.ProbeTimings().recheck,
    ]
    assert [float(seconds) for seconds in documented] == [
        each.total_seconds() for each in intervals
    ]
