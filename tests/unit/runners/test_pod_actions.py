from __future__ import annotations

from dataclasses import replace

import pytest

from bramley.api.meta import ObjectMeta
from bramley.api.pod import Container, Pod, PodSpec
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.base import errors
from bramley.runners import decision as decisions
from bramley.runners.decision import Decision, Inputs, PoolView
from bramley.runners.pod_actions import PodActions
from bramley.runners.pod_plan import Deletion, PlannedPod, PodPlan
from bramley.runners.pod_template import TemplateSettings
from bramley.runners.pod_timeouts import Why
from bramley.runners.pods import pod_name, view
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key, key_of
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests.unit.runners.builders import NAMESPACE, NOW, OLD, POOL, a_fleet, a_pool, seconds
from tests.unit.runtime.fake_api import FakeApi

PENDING = PendingPod(image=OLD, created_for="ScaleUp")
PLANNED = PlannedPod(0, 1, PENDING)


def actions(server: FakeApi) -> PodActions:
    """Return actions whose cache shows what the server has."""
    pods = Cache(Pod)
    for pod in server.all(Pod):
        pods.put(key_of(pod), pod)
    kube = FencedKube(server, writes=ReadYourWrites(), check=lambda: None)
    return PodActions(kube, pods, TemplateSettings())


def decided(pool: RunnerPool, plan: PodPlan) -> Decision:
    pool_view = PoolView(pool)
    decision = decisions.decide(pool_view, a_fleet(pool_view), Inputs(NOW))
    return replace(decision, plan=plan)


def stored_pod(server: FakeApi, name: str) -> Pod:
    spec = PodSpec(containers=[Container(name="other", image="example")])
    return server.put(Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))


async def test_name_that_is_taken_frees_its_slot_and_keeps_the_others() -> None:
    others = [
        Slot(counter=4, failures=3, retry_at=NOW + seconds(40)),
        Slot(counter=2, active=True, pending=PENDING, failures=1),
    ]
    server = FakeApi()
    slots = [Slot(counter=1, active=True, pending=PENDING), *others]
    pool = server.put(a_pool(slots=slots))
    stored_pod(server, pod_name(pool, 0, 1))

    failed = await actions(server).perform(pool, decided(pool, PodPlan((), (), (PLANNED,))))

    assert failed == []
    stored = server.things[RunnerPool, Key(NAMESPACE, POOL)]
    assert stored.status.slots == [Slot(counter=1), *others]


@pytest.mark.parametrize(
    ("verb", "plan", "expected"),
    [
        ("create", "create", "CreateFailed"),
        ("patch", "mark", "MarkFailed"),
        ("patch", "unmark", "MarkFailed"),
        ("delete", "delete", "DeleteFailed"),
    ],
)
async def test_write_that_fails_is_named_and_stops_no_other(
    verb: str, plan: str, expected: str
) -> None:
    server = FakeApi()
    pool = server.put(a_pool())
    pods = [view(stored_pod(server, name)) for name in ("x", "y")]
    plans = {
        "create": PodPlan((), (), create=(PLANNED, PlannedPod(1, 1, PENDING))),
        "mark": PodPlan((), (), mark=tuple(pods)),
        "unmark": PodPlan((), (), unmark=tuple(pods)),
        "delete": PodPlan((), (), delete=tuple(Deletion(pod, Why.SCALED_DOWN) for pod in pods)),
    }
    server.failures[verb] = [errors.Forbidden("no")]

    failed = await actions(server).perform(pool, decided(pool, plans[plan]))

    assert [(each.reason, str(each.error)) for each in failed] == [(expected, "no")]
    name = pod_name(pool, 0, 1) if plan == "create" else "x"
    assert failed[0].message == f"Pod {name}: no"
    # A create consists of the account and the Pod.
    assert server.calls.count(verb) == (3 if plan == "create" else 2)
