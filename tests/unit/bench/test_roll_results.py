from __future__ import annotations

import json
import re
from dataclasses import replace

from bench.__main__ import BENCHES
from bench.results import EXPLANATIONS
from bench.roll import results
from bench.roll.chart import Chart, Line
from bench.roll.fleet import NEW, OLD, Scenario
from bench.roll.results import CAPPED, DELAYED, DIP, NO_ROLL, STAGED, STAGGERED, TIME, Outcome
from bench.roll.run import curve
from bench.roll.strategies import SLOTS, Capped, Staggered, a_pod, group_of
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Pod, PodCondition, PodStatus

QUIET = Outcome(
    strategy=NO_ROLL,
    replicas=200,
    limit_seconds=64_000,
    seconds=64_000,
    jobs=1000,
    delayed=0,
    lost=0,
    longest_wait_seconds=1.0,
    ready=[(0, 200), (100, 196), (110, 200)],
)
STAGED_OUTCOME = replace(
    QUIET, strategy=STAGED, seconds=70_400, ready=[(0, 200), (100, 188), (130, 200)]
)
OUTCOMES = {
    NO_ROLL: QUIET,
    STAGGERED: replace(QUIET, strategy=STAGGERED, delayed=900, ready=[(0, 200), (100, 0)]),
    CAPPED: replace(QUIET, strategy=CAPPED, delayed=900, ready=[(0, 200), (100, 0)]),
    STAGED: STAGED_OUTCOME,
}


def test_staged_roll_is_compared_with_the_run_without_a_roll() -> None:
    report = results.report(OUTCOMES, cap_percent=5, figures={})

    assert report.ratios[DIP] == 4.0
    assert report.ratios[TIME] == 1.1
    assert report.met == {DIP: True, DELAYED: True, TIME: True}
    assert report.ratios["lowest warm capacity %, staggered drain"] == 0


def test_each_goal_can_be_missed() -> None:
    worse = replace(STAGED_OUTCOME, seconds=None, delayed=1, ready=[(0, 200), (100, 180)])

    report = results.report({**OUTCOMES, STAGED: worse}, cap_percent=5, figures={})

    assert report.met == {DIP: False, DELAYED: False, TIME: False}


def test_delays_that_occur_without_a_roll_do_not_count() -> None:
    found = results.ratios(
        {
            **OUTCOMES,
            NO_ROLL: replace(QUIET, delayed=10),
            STAGED: replace(STAGED_OUTCOME, jobs=1100, delayed=11),
        }
    )

    assert found[DELAYED] == 0


def test_last_line_has_every_strategy_with_its_series() -> None:
    line = json.loads(results.report(OUTCOMES, cap_percent=5, figures={}).line())

    assert line["bench"] == "roll"
    strategies = line["figures"]["strategies"]
    assert list(strategies) == [NO_ROLL, STAGGERED, CAPPED, STAGED]
    assert strategies[STAGED]["ready"][0] == [600, 94.0]


def test_mean_capacity_is_weighted_by_time() -> None:
    outcome = replace(QUIET, seconds=100, ready=[(0, 200), (25, 100), (75, 200)])

    assert outcome.mean_percent == 75.0


def test_lowest_capacity_of_a_period_includes_what_came_before() -> None:
    outcome = replace(QUIET, seconds=25, ready=[(0, 200), (5, 100), (12, 150)])

    assert outcome.lowest_per(10) == [(10, 50.0), (20, 50.0), (25, 75.0)]


def test_series_begins_with_the_capacity_at_that_moment() -> None:
    ready = [(0.0, 10), (5.0, 9), (20.0, 8), (90.0, 7)]

    assert results.since(ready, 10.0, 50.0) == [(0.0, 9), (10.0, 8)]


def test_bandwidth_limit_is_one_image_per_host() -> None:
    assert Scenario().bandwidth_limit.total_seconds() == 64_000
    assert Scenario().cap == 10
    assert Scenario(hosts=5).cap == 1


def _pod(
    name: str, image: str = OLD, *, ready: bool = True, pod_labels: dict[str, str] | None = None
) -> Pod:
    condition = PodCondition(type="Ready", status="True" if ready else "False")
    pod = a_pod(name, image)
    return Pod(
        metadata=ObjectMeta(name=name, labels={**pod.metadata.labels, **(pod_labels or {})}),
        spec=pod.spec,
        status=PodStatus(phase="Running" if ready else "Pending", conditions=[condition]),
    )


def test_staggered_drain_ignores_how_many_pods_left() -> None:
    pods = [_pod(f"runner-{number}") for number in range(100)]

    selected = [len(Staggered().select(pods, NEW, seconds=seconds)) for seconds in (0, 30, 210)]

    first = sum(group_of(pod.name) == 0 for pod in pods)
    assert selected[0] == first
    assert selected[0] < selected[1] < selected[2] == 100
    assert {group_of(pod.name) for pod in pods} == set(range(SLOTS))
    assert Staggered().next_check(45) == 15
    assert Staggered().next_check(240) is None


def test_capped_roll_counts_marked_and_booting_pods() -> None:
    marked = _pod("marked", pod_labels={labels.DRAIN_ELIGIBLE: "true"})
    pods = [marked, _pod("booting", NEW, ready=False), *(_pod(f"idle-{n}") for n in range(9))]

    assert len(Capped(5).select(pods, NEW, seconds=0)) == 3
    assert Capped(2).select(pods, NEW, seconds=0) == []


def test_claimed_pod_is_not_selected() -> None:
    claimed = _pod("busy", pod_labels={labels.RUNNER_POOL_OWNER: "acme"})

    assert Capped(5).select([claimed], NEW, seconds=0) == []
    assert Staggered().select([claimed], NEW, seconds=600) == []


def test_chart_has_a_line_and_a_legend_per_strategy() -> None:
    lines = [Line("one", [(0, 100), (2, 50)], "#111111"), Line("two", [(1, 75)], "#222222")]
    chart = Chart("Title", "Subtitle", lines, hours=2, mark=95, mark_text="cap")

    svg = chart.svg()

    assert re.findall(r'<polyline .*stroke="(#\d+)"', svg) == ["#111111", "#222222"]
    texts = set(re.findall(r">([^<]+)</text>", svg))
    assert {"Title", "Subtitle", "one", "two", "cap", "100 %", "2"} <= texts
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>\n")


def test_curve_begins_with_the_capacity_before_the_roll() -> None:
    assert curve(STAGED_OUTCOME)[:2] == [(0.0, 100.0), (1 / 6, 94.0)]


def test_roll_benchmark_is_registered_and_explained() -> None:
    assert BENCHES["roll"] == "bench.roll.run"
    assert "roll" in EXPLANATIONS
