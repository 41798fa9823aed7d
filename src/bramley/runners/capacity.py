"""How many Pods the hosts of a fleet have place for, shared over the pools that use them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bramley.api.runner_pool import RunnerPoolSpec
from bramley.runners import hosts as fleet_hosts
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a fleet for Pods of one size: how many there are, and how many are free on each usable host."""

    capacity: int
    free: Mapping[str, int]


def places(spec: RunnerPoolSpec, hosts: Sequence[Host], pods: Iterable[RunnerPod]) -> Places:
    """Return the places for the Pods of a pool, given all Pods of the fleet.

    The place of a Pod that is being deleted counts as free: its successor waits for it, and need not go to another host.
    """
    taken: dict[str, int] = {}
    for pod in pods:
        if pod.node and pod.is_alive:
            taken[pod.node] = taken.get(pod.node, 0) + 1
    cpu, memory = spec.pod_cpu_milli, spec.pod_memory_mb
    free = {
        host.name: max(0, host.slots(cpu_milli=cpu, memory_mb=memory) - taken.get(host.name, 0))
        for host in hosts
        if host.is_usable
    }
    return Places(fleet_hosts.capacity(hosts, cpu_milli=cpu, memory_mb=memory), free)


def fair_shares(capacity: int, demands: Mapping[str, int]) -> dict[str, int]:
    """Share places over pools: none gets more than it demands, and none less than an equal part that others do not need."""
    shares = dict.fromkeys(demands, 0)
    remaining = max(0, capacity)
    unmet = sorted(name for name, demand in demands.items() if demand > 0)
    while remaining and unmet:
        # Less than one place each: the first ones get one.
        part = max(1, remaining // len(unmet))
        for name in unmet:
            given = min(part, demands[name] - shares[name], remaining)
            shares[name] += given
            remaining -= given
        unmet = [name for name in unmet if shares[name] < demands[name]]
    return shares


def used(pods: Iterable[RunnerPod], usable: frozenset[str]) -> int:
    """Return how many places Pods use or will use: those on usable hosts, and those that have no host yet."""
    return sum(pod.is_alive and (not pod.node or pod.node in usable) for pod in pods)
