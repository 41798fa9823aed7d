from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.base import errors
from bramley.runners import reaper
from bramley.runners.metrics import ReaperMetrics
from bramley.runners.reaper import PodReaper
from bramley.runtime.cache import Cache
from bramley.runtime.keys import key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import virtual_time
from tests.unit.runners.builders import OLD, a_pool
from tests.unit.runtime.fake_api import FakeApi

PENDING = PendingPod(image=OLD, created_for="ScaleUp")


def an_account(slot: str) -> ServiceAccount:
    annotations = {"tuist.dev/runner-slot": slot} if slot else {}
    return ServiceAccount(metadata=ObjectMeta(name="p", annotations=annotations))


@pytest.mark.parametrize(
    ("slot", "slots", "expected"),
    [
        pytest.param("0/1", [Slot(counter=1, active=True)], False, id="is the slot's Pod"),
        pytest.param("0/1", [Slot(counter=1)], True, id="its end was noticed"),
        pytest.param("0/1", [Slot(counter=2, active=True)], True, id="has a successor"),
        pytest.param(
            "0/2", [Slot(counter=1, active=True)], False, id="newer than the status that was read"
        ),
        pytest.param("3/1", [Slot(counter=1)], False, id="slot is not in the status yet"),
        pytest.param(
            "0/1", [Slot(counter=1, active=True, pending=PENDING)], False, id="not observed yet"
        ),
        pytest.param("", [], True, id="of another controller"),
    ],
)
def test_pod_is_reaped_only_after_its_slot_was_freed(
    slot: str, slots: list[Slot], expected: bool
) -> None:
    assert reaper.is_slot_freed(an_account(slot), a_pool(slots=slots)) is expected


class FakeSessions:
    """Refuses or accepts reports of stopped Pods."""

    def __init__(self, error: errors.BramleyError | None = None) -> None:
        self.error = error
        self.reported: list[str] = []

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        self.reported.append(pod_name)


@dataclass(slots=True)
class Reaping:
    """One Pod that has ended, whose slot is free, and the reaper for it."""

    server: FakeApi
    sessions: FakeSessions
    reaper: PodReaper
    pod: Pod

    async def reconcile(self) -> Outcome:
        return await self.reaper.reconcile(self.pod)

    @property
    def is_deleted(self) -> bool:
        return not self.server.all(Pod)


def reaping(error: errors.BramleyError | None = None) -> Reaping:
    server, pools, clock = FakeApi(), Cache(RunnerPool), virtual_time.clock()
    pool = server.put(a_pool(slots=[Slot(counter=1)]))
    pools.put(key_of(pool), pool)
    metadata = {
        "name": "macos-1",
        "namespace": pool.namespace,
        "labels": {labels.RUNNER_POOL: pool.name},
        "annotations": {"tuist.dev/runner-slot": "0/1"},
        "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": pool.name, "uid": pool.uid}],
    }
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": clock.now().isoformat()}
    statuses = [{"name": "runner", "state": {"terminated": ended}}]
    status = {"phase": "Succeeded", "containerStatuses": statuses}
    body = {"metadata": metadata, "spec": {"containers": []}, "status": status}
    pod = server.put(msgspec.convert(body, Pod))
    kube = FencedKube(server, writes=ReadYourWrites(), check=lambda: None)
    sessions, metrics = FakeSessions(error), ReaperMetrics(CollectorRegistry())
    return Reaping(server, sessions, PodReaper(kube, pools, sessions, metrics, clock), pod)


async def test_pod_that_has_ended_is_reported_once_and_deleted() -> None:
    world = reaping()

    assert await world.reconcile() == Settled()

    assert (world.sessions.reported, world.is_deleted) == (["macos-1"], True)


@pytest.mark.parametrize(
    "error",
    [
        errors.Unauthorized("status 401"),
        errors.Forbidden("status 403"),
        errors.BadRequest("status 400"),
        errors.BadConfiguration("the token cannot be read"),
    ],
)
async def test_refused_report_is_tried_again_soon(error: errors.BramleyError) -> None:
    world = reaping(error)

    outcome = await world.reconcile()

    assert isinstance(outcome, CheckAgain)
    assert outcome.after == timedelta(seconds=30)
    assert not world.is_deleted
    # The token was corrected.
    world.sessions.error = None
    await world.reconcile()
    assert (world.sessions.reported, world.is_deleted) == (["macos-1"], True)


@pytest.mark.parametrize("error", [errors.Forbidden("no"), errors.Unavailable("no answer")])
async def test_pod_is_deleted_without_a_report_after_ten_minutes(
    error: errors.BramleyError,
) -> None:
    world = reaping(error)
    await asyncio.sleep(601)

    assert await world.reconcile() == Settled()

    assert (world.sessions.reported, world.is_deleted) == ([], True)


async def test_report_that_got_no_answer_is_tried_again_with_backoff() -> None:
    world = reaping(errors.Unavailable("no answer"))

    with pytest.raises(errors.Unavailable):
        await world.reconcile()

    assert not world.is_deleted
