"""The drain of a Node by the manager, before its host is released or gets what interrupts VMs."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace as replaced

from bramley.api.core import Node, Pod
from bramley.api.names import events
from bramley.machines import node_drain
from bramley.machines.mac_draft import Draft, Settings
from bramley.runtime.outcome import CheckAgain
from tests.unit.machines.macs import (
    MANAGER,
    NOW,
    PERSON,
    a_node,
    a_pod,
    minutes,
    seconds,
    seen,
    step_names,
)

CORDONED = a_node(cordoned_by=MANAGER)


class Drain:
    """One drain, whose status is kept from decision to decision."""

    def __init__(self, node: Node | None, *, timeout: timedelta | None = None) -> None:
        self.seen = seen(node=node)
        self.status = self.seen.status
        self.timeout = timeout
        self.steps: list[str] = []
        self.events: list[str] = []

    def wait(self, after: timedelta, *pods: Pod, node: Node | None = CORDONED) -> CheckAgain | None:
        observed = seen(status=self.status, now=NOW + after, node=node, pods=pods)
        draft = Draft(observed, Settings(), self.status)
        waiting = node_drain.wait(draft, timeout=self.timeout)
        self.status = draft.status
        self.steps += step_names(draft.steps)
        self.events += [each.reason for each in draft.events]
        return waiting


def test_node_is_cordoned_and_has_three_seconds_to_settle() -> None:
    """The scheduler may have decided to bind a Pod just before it observed the cordon."""
    drain = Drain(a_node())

    assert drain.wait(seconds(0), node=a_node()) == CheckAgain(seconds(3), "The Node was cordoned")
    assert drain.wait(seconds(0)) is not None
    assert drain.wait(seconds(2.9)) is not None
    assert drain.wait(seconds(3)) is None
    assert drain.steps == ["cordon"]
    assert drain.events == [events.DRAINING]


def test_pods_of_runners_are_waited_for_and_others_are_evicted() -> None:
    drain = Drain(CORDONED)
    drain.wait(seconds(0))

    waiting = drain.wait(minutes(9), a_pod("job", runner=True), a_pod("other"))

    assert waiting is not None
    assert waiting.why == "Waiting for Pods: default/job, default/other"
    assert drain.steps == ["evict other"]
    assert drain.wait(minutes(10), a_pod("job", runner=True)) is not None
    assert drain.wait(minutes(11), a_pod("job", runner=True, phase="Succeeded")) is None
    assert drain.steps == ["evict other"]


def test_drain_takes_as_long_as_its_jobs() -> None:
    drain = Drain(CORDONED)
    drain.wait(seconds(0))

    assert drain.wait(timedelta(days=9), a_pod(runner=True)) is not None
    assert drain.events == [events.DRAINING]


def test_drain_ends_at_its_timeout() -> None:
    drain = Drain(CORDONED, timeout=minutes(30))
    job = a_pod(runner=True)
    drain.wait(seconds(0), job)

    assert drain.wait(minutes(30) - seconds(1), job) is not None
    assert drain.wait(minutes(30), job) is None
    assert drain.events == [events.DRAINING, events.DRAIN_TIMED_OUT]


def test_node_that_is_gone_is_not_cordoned() -> None:
    drain = Drain(None)
    assert drain.wait(seconds(0), node=None) is None

    assert drain.wait(seconds(3), a_pod("lost", deleting=True), node=None) is None
    assert drain.wait(seconds(3), a_pod("job", runner=True), node=None) is not None
    assert drain.steps == []


def test_cordon_of_a_person_is_enough() -> None:
    drain = Drain(a_node(cordoned_by=PERSON))
    drain.wait(seconds(0), node=a_node(cordoned_by=PERSON))

    assert drain.wait(seconds(3), node=a_node(cordoned_by=PERSON)) is None
    assert drain.steps == []


def test_node_that_was_uncordoned_meanwhile_has_to_settle_again() -> None:
    drain = Drain(a_node())
    drain.wait(seconds(0), node=a_node())
    drain.wait(minutes(1), a_pod(runner=True))

    assert drain.wait(minutes(2), node=a_node()) is not None
    assert drain.wait(minutes(2) + seconds(2)) is not None
    assert drain.wait(minutes(2) + seconds(3)) is None
    assert drain.steps == ["cordon", "cordon"]


def test_time_of_the_drain_is_in_the_status() -> None:
    """Another manager continues a drain, and its timeout, where this one has stopped."""
    drain = Drain(CORDONED, timeout=minutes(30))
    drain.wait(seconds(0), a_pod(runner=True))
    other = Drain(CORDONED, timeout=minutes(30))
    other.status = replaced(drain.status)

    assert drain.status.drain_start_time == NOW
    assert other.wait(minutes(30), a_pod(runner=True)) is None
    assert other.events == [events.DRAIN_TIMED_OUT]
