"""The script of the runner image and its port send the same requests and end in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dispatch_peer import DRAIN, NOTHING, UNAUTHORIZED, Answer, job
from tests.process.poller.pollers import LOST, POLLERS, TOKEN, Case, Outcome

JOB = job("eyJzZWNyZXQiOiJ4In0=")
FORBIDDEN = (403, b"")
APPLIED: Answer = (204, b"", {"Preference-Applied": "wait=50"})
FAILURE: Answer = (503, b"")
BEGIN = "Polling for a job"
RUN = "Starting runner"
DRAINED = "Drained"
REFUSED = "Token refused"
NO_JOB = "No job"
NO_CONFIGURATION = "Answer without a runner configuration"
# A minute of polls, and the one after it.
PATIENCE = 31


# The pause of a short poll, and the bounds of those after failures in a row.
SHORT = (2, 2)
FIRST, SECOND, THIRD, FOURTH, LONGEST = (1, 3), (2, 6), (4, 12), (8, 24), (15, 45)


def end(code: int) -> str:
    return f"Poller ended with exit code {code}"


def refused(count: int) -> tuple[Answer, ...]:
    return (UNAUTHORIZED,) * count


def first(count: int) -> tuple[str, ...]:
    return (TOKEN,) * count


CASES: dict[str, tuple[Case, Outcome]] = {
    "job after two empty answers": (
        Case((NOTHING, NOTHING, JOB), lines=("a b", "  c\\n")),
        Outcome(0, first(3), (BEGIN, NO_JOB, RUN, "a b", "  c\\n", end(0))),
    ),
    "job that fails": (
        Case((JOB,), code=7, lines=()),
        Outcome(7, first(1), (BEGIN, RUN, end(7))),
    ),
    "answers without a configuration": (
        Case((job(""), (200, b'{"encoded_jit_config":null}'), (200, b"<html>"), DRAIN)),
        Outcome(0, first(4), (BEGIN, NO_CONFIGURATION, DRAINED, end(0))),
    ),
    "drained": (Case((DRAIN,)), Outcome(0, first(1), (BEGIN, DRAINED, end(0)))),
    "token refused for a minute": (
        Case(refused(1)),
        Outcome(1, first(PATIENCE), (BEGIN, REFUSED, "Token refused for too long", end(1))),
    ),
    "token forbidden for a minute": (
        Case((FORBIDDEN,)),
        Outcome(1, first(PATIENCE), (BEGIN, REFUSED, "Token refused for too long", end(1))),
    ),
    "token accepted in the last moment": (
        Case((*refused(PATIENCE - 1), DRAIN)),
        Outcome(0, first(PATIENCE), (BEGIN, REFUSED, DRAINED, end(0))),
    ),
    "refused token that is replaced": (
        Case((*refused(PATIENCE + 20), DRAIN), tokens={PATIENCE - 2: "second.token"}),
        Outcome(
            0,
            (*first(PATIENCE - 1), *("second.token",) * 22),
            (BEGIN, REFUSED, REFUSED, DRAINED, end(0)),
        ),
    ),
    "refusals with other answers between": (
        Case((*refused(20), NOTHING, *refused(20), DRAIN)),
        Outcome(0, first(42), (BEGIN, REFUSED, NO_JOB, REFUSED, DRAINED, end(0))),
    ),
    "token that is replaced between two polls": (
        Case((NOTHING, NOTHING, DRAIN), tokens={0: "second.token"}),
        Outcome(0, (TOKEN, "second.token", "second.token"), (BEGIN, NO_JOB, DRAINED, end(0))),
    ),
    "no token": (
        Case((DRAIN,), token=""),
        Outcome(1, (), (BEGIN, "Token missing", "Token refused for too long", end(1))),
    ),
    "errors of the server and of the network": (
        Case(((500, b"{}"), (404, b""), (302, b""), LOST, (503, b""), DRAIN)),
        Outcome(
            0,
            first(6),
            (
                BEGIN,
                *(f"Unexpected answer {status}" for status in (500, 404, 302)),
                "No answer",
                "Unexpected answer 503",
                DRAINED,
                end(0),
            ),
        ),
    ),
    "server that fails for longer than a minute": (
        Case((*((500, b""),) * 40, DRAIN)),
        Outcome(0, first(41), (BEGIN, *("Unexpected answer 500",) * 2, DRAINED, end(0))),
    ),
    "runner without a job": (
        Case((JOB,), idle_timeout="50", wait=1000, code=3),
        Outcome(0, first(1), (BEGIN, RUN, "Terminating runner that got no job", end(0))),
    ),
    "job longer than the idle timeout": (
        Case((JOB,), idle_timeout="100", work=200, code=3),
        Outcome(3, first(1), (BEGIN, RUN, "job", end(3))),
    ),
    "job after a wait without an idle timeout": (
        Case((JOB,), idle_timeout="0", wait=50),
        Outcome(0, first(1), (BEGIN, RUN, "job", end(0))),
    ),
    "idle timeout that is no number": (
        Case((JOB,), idle_timeout="soon"),
        Outcome(0, first(1), (BEGIN, RUN, "job", end(0))),
    ),
}


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("name", CASES)
def test_requests_and_results_are_the_same(name: str, poller: str, tmp_path: Path) -> None:
    case, expected = CASES[name]

    assert POLLERS[poller](case, tmp_path) == expected


# The case, the preferences of its requests, and the bounds of its pauses; a pause of no time is not one.
LONG_POLLS: dict[str, tuple[Case, tuple[str, ...], tuple[tuple[int, int], ...]]] = {
    "server that holds polls": (
        Case((APPLIED, APPLIED, DRAIN), holds=frozenset({0, 1})),
        ("wait=1", "wait=50", "wait=50"),
        (),
    ),
    "chosen wait": (
        Case((APPLIED, DRAIN), holds=frozenset({0}), long_poll=20),
        ("wait=1", "wait=20"),
        (),
    ),
    "no long poll": (Case((NOTHING, DRAIN), long_poll=0), ("", ""), (SHORT,)),
    "server that does not know it": (
        Case((NOTHING, FAILURE, FAILURE, LOST, (429, b""), UNAUTHORIZED, DRAIN)),
        ("wait=1",) * 7,
        (SHORT,) * 6,
    ),
    "server that holds no poll although it knows it": (
        Case((APPLIED, APPLIED, DRAIN)),
        ("wait=1", "wait=50", "wait=50"),
        (SHORT, SHORT),
    ),
    "server that is replaced by an old one": (
        Case((APPLIED, NOTHING, FAILURE, DRAIN), holds=frozenset({0})),
        ("wait=1", "wait=50", "wait=1", "wait=1"),
        (SHORT, SHORT),
    ),
    "server that is replaced by a new one": (
        Case((NOTHING, APPLIED, DRAIN), holds=frozenset({1})),
        ("wait=1", "wait=1", "wait=50"),
        (SHORT,),
    ),
    "failures in a row": (
        Case((APPLIED, FAILURE, LOST, (429, b""), *(FAILURE,) * 3, APPLIED, LOST, DRAIN)),
        ("wait=1", *("wait=50",) * 9),
        (SHORT, FIRST, SECOND, THIRD, FOURTH, LONGEST, LONGEST, SHORT, FIRST),
    ),
    "refused token": (
        Case((APPLIED, FAILURE, UNAUTHORIZED, FAILURE, DRAIN)),
        ("wait=1", *("wait=50",) * 4),
        (SHORT, FIRST, SHORT, FIRST),
    ),
}


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("name", LONG_POLLS)
def test_long_polls_and_pauses_are_the_same(name: str, poller: str, tmp_path: Path) -> None:
    case, preferences, bounds = LONG_POLLS[name]

    ended = POLLERS[poller](case, tmp_path)

    assert (ended.code, ended.preferences) == (0, preferences)
    assert len(ended.pauses) == len(bounds)
    for pause, (least, most) in zip(ended.pauses, bounds, strict=True):
        # A little more: the pauses of the script are rounded, those of its port include the time of the request.
        assert least - 0.1 <= pause <= most + 0.1


@pytest.mark.parametrize("poller", POLLERS)
def test_pauses_after_failures_differ(poller: str, tmp_path: Path) -> None:
    ended = POLLERS[poller](Case((APPLIED, *(FAILURE,) * 8, DRAIN)), tmp_path)

    assert len({round(each, 1) for each in ended.pauses[-4:]}) > 1
