"""Rolls of whole fleets by the decisions about their hosts, in random order and with random failures."""

from __future__ import annotations

from datetime import datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.core import Node
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.base import errors
from bramley.machines import drift
from bramley.machines.drift import Member
from bramley.machines.host_operations import Operation, State
from bramley.machines.mac_draft import Act, Settings, Start, Step
from tests.unit.machines.macs import (
    MANAGER,
    NEW,
    NOW,
    OLD,
    UPDATE,
    Life,
    a_mac,
    a_node,
    a_served_status,
    ended,
    minutes,
    problem,
    seconds,
    served,
)


class Fleet:
    """Hosts that serve, what runs on them, and the checks of every start."""

    def __init__(self, hosts: int, rng: Random, *, percent: int = 10, reboots: float = 0.0) -> None:
        self.rng = rng
        # How often an update needs a reboot.
        self.reboots = reboots
        self.settings = Settings(drift=drift.Settings(max_unavailable_percent=percent))
        self.limit = self.settings.drift.max_unavailable(hosts)
        self.now: datetime = NOW
        self.desired = OLD
        self.lives: dict[str, Life] = {}
        for number in range(hosts):
            mac = a_mac(f"h{number:02}")
            observed = served(mac=mac, status=a_served_status(host_config_hash=OLD))
            self.lives[mac.name] = Life(observed, self.settings)
        self.running: dict[str, Operation] = {}
        self.results: dict[str, State] = {}
        self.lost: set[str] = set()
        self.cordoned: set[str] = set()
        self.busy: set[str] = set()
        self.to_replace: set[str] = set()
        # The hosts on which each configuration was started, in order.
        self.started: dict[str, list[str]] = {}

    def member(self, name: str) -> Member:
        status = self.lives[name].status
        return Member(
            name=name,
            is_outdated=status.host_config_hash != self.desired,
            is_available=self.is_available(name),
            # Also while the result is not in the status.
            is_updating=name in self.running or name in self.results,
            is_terminal=status.failed_host_config_hash == self.desired,
            is_busy=name in self.busy,
        )

    def members(self) -> list[Member]:
        return [self.member(name) for name in self.lives]

    def is_available(self, name: str) -> bool:
        return name not in self.lost | self.cordoned

    def node(self, name: str) -> Node:
        cordoned_by = MANAGER if name in self.cordoned else ""
        return a_node(
            name, ready="Unknown" if name in self.lost else "True", cordoned_by=cordoned_by
        )

    def reconcile(self, name: str) -> None:
        life = self.lives[name]
        state = self.results.pop(name, None)
        if name in self.running:
            state = State(self.running[name])
        marks = {annotation_names.REPLACE_TART} if name in self.to_replace else set()
        decision = life.reconcile(
            now=self.now,
            desired=self.desired,
            node=self.node(name),
            operation=state,
            annotations=frozenset(marks),
            fleet=self.members(),
        )
        for step in decision.steps:
            self.act(name, step)

    def act(self, name: str, step: Step) -> None:
        match step:
            # As the reconcilers do: others may have started since this was decided.
            case Start() if drift.refusal(name, self.members(), self.settings.drift) is None:
                self.start(name, step.operation)
            case Act(kind="cordon"):
                self.check_limit(name)
                self.cordoned.add(name)
            case Act(kind="uncordon"):
                self.cordoned.discard(name)
            case Act(kind="remove annotation"):
                self.to_replace.discard(name)

    def start(self, name: str, operation: Operation) -> None:
        assert name not in self.running
        assert len(self.running) < self.limit
        is_known = any(
            each.status.host_config_hash == self.desired
            and self.is_available(other)
            and other not in self.running
            for other, each in self.lives.items()
        )
        is_outdated = self.lives[name].status.host_config_hash != self.desired
        assert is_known or not self.running or not is_outdated, "the first update is alone"
        self.check_limit(name)
        self.running[name] = operation
        self.started.setdefault(operation.host_config_hash, []).append(name)

    def check_limit(self, name: str) -> None:
        """Check that no host is taken from the fleet beyond the limit; one that is lost anyway takes nothing from it."""
        others = self.running.keys() | self.lost | self.cordoned
        assert not self.is_available(name) or len(others) < self.limit

    def finish(self, name: str, *, succeeds: bool = True, is_lost: bool = False) -> None:
        operation = self.running.pop(name)
        hash, replace = operation.host_config_hash, operation.replace_tart
        error = None if succeeds else errors.CommandFailed("exit 1")
        pending = ("reboot",) if succeeds and self.rng.random() < self.reboots else ()
        self.results[name] = ended(
            UPDATE,
            error,
            pending=pending,
            host_config_hash=hash,
            replace_tart=replace,
            may_reboot=operation.may_reboot,
        )
        if is_lost:
            self.lost.add(name)
        elif succeeds:
            self.lost.discard(name)

    def happen(self) -> None:
        """Let one thing happen: a reconcile most of the time."""
        chance = self.rng.random()
        if chance < 0.7:
            self.reconcile(self.rng.choice(list(self.lives)))
        elif chance < 0.9 and self.running:
            name = self.rng.choice(sorted(self.running))
            succeeds = self.rng.random() < 0.6
            self.finish(name, succeeds=succeeds, is_lost=self.rng.random() < 0.1)
        elif chance < 0.93:
            self.lost ^= {self.rng.choice(list(self.lives))}
        elif chance < 0.94:
            self.busy ^= {self.rng.choice(list(self.lives))}
        elif chance < 0.95:
            self.to_replace.add(self.rng.choice(list(self.lives)))
        elif chance < 0.96:
            self.desired = self.rng.choice([OLD, NEW, "newer-hash"])
        else:
            self.now += minutes(self.rng.choice([1, 1, 1, 5, 31]))

    def settle(self, rounds: int) -> None:
        """Let everything succeed from now on."""
        for _ in range(rounds):
            for name in self.rng.sample(list(self.lives), len(self.lives)):
                self.reconcile(name)
            for name in sorted(self.running):
                self.finish(name)
            self.now += minutes(2)

    def outdated(self) -> list[str]:
        return [
            name
            for name, life in self.lives.items()
            if life.status.host_config_hash != self.desired
        ]


