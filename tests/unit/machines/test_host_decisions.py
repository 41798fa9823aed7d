from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.machines.host_decisions import (
    Decision,
    Ending,
    Step,
    choose,
    decide,
    decide_release,
)
from bramley.providers.provider import Host, HostState
from bramley.providers.selection import HostRequirements
from tests.unit.providers.hosts import PENDING, POOL, a_host

WANTED = HostRequirements("m1", "M2-L", "macos-tahoe-26.3", POOL)
BUSY = HostState.BUSY


@pytest.mark.parametrize(
    ("host", "early", "settled", "bound"),
    [
        (None, Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a"), Step.CLAIM, Step.CLAIM, Step.REPORT),
        (a_host("a", f"{PENDING}x"), Step.CLAIM, Step.CLAIM, Step.CLAIM),
        (a_host("a", "m1"), Step.USE, Step.USE, Step.USE),
        (a_host("a", "m2"), Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a", state=BUSY), Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a", is_deletion_scheduled=True), Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a", f"{PENDING}x", state=BUSY), Step.WAIT, Step.GIVE_UP, Step.WAIT),
        (a_host("a", "m1", state=BUSY), Step.WAIT, Step.WAIT, Step.USE),
        (a_host("a", "m1", state=HostState.FAILED), Step.WAIT, Step.WAIT, Step.USE),
        (a_host("a", type="M4-S"), Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a", os="Sequoia"), Step.WAIT, Step.GIVE_UP, Step.REPORT),
        (a_host("a", "m1", type="M4-S"), Step.REPORT, Step.REPORT, Step.USE),
        (a_host("a", "m1", os="Sequoia"), Step.REPORT, Step.REPORT, Step.USE),
        (a_host("a", f"{PENDING}x", type="M4-S"), Step.WAIT, Step.GIVE_UP, Step.CLAIM),
    ],
)
def test_next_step_with_the_host_of_its_lease(
    host: Host | None, early: Step, settled: Step, bound: Step
) -> None:
    def step(*, is_bound: bool, is_settled: bool) -> Step:
        return decide(host, WANTED, is_bound=is_bound, is_settled=is_settled).step

    assert step(is_bound=False, is_settled=False) is early
    assert step(is_bound=False, is_settled=True) is settled
    assert step(is_bound=True, is_settled=False) is bound
    assert step(is_bound=True, is_settled=True) is bound


NAMES = st.sampled_from([f"{POOL}1", f"{PENDING}1", "m1", "m2", "m11", "my-tuist-pool-1"])
HOSTS = st.builds(
    a_host,
    st.sampled_from("abc"),
    NAMES,
    type=st.sampled_from(["M2-L", "M4-S"]),
    os=st.sampled_from(["Tahoe", "Sequoia"]),
    state=st.sampled_from(HostState),
    is_delivered=st.booleans(),
    is_deletion_scheduled=st.booleans(),
)


@given(st.none() | HOSTS, st.booleans(), st.booleans())
def test_no_host_is_used_under_another_name_or_given_up_too_early(
    host: Host | None, is_bound: bool, is_settled: bool
) -> None:
    decision = decide(host, WANTED, is_bound=is_bound, is_settled=is_settled)

    if decision.step is Step.USE:
        assert host is not None
        assert host.name == "m1"
    if decision.step is Step.CLAIM:
        assert host is not None
        assert host.can_be_claimed
        assert host.name.startswith((POOL, PENDING))
    if decision.step is Step.GIVE_UP:
        assert is_settled
        assert not is_bound
    assert decision.why or decision.step in (Step.USE, Step.CLAIM)


@given(st.lists(HOSTS, unique_by=lambda host: host.ref), st.sets(st.sampled_from("abc")))
def test_hosts_with_a_lease_of_another_machine_are_never_chosen(
    hosts: list[Host], leased: set[str]
) -> None:
    choice = choose(hosts, WANTED, leased=leased)

    chosen = [] if isinstance(choice, Decision) else choice
    assert not {host.ref.id for host in chosen} & leased
    own = [host for host in hosts if host.name == "m1" and host.ref.id not in leased]
    assert all(host in own for host in chosen) or not own


def chosen(*hosts: Host, leased: str = "", quarantined: str = "") -> list[str] | Step:
    choice = choose(hosts, WANTED, leased=set(leased), quarantined=set(quarantined))
    return choice.step if isinstance(choice, Decision) else [host.ref.id for host in choice]


def test_which_hosts_are_tried() -> None:
    assert chosen() is Step.WAIT
    assert chosen(a_host("a")) == ["a"]
    assert chosen(a_host("a"), leased="a") is Step.WAIT
    assert chosen(a_host("a"), quarantined="a") is Step.WAIT
    assert chosen(a_host("a"), a_host("b", "m1")) == ["b"]
    assert chosen(a_host("a"), a_host("b", "m1"), leased="b") == ["a"]
    assert chosen(a_host("a"), a_host("b", "m1"), quarantined="b") == ["b"]
    assert chosen(a_host("a"), a_host("b", "m1", state=BUSY)) is Step.WAIT
    assert chosen(a_host("a"), a_host("b", "m1", type="M4-S")) is Step.REPORT


@pytest.mark.parametrize(
    ("name", "bound", "not_bound"),
    [
        ("m1", Ending.RELEASE, Ending.RELEASE),
        (f"{PENDING}x", Ending.RELEASE, Ending.RELEASE),
        (f"{POOL}a", Ending.RELEASE, Ending.RELEASE),
        (f"{POOL}other", Ending.REINSTALL, Ending.NOTHING),
        ("m2", Ending.REFUSE, Ending.NOTHING),
        (None, Ending.NOTHING, Ending.NOTHING),
    ],
)
def test_how_a_host_is_released(name: str | None, bound: Ending, not_bound: Ending) -> None:
    host, ref = None if name is None else a_host("a", name), a_host("a").ref

    endings = [
        decide_release(host, ref, "m1", pool_prefix=POOL, was_bound=was_bound)
        for was_bound in (True, False)
    ]

    assert endings == [bound, not_bound]
