"""Errors as `metav1.Status`: raised anywhere in the server and rendered at the HTTP boundary.

One constructor per error, with the code, the reason and the message of kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bramley.apiserver.apimachinery.causes import quoted
from bramley.base.errors import Cause


class Details(msgspec.Struct, frozen=True):
    """What an error is about; `kind` is the plural, except in validation errors."""

    group: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def qualified(self) -> str:
        """Return the kind with its group behind a dot."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


NO_DETAILS = Details()
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class ApiError(Exception):
    """An error that becomes a `Status` response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[Cause] = (),
        details: Details | None = None,
        retry_after: int = 0,
        continue_token: str = "",
        text: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.details = details
        self.retry_after = retry_after
        self.continue_token = continue_token
        self.text = text

    def status(self) -> dict[str, Any]:
        """Return the error as a `Status` object."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1"}
        body["metadata"] = {"continue": self.continue_token} if self.continue_token else {}
        body |= {"status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None or self.causes or self.retry_after:
            body["details"] = self._details()
        body["code"] = self.code
        return body

    def encoded(self) -> bytes:
        """Return the `Status` as JSON."""
        return msgspec.json.encode(self.status())

    def _details(self) -> dict[str, Any]:
        details = wire(self.details or NO_DETAILS)
        if self.causes:
            details["causes"] = [_cause(each) for each in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return details


def wire(details: Details) -> dict[str, Any]:
    """Return details as JSON values, without empty fields."""
    fields = ((each, getattr(details, each)) for each in ("name", "group", "kind", "uid"))
    return {key: value for key, value in fields if value}


def success(details: Details) -> dict[str, Any]:
    """Return the `Status` of a request that succeeded and has no object to return."""
    return {**_SUCCESS, "details": wire(details)}


def created() -> dict[str, Any]:
    """Return the `Status` of a created subresource that is not an object, such as an eviction."""
    return {**_SUCCESS, "code": 201}


def bad_request(message: str) -> ApiError:
    """Return the 400 for a malformed request."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Return the 401 for an unknown user."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(details: Details, reason: str) -> ApiError:
    """Return the 403 for a request that is not allowed."""
    if not details.kind:
        return ApiError(403, "Forbidden", f"forbidden: {reason}", details=details)
    name = f" {quoted(details.name)}" if details.name else ""
    message = f"{details.qualified}{name} is forbidden: {reason}"
    return ApiError(403, "Forbidden", message, details=details)


def not_found(details: Details) -> ApiError:
    """Return the 404 for an object that does not exist."""
    message = f"{details.qualified} {quoted(details.name)} not found"
    return ApiError(404, "NotFound", message, details=details)


def no_such_path() -> ApiError:
    """Return the 404 for a path without a resource."""
    message = "the server could not find the requested resource"
    return ApiError(404, "NotFound", message, details=NO_DETAILS)


def no_such_page() -> ApiError:
    """Return the 404 for a path outside of the API, as the plain text that clients expect."""
    text = "404 page not found\n"
    return ApiError(404, "NotFound", text.strip(), details=NO_DETAILS, text=text)


def method_not_allowed(details: Details | None = None) -> ApiError:
    """Return the 405 for a method that the path does not support."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details=details or NO_DETAILS)


def verb_not_supported(details: Details, verb: str) -> ApiError:
    """Return the 405 for a verb on a custom resource, which has another message."""
    message = f"{verb} is not supported on resources of kind {quoted(details.qualified)}"
    return ApiError(405, "MethodNotAllowed", message, details=details)


def not_acceptable(types: Sequence[str]) -> ApiError:
    """Return the 406 for a client that accepts none of our media types."""
    message = f"only the following media types are accepted: {', '.join(types)}"
    return ApiError(406, "NotAcceptable", message)


def already_exists(details: Details) -> ApiError:
    """Return the 409 for an object that already exists."""
    message = f"{details.qualified} {quoted(details.name)} already exists"
    return ApiError(409, "AlreadyExists", message, details=details)


def conflict(details: Details, reason: str) -> ApiError:
    """Return the 409 for a write that conflicts with the stored object."""
    message = (
        f"Operation cannot be fulfilled on {details.qualified} {quoted(details.name)}: {reason}"
    )
    return ApiError(409, "Conflict", message, details=details)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    """Return the 410 for a resource version that is no longer available."""
    return ApiError(410, "Expired", message, continue_token=continue_token)


def too_large(message: str) -> ApiError:
    """Return the 413 for a body over the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def unsupported_media_type(types: Sequence[str]) -> ApiError:
    """Return the 415 for a body of an unknown media type."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(types)}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(details: Details, causes: Sequence[Cause]) -> ApiError:
    """Return the 422 for an object that fails validation; `details.kind` is the kind, not the plural."""
    # Each message appears once, though every cause is listed.
    messages = dict.fromkeys(f"{each.field}: {each.message}" for each in causes)
    text = next(iter(messages)) if len(messages) == 1 else f"[{', '.join(messages)}]"
    message = f"{details.qualified} {quoted(details.name)} is invalid"
    message = f"{message}: {text}" if messages else message
    return ApiError(422, "Invalid", message, causes=causes, details=details)


def internal(message: str) -> ApiError:
    """Return the 500 for an internal error."""
    causes = [Cause("", "", message)]
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=causes)


def unavailable(message: str, *, retry_after: int = 1) -> ApiError:
    """Return the 503 for a temporary failure."""
    return ApiError(503, "ServiceUnavailable", message, retry_after=retry_after)


def version_too_large(requested: int, current: int) -> ApiError:
    """Return the 504 for a resource version that does not exist yet."""
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    causes = [Cause("", "ResourceVersionTooLarge", "Too large resource version")]
    return ApiError(504, "Timeout", message, causes=causes, retry_after=1)


def _cause(cause: Cause) -> dict[str, str]:
    fields = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in fields.items() if value}
