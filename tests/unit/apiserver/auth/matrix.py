"""All users and resources of the API, and one harmless request for each verb on each resource.

Objects stand in places: `own` is what belongs to the Node `mac-1`, `other` what belongs to `mac-2`, both in the namespace
`ns` in which the roles are bound; `here` is that namespace as a whole, `elsewhere` another one, `everywhere` all of them.
Writes are dry runs, and lists and watches have invalid options, so that only the decision is observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from bramley.access import identity
from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap, Pod, Secret, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.rbac import GROUP, RoleBinding, RoleRef, Subject
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.registry.resources import ServedResource
from bramley.apiserver.rest.routes import SUBRESOURCES, VERBS
from bramley.base import secret
from bramley.kube.client import Client
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request
from tests.unit.access.embedded_api import Served, a_node, bind_pod, served

Json = dict[str, Any]

NODES = {"own": "mac-1", "other": "mac-2"}
NAMES = {"own": "mine", "other": "theirs", "elsewhere": "mine"}
NAMESPACES = {"own": "ns", "other": "ns", "here": "ns", "elsewhere": "far", "everywhere": ""}
# Where the objects of a Node have other names or places than these.
SPECIAL = {
    "nodes": {"own": ("", "mac-1"), "other": ("", "mac-2")},
    "namespaces": {"own": ("", "ns"), "other": ("", "far")},
    "leases": {"own": ("kube-node-lease", "mac-1"), "other": ("kube-node-lease", "mac-2")},
}
METHODS = {verb: method for method, verb in VERBS.items()}
DRY = {"dryRun": "All"}
NONSENSE = {"resourceVersionMatch": "nonsense"}
MERGE = "application/merge-patch+json"
LONG = timedelta(days=300)
ROLES = {"viewer": "view", "editor": "edit", "admin": "admin"}


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a user may use a verb on a resource in a namespace."""

    what: str
    verb: str
    place: str
    request: Request


@dataclass(frozen=True, slots=True)
class Scene:
    server: Served
    people: dict[str, secret.Secret | None]
    questions: list[Question]

    async def allows(self, person: str, question: Question) -> bool:
        """Return whether the response is about the object, not about the permission."""
        transport = InProcessTransport(self.server.api.application, token=self.people[person])
        answer = await transport.send(question.request)
        return answer.status not in {401, 403}


@asynccontextmanager
async def a_scene() -> AsyncIterator[Scene]:
    """Give the scene; an hour has passed in it, and with it the token of one of the people."""
    async with served("ns", "far") as server:
        await _create_objects(server)
        people = await _tokens_of_users(server.kube)
        await asyncio.sleep(timedelta(hours=1).total_seconds())
        questions = [
            question
            for resource in builtin_kinds.builtin()
            for question in await _questions(server, resource)
        ]
        yield Scene(server, people, questions)


async def _create_objects(server: Served) -> None:
    kube = server.kube
    for place, node in NODES.items():
        name = NAMES[place]
        await a_node(kube, node)
        await kube.create(Lease(metadata=ObjectMeta(name=node, namespace="kube-node-lease")))
        for kind in (Secret, ConfigMap, ServiceAccount):
            await kube.create(kind(metadata=ObjectMeta(name=name, namespace="ns")))
        uses = [{"name": name, "configMap": {"name": name}}]
        more: Json = {
            "serviceAccountName": name,
            "imagePullSecrets": [{"name": name}],
            "volumes": uses,
        }
        await bind_pod(kube, name, node, **more)
        await _create_event(server, _event("ns", name, f"of-{name}"))
    await bind_pod(kube, "mine", "", namespace="far")
    await _create_event(server, _event("far", "mine", "mine"))


async def _create_event(server: Served, event: Json) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{event['metadata']['namespace']}/events"
    data = msgspec.json.encode(event)
    answer = await server.transport.send(Request("POST", path, {}, data, "application/json"))
    assert answer.status == 201, answer.body


async def _tokens_of_users(kube: Client) -> dict[str, secret.Secret | None]:
    people: dict[str, secret.Secret | None] = {"anonymous": None}
    people["wrong audience"] = await _token(kube, "astray", "admin", audiences=["elsewhere"])
    people["expired"] = await _token(kube, "late", "admin", expires=timedelta(minutes=10))
    for place, node in NODES.items():
        people[f"{place} node"] = (await identity.create(kube, node, expires=LONG)).token
    people["plain"] = await _token(kube, "plain", "")
    for person, role in ROLES.items():
        people[person] = await _token(kube, person, role)
    return people


async def _token(
    kube: Client, name: str, role: str, *, audiences: Sequence[str] = (), expires: timedelta = LONG
) -> secret.Secret:
    await kube.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace="ns")))
    if role:
        await kube.create(
            RoleBinding(
                metadata=ObjectMeta(name=name, namespace="ns"),
                role_ref=RoleRef(api_group=GROUP, kind="ClusterRole", name=role),
                subjects=[Subject(kind="ServiceAccount", name=name, namespace="ns")],
            )
        )
    return (await kube.request_token(name, "ns", audiences=audiences, expires=expires)).token


