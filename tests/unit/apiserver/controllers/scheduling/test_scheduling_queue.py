"""The order of the scheduling queue: priority, age, and the backoff of unschedulable Pods."""

from __future__ import annotations

from datetime import timedelta

from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from tests.unit.apiserver.controllers.scheduling.builders import a_pod


def a_queue() -> SchedulingQueue:
    return SchedulingQueue(backoff=timedelta(seconds=1), max_backoff=timedelta(seconds=10))


def waiting(name: str, priority: int = 0, age: int = 0) -> PodInfo:
    return PodInfo.of(a_pod(name, priority=priority, age=age))


def order(queue: SchedulingQueue, now: float) -> list[str]:
    found = []
    while (pod := queue.pop(now)) is not None:
        found.append(pod.key.name)
    return found


def test_priority_is_compared_before_age() -> None:
    queue = a_queue()
    for pod in (waiting("young"), waiting("old", age=9), waiting("great", 5), waiting("low", -1)):
        queue.add(pod, 0)

    assert order(queue, 0) == ["great", "old", "young", "low"]


def test_a_pod_is_queued_once() -> None:
    queue, pod = a_queue(), waiting("p")
    queue.add(pod, 0)
    queue.add(pod, 0)
    queue.add(waiting("p"), 0)

    assert order(queue, 0) == ["p"]


def test_backoff_doubles_up_to_its_maximum() -> None:
    queue, pod, waits = a_queue(), waiting("p"), []
    for _ in range(6):
        queue.record_attempt(pod.key, 100)
        waits.append(queue.add(pod, 100))
        queue.pop(200)

    assert waits == [1, 2, 4, 8, 10, 10]


def test_no_pod_is_next_before_its_backoff_ends() -> None:
    queue = a_queue()
    great, low = waiting("great", 5), waiting("low")
    queue.record_attempt(great.key, 100)
    queue.add(great, 100)
    queue.add(low, 100)

    assert queue.pop(100) is low
    assert queue.pop(100.9) is None
    assert queue.pop(101) is great


def test_pods_whose_backoff_ends_together_are_ordered() -> None:
    queue = a_queue()
    for pod in (waiting("low"), waiting("great", 5)):
        queue.record_attempt(pod.key, 100)
        queue.add(pod, 100)

    assert order(queue, 101) == ["great", "low"]


def test_a_removed_pod_is_not_returned_and_has_no_backoff() -> None:
    queue, pod = a_queue(), waiting("p")
    queue.record_attempt(pod.key, 100)
    queue.add(pod, 100)
    queue.remove(pod.key)

    assert order(queue, 200) == []
    assert queue.add(pod, 100) == 0
    assert queue.seconds_until_due(pod.key, 100) == 0
