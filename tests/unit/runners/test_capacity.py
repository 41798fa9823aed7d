from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from bramley.runners import capacity
from tests.unit.runners.builders import NOW, a_host, a_pod, a_pool, an_ended_pod

demands = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20))


def test_places_are_the_slots_of_usable_hosts_without_living_pods() -> None:
    hosts = [
        a_host("h1"),
        a_host("h2", pods=2, cpu_milli=16000, memory_mb=28672),
        a_host("h3", unusable="not_ready"),
        a_host("h4", cpu_milli=4000),
    ]
    pods = [a_pod("a", node="h2"), an_ended_pod("b", node="h1"), a_pod("c", node="h3")]

    places = capacity.places(a_pool().spec, hosts, pods)

    assert places.capacity == 3
    assert places.free == {"h1": 1, "h2": 1, "h4": 0}


def test_place_of_a_terminating_pod_is_free_for_its_successor() -> None:
    pods = [a_pod("a", node="h1", deleted_at=NOW)]

    assert capacity.places(a_pool().spec, [a_host("h1")], pods).free == {"h1": 1}


def test_pods_on_unusable_hosts_use_no_place() -> None:
    pods = [a_pod("a", node="h1"), a_pod("b", node=""), a_pod("c", node="gone"), an_ended_pod()]

    assert capacity.used(pods, frozenset({"h1"})) == 2


def test_shares_are_equal_where_demand_allows() -> None:
    assert capacity.fair_shares(9, {"a": 9, "b": 9, "c": 1}) == {"a": 4, "b": 4, "c": 1}
    assert capacity.fair_shares(10, {"a": 9, "b": 9}) == {"a": 5, "b": 5}
    assert capacity.fair_shares(-1, {"a": 9}) == {"a": 0}
    assert capacity.fair_shares(5, {}) == {}


@given(places=st.integers(0, 60), demanded=demands)
def test_shares_use_every_place_that_is_demanded_and_no_more(
    places: int, demanded: Mapping[str, int]
) -> None:
    shares = capacity.fair_shares(places, demanded)

    assert sum(shares.values()) == min(places, sum(demanded.values()))
    assert all(shares[name] <= demanded[name] for name in demanded)


@given(places=st.integers(0, 60), demanded=demands)
def test_no_pool_gets_less_than_another_unless_it_demands_less(
    places: int, demanded: Mapping[str, int]
) -> None:
    shares = capacity.fair_shares(places, demanded)

    for name, share in shares.items():
        assert share == demanded[name] or share >= max(shares.values()) - 1
