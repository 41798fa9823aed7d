"""Durations in the figures of the real tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bramley.apiserver.tables import cells

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (100 * YEAR + 5 * DAY, "100y"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert text == cells.human_duration(seconds)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("soon", "<unknown>"),
        ("2026-01-01T00:00:00Z", "5m"),
        ("2026-01-01T00:00:00.500000Z", "4m59s"),
        ("2026-01-01T01:00:00+01:00", "5m"),
    ],
)
def test_the_time_since_a_timestamp(time: str | None, text: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=5)

    assert text == cells.time_since(time, now)
