"""Our types of the built-in kinds against a real API server: it takes what we write, and we read all that it sends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.auth import (
    BoundObjectReference,
    TokenRequest,
    TokenRequestSpec,
    TokenReview,
    TokenReviewSpec,
)
from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import (
    ConfigMap,
    Event,
    EventSource,
    Namespace,
    Node,
    NodeSpec,
    ObjectReference,
    Pod,
    Secret,
    ServiceAccount,
    Taint,
)
from bramley.api.meta import Object, ObjectMeta, micro_time, moment, to_wire
from bramley.api.pod import Container, PodSpec, ResourceRequirements, Toleration
from bramley.api.policy import Eviction
from bramley.api.rbac import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from tests.cluster.raw_api import RawApi
from tools.kube.control_plane import RealCluster

NAMESPACE = "built-in-kinds"
# A whole second: the case in which a careless encoder leaves the fraction out.
NOON = datetime(2026, 6, 19, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def api(real_cluster: RealCluster) -> Iterator[RawApi]:
    raw = RawApi(real_cluster)
    namespace = Namespace(metadata=ObjectMeta(name=NAMESPACE))
    raw.send("POST", Namespace.resource.path(), to_wire(namespace))
    # Pods are refused until the controller manager has made the namespace's default account.
    wait = ("wait", f"--namespace={NAMESPACE}", "--for=create", "serviceaccount/default")
    real_cluster.kubectl(*wait, "--timeout=180s")
    yield raw
    raw.send("DELETE", Namespace.resource.path(name=NAMESPACE))


def named(name: str) -> ObjectMeta:
    return ObjectMeta(name=f"kinds-{name}", namespace=NAMESPACE, labels={"made-by": "a-test"})


def cluster_wide(name: str) -> ObjectMeta:
    return ObjectMeta(name=f"kinds-{name}")


GET_PODS = PolicyRule(verbs=["get"], api_groups=[""], resources=["pods"])

WRITTEN: list[Object] = [
    Lease(
        metadata=named("lease"),
        spec=LeaseSpec(
            holder_identity="me",
            lease_duration_seconds=15,
            acquire_time=micro_time(NOON),
            renew_time=micro_time(NOON),
        ),
    ),
    Event(
        metadata=named("event"),
        involved_object=ObjectReference(kind="Pod", namespace=NAMESPACE, name="p"),
        reason="CreatingVM",
        message="m",
        type="Normal",
        source=EventSource(component="test"),
        count=2,
        first_timestamp=NOON,
        last_timestamp=NOON,
        event_time=micro_time(NOON),
        action="Creating",
        reporting_component="tests/kinds",
        reporting_instance="here",
    ),
    Secret(metadata=named("secret"), type="Opaque", data={"private-key": b"\0\1"}),
    ConfigMap(metadata=named("configmap"), data={"k": "v"}, binary_data={"b": b"\0"}),
    ServiceAccount(metadata=named("account"), automount_service_account_token=False),
    Node(
        metadata=cluster_wide("node"),
        spec=NodeSpec(
            provider_id="scw-applesilicon://fr-par-1/u",
            taints=[Taint(key="tuist.dev/macos", value="true", effect="NoSchedule")],
        ),
    ),
    Pod(
        metadata=named("pod"),
        spec=PodSpec(
            containers=[
                Container(
                    name="runner",
                    image="i",
                    resources=ResourceRequirements(limits={"cpu": "4", "memory": "8Gi"}),
                )
            ],
            node_selector={"kubernetes.io/os": "darwin"},
            tolerations=[Toleration(key="tuist.dev/macos", operator="Exists")],
            restart_policy="Never",
        ),
    ),
    Role(metadata=named("role"), rules=[GET_PODS]),
    ClusterRole(metadata=cluster_wide("role"), rules=[GET_PODS]),
    RoleBinding(
        metadata=named("binding"),
        role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="kinds-role"),
        subjects=[Subject(kind="ServiceAccount", name="default", namespace=NAMESPACE)],
    ),
    ClusterRoleBinding(
        metadata=cluster_wide("binding"),
        role_ref=RoleRef(
            api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="kinds-role"
        ),
        subjects=[Subject(kind="ServiceAccount", name="default", namespace=NAMESPACE)],
    ),
]

READ: list[type[Object]] = [
    *(Namespace, ServiceAccount, ConfigMap, Secret, Event, Lease, Node, Pod),
    *(Role, RoleBinding, ClusterRole, ClusterRoleBinding, CustomResourceDefinition),
]


def contains(whole: Any, part: Any) -> bool:
    """Return whether the response contains everything that was sent; the server adds more fields."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], one) for key, one in part.items()
        )
    if isinstance(part, list):
        return all(any(contains(one, item) for one in whole) for item in part)
    return bool(whole == part)


