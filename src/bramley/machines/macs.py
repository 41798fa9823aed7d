"""What the reconcilers of machines and of MacHosts do alike for one Mac: observe it, carry a decision out, and take it out of service.

A result of an operation is acknowledged after it was written to the status, and an operation begins after that, so a write that
fails loses neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.api.mac_status import MacStatus
from bramley.api.meta import Object
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.host.progress import Report
from bramley.kube.client import Client
from bramley.machines import (
    drift,
    host_proof,
    host_update,
    mac_decision,
    node_drain,
    objects,
    recovery,
    smoke_vm,
)
from bramley.machines.builder_runners import BuilderRunners
from bramley.machines.host_operations import HostOperations, Kind, OnStep, Operation
from bramley.machines.host_work import HostWork, Logins
from bramley.machines.mac import Mac
from bramley.machines.mac_draft import (
    Act,
    Decision,
    Draft,
    Evict,
    Observed,
    Problem,
    Settings,
    Start,
    Step,
)
from bramley.machines.recovery import Recovery
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key, key_of
from bramley.runtime.outcome import CheckAgain
from bramley.runtime.queue import Trigger
from bramley.runtime.writes import FencedKube

SMOKE_PODS_BY_MACHINE = "macs.machine"
RUNNER_PODS_BY_NODE = "macs.node"
_CORDONED = "drain"
# How often it is checked whether the runner of a builder still has its job.
_BUSY_RETRY = timedelta(minutes=1)
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Caches:
    """What Macs depend on."""

    nodes: Cache[Node]
    # With the label of smoke Pods, and with that of runners.
    smoke_pods: Cache[Pod]
    runner_pods: Cache[Pod]
    pools: Cache[RunnerPool]

    def node(self, name: str) -> Node | None:
        """Return the Node of a Mac."""
        return self.nodes.find(Key("", name))

    def is_busy(self, node: str) -> bool:
        """Return whether a runner of a Node has a job."""
        return any(_has_job(pod) for pod in self.runner_pods.by_index(RUNNER_PODS_BY_NODE, node))

    def smoke_pod(self, uid: str) -> Pod | None:
        """Return the smoke Pod of a Mac."""
        return next(iter(self.smoke_pods.by_index(SMOKE_PODS_BY_MACHINE, uid)), None)

    def index(self) -> None:
        """Add the indexes."""
        self.smoke_pods.index(
            SMOKE_PODS_BY_MACHINE, lambda pod: [pod.metadata.labels.get(labels.MACHINE_UID, "")]
        )
        self.runner_pods.index(RUNNER_PODS_BY_NODE, lambda pod: [pod.spec.node_name])


def _has_job(pod: Pod) -> bool:
    is_claimed = bool(pod.metadata.labels.get(labels.RUNNER_POOL_OWNER))
    return is_claimed and not pod.deleting and pod.status.phase not in _ENDED


@dataclass(frozen=True, slots=True)
class Macs:
    """The Macs of one kind."""

    kube: FencedKube
    client: Client
    caches: Caches
    operations: HostOperations
    work: HostWork
    logins: Logins
    runners: BuilderRunners
    settings: Settings
    smoke_image: str
    # Enqueues the object of a Mac.
    trigger: Trigger
    clock: Clock
    # The last desired configuration of each Mac, by the uid of its object.
    _desired: dict[str, str] = field(default_factory=dict)

    async def observe(self, mac: Mac, obj: Object, status: MacStatus) -> Observed:
        """Return a Mac and what it depends on; the fleet is added when it is decided."""
        desired = await self._fingerprint(mac)
        present = frozenset(obj.metadata.annotations)
        needs_drain = host_update.needs_drain(status, present)
        return Observed(
            mac=mac,
            status=status,
            now=self.clock.now(),
            desired=desired,
            agent_sha=self.work.defaults.artifacts.agent.sha256,
            annotations=present,
            operation=self.operations.find(obj.uid),
            postponed=self.operations.postponed(obj.uid),
            node=self.caches.node(mac.name),
            pods=await self.pods_on(mac.name) if needs_drain else (),
            is_busy=await self._is_busy(mac, status),
            smoke_pod=self.caches.smoke_pod(obj.uid),
            smoke_image=smoke_vm.image_for(mac, self.smoke_image, self.caches.pools.all()),
            is_runner_online=await self.runners.is_online(mac)
            if host_proof.needs_runner(mac, status)
            else None,
        )

    def member(self, obj: Object, status: MacStatus) -> drift.Member:
        """Return a host of a fleet; one whose desired configuration is not known yet counts as outdated."""
        name, uid = obj.name, obj.uid
        node, desired = self.caches.node(name), self._desired.get(uid)
        # Until its result is in the status, it is unknown whether the configuration works. Of a paused Mac it stays unknown.
        is_paused = annotation_names.PAUSED in obj.metadata.annotations
        has_operation = self.operations.find(uid) is not None and not is_paused
        return drift.Member(
            name=name,
            is_outdated=desired is None or status.host_config_hash != desired,
            is_available=node is not None and _takes_pods(node),
            is_updating=has_operation or self.operations.is_active(uid),
            is_terminal=bool(desired and status.failed_host_config_hash == desired),
            is_busy=self.caches.is_busy(name) or _was_busy(status),
        )

    def decide(self, seen: Observed) -> Decision:
        """Return what to do."""
        return mac_decision.decide(seen, self.settings)

    async def act(self, decision: Decision, seen: Observed) -> Decision:
        """Carry out the steps that change objects, and return what is to be reported; operations begin later, by `start`."""
        for step in decision.steps:
            # What is gone meanwhile needs no change.
            with suppress(errors.NotFound):
                try:
                    await self._change(step, seen)
                except errors.Refused as error:
                    if step != Act("create smoke Pod"):
                        raise
                    # Its namespace may be that of a RunnerPool, where the manager lacks a permission, or a quota is used up.
                    decision = host_proof.refused(decision, seen, str(error))
        return decision

    def start(
        self,
        decision: Decision,
        seen: Observed,
        obj: Object,
        fleet: Callable[[], Sequence[drift.Member]],
    ) -> None:
        """Acknowledge the result that was written, and begin the next operation.

        Only the result that was decided on: an operation may have ended since then. The fleet is read again without anything in
        between: two hosts that were decided on at once must not both take the last place.
        """
        if seen.operation is not None and seen.operation.result is not None:
            self.operations.acknowledge(obj.uid, seen.operation.result)
        for step in decision.steps:
            if isinstance(step, Start) and self._may_start(step.operation, seen.mac, fleet()):
                self._start(step.operation, seen.mac, obj)

    def _may_start(self, operation: Operation, mac: Mac, fleet: Sequence[drift.Member]) -> bool:
        if operation.kind is not Kind.UPDATE or not any(each.name == mac.name for each in fleet):
            return True
        return drift.refusal(mac.name, fleet, self.settings.drift) is None

    def _start(self, operation: Operation, mac: Mac, obj: Object) -> None:
        key = key_of(obj)

        async def work(on_step: OnStep) -> Report | None:
            return await self.work.apply(mac, self.logins, operation, on_step)

        self.operations.start(obj.uid, operation, work, lambda: self.trigger.enqueue(key))

    def start_clean_up(self, mac: Mac, obj: Object) -> None:
        """Begin to remove everything from a Mac that its team owns."""
        key = key_of(obj)

        async def work(on_step: OnStep) -> Report | None:
            return await self.work.clean_up(mac, self.logins, on_step)

        operation = Operation(Kind.CLEANUP)
        self.operations.start(obj.uid, operation, work, lambda: self.trigger.enqueue(key))

    async def _fingerprint(self, mac: Mac) -> str | Problem:
        try:
            desired = await self.work.fingerprint(mac, await self.logins.hash_key(mac))
        except errors.LeaseLost:
            raise
        except (errors.NotFound, errors.Unavailable, errors.RateLimited) as error:
            return Problem(events.CREDENTIALS_UNAVAILABLE, str(error))
        except errors.Refused as error:
            return Problem(events.INVALID_CONFIGURATION, str(error))
        self._desired[mac.holder.uid] = desired
        return desired

    async def _is_busy(self, mac: Mac, status: MacStatus) -> bool:
        """Return whether a job runs on a Mac; the forge is called only for a builder that one more failure may reboot."""
        failed = replace(status, bootstrap_attempts=status.bootstrap_attempts + 1)
        action = recovery.recovery(failed, self.settings.recovery, is_rented=True)
        is_due = action is not Recovery.BOOTSTRAP
        return self.caches.is_busy(mac.name) or (is_due and await self.runners.is_busy(mac))

    async def pods_on(self, node: str) -> list[Pod]:
        """Read the Pods of a Node; a cache that lags could lack one that has a job."""
        return (await self.client.list(Pod, fields={"spec.nodeName": node})).items

    async def _change(self, step: Step, seen: Observed) -> None:
        node, pod = seen.node, seen.smoke_pod
        match step:
            case Evict():
                await objects.evict(self.kube, self.client, step.pod)
            case Act(kind="cordon") if node is not None:
                await self._patch_node(node, unschedulable=True)
            case Act(kind="uncordon") if node is not None:
                await self._patch_node(node, unschedulable=False)
            case Act(kind="remove taint") if node is not None:
                await self._remove_taint(node)
            case Act(kind="create smoke Pod") if node is not None and seen.smoke_image is not None:
                with suppress(errors.AlreadyExists):
                    await self.kube.create(smoke_vm.pod(seen.mac, node, seen.smoke_image))
            case Act(kind="delete smoke Pod") if pod is not None:
                await self.kube.delete(pod)
            case _:
                return

    async def _patch_node(self, node: Node, *, unschedulable: bool) -> None:
        note = {annotation_names.CORDONED_BY: _CORDONED if unschedulable else None}
        patch = {
            "metadata": {"annotations": note},
            "spec": {"unschedulable": unschedulable or None},
        }
        await self.kube.merge_patch(Node, node.name, patch, uid=node.uid)

    async def _remove_taint(self, node: Node) -> None:
        kept = [each for each in node.spec.taints if each.key != labels.UNPROVEN_TAINT]
        # A merge patch replaces the whole list: without the version it would drop a taint that was added meanwhile.
        await self.kube.merge_patch(
            Node,
            node.name,
            {"spec": {"taints": [msgspec.to_builtins(each) for each in kept]}},
            uid=node.uid,
            resource_version=node.metadata.resource_version,
        )

    async def drain(self, draft: Draft) -> CheckAgain | None:
        """Drain the Node of a Mac that is taken out of service; None once no job runs on it."""
        waiting = node_drain.wait(draft, timeout=self.settings.drain_timeout)
        for step in draft.steps:
            with suppress(errors.NotFound):
                await self._change(step, draft.seen)
        return waiting

    async def observe_for_drain(self, mac: Mac, status: MacStatus) -> Draft:
        """Return the beginning of a decision about a Mac that is taken out of service."""
        node = self.caches.node(mac.name)
        # That of another host is left alone, with its Pods.
        is_own = node is None or mac.owns(node)
        seen = Observed(
            mac=mac,
            status=status,
            now=self.clock.now(),
            desired="",
            node=node if is_own else None,
            pods=await self.pods_on(mac.name) if is_own else (),
            smoke_pod=self.caches.smoke_pod(mac.holder.uid),
        )
        return Draft(seen, self.settings, status)

    async def retire(self, draft: Draft) -> CheckAgain | None:
        """End the operation of a drained Mac, remove its runner, and revoke the identity of its agent; return what is waited for."""
        mac = draft.seen.mac
        await self.operations.cancel(mac.holder.uid)
        node = self.caches.node(mac.name)
        if node is not None and mac.provider_id and not mac.owns(node):
            # The runner and the identity have the name of the Node: they are those of the other host.
            return None
        removal = await self.runners.remove(mac)
        draft.events += removal.events
        if removal.waits_for and not node_drain.is_over(draft, self.settings.drain_timeout):
            draft.put(types.UP_TO_DATE, events.BUILDER_BUSY, removal.waits_for)
            return CheckAgain(_BUSY_RETRY, removal.waits_for)
        await self.work.revoke(mac.name)
        return None

    async def delete_node(self, draft: Draft) -> None:
        """Delete the Node of a Mac whose agent has no identity any more, and its smoke Pod."""
        mac = draft.seen.mac
        with suppress(errors.NotFound, errors.Conflict):
            # Read again: the agent may have registered it just before its identity was revoked.
            node = await self.client.get(Node, mac.name)
            if mac.owns(node):
                await self.kube.delete(node)
        if draft.seen.smoke_pod is not None:
            with suppress(errors.NotFound, errors.Conflict):
                await self.kube.delete(draft.seen.smoke_pod)

    def forget(self, uid: str) -> None:
        """Drop what is remembered about a Mac that is gone."""
        self._desired.pop(uid, None)
        self.operations.forget(uid)


def _was_busy(status: MacStatus) -> bool:
    """Return whether the last update of a builder could not begin because of a job."""
    found = conditions.find(status.conditions, types.UP_TO_DATE)
    return found is not None and found.reason == events.BUILDER_BUSY


def _takes_pods(node: Node) -> bool:
    """Return whether a Node is Ready and gets Pods; one that is not proven shows nothing about a configuration."""
    is_unproven = any(each.key == labels.UNPROVEN_TAINT for each in node.spec.taints)
    is_open = not node.spec.unschedulable and not is_unproven
    return is_open and conditions.is_true(node.status.conditions, types.READY)
