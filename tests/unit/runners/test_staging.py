from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.api.names import labels
from bramley.api.pod import LocalObjectReference
from bramley.api.runner_pool import Canary, Staging, StagingMode
from bramley.api.staging import NO_ACCESS, NO_ROOM, StagingRequest, parse_request
from bramley.runners import staging
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod
from bramley.runners.staging import StagingState
from tests.unit.example_counts import examples
from tests.unit.runners.builders import (
    NAMESPACE,
    NEW,
    NEWER,
    NOW,
    OLD,
    a_host,
    a_pod,
    a_pool,
    image,
    reporting,
    seconds,
)


def a_state(
    name: str = "macos",
    *,
    target: str = NEW,
    last_good: str = OLD,
    is_trial: bool = False,
    pods: Sequence[RunnerPod] = (a_pod("old", node="h0"),),
    began: float = 60,
    **pool: Any,
) -> StagingState:
    """Return a pool of 40 that rolls from the old to the new image and has passed its trial."""
    pool = {"replicas": 40, "roll_started_at": NOW - seconds(began), **pool}
    return StagingState(a_pool(name, **pool), target, last_good, is_trial, pods)


def hosts(count: int, *images: str) -> list[Host]:
    return [a_host(f"h{number}", *images) for number in range(count)]


def requested(fleet: Sequence[Host], *states: StagingState) -> dict[str, tuple[str, ...]]:
    return {name: request.images for name, request in staging.plan(states, fleet).items()}


def written(fleet: Iterable[Host], plan: dict[str, StagingRequest]) -> list[Host]:
    """Return the hosts with the requests of a plan."""
    return [
        replace(host, request=plan[host.name].text() if plan[host.name].images else "")
        for host in fleet
    ]


def test_target_comes_first_and_the_last_good_image_is_kept() -> None:
    assert requested(hosts(3, OLD), a_state()) == {
        "h0": (NEW, OLD),
        "h1": (NEW, OLD),
        "h2": (OLD,),
    }


def test_pull_continues_while_the_only_pod_of_the_pool_is_replaced() -> None:
    """A runner ends with its job; withdrawing the request for that moment cancelled the pull again and again."""
    between = a_state(pods=(), replicas=1, is_trial=True)
    fleet = [a_host("h0", OLD)]

    assert requested(fleet, between) == {"h0": (NEW, OLD)}
    assert requested(fleet, a_state(pods=(), replicas=0)) == {"h0": ()}


def test_last_good_image_is_dropped_when_the_roll_is_done() -> None:
    done = a_state(pods=(a_pod("new", NEW),), roll_started_at=None)

    assert requested([a_host("h0", OLD, NEW)], done) == {"h0": (NEW,)}


def test_targets_of_all_pools_come_before_the_images_that_are_kept() -> None:
    first = a_state("b", began=90)
    second = a_state("a", target=image(5), last_good=image(4), began=30)

    plan = requested([a_host("h0", OLD, NEW, image(4), image(5))], second, first)

    assert plan["h0"] == (NEW, image(5), OLD, image(4))


def test_pool_without_staging_requests_nothing() -> None:
    assert requested(hosts(2, OLD), a_state(staging=Staging(mode="Disabled"))) == {
        "h0": (),
        "h1": (),
    }


def secrets(*names: str) -> dict[str, Any]:
    return {"image_pull_secrets": [LocalObjectReference(name=name) for name in names]}


def test_request_has_the_pull_secrets_of_the_pools_whose_images_it_names() -> None:
    first = a_state("a", began=90, spec=secrets("one", "both"))
    second = a_state("b", target=NEWER, pods=(), replicas=0, spec=secrets("both", "two"))
    unrelated = a_state("c", target=image(7), pods=(), replicas=0, spec=secrets("other"))

    plan = staging.plan([second, unrelated, first], [a_host("h0", NEW, NEWER), a_host("h1", NEW)])

    assert (plan["h0"].namespace, plan["h0"].pull_secrets) == (NAMESPACE, ("one", "both", "two"))
    assert plan["h1"].pull_secrets == ("one", "both")


def test_request_of_pools_without_pull_secrets_reads_as_before() -> None:
    plan = staging.plan([a_state()], hosts(1, OLD))

    assert plan["h0"].text() == f'{{"images":["{NEW}","{OLD}"]}}'


def test_host_that_takes_no_pods_gets_no_request() -> None:
    fleet = [replace(a_host("h0", OLD), unusable="not_ready"), a_host("h1", OLD)]

    assert requested(fleet, a_state()) == {"h1": (NEW, OLD)}


