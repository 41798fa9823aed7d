"""What an explanation of one Mac is made from, and what it shows beside the stage: problems, notes, Pods and hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bramley.api import conditions
from bramley.api.cluster_api import Cluster, Machine
from bramley.api.coordination import Lease
from bramley.api.core import Node, Pod
from bramley.api.mac_host import MacHost
from bramley.api.mac_status import MachineCondition, MacStatus
from bramley.api.names import annotations as annotation_names
from bramley.api.names import cluster_api as capi
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base.explanation import EventNote, HostNote, PodNote, Problem
from bramley.machines import drain
from bramley.machines.mac_draft import Settings, is_cordoned

AnyMac = ScalewayAppleSiliconMachine | MacHost
_MAX_HOSTS = 10
_SEVERE = frozenset({"Error", "Warning"})
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MacFacts:
    """A machine or MacHost, and what belongs to it."""

    mac: AnyMac
    # The machines of its fleet, this one included.
    fleet: Sequence[AnyMac] = ()
    owner: Machine | None = None
    cluster: Cluster | None = None
    # Of its rented host.
    lease: Lease | None = None
    node: Node | None = None
    # Of its Node.
    pods: Sequence[Pod] = ()
    events: tuple[EventNote, ...] = ()
    settings: Settings = field(default_factory=Settings)

    @property
    def status(self) -> MacStatus:
        """Return the status."""
        return self.mac.status

    @property
    def is_rented(self) -> bool:
        """Return whether the Mac is rented from a provider."""
        return isinstance(self.mac, ScalewayAppleSiliconMachine)

    @property
    def kind(self) -> str:
        """Return the kind as kubectl abbreviates it."""
        return "samm" if self.is_rented else "machost"

    @property
    def cluster_name(self) -> str:
        """Return the name of its Cluster; empty without one."""
        if self.owner is not None:
            return self.owner.spec.cluster_name
        return self.mac.metadata.labels.get(labels.CAPI_CLUSTER, "") if self.is_rented else ""

    def condition(self, type: str) -> MachineCondition | None:
        """Return a condition of the Mac."""
        return conditions.find(self.status.conditions, type)

    def is_true(self, type: str) -> bool:
        """Return whether a condition of the Mac is true."""
        return conditions.is_true(self.status.conditions, type)

    def remaining_work(self) -> tuple[str, ...]:
        """Return what a drain waits for, one text for each Pod and for the job of a builder."""
        remaining = drain.plan(self.node, self.pods).remaining
        blocked = self.condition(types.UP_TO_DATE)
        # The job of a builder has no Pod.
        is_busy = blocked is not None and blocked.reason == events.BUILDER_BUSY
        runner = (blocked.message or "the job of its runner",) if blocked and is_busy else ()
        return (*(f"Pod {each.name}: {_state(each)}" for each in remaining), *runner)

    def annotate(self, *marks: str) -> str:
        """Return the command that sets or removes annotations."""
        place = f"-n {self.mac.namespace}"
        return f"kubectl annotate {self.kind} {self.mac.name} {' '.join(marks)} {place}"


def has_job(pod: Pod) -> bool:
    """Return whether a runner has a job."""
    is_claimed = bool(pod.metadata.labels.get(labels.RUNNER_POOL_OWNER))
    return is_claimed and pod.status.phase not in _ENDED


def _state(pod: Pod) -> str:
    if has_job(pod):
        return "has a job, which is waited for"
    if pod.deleting:
        return "is being deleted"
    is_runner = pod.metadata.labels.get(labels.RUNNER) == labels.TRUE
    return "is idle, and retired by its pool" if is_runner else "is evicted"


def problems(facts: MacFacts) -> Iterator[Problem]:
    """Yield the conditions that need attention."""
    for each in facts.status.conditions:
        # Ready repeats the first of the others.
        if each.status != "True" and each.severity in _SEVERE and each.type != types.READY:
            yield Problem(
                type=each.type,
                status=each.status,
                reason=each.reason or "",
                message=each.message or "",
                since=each.last_transition_time,
            )


def notes(facts: MacFacts) -> Iterator[str]:
    """Yield what it belongs to, where its host is, and the commands for people."""
    yield from _belongs_to(facts)
    yield from _host(facts)
    if facts.status.reboot_pending:
        yield f"a reboot is pending: {facts.status.reboot_pending}"
    if is_cordoned(facts.node):
        yield f"the manager has cordoned the Node {facts.mac.name}"
    yield from _commands(facts)


def _belongs_to(facts: MacFacts) -> Iterator[str]:
    owner = facts.owner
    if owner is None:
        return
    deployment = owner.metadata.labels.get(capi.DEPLOYMENT_NAME)
    of_deployment = f" of the MachineDeployment {deployment}" if deployment else ""
    yield f"it belongs to the Machine {owner.name}{of_deployment}, in the Cluster {facts.cluster_name}"
    mark = owner.metadata.annotations.get(capi.DELETE_MACHINE)
    if mark == annotation_names.IDLE:
        yield "it has no job, so a scale-down deletes it before those with one"
    elif mark is not None:
        yield f"a scale-down deletes it first, because of the annotation {capi.DELETE_MACHINE}"


def _host(facts: MacFacts) -> Iterator[str]:
    mac = facts.mac
    if isinstance(mac, MacHost):
        yield f"its Mac is {mac.spec.user}@{mac.spec.address}:{mac.spec.port}"
        return
    if mac.status.server_id:
        address = mac.status.addresses[0].address if mac.status.addresses else "no address yet"
        yield f"its host is {mac.status.server_id} in {mac.spec.zone}, {address}"
    lease = facts.lease
    if lease is None:
        return
    holder = lease.spec.holder_identity or ""
    if not holder.endswith(f"/{mac.uid}"):
        yield f"the Lease {lease.name} of its host is held by {holder or 'no machine'}"
    elif annotation_names.HOST_RELEASING in lease.metadata.annotations:
        yield f"the release of its host has begun (Lease {lease.name})"


def _commands(facts: MacFacts) -> Iterator[str]:
    if facts.mac.deleting:
        if not facts.is_rented:
            mark = f"{annotation_names.SKIP_CLEANUP}=true"
            yield f"to delete it without cleaning the Mac: {facts.annotate(mark)}"
        return
    if facts.is_rented:
        yield f"to get another host: {facts.annotate(f'{annotation_names.RELEASE_HOST}=true')}"
        mark = f"{annotation_names.QUARANTINE_HOST}=REASON"
        yield f"the same, and never this host again: {facts.annotate(mark)}"
    yield f"to leave it as it is for a while: {facts.annotate(f'{annotation_names.PAUSED}=true')}"
    mark = f"{annotation_names.REPLACE_TART}=true"
    yield f"to replace Tart once it runs no VM: {facts.annotate(mark)}"


def pod_notes(facts: MacFacts) -> Iterator[PodNote]:
    """Yield the Pods of its Node that have not ended."""
    for each in sorted(facts.pods, key=lambda pod: pod.name):
        if each.status.phase not in _ENDED:
            state = "has a job" if has_job(each) else each.status.phase or "Pending"
            yield PodNote(
                name=each.name,
                state=state,
                node=each.spec.node_name,
                since=each.metadata.creation_timestamp,
            )


def host_notes(facts: MacFacts) -> Iterator[HostNote]:
    """Yield the other hosts of its fleet that do not have the desired configuration, or do not serve."""
    others = [each for each in facts.fleet if each.uid != facts.mac.uid]
    behind = [note for each in sorted(others, key=lambda mac: mac.name) if (note := _behind(each))]
    yield from behind[:_MAX_HOSTS]
    if len(behind) > _MAX_HOSTS:
        yield HostNote(name=f"and {len(behind) - _MAX_HOSTS} more", state="")


def _behind(mac: AnyMac) -> HostNote | None:
    found = conditions.find(mac.status.conditions, types.UP_TO_DATE)
    is_current = found is not None and found.status == "True"
    if mac.status.phase == "Ready" and is_current:
        return None
    reason = found.reason if found is not None and found.reason else ""
    step = f" at the step {mac.status.step}" if mac.status.step else ""
    return HostNote(name=mac.name, state=f"{mac.status.phase or 'New'}{step}", image=reason)