async def _questions(server: Served, resource: ServedResource) -> list[Question]:
    found = list(_of_collection(resource))
    for place in ("own", "other", "elsewhere"):
        if place == "elsewhere" and not resource.namespaced:
            continue
        path = _path(resource, place, named=True)
        current = await _current(server, path) if resource.plural in _THERE else None
        body = current or _body(resource, place)
        found += [
            Question(resource.qualified, verb, place, _one(verb, path, body))
            for verb in ("get", "update", "patch", "delete")
            if verb in resource.verbs and not resource.is_virtual
        ]
        for name, verb in _parts(resource):
            spoken = await _token_request(server.kube, place) if name == "token" else body
            request = _one(verb, f"{path}/{name}", spoken)
            found.append(Question(f"{resource.qualified}/{name}", verb, place, request))
    return found


_THERE = frozenset({"nodes", "leases", "pods", "events", "secrets", "configmaps"})


def _of_collection(resource: ServedResource) -> Iterator[Question]:
    for verb in ("list", "watch", "create", "deletecollection"):
        if verb not in resource.verbs and not (resource.is_virtual and verb == "create"):
            continue
        for place in _places(resource, verb):
            path = _path(resource, place, named=False)
            if verb == "create":
                request = _one(verb, path, _body(resource, place))
            elif verb == "deletecollection":
                request = Request("DELETE", path, DRY)
            else:
                request = Request(
                    "GET", path, {**NONSENSE, **_watch(verb), **_select(resource, place)}
                )
            yield Question(resource.qualified, verb, place, request)


def _places(resource: ServedResource, verb: str) -> tuple[str, ...]:
    if verb == "create":
        return ("own", "other", "elsewhere") if resource.namespaced else ("own", "other")
    if verb == "deletecollection":
        return ("here", "elsewhere") if resource.namespaced else ("everywhere",)
    if not resource.namespaced:
        return ("own", "other", "everywhere")
    return ("own", "other", "here", "elsewhere", "everywhere")


def _watch(verb: str) -> dict[str, str]:
    return {"watch": "true"} if verb == "watch" else {}


def _select(resource: ServedResource, place: str) -> dict[str, str]:
    if place not in NODES:
        return {}
    if resource.qualified == "pods":
        return {"fieldSelector": f"spec.nodeName={NODES[place]}"}
    return {"fieldSelector": f"metadata.name={_address(resource, place)[1]}"}


def _address(resource: ServedResource, place: str) -> tuple[str, str]:
    special = SPECIAL.get(resource.plural, {}).get(place)
    if special is not None:
        return special
    namespace = NAMESPACES[place] if resource.namespaced else ""
    name = NAMES.get(place, "")
    return namespace, f"of-{name}" if resource.plural == "events" and place in NODES else name


def _path(resource: ServedResource, place: str, *, named: bool) -> str:
    namespace, name = _address(resource, place)
    root = f"/apis/{resource.group}" if resource.group else "/api"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{resource.version}{within}/{resource.plural}" + (f"/{name}" if named else "")


def _parts(resource: ServedResource) -> Iterator[tuple[str, str]]:
    status = ("get", "update", "patch")
    if resource.has_status:
        yield from (("status", verb) for verb in status)
    if resource.scale is not None:
        yield from (("scale", verb) for verb in status)
    for (qualified, name), part in SUBRESOURCES.items():
        if qualified == resource.qualified:
            yield from ((name, verb) for verb in part.verbs)


def _one(verb: str, path: str, body: Json) -> Request:
    method = METHODS[verb]
    if verb in {"get", "delete"}:
        return Request(method, path, DRY if verb == "delete" else {})
    if verb == "patch":
        return Request(method, path, DRY, b"{}", MERGE)
    return Request(method, path, DRY, msgspec.json.encode(body), "application/json")


def _body(resource: ServedResource, place: str) -> Json:
    namespace, name = _address(resource, place)
    if resource.plural == "events":
        event = _event(namespace, NAMES[place], name)
        return event if resource.group else _as_core(event)
    return {"metadata": {"name": name}}


def _event(namespace: str, pod: str, name: str) -> Json:
    fields = {"reason": "Tested", "type": "Normal", "action": "Testing"}
    by = {"reportingController": "tart-kubelet", "reportingInstance": "x"}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "regarding": {"kind": "Pod", "namespace": namespace, "name": pod},
        "eventTime": "2026-11-15T12:00:00.000000Z",
        **fields,
        **by,
    }


def _as_core(event: Json) -> Json:
    return {"metadata": event["metadata"], "involvedObject": event["regarding"]}


async def _token_request(kube: Client, place: str) -> Json:
    if place not in NODES:
        return {}
    pod = await kube.get(Pod, NAMES[place], namespace="ns")
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.metadata.uid}
    return {"spec": {"boundObjectRef": bound}}


async def _current(server: Served, path: str) -> Json | None:
    answer = await server.transport.send(Request("GET", path))
    found: Json | None = msgspec.json.decode(answer.body) if answer.status == 200 else None
    return found
