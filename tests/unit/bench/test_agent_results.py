from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.agent import usage
from bench.agent.measurements import Idle, PodLatency
from bench.agent.run import CPU, RSS, RUN, STATUS, Results

IDLE = Idle(
    agent_bytes=46_000_000,
    supervisor_bytes=3_000_000,
    cpu_percent=0.5,
    agent_cpu_percent=0.2,
    waited_cpu_percent=0.3,
)
LIVES = [PodLatency(0.9, 0.05), PodLatency(0.15, 0.05), PodLatency(0.14, 0.9)]
FOUND = Results(starts=[2.0, 1.0, 1.2], lives=LIVES, idle=IDLE)


def test_medians_are_compared_with_the_goals() -> None:
    report = FOUND.report()

    assert report.ratios[RUN] == 150
    assert report.ratios[STATUS] == 50
    assert report.met == {RSS: True, CPU: True, RUN: True, STATUS: True}
    assert report.ratios["agent RSS, of the Go agent's"] == 1
    assert report.ratios["first start to Ready s"] == 2
    assert report.ratios["next start to Ready s"] == 1.1


def test_each_goal_can_be_missed() -> None:
    greedy = replace(IDLE, agent_bytes=50_100_000, cpu_percent=1.0)
    slow = Results([1.0], [PodLatency(0.201, 0.101)], greedy)

    assert not any(slow.report().met.values())


def test_last_line_is_one_json_object() -> None:
    line = json.loads(FOUND.report().line())

    assert line["bench"] == "agent"
    assert {"ratios", "figures", "goals", "met"} <= set(line)
    assert line["figures"]["reference_mb"] == 46


def test_agent_benchmark_is_registered() -> None:
    assert BENCHES["agent"] == "bench.agent.run"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_usage_of_the_agent_excludes_vms_and_includes_supervisors(tmp_path: Path) -> None:
    tart = tmp_path / "tart"
    tart.write_text("import time\ntime.sleep(60)\n")
    script = tmp_path / "supervisor.sh"
    script.write_text(f"{sys.executable} {tart} run vm &\n{sys.executable} {tart} run vm\n")

    with subprocess.Popen(["/bin/sh", str(script)], start_new_session=True) as supervisor:
        try:
            ends = time.monotonic() + 20
            while (
                len(
                    vms := [
                        each
                        for each in usage.everything()
                        if each.parent == supervisor.pid and each.is_vm
                    ]
                )
                < 2
            ):
                assert time.monotonic() < ends
            family = {each.pid: each for each in usage.family(os.getpid())}
            assert family[supervisor.pid].is_supervisor
            assert not {each.pid for each in vms} & set(family)
            assert usage.cpu_seconds(family.values()) > 0
        finally:
            os.killpg(supervisor.pid, 9)
