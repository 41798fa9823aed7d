"""The explanation of a Pod: what it does, since when, and what happens next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.api import names
from bramley.api.core import Node
from bramley.api.names import agent, events, finalizers, labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.api.staging import StagedImage, StagingReport, StagingRequest, State
from bramley.base.explanation import length
from bramley.runners.explanation.pods import PodFacts, explain_pod, pod_note
from bramley.runners.hosts import node_selector

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD, NEW = "ghcr.io/example/runner:1", "ghcr.io/example/runner:2"


def ago(seconds: int) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def a_pool(**status: Any) -> RunnerPool:
    spec = {"image": NEW, "fleetSelector": "demo", "dispatchLabel": "a", "runnerLabels": []}
    body = {
        "metadata": {"name": "macos", "namespace": "default"},
        "spec": spec,
        "status": {"targetImage": NEW, **status},
    }
    return msgspec.convert(body, RunnerPool)


def a_pod(
    *,
    node: str = "mac-1",
    phase: str = "Pending",
    state: Any = None,
    ready: bool = False,
    image: str = NEW,
    **metadata: Any,
) -> Pod:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(40)}]
    conditions += [{"type": "Ready", "status": "True", "lastTransitionTime": ago(30)}] * ready
    named = {"name": "a", "namespace": "default", "creationTimestamp": ago(60), **metadata}
    body = {
        "metadata": named,
        "spec": {
            "nodeName": node,
            "nodeSelector": {labels.FLEET: "demo"},
            "containers": [
                {"name": "runner", "image": image, "resources": {"requests": {"cpu": "4"}}}
            ],
        },
        "status": {
            "phase": phase,
            "conditions": conditions if node else [],
            "containerStatuses": [{"name": "runner", "state": state or {}}],
        },
    }
    return msgspec.convert(body, Pod)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


RUNNING = {"running": {"startedAt": ago(35)}}
ENDED = {
    "terminated": {"exitCode": 3, "reason": "Error", "startedAt": ago(35), "finishedAt": ago(5)}
}
MARKED = {labels.DRAIN_ELIGIBLE: labels.TRUE}
CASES = {
    "no host": (a_pod(node=""), "waits for a host", 60),
    "slot": (a_pod(state=waiting(agent.AWAITING_SLOT)), "waits for a VM slot", 40),
    "pull": (
        a_pod(state=waiting(events.PULLING_IMAGE, "Pulling image x, 40 %")),
        "pulls the image: Pulling image x, 40 %",
        40,
    ),
    "failing": (
        a_pod(state=waiting(events.CREATE_FAILED, "no space")),
        "cannot start: no space",
        40,
    ),
    "starting": (a_pod(state=waiting(agent.BOOTING)), f"starts: {agent.BOOTING}", 40),
    "booting": (a_pod(phase="Running", state=RUNNING), "boots", 35),
    "ready": (a_pod(phase="Running", state=RUNNING, ready=True), "is ready", 30),
    "stale": (
        a_pod(phase="Running", state=RUNNING, ready=True, image=OLD),
        "is ready, with an old image",
        30,
    ),
    "claimed": (
        a_pod(phase="Running", state=RUNNING, ready=True, labels={labels.RUNNER_POOL_OWNER: "7"}),
        "has a job of 7",
        35,
    ),
    "drained": (
        a_pod(phase="Running", state=RUNNING, ready=True, image=OLD, labels=MARKED),
        f"is drained for image {NEW}",
        10,
    ),
    "ended": (
        a_pod(phase="Failed", state=ENDED, ready=False),
        "ended: Failed (Error, exit code 3)",
        5,
    ),
    "held": (
        a_pod(deletionTimestamp=ago(20), finalizers=[finalizers.VM_CLEANUP]),
        f"terminates, held by finalizer {finalizers.VM_CLEANUP}",
        20,
    ),
}


@pytest.mark.parametrize(("pod", "state", "seconds"), CASES.values(), ids=CASES)
def test_state_and_its_beginning_are_stated(pod: Pod, state: str, seconds: int) -> None:
    pool = a_pool(draining=[{"pod": "a", "since": ago(10)}])

    note = pod_note(pod, pool)

    assert (note.state, note.since) == (state, NOW - timedelta(seconds=seconds))
    assert note.next


def test_every_case_has_its_own_next_step_or_shares_it_with_a_like_one() -> None:
    nexts = {pod_note(pod, a_pool()).next for pod, _, _ in CASES.values()}

    assert len(nexts) >= 10


def a_node(name: str, *, pods: str = "2", golden: str = "", **spec: Any) -> Node:
    own = {**node_selector("demo"), **({labels.golden(golden): "true"} if golden else {})}
    body = {
        "metadata": {"name": name, "labels": own},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": pods},
            "conditions": [{"type": "Ready", "status": "True" if pods != "0" else "False"}],
        },
    }
    return msgspec.convert(body, Node)


def a_node_that_pulls(name: str) -> Node:
    request = StagingRequest((NEW,)).text()
    report = StagingReport("x", (StagedImage(NEW, State.PULLING, percent=42),)).text()
    body = msgspec.to_builtins(a_node(name))
    body["metadata"]["annotations"] = {
        names.annotations.STAGE_IMAGES: request,
        names.annotations.STAGED_IMAGES: report,
    }
    return msgspec.convert(body, Node)


def test_unscheduled_pod_has_a_reason_for_each_host_of_its_fleet() -> None:
    failures = [{"node": "mac-5", "count": 3, "lastAt": ago(60)}]
    others = [a_pod(node=name) for name in ("mac-1", "mac-1", "mac-2", "mac-2")]
    facts = PodFacts(
        a_pod(node=""),
        a_pool(hostFailures=failures),
        nodes=[
            a_node("mac-1"),
            a_node("mac-2", pods="3"),
            a_node("mac-3", unschedulable=True),
            a_node("mac-4", pods="0"),
            a_node("mac-5"),
            msgspec.convert({"metadata": {"name": "linux-1"}}, Node),
        ],
        pods=others,
    )

    explained = explain_pod(facts, now=NOW)

    assert {note.name: note.state for note in explained.hosts} == {
        "mac-1": "has no free slot: 2 of 2 Pods",
        "mac-2": "has not enough cpu: 100% of it is in use",
        "mac-3": "is cordoned or being deleted",
        "mac-4": "is not Ready",
        "mac-5": "is avoided if possible: 3 Pods in a row failed there, the last one 60 s ago",
    }
    assert explained.waits_for


def test_pod_that_requires_its_image_does_not_run_where_it_is_absent() -> None:
    golden = {"key": labels.golden(NEW), "operator": "Exists"}
    pod = a_pod(node="")
    term = {"nodeSelectorTerms": [{"matchExpressions": [golden]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    body = {**msgspec.to_builtins(pod)}
    body["spec"] = {**body["spec"], "affinity": required}
    nodes = [a_node("mac-1", golden=NEW), a_node_that_pulls("mac-2"), a_node("mac-3")]

    explained = explain_pod(PodFacts(msgspec.convert(body, Pod), None, nodes), now=NOW)

    assert [note.state for note in explained.hosts] == [
        "has place for it",
        "pulls the image, 42 %, which the Pod requires",
        "does not have the image, which the Pod requires",
    ]


def test_pod_without_any_host_names_the_labels_that_it_needs() -> None:
    explained = explain_pod(PodFacts(a_pod(node="")), now=NOW)

    assert explained.waits_for == (f"a Node with the labels {labels.FLEET}=demo",)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (3600, "1 h"), (7500, "2 h 5 min"), (2e5, "2 d")],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert length(timedelta(seconds=seconds)) == text
