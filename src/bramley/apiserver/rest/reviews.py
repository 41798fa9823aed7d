"""SubjectAccessReview, SelfSubjectRulesReview, TokenReview and SelfSubjectReview: answers about rights and identities."""

from __future__ import annotations

from typing import Any

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.status import Details
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.rules import Rule
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, objects, request_options
from bramley.apiserver.rest.server import Server
from bramley.base.errors import Cause


async def review_token(server: Server, request: Request, target: Target) -> Response:
    """Return the owner of the token in the body, and the audiences that it is valid for."""
    body = await _read(request, target)
    spec = body.get("spec") or {}
    token = spec.get("token", "")
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    reviewed = server.authenticator.review(token, spec.get("audiences") or ())
    review_status: dict[str, Any] = {"user": {}}
    if reviewed.user is not None:
        review_status = {"authenticated": True, "user": user_info(reviewed.user)}
        review_status["audiences"] = reviewed.audiences
    if reviewed.error:
        review_status["error"] = reviewed.error
    return _created(body, target, review_status)


async def review_caller(server: Server, request: Request, target: Target) -> Response:
    """Return the user that the caller is authenticated as."""
    body = await _read(request, target)
    body["metadata"] = {"creationTimestamp": timestamp(server.clock.now())}
    return _created(body, target, {"userInfo": user_info(request.user)})


def user_info(user: User) -> Json:
    """Return a user as the API shows one, without empty fields."""
    named = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in named.items() if value}


def _created(body: Json, target: Target, result: Json) -> Response:
    return json_response({**body, "apiVersion": target.resource.api_version, "status": result}, 201)


_EXACTLY_ONE = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_NOT_BOTH = "cannot be specified in combination with resourceAttributes"


async def review_subject(server: Server, request: Request, target: Target) -> Response:
    """Return whether the user in the body may do what the body names."""
    body = await _read(request, target)
    spec = body.get("spec") or {}
    _refuse(body, target, [*_validate_attributes(spec), *_validate_user(spec)])
    return _decision_response(server, body, _attributes(_subject(spec), spec))


async def review_local(server: Server, request: Request, target: Target) -> Response:
    """Return the same for the namespace of the path."""
    body = await _read(request, target)
    objects.set_namespace(body, target.namespace)
    spec = body.get("spec") or {}
    wrong = [*_validate_attributes(spec), *_validate_user(spec)]
    wrong += _validate_namespace(spec, target.namespace)
    _refuse(body, target, wrong, allowed=("namespace",))
    return _decision_response(server, body, _attributes(_subject(spec), spec))


async def review_self(server: Server, request: Request, target: Target) -> Response:
    """Return whether the caller may do what the body names."""
    body = await _read(request, target)
    spec = body.get("spec") or {}
    _refuse(body, target, _validate_attributes(spec))
    return _decision_response(server, body, _attributes(request.user, spec))


async def review_rules(server: Server, request: Request, target: Target) -> Response:
    """Return the rules that the caller has in a namespace."""
    body = await _read(request, target)
    namespace = (body.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise status.bad_request("no namespace on request")
    rbac = server.authorizer.rbac
    rules = rbac.rules_for(request.user, namespace)
    missing = rbac.missing(request.user, namespace)
    result: Json = {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}
            for rule in rules
            if rule.non_resource_urls
        ],
        "incomplete": False,
    }
    if missing:
        result["evaluationError"] = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
    review = {"kind": body["kind"], "apiVersion": body["apiVersion"], "metadata": {}}
    return json_response({**review, "spec": {}, "status": result}, 201)


async def _read(request: Request, target: Target) -> Json:
    options = request_options.write_options(request, "CreateOptions")
    return await bodies.read_object(request, target.resource, options)


def _subject(spec: Json) -> User:
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(spec.get("user", ""), groups, spec.get("uid", ""), extra)


def _attributes(user: User, spec: Json) -> Attributes:
    paths = spec.get("nonResourceAttributes")
    if paths is not None:
        return Attributes(user, paths.get("verb", ""), path=paths.get("path", "") or "/")
    requested = spec["resourceAttributes"]
    parts = ("group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(
        user, requested.get("verb", ""), **{part: requested.get(part, "") for part in parts}
    )


def _decision_response(server: Server, body: Json, attributes: Attributes) -> Response:
    decision = server.authorizer.decide(attributes)
    review_status: Json = {"allowed": decision.allowed}
    if decision.denied and not decision.allowed:
        review_status["denied"] = True
    if decision.reason:
        review_status["reason"] = decision.reason
    return json_response({**body, "status": review_status}, 201)


def _validate_attributes(spec: Json) -> list[Cause]:
    resource, paths = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and paths is not None:
        return [causes.invalid("spec.nonResourceAttributes", _own_names(paths), _NOT_BOTH)]
    if resource is None and paths is None:
        return [causes.invalid("spec.resourceAttributes", None, _EXACTLY_ONE)]
    return []


def _validate_user(spec: Json) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    detail = "at least one of user or group must be specified"
    return [causes.invalid("spec.user", spec.get("user", ""), detail)]


def _validate_namespace(spec: Json, namespace: str) -> list[Cause]:
    resource, paths = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and resource.get("namespace", "") != namespace:
        field = "spec.resourceAttributes.namespace"
        in_body = resource.get("namespace", "")
        return [causes.invalid(field, in_body, "must match metadata.namespace")]
    if paths is not None:
        detail = "disallowed on this kind of request"
        return [causes.invalid("spec.nonResourceAttributes", _own_names(paths), detail)]
    return []


def _own_names(paths: Json) -> Json:
    # kube-apiserver shows the names of the Go fields here.
    return {"Path": paths.get("path", ""), "Verb": paths.get("verb", "")}


def _refuse(
    body: Json, target: Target, wrong: list[Cause], *, allowed: tuple[str, ...] = ()
) -> None:
    if any(value for key, value in body["metadata"].items() if key not in allowed):
        detail = "must be empty except for namespace" if allowed else "must be empty"
        wrong = [*wrong, causes.invalid("metadata", body["metadata"], detail)]
    if wrong:
        # As in kube-apiserver, the kind is missing here.
        raise status.invalid(Details(target.resource.group), wrong)


def _resource_rule(rule: Rule) -> Json:
    fields: Json = msgspec.to_builtins(rule)
    return {key: value for key, value in fields.items() if key != "nonResourceURLs"}
