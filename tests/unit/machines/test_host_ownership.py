from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.meta import ObjectMeta
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineStatus as Status
from bramley.machines.host_ownership import (
    HostUse,
    Owners,
    Ownership,
    count_uses,
    may_reclaim,
    use_of,
)
from bramley.providers.provider import Host, HostState
from tests.unit.providers.hosts import PENDING, POOL, a_host

MACHINES = [
    Machine(metadata=ObjectMeta(name="m1")),
    Machine(
        metadata=ObjectMeta(name="m2"),
        spec=Spec(provider_id="scw-applesilicon://fr-par-1/bound", adopt_pool_prefix="spare-"),
        status=Status(server_id="recorded"),
    ),
]
OWNERS = Owners.of(MACHINES, leased=["leased"], default_pool_prefix=POOL)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (a_host("a"), Ownership.POOL),
        (a_host("a", "spare-7"), Ownership.POOL),
        (a_host("a", f"{PENDING}x"), Ownership.CLAIM),
        (a_host("a", "m1"), Ownership.MACHINE),
        (a_host("a", "m3"), Ownership.STRAY),
        (a_host("a", "m11"), Ownership.STRAY),
        (a_host("recorded", "renamed"), Ownership.MACHINE),
        (a_host("bound", "renamed"), Ownership.MACHINE),
        (a_host("leased", f"{PENDING}x"), Ownership.MACHINE),
        (a_host("leased"), Ownership.MACHINE),
    ],
)
def test_to_whom_a_host_belongs(host: Host, expected: Ownership) -> None:
    assert OWNERS.find(host) is expected


def test_without_a_prefix_no_name_is_of_the_pool() -> None:
    owners = Owners.of([], leased=[], default_pool_prefix="")
    assert owners.find(a_host("a")) is Ownership.STRAY


@pytest.mark.parametrize(
    ("name", "ownership", "prefix", "expected"),
    [
        ("fleet-1", Ownership.STRAY, "fleet-", True),
        ("other-1", Ownership.STRAY, "fleet-", False),
        (f"{PENDING}x", Ownership.CLAIM, "fleet-", True),
        ("fleet-1", Ownership.STRAY, "", False),
        (f"{PENDING}x", Ownership.CLAIM, "", False),
        ("fleet-1", Ownership.MACHINE, "fleet-", False),
        ("fleet-1", Ownership.POOL, "fleet-", False),
    ],
)
def test_which_hosts_may_be_changed(
    name: str, ownership: Ownership, prefix: str, expected: bool
) -> None:
    assert may_reclaim(a_host("a", name), ownership, prefix) is expected


@pytest.mark.parametrize(
    ("host", "ownership", "expected"),
    [
        (a_host("a"), Ownership.POOL, HostUse.AVAILABLE),
        (a_host("bad"), Ownership.POOL, HostUse.QUARANTINED),
        (a_host("bad", "m1"), Ownership.MACHINE, HostUse.CLAIMED),
        (a_host("bad", state=HostState.FAILED), Ownership.POOL, HostUse.FAILED),
        (a_host("a", "m1"), Ownership.MACHINE, HostUse.CLAIMED),
        (a_host("a", f"{PENDING}x"), Ownership.CLAIM, HostUse.CLAIMED),
        (a_host("a", "other"), Ownership.STRAY, HostUse.CLAIMED),
        (a_host("a", "m1", state=HostState.BUSY), Ownership.MACHINE, HostUse.BUSY),
        (a_host("a", state=HostState.REINSTALLING), Ownership.MACHINE, HostUse.REINSTALLING),
        (a_host("a", is_delivered=False), Ownership.POOL, HostUse.BUSY),
        (a_host("a", is_deletion_scheduled=True), Ownership.POOL, HostUse.FAILED),
    ],
)
def test_what_a_host_counts_as(host: Host, ownership: Ownership, expected: HostUse) -> None:
    assert use_of(host, ownership, frozenset({"bad"})) is expected


HOSTS = st.lists(
    st.builds(
        a_host,
        st.sampled_from(["a", "b", "recorded", "leased", "bad"]),
        st.sampled_from([f"{POOL}1", f"{PENDING}1", "m1", "other"]),
        type=st.sampled_from(["M2-L", "M4-S"]),
        state=st.sampled_from(HostState),
        is_delivered=st.booleans(),
        is_deletion_scheduled=st.booleans(),
    )
)


@given(HOSTS)
def test_every_host_counts_once(hosts: list[Host]) -> None:
    counts = count_uses(hosts, OWNERS, frozenset({"bad"}))
    assert counts.total() == len(hosts)
    for type in ("M2-L", "M4-S"):
        counted = sum(count for (each, _), count in counts.items() if each == type)
        assert counted == sum(host.type == type for host in hosts)
