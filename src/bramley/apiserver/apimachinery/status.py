"""Refusals as `metav1.Status`: what the server raises anywhere and renders at the HTTP boundary.

One constructor per way of refusing, with the code, the reason and the sentence that a real kube-apiserver gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bramley.apiserver.apimachinery.causes import quoted
from bramley.base.errors import Cause


class Details(msgspec.Struct, frozen=True):
    """What a refusal is about; `kind` is the plural, except where a kind's own rules were broken."""

    group: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def qualified(self) -> str:
        """Return the kind with its group behind a dot."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


NOTHING = Details()


class ApiError(Exception):
    """A request that is answered with a failure `Status`."""

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
        """Return the refusal as a `Status` object."""
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
        details = wire(self.details or NOTHING)
        if self.causes:
            details["causes"] = [_cause(each) for each in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return details


def wire(details: Details) -> dict[str, Any]:
    """Return details as JSON values, what is empty left out."""
    named = {
        "name": details.name,
        "group": details.group,
        "kind": details.kind,
        "uid": details.uid,
    }
    return {key: value for key, value in named.items() if value}


def success(details: Details) -> dict[str, Any]:
    """Return the `Status` that says that something was done and there is nothing else to show."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": wire(details),
    }


def carried_out() -> dict[str, Any]:
    """Return the `Status` that answers an act which leaves no object of its own, such as an eviction."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }


def bad_request(message: str) -> ApiError:
    """Refuse a request that makes no sense as it stands."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Refuse somebody unknown."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(details: Details, why: str) -> ApiError:
    """Refuse what is understood but not allowed."""
    if not details.kind:
        return ApiError(403, "Forbidden", f"forbidden: {why}", details=details)
    name = f" {quoted(details.name)}" if details.name else ""
    message = f"{details.qualified}{name} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details=details)


def not_found(details: Details) -> ApiError:
    """Refuse because the object does not exist."""
    message = f"{details.qualified} {quoted(details.name)} not found"
    return ApiError(404, "NotFound", message, details=details)


def no_such_path() -> ApiError:
    """Refuse a path that nothing is served at."""
    message = "the server could not find the requested resource"
    return ApiError(404, "NotFound", message, details=NOTHING)


def no_such_page() -> ApiError:
    """Refuse a path outside of everything that is served, in the plain text that clients know it by."""
    text = "404 page not found\n"
    return ApiError(404, "NotFound", text.strip(), details=NOTHING, text=text)


def method_not_allowed(details: Details | None = None) -> ApiError:
    """Refuse a method that the path does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details=details or NOTHING)


def verb_not_supported(details: Details, verb: str) -> ApiError:
    """Refuse a verb on a custom kind, which a real server words in its own way."""
    message = f"{verb} is not supported on resources of kind {quoted(details.qualified)}"
    return ApiError(405, "MethodNotAllowed", message, details=details)


def not_acceptable(types: Sequence[str]) -> ApiError:
    """Refuse because the client accepts none of the forms that we can answer in."""
    message = f"only the following media types are accepted: {', '.join(types)}"
    return ApiError(406, "NotAcceptable", message)


def already_exists(details: Details) -> ApiError:
    """Refuse to create what exists."""
    message = f"{details.qualified} {quoted(details.name)} already exists"
    return ApiError(409, "AlreadyExists", message, details=details)


def conflict(details: Details, why: str) -> ApiError:
    """Refuse a write that was based on something that is no longer so."""
    message = f"Operation cannot be fulfilled on {details.qualified} {quoted(details.name)}: {why}"
    return ApiError(409, "Conflict", message, details=details)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    """Refuse because the version asked for is no longer kept."""
    return ApiError(410, "Expired", message, continue_token=continue_token)


def too_large(message: str) -> ApiError:
    """Refuse a body over the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def unsupported_media_type(types: Sequence[str]) -> ApiError:
    """Refuse a body in a form that we cannot read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(types)}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(details: Details, causes: Sequence[Cause]) -> ApiError:
    """Refuse an object that breaks rules of its kind; `details.kind` is the kind, not the plural."""
    # The same sentence is said once, though each cause is listed.
    said = dict.fromkeys(f"{each.field}: {each.message}" for each in causes)
    text = next(iter(said)) if len(said) == 1 else f"[{', '.join(said)}]"
    message = f"{details.qualified} {quoted(details.name)} is invalid"
    message = f"{message}: {text}" if said else message
    return ApiError(422, "Invalid", message, causes=causes, details=details)


def internal(message: str) -> ApiError:
    """Admit a fault of our own."""
    causes = [Cause("", "", message)]
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=causes)


def unavailable(message: str, *, retry_after: int = 1) -> ApiError:
    """Refuse for now, because something that we need does not work."""
    return ApiError(503, "ServiceUnavailable", message, retry_after=retry_after)


def version_too_large(asked: int, current: int) -> ApiError:
    """Refuse to read at a version that is not there yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [Cause("", "ResourceVersionTooLarge", "Too large resource version")]
    return ApiError(504, "Timeout", message, causes=causes, retry_after=1)


def _cause(cause: Cause) -> dict[str, str]:
    named = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in named.items() if value}