def test_hosts_with_an_idle_pod_pull_first() -> None:
    state = a_state(pods=(a_pod("old", node="h5"),), replicas=20)

    plan = requested(hosts(6, OLD), state)

    assert [name for name, images in plan.items() if NEW in images] == ["h5"]


@pytest.mark.parametrize(
    ("staged", "replicas", "expected"),
    [(Staging(), 40, 2), (Staging(), 100, 5), (Staging(max_concurrent=7), 40, 7)],
)
def test_as_many_hosts_pull_at_once_as_allowed(
    staged: Staging, replicas: int, expected: int
) -> None:
    plan = requested(hosts(20, OLD), a_state(staging=staged, replicas=replicas))

    assert sum(NEW in images for images in plan.values()) == expected


def test_trial_stages_one_host_more_than_it_has_canaries() -> None:
    pods = [a_pod(f"p{n}", node=f"h{n}") for n in range(20)]
    state = a_state(is_trial=True, pods=pods, replicas=400, canary=Canary(count=2))

    plan = requested(hosts(20, OLD), state)

    assert sum(NEW in images for images in plan.values()) == 3


def pulled(host: Host) -> Host:
    """Return the host with all that it was requested to have."""
    images = parse_request(host.request).images
    return replace(host, golden=host.golden | set(map(labels.golden, images)))


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1000), limit=st.integers(2, 6), pools=st.integers(1, 3))
def test_limits_hold_over_the_time_of_a_roll(seed: int, limit: int, pools: int) -> None:
    """Twenty hosts pull for one pool or more; the number of pulls and the budget are those of the fleet."""
    rng = random.Random(seed)
    staged = Staging(max_concurrent=limit, max_bytes_per_second=100_000_000)
    states = [
        a_state(f"p{n}", target=image(n + 5), staging=staged, began=90 - n) for n in range(pools)
    ]
    fleet = hosts(20, OLD)
    for _ in range(200):
        plan = staging.plan(states, fleet)
        fleet = written(fleet, plan)
        pulling = [h for h in fleet if any(not h.has_image(i) for i in plan[h.name].images)]
        assert len(pulling) <= limit
        speeds = [plan[host.name].megabytes_per_second or 1e9 for host in pulling]
        assert sum(speeds) <= 100.01
        if all(host.has_image(state.target) for host in fleet for state in states):
            return
        fleet = [pulled(host) if rng.random() < 0.7 else host for host in fleet]
    raise AssertionError("not all hosts have the images")


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 1000), has_budget=st.booleans())
def test_requests_are_stable_while_nothing_happens(seed: int, has_budget: bool) -> None:
    rng = random.Random(seed)
    budget = 50_000_000 if has_budget else None
    state = a_state(staging=Staging(max_concurrent=3, max_bytes_per_second=budget))
    fleet = hosts(8, OLD)
    for _ in range(8):
        fleet = written(fleet, staging.plan([state], fleet))
        fleet = [any_outcome(host, rng) for host in fleet]
        # One write may have a consequence for others, but it must not go back and forth.
        fleet = written(fleet, staging.plan([state], fleet))
        fleet = written(fleet, staging.plan([state], fleet))
        again = staging.plan([state], fleet)
        assert [host.request for host in written(fleet, again)] == [h.request for h in fleet]


def any_outcome(host: Host, rng: random.Random) -> Host:
    if not host.is_requested(NEW) or rng.random() < 0.5:
        return host
    if rng.random() < 0.5:
        return pulled(host)
    return reporting(host, NEW, rng.choice([NO_ROOM, "Unavailable: timed out"]))


def test_host_whose_pull_is_tried_again_keeps_its_request() -> None:
    """A request with another limit would be tried at once, and so change the limit again."""
    budget = Staging(max_concurrent=2, max_bytes_per_second=100_000_000)
    state = a_state(staging=budget)
    fleet = written(hosts(2, OLD), staging.plan([state], hosts(2, OLD)))

    failing = [reporting(fleet[0], NEW, "Unavailable: timed out"), fleet[1]]

    assert written(failing, staging.plan([state], failing)) == failing


def test_broken_host_does_not_keep_others_from_pulling() -> None:
    broken = reporting(a_host("h0", OLD, requested=(NEW, OLD)), NEW, "Unavailable: timed out")
    fleet = [broken, *hosts(3, OLD)[1:]]

    plan = requested(fleet, a_state(replicas=20))

    assert plan == {"h0": (NEW, OLD), "h1": (NEW, OLD), "h2": (OLD,)}


