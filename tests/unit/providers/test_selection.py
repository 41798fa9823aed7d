from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base import errors
from bramley.providers.provider import Host, HostState
from bramley.providers.selection import HostRequirements, claimable
from tests.unit.providers.hosts import PENDING, POOL, a_host

WANTED = HostRequirements("m1", "M2-L", "macos-tahoe-26.3", POOL)


def ids(
    hosts: list[Host], required: HostRequirements = WANTED, excluded: frozenset[str] = frozenset()
) -> list[str]:
    return [host.ref.id for host in claimable(hosts, required, excluded=excluded)]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (a_host("a"), True),
        (a_host("a", f"{PENDING}x"), True),
        (a_host("a", "m2"), False),
        (a_host("a", "my-tuist-pool-1"), False),
        (a_host("a", type="M4-S"), False),
        (a_host("a", os="Sequoia"), False),
        (a_host("a", is_delivered=False), False),
        (a_host("a", is_deletion_scheduled=True), False),
        (a_host("a", state=HostState.REINSTALLING), False),
        (a_host("a", state=HostState.BUSY), False),
        (a_host("a", state=HostState.FAILED), False),
        (a_host("a", "m1"), True),
        (a_host("a", "m1", type="M4-S"), False),
        (a_host("a", "m1", state=HostState.REINSTALLING), False),
    ],
)
def test_which_host_may_be_claimed(host: Host, expected: bool) -> None:
    assert ids([host]) == (["a"] if expected else [])


def test_host_with_the_name_is_the_only_candidate_also_while_it_is_busy() -> None:
    assert ids([a_host("a"), a_host("b", "m1")]) == ["b"]
    assert ids([a_host("a"), a_host("b", "m1", state=HostState.BUSY)]) == []


def test_pool_comes_before_abandoned_claims() -> None:
    hosts = [a_host(f"p{n}", f"{PENDING}{n}") for n in range(5)] + [
        a_host(f"f{n}") for n in range(5)
    ]

    found = ids(hosts)

    assert [each[0] for each in found] == ["f"] * 5 + ["p"] * 5


def test_quarantined_hosts_are_left_out() -> None:
    assert ids([a_host("a"), a_host("b"), a_host("c", "m1")], excluded=frozenset({"a", "c"})) == [
        "b"
    ]


def test_machines_try_hosts_in_different_orders() -> None:
    hosts = [a_host(f"h{n}") for n in range(8)]

    firsts = {ids(hosts, HostRequirements(f"m{n}", "M2-L", "tahoe", POOL))[0] for n in range(32)}

    assert len(firsts) > 4


def test_empty_prefix_is_refused() -> None:
    with pytest.raises(errors.InvalidSpec, match="prefix"):
        HostRequirements("m1", "M2-L", "tahoe", "")


hosts = st.builds(
    a_host,
    st.sampled_from("abcdef"),
    st.sampled_from(["", "m1", "m2", f"{PENDING}1"]),
    state=st.sampled_from(HostState),
    type=st.sampled_from(["M2-L", "M4-S"]),
)


@given(st.lists(hosts, unique_by=lambda host: host.ref), st.frozensets(st.sampled_from("abcdef")))
def test_order_does_not_depend_on_the_list_and_nothing_excluded_is_returned(
    listed: list[Host], excluded: frozenset[str]
) -> None:
    found = ids(listed, excluded=excluded)

    assert found == ids(listed[::-1], excluded=excluded)
    assert not excluded & set(found)
    assert all(host.can_be_claimed for host in listed if host.ref.id in found)
    assert "m2" not in {host.name for host in listed if host.ref.id in found}
