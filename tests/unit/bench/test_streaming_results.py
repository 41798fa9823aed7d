from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.streaming.artifacts import MEGABYTE, SIZES
from bench.streaming.measuring import Held, Race
from bench.streaming.receiver import Wanted
from bench.streaming.run import ABOVE, BOTH, EACH, SPEED, Found
from bramley.host.artifacts import Artifact
from bramley.host.commands import Stream
from bramley.host.rendering import doing

IDLE = 50 * MEGABYTE
RACES = [Race(1.0, 0.3, 1.1), Race(9.0, 0.5, 1.25), Race(0.9, 0.4, 9.0)]


def held(hosts: int, above: float) -> Held:
    peak = IDLE + int(above * MEGABYTE)
    return Held(hosts, IDLE, in_flight=peak, peak=peak, seconds=None)


def found(*, few: float = 4, most: float = 52) -> Found:
    ours = [held(1, 2), held(4, few), held(32, 20), held(100, most)]
    return Found(ours, [held(1, 145), held(4, 290)], RACES, size=96 * MEGABYTE)


def test_memory_and_speed_are_held_to_the_goals() -> None:
    report = found().report()

    assert report.ratios[ABOVE] == 52
    assert report.ratios[EACH] == 0.5
    assert report.ratios[SPEED] == pytest.approx(1.0 / 1.25)
    assert report.ratios[BOTH] == pytest.approx(1.3 / 1.25)
    assert report.ratios["RSS above idle MB, 4 hosts, a copy per call"] == 290
    assert all(report.met.values())


def test_each_goal_can_be_missed() -> None:
    slow = Found(found(most=64.1).ours, [], [Race(0.79, 0.3, 1.0)], size=1)

    assert not any(slow.report().met.values())


def test_the_last_line_is_one_object_for_programs() -> None:
    line = json.loads(found().report().line())

    assert line["bench"] == "streaming"
    assert line["figures"]["bytes"] == sum(SIZES.values())
    assert line["figures"]["ours"][3]["hosts"] == 100


def test_it_runs_with_all_the_others() -> None:
    assert BENCHES["streaming"] == "bench.streaming.run"


def test_receivers_read_the_command_line_that_is_really_sent(tmp_path: Path) -> None:
    artifact = Artifact(name="x", version="1", path=tmp_path / "it's", size=7, sha256="ab" * 32)
    stream = Stream(artifact=artifact, path="/opt/it's", purpose="bring it", owner="m1:staff")

    wanted = Wanted.read(doing.render(stream, token="t0").line)

    assert wanted == Wanted("t0", "/opt/it's", "m1:staff", "0644", 7, "ab" * 32)
