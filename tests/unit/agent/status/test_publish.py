"""Publishing a status: acknowledged, Pod gone, or to be retried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.agent.pods import status
from bramley.agent.pods.status import Facts
from bramley.agent.runs import RunExit
from bramley.api import conditions
from bramley.api.meta import K
from bramley.api.pod import Pod, PodStatus
from bramley.base import errors
from bramley.kube.client import Client
from tests import virtual_time
from tests.unit.access.embedded_api import bind_pod, served
from tests.unit.agent.status.test_status import NOON

PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def facts() -> Facts:
    return Facts(host="10.0.0.7", now=virtual_time.clock().now(), vm="ns-build-1")


@asynccontextmanager
async def a_world() -> AsyncIterator[tuple[Client, Pod]]:
    async with served("ns") as server:
        await bind_pod(server.kube, "build", "mac", namespace="ns")
        patch = {"status": {"conditions": [PLACED]}}
        pod = await server.kube.merge_patch(
            Pod, "build", patch, namespace="ns", subresource="status"
        )
        yield server.kube, pod


def ended(pod: Pod) -> PodStatus:
    return status.terminated(
        pod,
        facts(),
        exit=status.exit_of(3, RunExit(0, NOON)),
        started_at=NOON,
        finished_at=NOON + timedelta(minutes=1),
    )


async def published(kube: Client, pod: Pod, pod_status: PodStatus) -> Pod:
    found = await status.publish(kube, pod, pod_status)
    assert found is not None
    return found


async def test_foreign_conditions_are_kept_over_the_whole_lifecycle() -> None:
    async with a_world() as (kube, bound):
        pod = bound
        for say in (
            lambda pod: status.waiting(pod, facts(), reason="CreatingVM"),
            lambda pod: status.running(pod, facts(), started_at=NOON, ip="192.168.64.9"),
            ended,
        ):
            pod = await published(kube, pod, say(pod))

            placed = conditions.find(pod.status.conditions, "PodScheduled")
            assert placed == msgspec.convert(PLACED, type(placed))
            assert pod.status.qos_class == "BestEffort"

        assert (pod.status.phase, pod.status.pod_ip) == ("Failed", "192.168.64.9")
        end = pod.status.container_statuses[0].state.terminated
        assert end is not None
        assert end.exit_code == 3


async def test_past_failure_is_removed_from_the_status() -> None:
    async with a_world() as (kube, pod):
        failing = status.waiting(
            pod, facts(), reason="TartCreateFailed", message="no space", is_failing=True
        )
        before = await published(kube, pod, failing)

        running = status.running(before, facts(), started_at=NOON, ip="192.168.64.9")
        after = await published(kube, before, running)

        assert (before.status.reason, before.status.message) == ("TartCreateFailed", "no space")
        assert (after.status.reason, after.status.message) == ("", "")


async def test_conditions_that_others_changed_are_restored() -> None:
    async with a_world() as (kube, pod):
        running = status.running(pod, facts(), started_at=NOON, ip="192.168.64.9")
        stored = await published(kube, pod, running)
        turned = [
            {"type": one.type, "status": "False" if one.type == "Ready" else one.status}
            for one in stored.status.conditions
        ]
        seen = await kube.merge_patch(
            Pod, "build", {"status": {"conditions": turned}}, namespace="ns", subresource="status"
        )

        again = status.running(seen, facts(), started_at=NOON, ip="192.168.64.9")
        found = await published(kube, seen, again)

        assert conditions.is_true(found.status.conditions, "Ready")


async def test_published_status_is_not_written_again() -> None:
    async with a_world() as (kube, pod):
        stored = await published(kube, pod, ended(pod))

        again = await published(kube, stored, ended(stored))

        live = await kube.get(Pod, "build", namespace="ns")
        assert again is stored
        assert live.metadata.resource_version == stored.metadata.resource_version


async def test_missing_pod_is_no_error() -> None:
    async with a_world() as (kube, pod):
        await kube.delete(Pod, "build", namespace="ns", grace=timedelta())

        assert await status.publish(kube, pod, ended(pod)) is None


async def test_new_pod_of_the_same_name_does_not_get_the_status() -> None:
    async with a_world() as (kube, pod):
        await kube.delete(Pod, "build", namespace="ns", grace=timedelta())
        await bind_pod(kube, "build", "mac", namespace="ns")

        assert await status.publish(kube, pod, ended(pod)) is None

        live = await kube.get(Pod, "build", namespace="ns")
        assert live.status.phase == "Pending"
        assert live.status.container_statuses == []


@dataclass
class Refusing:
    """A server that refuses the first tries."""

    refusals: list[errors.BramleyError]
    tries: list[Mapping[str, Any]] = field(default_factory=list)

    async def apply(
        self,
        kind: type[K],
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        assert (name, namespace, subresource, manager, force) == (
            "build",
            "ns",
            "status",
            "tart-kubelet",
            True,
        )
        self.tries.append(body)
        if len(self.tries) <= len(self.refusals):
            raise self.refusals[len(self.tries) - 1]
        return msgspec.convert({"status": body["status"]}, kind)


def a_pod() -> Pod:
    spec = {"containers": [{"name": "vm", "image": "macos"}]}
    metadata = {"name": "build", "namespace": "ns", "uid": "u-1"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


async def test_conflict_is_retried() -> None:
    kube = Refusing([errors.Conflict("modified")] * status.CONFLICT_RETRIES)

    found = await status.publish(kube, a_pod(), ended(a_pod()))

    assert found is not None
    assert found.status.phase == "Failed"


async def test_conflicts_without_end_are_an_error() -> None:
    kube = Refusing([errors.Conflict("modified")] * 100)

    with pytest.raises(errors.Conflict):
        await status.publish(kube, a_pod(), ended(a_pod()))

    assert len(kube.tries) == status.CONFLICT_RETRIES + 1


@pytest.mark.parametrize(
    "error",
    [
        errors.ApiUnavailable("down"),
        errors.TimedOut("slow"),
        errors.Forbidden("not yours"),
        errors.InvalidSpec("no such phase", causes=(errors.Cause("status.phase", "", ""),)),
    ],
)
async def test_status_without_an_acknowledgement_is_not_published(
    error: errors.BramleyError,
) -> None:
    with pytest.raises(type(error)):
        await status.publish(Refusing([error]), a_pod(), ended(a_pod()))