def test_image_that_three_hosts_cannot_pull_is_not_requested_from_more() -> None:
    failed = [
        reporting(a_host(f"h{n}", OLD, requested=(NEW, OLD)), NEW, "NotFound: 404")
        for n in range(3)
    ]
    fleet = [*failed, a_host("h3", OLD)]

    assert staging.host_states(a_state(), fleet).is_unavailable
    assert NEW not in requested(fleet, a_state())["h3"]
    assert not staging.host_states(a_state(), [*failed[:2], a_host("h2")]).is_unavailable


def without_access(name: str) -> Host:
    return reporting(a_host(name, OLD, requested=(NEW, OLD)), NEW, f"{NO_ACCESS}: set a file")


def test_hosts_that_may_not_read_the_pull_secret_do_not_keep_others_from_pulling() -> None:
    fleet = [*map(without_access, ("h0", "h1", "h2", "h3")), a_host("h4", OLD)]

    states = staging.host_states(a_state(), fleet)

    assert states.no_access == set(states.failed or ()) == {"h0", "h1", "h2", "h3"}
    assert not states.is_unavailable
    assert requested(fleet, a_state(replicas=20))["h4"] == (NEW, OLD)


@pytest.mark.parametrize(("mode", "expected"), [("BestEffort", {"h0"}), ("Required", set())])
def test_host_whose_pods_refer_to_other_secrets_is_drained_without_the_image(
    mode: StagingMode, expected: set[str]
) -> None:
    """Its next Pod refers to the Secret; a host without a Pod of the pool can wait for one."""
    fleet = [without_access("h0"), without_access("h1")]
    state = a_state(pods=(a_pod("old", node="h0"),), staging=Staging(mode=mode))

    found = staging.cold_hosts(state, staging.host_states(state, fleet), [a_state("a", began=99)])

    assert found == expected
    # There is room for both images.
    assert requested(fleet, state) == {"h0": (NEW, OLD), "h1": (NEW, OLD)}


@pytest.mark.parametrize(
    ("mode", "expected"), [("BestEffort", {"h0"}), ("Required", set()), ("Disabled", set())]
)
def test_host_without_room_is_drained_first_only_with_best_effort(
    mode: Any, expected: set[str]
) -> None:
    state = a_state(staging=Staging(mode=mode))
    states = staging.host_states(state, [full_host()])

    assert states.no_room == {"h0"}
    assert staging.cold_hosts(state, states, ()) == expected


def full_host() -> Host:
    return reporting(a_host("h0", OLD, requested=(NEW, OLD)), NEW)


def test_host_that_is_drained_first_need_not_keep_the_last_good_image() -> None:
    required = a_state(staging=Staging(mode="Required"))

    assert requested([full_host()], a_state())["h0"] == (NEW,)
    assert requested([full_host()], required)["h0"] == (NEW, OLD)


def test_lack_of_room_for_an_earlier_request_does_not_count_for_the_current_one() -> None:
    changed = replace(full_host(), request=StagingRequest((NEW,)).text())

    states = staging.host_states(a_state(), [changed])

    assert (states.no_room, states.pulling) == (frozenset(), frozenset({"h0"}))


def test_second_pool_waits_for_the_first_where_the_disk_cannot_hold_the_images_of_both() -> None:
    first = a_state("b", target=NEWER, began=90)
    second = a_state("a", began=30)
    # The last stale Pod is gone, and the hosts are not yet requested to drop its image.
    ending = a_state("b", target=NEWER, began=90, pods=())
    ended = a_state("b", target=NEWER, pods=(), roll_started_at=None)
    states = staging.host_states(second, [full_host()])

    assert staging.cold_hosts(second, states, [first]) == frozenset()
    assert staging.cold_hosts(second, states, [ending]) == frozenset()
    assert staging.cold_hosts(second, states, [ended]) == {"h0"}
    assert staging.cold_hosts(first, staging.host_states(first, [full_host()]), [second]) == set()


def test_lowest_budget_of_the_fleet_is_divided_over_the_hosts_that_pull() -> None:
    rich = a_state("a", staging=Staging(max_concurrent=4, max_bytes_per_second=400_000_000))
    poor = a_state("b", pods=(), staging=Staging(max_bytes_per_second=100_000_000))

    plan = staging.plan([rich, poor], hosts(6, OLD))

    assert [plan[f"h{n}"].megabytes_per_second for n in range(6)] == [25.0] * 4 + [None] * 2
