"""A clone that hangs, with real processes: the next Pod of the same image runs at once."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

from tests.process.agent.agents import SCRIPT, Agent, an_agent
from tests.process.serving.processes import until
from tests.process.threaded import in_a_thread

# Five seconds, and a margin for a loaded machine; without concurrent clones it would be five minutes.
LIMIT_SECONDS = 15


def clones(agent: Agent) -> list[str]:
    calls = (Path(f"/proc/{pid}/cmdline") for pid in agent.mac.processes())
    words = (each.read_bytes().decode().split("\0") for each in calls if each.exists())
    return [each[-2] for each in words if "clone" in each]


@in_a_thread
def test_second_pod_runs_while_the_clone_of_the_first_hangs(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        agent.create("warm-up")
        until(lambda: agent.phase("warm-up") == "Running")
        hung = {"on": "clone", "do": "hang", "target": "*hung*"}
        script = {**copy.deepcopy(SCRIPT), "faults": [hung]}
        (agent.mac.folders.tart_home / "sim.json").write_text(json.dumps(script))
        agent.server.request("DELETE", "/api/v1/namespaces/default/pods/warm-up")
        until(lambda: agent.pod("warm-up") is None)
        agent.create("hung")
        until(lambda: any("hung" in each for each in clones(agent)))

        agent.create("second")
        began = time.monotonic()
        until(lambda: any("second" in vm for vm in agent.guests()))

        assert time.monotonic() - began < LIMIT_SECONDS
        assert any("hung" in each for each in clones(agent))
