"""Explains one Pod: what it does, since when, on which host, what it waits for, and what happens next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import conditions, quantities
from bramley.api.core import Node
from bramley.api.names import agent, finalizers, labels
from bramley.api.names import events as reasons
from bramley.api.pod import Pod, Quantity
from bramley.api.runner_pool import RunnerPool
from bramley.base.explanation import EventNote, Explanation, HostNote, PodNote, length
from bramley.runners import pod_timeouts, rollout
from bramley.runners.explanation import hosts as host_states
from bramley.runners.hosts import Host, host_of
from bramley.runners.pods import RunnerPod, view

_TERMINATING = "Terminating"
_FINALIZERS = {
    finalizers.VM_CLEANUP: "the agent of its host removes it after the VM is deleted",
}
_RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One Pod, its pool if it has one, all Nodes, and all Pods that use their resources."""

    pod: Pod
    pool: RunnerPool | None = None
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    events: tuple[EventNote, ...] = ()


def explain_pod(facts: PodFacts, *, now: datetime) -> Explanation:
    """Return the explanation of a Pod."""
    pod = facts.pod
    note = pod_note(pod, facts.pool)
    is_waiting = not pod.spec.node_name and view(pod).is_alive
    waits_for, hosts = _scheduling(facts, now) if is_waiting else ((), ())
    return Explanation(
        subject=f"pod {pod.namespace}/{pod.name}",
        state=_TERMINATING if pod.deleting else pod.status.phase or "Pending",
        summary=note.state + (f" on {note.node}" if note.node else ""),
        since=note.since,
        waits_for=waits_for,
        next=note.next,
        notes=tuple(_notes(pod)),
        hosts=hosts,
        events=facts.events,
    )


def pod_note(pod: Pod, pool: RunnerPool | None) -> PodNote:
    """Return what a Pod does at present."""
    runner = view(pod)
    found = _ending(pod, runner) or _working(pod, runner, pool) or _starting(pod, runner)
    text, since, then = found
    return PodNote(
        name=pod.name, node=runner.node, image=runner.image, state=text, since=since, next=then
    )


_Found = tuple[str, datetime | None, str]


def _ending(pod: Pod, runner: RunnerPod) -> _Found | None:
    if runner.is_deleting:
        held = pod.metadata.finalizers
        text = f"terminates, held by finalizer {held[0]}" if held else "terminates"
        then = _FINALIZERS.get(held[0], "the owner of the finalizer removes it") if held else ""
        return text, runner.deleted_at, then
    if not runner.is_terminal:
        return None
    code = "" if runner.exit_code is None else f", exit code {runner.exit_code}"
    text = f"ended: {runner.phase} ({runner.reason or 'no reason'}{code})"
    return text, runner.finished_at, "the pool controller deletes it and creates the next one"


def _working(pod: Pod, runner: RunnerPod, pool: RunnerPool | None) -> _Found | None:
    target = rollout.target_of(pool) if pool is not None else ""
    if runner.is_claimed:
        owner = pod.metadata.labels.get(labels.RUNNER_POOL_OWNER) or pod.metadata.labels.get(
            labels.RUNNER_ACCOUNT
        )
        then = "it ends with its job; a new Pod takes its place"
        return f"has a job of {owner}", runner.started_at, then
    if runner.is_marked and (runner.is_ready or runner.has_started):
        tickets = {each.pod: each.since for each in pool.status.draining} if pool else {}
        then = "it leaves at its next poll, or is deleted"
        return f"is drained for image {target}", tickets.get(pod.name), then
    if not runner.is_ready:
        return None
    is_stale = bool(target) and runner.image != target
    then = "it gets a job" if pool else "it runs until its VM stops"
    if is_stale:
        then = "it gets a job, or is drained by the roll"
    return "is ready" + (", with an old image" if is_stale else ""), runner.ready_changed_at, then