@pytest.mark.parametrize("obj", WRITTEN, ids=lambda obj: type(obj).__name__)
def test_objects_round_trip_through_a_server(api: RawApi, obj: Object) -> None:
    kind, sent = type(obj), to_wire(obj)

    made = api.send("POST", kind.resource.path(obj.namespace), sent)

    assert contains(made, sent)
    assert contains(to_wire(msgspec.convert(made, kind)), sent)
    if not kind.resource.namespaced:
        api.send("DELETE", kind.resource.path(name=obj.name))


@pytest.mark.parametrize("kind", READ)
def test_every_listed_object_can_be_decoded(api: RawApi, kind: type[Object]) -> None:
    listed = api.send("GET", kind.resource.path())

    for item in listed["items"] or []:
        msgspec.convert(item, kind)


def test_roles_without_rules_can_be_read(api: RawApi) -> None:
    role = ClusterRole(metadata=cluster_wide("empty"))

    made = api.send("POST", ClusterRole.resource.path(), to_wire(role))

    assert made["rules"] is None
    assert msgspec.convert(made, ClusterRole).rules is None
    api.send("DELETE", ClusterRole.resource.path(name=role.name))


def test_a_token_is_issued_and_authenticates(api: RawApi) -> None:
    account = ServiceAccount(metadata=named("token"))
    owner = api.send("POST", ServiceAccount.resource.path(NAMESPACE), to_wire(account))
    path = ServiceAccount.resource.path(NAMESPACE, account.name, "token")
    token_request = TokenRequest(spec=TokenRequestSpec(audiences=["tuist-runners-dispatch"]))

    minted = msgspec.convert(api.send("POST", path, to_wire(token_request)), TokenRequest)
    review = TokenReview(
        spec=TokenReviewSpec(token=minted.status.token, audiences=["tuist-runners-dispatch"])
    )
    answer = api.send("POST", TokenReview.resource.path(), to_wire(review))

    status = msgspec.convert(answer, TokenReview).status
    assert status.authenticated
    assert status.user.username == f"system:serviceaccount:{NAMESPACE}:{account.name}"
    assert status.user.uid == owner["metadata"]["uid"]


def test_a_token_bound_to_a_pod_is_invalid_after_its_deletion(api: RawApi) -> None:
    # On no Node, so that an eviction deletes it at once.
    spec = PodSpec(containers=[Container(name="c", image="i")], node_selector={"no": "such"})
    pod = Pod(metadata=named("bound"), spec=spec)
    made = api.send("POST", Pod.resource.path(NAMESPACE), to_wire(pod))
    bound = BoundObjectReference(
        kind="Pod", api_version="v1", name=pod.name, uid=made["metadata"]["uid"]
    )
    token_request = TokenRequest(
        spec=TokenRequestSpec(bound_object_ref=bound, expiration_seconds=600)
    )
    path = ServiceAccount.resource.path(NAMESPACE, "default", "token")

    minted = msgspec.convert(api.send("POST", path, to_wire(token_request)), TokenRequest)
    api.send("POST", Pod.resource.path(NAMESPACE, pod.name, "eviction"), to_wire(evict(pod)))
    review = TokenReview(spec=TokenReviewSpec(token=minted.status.token))

    # The server looks the Pod up in its cache, which observes the deletion a moment later.
    deadline = time.monotonic() + 180
    while is_known(api, review):
        assert time.monotonic() < deadline, "the token is still valid"
        time.sleep(0.1)


def is_known(api: RawApi, review: TokenReview) -> bool:
    answer = api.send("POST", TokenReview.resource.path(), to_wire(review))
    return msgspec.convert(answer, TokenReview).status.authenticated


def evict(pod: Pod) -> Eviction:
    return Eviction(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace))


def test_a_lease_is_renewed_by_a_patch_in_micro_time(api: RawApi) -> None:
    lease = Lease(metadata=named("renewed"), spec=LeaseSpec(renew_time=micro_time(NOON)))
    api.send("POST", Lease.resource.path(NAMESPACE), to_wire(lease))
    later = NOON.replace(second=10)
    patch = {"spec": {"renewTime": micro_time(later)}}

    path = Lease.resource.path(NAMESPACE, lease.name)
    answer = api.send("PATCH", path, patch, "merge-patch+json")

    renewed = msgspec.convert(answer, Lease).spec.renew_time
    assert renewed is not None
    assert moment(renewed) == later