@given(st.integers(1, 25), st.integers(0, 2**32), st.sampled_from([10, 25, 100]))
def test_any_roll_keeps_its_limits_and_reaches_all_hosts(
    hosts: int, seed: int, percent: int
) -> None:
    fleet = Fleet(hosts, Random(seed), percent=percent, reboots=0.2)
    fleet.desired = NEW
    for _ in range(300):
        fleet.happen()

    fleet.lost.clear()
    fleet.settle(rounds=30 + 4 * hosts)

    assert fleet.outdated() == []
    assert (fleet.running, fleet.cordoned, fleet.to_replace) == ({}, set(), set())
    states = {problem(life.status, types.UP_TO_DATE) for life in fleet.lives.values()}
    assert states == {""}
    assert all(life.status.ready for life in fleet.lives.values())


@given(st.integers(2, 30), st.integers(0, 2**32))
def test_configuration_that_breaks_hosts_is_tried_on_few(hosts: int, seed: int) -> None:
    fleet = Fleet(hosts, Random(seed))
    fleet.desired = NEW
    for _ in range(25):
        fleet.busy = set(fleet.rng.sample(list(fleet.lives), hosts // 3))
        for name in fleet.rng.sample(list(fleet.lives), hosts):
            fleet.reconcile(name)
        for name in sorted(fleet.running):
            fleet.finish(name, succeeds=False, is_lost=True)
        fleet.now += minutes(1)

    assert len(fleet.lost) <= fleet.limit
    reasons = [problem(life.status, types.UP_TO_DATE) for life in fleet.lives.values()]
    assert reasons.count(events.UPDATE_EXCEEDED_RETRIES) == 1
    assert set(reasons) <= {
        events.UPDATE_EXCEEDED_RETRIES,
        events.CANARY_FAILED,
        events.AGENT_ROLL_FAILED,
    }


def test_configuration_that_changes_in_the_middle_has_its_own_first_host() -> None:
    fleet = Fleet(20, Random(1))
    fleet.desired = NEW
    fleet.settle(rounds=4)
    assert 1 < len(set(fleet.started[NEW])) < 20
    fleet.desired = "newer-hash"
    # Twice: the first time writes the results of the configuration before.
    for name in [*fleet.lives, *fleet.lives]:
        fleet.reconcile(name)

    assert len(fleet.started["newer-hash"]) == 1
    assert fleet.running.keys() == set(fleet.started["newer-hash"])
    fleet.settle(rounds=60)
    assert fleet.outdated() == []


@pytest.mark.parametrize(("hosts", "at_once"), [(5, 1), (20, 2), (40, 4)])
def test_roll_of_a_healthy_fleet(hosts: int, at_once: int) -> None:
    fleet = Fleet(hosts, Random(7))
    fleet.desired = NEW
    waves = []
    while fleet.outdated():
        for name in fleet.lives:
            fleet.reconcile(name)
        waves.append(len(fleet.running))
        for name in sorted(fleet.running):
            fleet.finish(name)
            fleet.reconcile(name)
        fleet.now += seconds(30)

    assert waves[0] == 1
    assert max(waves) == at_once
