"""The refusals of Scaleway's API, each with the status, the type and the fields that its clients decode."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


class Refusal(Exception):
    """A request is answered with this status and body."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body = {**fields, "message": message, "type": type}


def unauthenticated(reason: str) -> Refusal:
    """Return the refusal of a secret key; the reason is `not_found` or `invalid_argument`."""
    return Refusal(
        401, "denied_authentication", "authentication is denied", method="api_key", reason=reason
    )


def denied(action: str, resource: str) -> Refusal:
    """Return the refusal of a key without this permission."""
    details = [{"action": action, "resource": resource}]
    message = f"insufficient permissions: {action} {resource}"
    return Refusal(403, "permissions_denied", message, details=details)


def invalid(argument: str, reason: str, help: str) -> Refusal:
    """Return the refusal of an argument; the reason is `required`, `format`, `constraint` or `unknown`."""
    details = [{"argument_name": argument, "help_message": help, "reason": reason}]
    return Refusal(400, "invalid_arguments", "invalid argument(s)", details=details)


def not_found(resource: str, id: str) -> Refusal:
    """Return the refusal of an id that does not exist."""
    return Refusal(404, "not_found", "resource is not found", resource=resource, resource_id=id)


def unknown_service() -> Refusal:
    """Return the refusal of a path that is not served."""
    return Refusal(501, "unknown_service", "unknown service")


def transient_state(resource: str, id: str, state: str) -> Refusal:
    """Return the refusal of an action that has to wait for another one."""
    message = "resource is in a transient state"
    return Refusal(
        409, "transient_state", message, resource=resource, resource_id=id, current_state=state
    )


def before_minimum_lease(deletable_at: datetime) -> Refusal:
    """Return the refusal of a deletion within the minimum lease of Apple's licence."""
    return Refusal(
        412,
        "precondition_failed",
        "precondition is not respected",
        precondition="unknown_precondition",
        help_message=f"the server cannot be deleted before {deletable_at.isoformat()}",
    )


def vpc_disabled() -> Refusal:
    """Return the refusal of a private network for a server on which they are turned off."""
    return Refusal(
        412,
        "precondition_failed",
        "precondition is not respected",
        precondition="unknown_precondition",
        help_message="private networks are not enabled on the server",
    )


def quota_exceeded(resource: str, quota: int) -> Refusal:
    """Return the refusal of one more resource than the project may have."""
    details = [{"resource": resource, "quota": quota, "current": quota, "scope": "project"}]
    return Refusal(403, "quotas_exceeded", "quota(s) exceeded", details=details)


def out_of_stock(resource: str) -> Refusal:
    """Return the refusal of a server of a type that is not available."""
    return Refusal(412, "out_of_stock", "resource is out of stock", resource=resource)


def too_many_requests(quota: int, seconds: int) -> Refusal:
    """Return the refusal of a request over the rate limit."""
    headers = {"retry-after": str(seconds)}
    policy = {"quota": quota, "unit": "request", "period": "1 minute"}
    return Refusal(
        429,
        "too_many_requests",
        "too many requests",
        headers,
        quota_policy=policy,
        reset_seconds=seconds,
    )
