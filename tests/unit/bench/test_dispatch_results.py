from __future__ import annotations

from dataclasses import replace

import pytest

from bench.dispatch import guests, measurements
from bench.dispatch.guests import LONG_POLL, TWO_SECONDS
from bench.dispatch.measurements import Idle, Latency
from bench.dispatch.queue_rates import Rates
from bench.dispatch.queue_worker import POSTGRES, share
from bench.dispatch.run import KILOBYTES, MEAN_SHARED, MEAN_SINGLE, P99, Results


def latency(mode: str, github_ms: float, *, shared: float, single: float) -> Latency:
    """Return a measurement whose jobs all took the same time beyond GitHub's answer."""
    of_shared, of_single = [github_ms + shared] * 10, [github_ms + single] * 10
    return Latency(mode, github_ms, of_shared, of_single, 1.0, 1.0)


def results() -> Results:
    """Return a run that meets all goals."""
    return Results(
        [
            latency(LONG_POLL, 0, shared=10, single=20),
            latency(TWO_SECONDS, 0, shared=30, single=1000),
            latency(LONG_POLL, 150, shared=10, single=40),
            latency(TWO_SECONDS, 150, shared=40, single=1000),
        ],
        Idle(2000, 50_000_000, 110_000_000, 0.5, 10, 1),
        [Rates(POSTGRES, 3, 400, 250, 5000)],
    )


def test_ratios_are_those_of_the_slower_github_if_it_is_worse() -> None:
    ratios = results().ratios()
    assert ratios[P99] == 40
    assert ratios[MEAN_SINGLE] == 25
    assert ratios[MEAN_SHARED] == 3
    assert ratios[KILOBYTES] == 30
    assert ratios["claims/s of 3 on PostgreSQL, of a bare SKIP LOCKED loop"] == 0.05


def test_ratio_with_github_included_is_reported() -> None:
    name = "the same with one VM in the pool, with GitHub's 150 ms included"
    assert results().ratios()[name] == pytest.approx(1150 / 190, abs=0.001)


def test_one_shared_pool_is_reported_without_a_verdict() -> None:
    report = results().report()
    assert report.met == {P99: True, MEAN_SINGLE: True, KILOBYTES: True}
    assert report.ratios[MEAN_SHARED] == 3


@pytest.mark.parametrize(("share_", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_a_measured_value(share_: float, expected: float) -> None:
    assert measurements.percentile(range(1, 101), share_) == expected


def test_shares_of_replicas_are_all_jobs() -> None:
    ids = [job for replica in range(3) for job in share(10, replica, 3)]
    assert sorted(ids) == list(range(1, 11))


def test_response_is_parsed_once_it_is_complete() -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    assert guests.parsed(response[:-1]) is None
    assert guests.parsed(response) == (200, b"{}")
    assert guests.parsed(b"HTTP/1.1 204 No Content\r\n\r\n") == (204, b"")


def test_cpu_of_the_worse_round_is_reported() -> None:
    found = results()
    worse = replace(found.latencies[2], idle_cpu_percent=6.0)
    changed = replace(found, latencies=[*found.latencies[:2], worse, found.latencies[3]])

    assert changed.ratios()["CPU % with idle VMs, long poll"] == 6