def _starting(pod: Pod, runner: RunnerPod) -> _Found:
    scheduled = conditions.find(pod.status.conditions, "PodScheduled")
    bound_at = (scheduled.last_transition_time if scheduled else None) or runner.created_at
    if not runner.node:
        then = _replaced(pod_timeouts.UNSCHEDULED_TIMEOUT, "the scheduler binds it")
        return "waits for a host", runner.created_at, then
    if runner.phase == "Running":
        then = _replaced(pod_timeouts.SILENT_TIMEOUT, "it becomes ready")
        return "boots", runner.started_at, then
    if runner.waiting == agent.AWAITING_SLOT:
        return "waits for a VM slot", bound_at, "the agent starts it when another VM has ended"
    if runner.waiting == reasons.PULLING_IMAGE:
        then = "the agent clones the image and starts the VM; a pull has no limit"
        return _message("pulls the image", runner), bound_at, then
    if runner.waiting == reasons.CREATE_FAILED:
        then = _replaced(pod_timeouts.FAILING_TIMEOUT, "the agent tries again")
        return _message("cannot start", runner), bound_at, then
    then = _replaced(pod_timeouts.START_TIMEOUT, "the VM starts")
    return _message("starts", runner), bound_at, then


def _replaced(timeout: timedelta, event: str) -> str:
    return f"{event}; a runner of a pool is replaced after {length(timeout)} without progress"


def _message(text: str, runner: RunnerPod) -> str:
    detail = runner.message or runner.waiting
    return f"{text}: {detail}" if detail else text


def _notes(pod: Pod) -> list[str]:
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    found = [f"image {image}"] if image else []
    pool = pod.metadata.labels.get(labels.RUNNER_POOL)
    return [f"pool {pool}", *found] if pool else found


def _scheduling(facts: PodFacts, now: datetime) -> tuple[tuple[str, ...], tuple[HostNote, ...]]:
    """Return the scheduler's message, and for each host why the Pod does not run there."""
    pod = facts.pod
    scheduled = conditions.find(pod.status.conditions, "PodScheduled")
    selected = [each for each in facts.nodes if _is_selected(pod, each)]
    notes = tuple(
        HostNote(name=node.name, state=why_not(node, facts, now))
        for node in sorted(selected, key=lambda each: each.name)
    )
    if not selected:
        selector = ", ".join(f"{key}={value}" for key, value in pod.spec.node_selector.items())
        return (f"a Node with the labels {selector}",), ()
    message = scheduled.message if scheduled is not None else ""
    return ((message or "the scheduler",), notes)


def _is_selected(pod: Pod, node: Node) -> bool:
    return all(
        node.metadata.labels.get(key) == value for key, value in pod.spec.node_selector.items()
    )


def why_not(node: Node, facts: PodFacts, now: datetime) -> str:
    """Return why a Pod does not run on a Node; that it has place if nothing prevents it."""
    host = host_of(node)
    if not host.is_usable:
        return host_states.state(host)
    avoided = host_states.avoided_hosts(facts.pool, now) if facts.pool is not None else {}
    if host.name in avoided:
        return avoided[host.name]
    if _requires_image(facts.pod) and not host.has_image(facts.pod.spec.containers[0].image):
        return f"{host_states.image_state(host, facts.pod.spec.containers[0].image)}, which the Pod requires"
    return _full(host, node, facts) or "has place for it"


def _requires_image(pod: Pod) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    return any(
        each.key.startswith(labels.GOLDEN_PREFIX)
        for term in (required.node_selector_terms or [] if required else [])
        for each in term.match_expressions
    )


def _full(host: Host, node: Node, facts: PodFacts) -> str:
    """Return what a host has not enough of; empty if the Pod fits."""
    others = [
        each for each in facts.pods if each.spec.node_name == node.name and not _has_ended(each)
    ]
    if len(others) >= host.pods:
        return f"has no free slot: {len(others)} of {host.pods} Pods"
    for resource in _RESOURCES:
        total = _amount(node.status.allocatable.get(resource, 0))
        used = sum(_request(each, resource) for each in others)
        if used + _request(facts.pod, resource) > total:
            return f"has not enough {resource}: {used / total:.0%} of it is in use" if total else ""
    return ""


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


def _request(pod: Pod, resource: str) -> float:
    def of(amounts: Mapping[str, Quantity]) -> float:
        return _amount(amounts.get(resource, 0))

    resources = [each.resources for each in pod.spec.containers]
    return sum(of(each.requests) or of(each.limits) for each in resources)


def _amount(quantity: Quantity) -> float:
    try:
        return float(quantities.parse(str(quantity)).value)
    except quantities.InvalidQuantity:
        return 0.0
