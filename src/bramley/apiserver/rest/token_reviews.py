"""TokenReview and SelfSubjectReview: whose token is this, and who am I."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.http.exchange import Response, Request, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, options
from bramley.apiserver.rest.server import Server


async def review_token(server: Server, request: Request, target: Target) -> Response:
    """Tell whose token the body holds, and for which of the audiences it is good."""
    how = options.writing(request, "CreateOptions")
    body = await bodies.read_object(request, target.resource, how)
    spec = body.get("spec") or {}
    token = spec.get("token", "")
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    reviewed = server.authenticator.review(token, spec.get("audiences") or ())
    found: dict[str, Any] = {"user": {}}
    if reviewed.user is not None:
        found = {"authenticated": True, "user": user_info(reviewed.user)}
        found["audiences"] = reviewed.audiences
    if reviewed.error:
        found["error"] = reviewed.error
    return _answered(body, target, found)


async def review_self(server: Server, request: Request, target: Target) -> Response:
    """Tell the caller who it is taken for."""
    how = options.writing(request, "CreateOptions")
    body = await bodies.read_object(request, target.resource, how)
    body["metadata"] = {"creationTimestamp": timestamp(server.clock.now())}
    return _answered(body, target, {"userInfo": user_info(request.caller)})


def user_info(user: User) -> Json:
    """Return a user as the API shows one, what is empty left out."""
    named = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in named.items() if value}


def _answered(body: Json, target: Target, found: Json) -> Response:
    whole = {**body, "apiVersion": target.resource.api_version, "status": found}
    return json_response(whole, 201)
