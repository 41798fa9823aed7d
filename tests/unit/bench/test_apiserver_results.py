from __future__ import annotations

import json

import pytest

from bench.apiserver import missed_goals, profiler
from bench.apiserver.comparison import Footprint, Rates, better, compare, median_of
from bench.apiserver.load import Measure, Outcome
from bench.apiserver.results import GOALS, Goal, Measurements, format_rates
from bench.apiserver.run import busiest
from bench.report import Report


def an_outcome(rate: float) -> Outcome:
    return Outcome(rate=rate, p50_ms=1000 / rate, p99_ms=2000 / rate, count=1)


def a_find(
    *, patch: float = 30, get: float = 20, memory: int = 10, start: float = 0.1
) -> Measurements:
    def rates(ours: float) -> dict[str, Rates]:
        return {
            "bramley": Rates(ours, 1.0, 2.0, "http1"),
            "kubernetes": Rates(10.0, 3.0, 4.0, "http2"),
        }

    measured = {"PATCH, 1 client": patch, "PATCH, 64 clients": patch, "GET, 64 clients": get}
    ours, theirs = Footprint(start, start, memory * 10**6), Footprint(1.0, 1.0, 40 * 10**6)
    whole = Footprint(2 * start, 2 * start, memory * 10**6)
    return Measurements(
        rates={title: rates(rate) for title, rate in measured.items()},
        footprints={"bramley": ours, "bramley with controllers": whole, "kubernetes": theirs},
        loaded_bytes={"bramley": 20 * 10**6, "kubernetes": 80 * 10**6},
        disk_sync_ms=0.5,
    )


def test_the_median_round_counts() -> None:
    rates = median_of([an_outcome(10), an_outcome(1000), an_outcome(20)], "http1")

    assert rates == Rates(20, 50, 100, "http1")


def test_a_server_is_measured_by_its_better_protocol() -> None:
    rates = better({"http1": [an_outcome(10)], "http2": [an_outcome(20)]})

    assert (rates.rate, rates.protocol) == (20, "http2")


class Recorder:
    """A fake server with a name and protocols."""

    def __init__(self, name: str, *protocols: str) -> None:
        self.name = name
        self.protocols = protocols

    def start(self) -> float:
        return 0.0

    def stop(self) -> None: ...

    def access(self) -> list[str]:
        return [self.name]

    def resident_bytes(self) -> int:
        return 1


def test_rounds_take_turns_and_change_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, str]] = []

    def run(_measure: Measure, access: list[str], *, protocol: str, seconds: float) -> Outcome:
        runs.append((access[0], protocol))
        return an_outcome(seconds)

    monkeypatch.setattr(Measure, "run", run)
    servers = [Recorder("a", "http1"), Recorder("b", "http1", "http2")]

    compare(Measure("m", "get", 1), servers, rounds=2, seconds=1)

    first = [("a", "http1"), ("b", "http1"), ("b", "http2")]
    assert runs == [*first, *first[::-1]]


def test_goals_are_met_at_their_bound_and_missed_beyond() -> None:
    assert Goal("x", at_least=3).met_by(3)
    assert not Goal("x", at_least=3).met_by(2.99)
    assert Goal("x", at_most=0.25).met_by(0.25)
    assert not Goal("x", at_most=0.25).met_by(0.26)


def test_the_report_has_ratios_goals_and_whether_each_is_met() -> None:
    report = a_find(get=19).report()

    assert report.ratios["PATCH, 64 clients"] == 3.0
    assert report.ratios["RSS idle"] == 0.25
    assert report.met["PATCH, 64 clients"] is True
    assert report.met["GET, 64 clients"] is False
    assert report.goals["first start"] == "≤ 0.2"
    assert set(report.met) == {goal.ratio for goal in GOALS}


def test_memory_and_start_with_controllers_are_compared_with_the_goals() -> None:
    report = a_find(start=0.15).report()

    assert report.ratios["first start, with controllers"] == 0.3
    assert report.met["first start"] is True
    assert report.met["first start, with controllers"] is False


def test_the_table_shows_the_protocol_the_unit_and_the_verdict() -> None:
    rows = {row[0]: row[1:] for row in a_find(memory=11).rows()}

    assert rows["PATCH, 1 client"] == (
        "30.0/s, p50 1.0 ms, p99 2.0 ms (HTTP/1.1)",
        "10.0/s, p50 3.0 ms, p99 4.0 ms (HTTP/2)",
        "3.00",
        "≥ 1",
        "met",
    )
    assert rows["RSS idle"][-1] == "MISSED"
    assert rows["RSS after load"][0] == "20 MB"


def test_heaviest_load_of_its_kind_is_profiled() -> None:
    assert busiest("patch").clients == 64


def test_profiled_functions_are_listed_with_module_and_package() -> None:
    assert (
        profiler.short("/x/site-packages/uvicorn/protocols/http.py") == "uvicorn/protocols/http.py"
    )


def test_the_last_line_is_json_and_the_table_is_markdown() -> None:
    goals, met = {"rate": "≥ 1", "size": "≤ 2"}, {"rate": True, "size": False}
    report = Report("x", ("", "ours"), [("rate", "1/s")], {"rate": 1.0}, {}, goals, met)

    line = json.loads(report.line())

    assert list(report.table()) == ["|      | ours |", "|------|------|", "| rate | 1/s  |"]
    assert set(line) == {"bench", "ratios", "figures", "goals", "missed", "met"}
    assert line["missed"] == ["size"]
    assert line["met"] is False


def test_watches_that_a_server_ended_are_counted() -> None:
    ended = Outcome(rate=10, p50_ms=1, p99_ms=2, count=1, restarts=3)

    rates = median_of([ended, ended, an_outcome(10)], "http2")

    assert rates.restarts == 6
    assert format_rates(rates).endswith("(HTTP/2, 6 watches ended)")


def test_every_missed_load_is_profiled_once_and_a_slow_start_by_its_imports() -> None:
    works = {"PATCH, 1 client": "patch", "PATCH, 64 clients": "patch", "GET, 64 clients": "get"}

    lines = list(
        missed_goals.explain(
            ["PATCH, 1 client", "PATCH, 64 clients", "next start"],
            works=works,
            profile=lambda work: [f"profile of {work}"],
        )
    )

    assert lines[0] == "profile of patch"
    assert lines[1].startswith("Modules that take longest")
    assert any("bramley.app.apiserver" in line for line in lines[2:])


def test_the_slowest_imports_come_first() -> None:
    lines = "import time: self [us] | cumulative | x\nimport time:  1 |  20 | a\nimport time:  5 |  3000 |   b.c\n"

    assert list(missed_goals.slowest_imports(lines)) == ["     3.0 ms  b.c", "     0.0 ms  a"]
