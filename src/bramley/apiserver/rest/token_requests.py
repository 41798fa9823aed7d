"""`serviceaccounts/token`: issues a token for a ServiceAccount, with the checks and messages of kube-apiserver."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.status import Details
from bramley.apiserver.auth.service_account_tokens import Bound, Reference
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, objects, request_options
from bramley.apiserver.rest.server import Server, decoded
from bramley.apiserver.store.records import Key

MIN_LIFETIME = timedelta(minutes=10)
DEFAULT_LIFETIME = timedelta(hours=1)
_SECONDS_LIMIT = 1 << 32

RESOURCE = kind("TokenRequest", group="authentication.k8s.io", is_virtual=True)
_DETAILS = Details(RESOURCE.group, RESOURCE.kind)


async def create(server: Server, request: Request, target: Target) -> Response:
    """Issue a token for the ServiceAccount in the path."""
    options = request_options.write_options(request, "CreateOptions")
    body = await bodies.read_object(request, RESOURCE, options)
    _check_address(body, target)
    account = _account(server, target, body["metadata"].get("uid", ""))
    spec = _complete_spec(body.get("spec") or {}, server)
    # Before the bound object is read: a refusal must not reveal whether it exists.
    if server.agent_guard is not None:
        server.agent_guard({**body, "spec": spec}, None)
    bound = _bound_object(server, target, spec.get("boundObjectRef"))
    lifetime = _lifetime(spec, server, request)
    token = server.authenticator.accounts.issue(
        (target.namespace, account),
        audiences=spec["audiences"],
        lifetime=lifetime,
        bound=bound,
        make_id=server.uid,
    )
    now = server.clock.now()
    named = {"name": target.name, "namespace": target.namespace, "uid": account.uid}
    response = {
        "kind": RESOURCE.kind,
        "apiVersion": RESOURCE.api_version,
        "metadata": {**body["metadata"], **named, "creationTimestamp": timestamp(now)},
        "spec": spec,
        "status": {"token": token.reveal(), "expirationTimestamp": timestamp(now + lifetime)},
    }
    return json_response(response, 201)


def _check_address(body: Json, target: Target) -> None:
    objects.set_namespace(body, target.namespace)
    in_body = body["metadata"].get("name")
    if in_body and in_body != target.name:
        detail = "must match the service account name if specified"
        details = Details(RESOURCE.group, RESOURCE.kind, target.name)
        raise status.invalid(details, [causes.invalid("metadata.name", in_body, detail)])


def _account(server: Server, target: Target, uid: str) -> Reference:
    record = server.store.get(target.key)
    if record is None:
        raise status.not_found(target.resource.details(target.name))
    account_uid: str = decoded(record)["metadata"]["uid"]
    if uid and uid != account_uid:
        message = f"the UID in the token request ({uid}) does not match the UID of the service account ({account_uid})"
        details = Details(RESOURCE.group, RESOURCE.kind, target.name)
        raise status.conflict(details, message)
    return Reference(target.name, account_uid)


def _complete_spec(spec: Json, server: Server) -> Json:
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = int(DEFAULT_LIFETIME.total_seconds())
    wrong = []
    if seconds < MIN_LIFETIME.total_seconds():
        detail = "may not specify a duration less than 10 minutes"
        wrong.append(causes.invalid("spec.expirationSeconds", seconds, detail))
    if seconds > _SECONDS_LIMIT:
        detail = "may not specify a duration larger than 2^32 seconds"
        wrong.append(causes.invalid("spec.expirationSeconds", seconds, detail))
    if wrong:
        raise status.invalid(_DETAILS, wrong)
    audiences = spec.get("audiences") or list(server.authenticator.accounts.settings.audiences)
    return {
        "audiences": audiences,
        "expirationSeconds": seconds,
        "boundObjectRef": spec.get("boundObjectRef"),
    }


def _lifetime(spec: Json, server: Server, request: Request) -> timedelta:
    """Return the token's lifetime; a longer one than allowed is shortened, with a warning."""
    seconds: int = spec["expirationSeconds"]
    longest = int(server.authenticator.accounts.settings.longest.total_seconds())
    if seconds > longest:
        request.warnings.append(
            f"requested expiration of {seconds} seconds shortened to {longest} seconds"
        )
        spec["expirationSeconds"] = seconds = longest
    return timedelta(seconds=seconds)


def _bound_object(server: Server, target: Target, reference: Json | None) -> Bound:
    if reference is None:
        return Bound()
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    kind = reference.get("kind", "")
    if group or kind not in _PLURALS:
        raise status.bad_request(
            f"cannot bind token to object of type {group}/{version}, Kind={kind}"
        )
    namespace = "" if kind == "Node" else target.namespace
    body = _read_stored(server, Key(_PLURALS[kind], namespace, reference.get("name", "")))
    if kind == "Pod" and body.get("spec", {}).get("serviceAccountName") != target.name:
        raise status.bad_request(
            f"cannot bind token for serviceaccount {causes.quoted(target.name)} to pod running "
            "with different serviceaccount name."
        )
    bound = Reference(body["metadata"]["name"], body["metadata"]["uid"])
    _check_uid(reference, kind, bound.uid)
    return _bound_with_node(server, kind, bound, body)


_PLURALS = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}


def _bound_with_node(server: Server, kind: str, bound: Reference, body: Json) -> Bound:
    if kind == "Secret":
        return Bound(secret=bound)
    if kind == "Node":
        return Bound(node=bound)
    node_name = body["spec"].get("nodeName")
    if not node_name:
        return Bound(pod=bound)
    # A Node that does not exist any more is still named: the token then shows where its Pod was.
    record = server.store.get(Key("nodes", "", node_name))
    uid = decoded(record)["metadata"]["uid"] if record is not None else ""
    return Bound(pod=bound, node=Reference(node_name, uid))


def _read_stored(server: Server, key: Key) -> Json:
    record = server.store.get(key)
    if record is None:
        raise status.not_found(Details(kind=key.resource, name=key.name))
    body: Json = msgspec.json.decode(record.body)
    return body


def _check_uid(reference: dict[str, Any], kind: str, uid: str) -> None:
    claimed = reference.get("uid")
    if claimed and claimed != uid:
        message = (
            f"the UID in the bound object reference ({claimed}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise status.conflict(Details(kind=kind, name=reference.get("name", "")), message)
