"""Authorization of every request, in this order: `system:masters`, anonymous users, delegates, RBAC.

Masters may do everything, anonymous users nearly nothing. A delegate, such as the node authorizer, allows, denies finally, or
has no opinion.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import msgspec

from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import ApiError, Details, forbidden
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.rbac import Rbac


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The result of an authorization; `denied` is final, without it no authorizer had an opinion."""

    allowed: bool
    reason: str = ""
    denied: bool = False


Delegate = Callable[[Attributes], Decision | None]

ALLOWED = Decision(allowed=True)
NO_OPINION = Decision(allowed=False)
# Every user may read these, also an anonymous one.
PROBES = ("healthz", "livez", "readyz")
_VERSION = frozenset({"/version", "/version/"})
_READ_VERBS = frozenset({"get", "head"})


class Authorizer:
    """Decides on every request."""

    def __init__(self, rbac: Rbac, delegates: Sequence[Delegate] = ()) -> None:
        self.rbac = rbac
        self.delegates: list[Delegate] = list(delegates)

    def decide(self, attributes: Attributes, *, with_reason: bool = True) -> Decision:
        """Return whether it is allowed, and why; `with_reason` is false where the reason for allowing it is not needed."""
        if attributes.user.is_master:
            return ALLOWED
        # Before RBAC: a binding must never give data to unauthenticated users.
        if attributes.user.is_anonymous:
            return ALLOWED if _is_always_allowed(attributes) else NO_OPINION
        for authorize in self.delegates:
            decision = authorize(attributes)
            if decision is not None:
                return decision
        return self._decide_by_rbac(attributes, with_reason=with_reason)

    def check(self, attributes: Attributes) -> None:
        """Raise a 403 with kube-apiserver's message if it is not allowed."""
        decision = self.decide(attributes, with_reason=False)
        if not decision.allowed:
            raise refusal(attributes, decision.reason)

    def _decide_by_rbac(self, attributes: Attributes, *, with_reason: bool) -> Decision:
        grant = self.rbac.allows(attributes)
        if grant is not None and not with_reason:
            return ALLOWED
        if grant is not None:
            return Decision(allowed=True, reason=f"RBAC: allowed by {grant}")
        if _is_always_allowed(attributes):
            return ALLOWED
        missing = self.rbac.missing(attributes.user, attributes.namespace)
        if not missing:
            return NO_OPINION
        reason = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
        return Decision(allowed=False, reason=f"RBAC: {reason}")


def _is_always_allowed(attributes: Attributes) -> bool:
    if attributes.verb not in _READ_VERBS:
        return False
    return (
        attributes.path in _VERSION or attributes.path.removeprefix("/").partition("/")[0] in PROBES
    )


def refusal(attributes: Attributes, reason: str = "") -> ApiError:
    """Return the 403 for what is not allowed."""
    # The message repeats the path; a browser must not render it as HTML.
    message = html.escape(_message(attributes), quote=False)
    details = Details(attributes.group, attributes.resource, attributes.name)
    return forbidden(details, f"{message}: {reason}" if reason else message)


def _message(attributes: Attributes) -> str:
    subject = f"User {quoted(attributes.user.name)} cannot {attributes.verb}"
    if attributes.path:
        return f"{subject} path {quoted(attributes.path)}"
    what = (
        f"resource {quoted(attributes.combined_resource)} in API group {quoted(attributes.group)}"
    )
    scope = (
        f"in the namespace {quoted(attributes.namespace)}"
        if attributes.namespace
        else "at the cluster scope"
    )
    return f"{subject} {what} {scope}"
