from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.streaming.artifacts import MEGABYTE, SIZES
from bench.streaming.measurement import MemoryUse, Race
from bench.streaming.receiver import ReceiveArguments
from bench.streaming.run import ABOVE, BOTH, EACH, SPEED, Results
from bramley.host.artifacts import Artifact
from bramley.host.commands import Stream
from bramley.host.rendering import command_scripts

IDLE = 50 * MEGABYTE
RACES = [Race(1.0, 0.3, 1.1), Race(9.0, 0.5, 1.25), Race(0.9, 0.4, 9.0)]


def memory_use(hosts: int, above: float) -> MemoryUse:
    peak = IDLE + int(above * MEGABYTE)
    return MemoryUse(hosts, IDLE, in_flight=peak, peak=peak, seconds=None)


def results(*, few: float = 4, most: float = 52) -> Results:
    ours = [memory_use(1, 2), memory_use(4, few), memory_use(32, 20), memory_use(100, most)]
    return Results(ours, [memory_use(1, 145), memory_use(4, 290)], RACES, size=96 * MEGABYTE)


def test_memory_and_speed_are_compared_with_the_goals() -> None:
    report = results().report()

    assert report.ratios[ABOVE] == 52
    assert report.ratios[EACH] == 0.5
    assert report.ratios[SPEED] == pytest.approx(1.0 / 1.25)
    assert report.ratios[BOTH] == pytest.approx(1.3 / 1.25)
    assert report.ratios["RSS above idle MB, 4 hosts, a copy per call"] == 290
    assert all(report.met.values())


def test_each_goal_can_be_missed() -> None:
    slow = Results(results(most=64.1).ours, [], [Race(0.79, 0.3, 1.0)], size=1)

    assert not any(slow.report().met.values())


def test_last_line_is_one_json_object() -> None:
    line = json.loads(results().report().line())

    assert line["bench"] == "streaming"
    assert line["figures"]["bytes"] == sum(SIZES.values())
    assert line["figures"]["ours"][3]["hosts"] == 100


def test_streaming_benchmark_is_registered() -> None:
    assert BENCHES["streaming"] == "bench.streaming.run"


def test_receivers_parse_the_command_line_that_is_sent(tmp_path: Path) -> None:
    artifact = Artifact(name="x", version="1", path=tmp_path / "it's", size=7, sha256="ab" * 32)
    stream = Stream(artifact=artifact, path="/opt/it's", purpose="upload", owner="m1:staff")

    arguments = ReceiveArguments.parse(command_scripts.render(stream, token="t0").line)

    assert arguments == ReceiveArguments("t0", "/opt/it's", "m1:staff", "0644", 7, "ab" * 32)
