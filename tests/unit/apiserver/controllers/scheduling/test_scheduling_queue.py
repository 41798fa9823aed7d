"""Who is next: importance, age, and the backoff of those who were tried in vain."""

from __future__ import annotations

from datetime import timedelta

from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from tests.unit.apiserver.controllers.scheduling.builders import a_pod


def a_line() -> SchedulingQueue:
    return SchedulingQueue(backoff=timedelta(seconds=1), most=timedelta(seconds=10))


def waiting(name: str, priority: int = 0, age: int = 0) -> PodInfo:
    return PodInfo.of(a_pod(name, priority=priority, age=age))


def order(line: SchedulingQueue, now: float) -> list[str]:
    found = []
    while (pod := line.next(now)) is not None:
        found.append(pod.key.name)
    return found


def test_importance_goes_before_age() -> None:
    line = a_line()
    for pod in (waiting("young"), waiting("old", age=9), waiting("great", 5), waiting("low", -1)):
        line.add(pod, 0)

    assert order(line, 0) == ["great", "old", "young", "low"]


def test_a_pod_waits_once_however_often_it_comes() -> None:
    line, pod = a_line(), waiting("p")
    line.add(pod, 0)
    line.add(pod, 0)
    line.add(waiting("p"), 0)

    assert order(line, 0) == ["p"]


def test_the_backoff_doubles_up_to_its_most() -> None:
    line, pod, waits = a_line(), waiting("p"), []
    for _ in range(6):
        line.tried(pod.key, 100)
        waits.append(line.add(pod, 100))
        line.next(200)

    assert waits == [1, 2, 4, 8, 10, 10]


def test_nobody_is_next_before_his_backoff_ends() -> None:
    line = a_line()
    great, low = waiting("great", 5), waiting("low")
    line.tried(great.key, 100)
    line.add(great, 100)
    line.add(low, 100)

    assert line.next(100) is low
    assert line.next(100.9) is None
    assert line.next(101) is great


def test_those_whose_backoff_ends_together_are_ordered_too() -> None:
    line = a_line()
    for pod in (waiting("low"), waiting("great", 5)):
        line.tried(pod.key, 100)
        line.add(pod, 100)

    assert order(line, 101) == ["great", "low"]


def test_who_left_the_line_is_not_called_and_has_no_past() -> None:
    line, pod = a_line(), waiting("p")
    line.tried(pod.key, 100)
    line.add(pod, 100)
    line.remove(pod.key)

    assert order(line, 200) == []
    assert line.add(pod, 100) == 0
    assert line.waits_for(pod.key, 100) == 0
