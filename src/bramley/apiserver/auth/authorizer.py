"""The one place that says yes or no: masters may do everything, nobody in particular nearly nothing, the rest by rule.

Order: `system:masters`, then anonymous users, then further rules (the agent's rule is one), then RBAC. A rule may allow or
deny for good, or have no opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import ApiError, Details, forbidden
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.rbac import Rbac


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """An answer about rights; `denied` says that no other rule was asked."""

    allowed: bool
    reason: str = ""
    denied: bool = False


Opinion = Callable[[Attributes], Verdict | None]

ALLOWED = Verdict(allowed=True)
REFUSED = Verdict(allowed=False)
# Every user may read these, also an anonymous one.
PROBES = ("healthz", "livez", "readyz")
_VERSION = frozenset({"/version", "/version/"})
_READING = frozenset({"get", "head"})


class Authorizer:
    """Decides about every request."""

    def __init__(self, rbac: Rbac, opinions: Sequence[Opinion] = ()) -> None:
        self.rbac = rbac
        self.opinions: list[Opinion] = list(opinions)

    def decide(self, asked: Attributes, *, told: bool = True) -> Verdict:
        """Return whether it is allowed, and why; `told` is false where nobody will read what allowed it."""
        if asked.user.is_master:
            return ALLOWED
        # Whatever bindings say: data is for those who say who they are.
        if asked.user.is_anonymous:
            return ALLOWED if _is_open(asked) else REFUSED
        for opinion in self.opinions:
            verdict = opinion(asked)
            if verdict is not None:
                return verdict
        return self._by_roles(asked, told=told)

    def check(self, asked: Attributes) -> None:
        """Raise a 403 in a real server's words if it is not allowed."""
        verdict = self.decide(asked, told=False)
        if not verdict.allowed:
            raise refusal(asked, verdict.reason)

    def _by_roles(self, asked: Attributes, *, told: bool) -> Verdict:
        grant = self.rbac.allows(asked)
        if grant is not None and not told:
            return ALLOWED
        if grant is not None:
            return Verdict(allowed=True, reason=f"RBAC: allowed by {grant}")
        if _is_open(asked):
            return ALLOWED
        missing = self.rbac.missing(asked.user, asked.namespace)
        if not missing:
            return REFUSED
        gone = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
        return Verdict(allowed=False, reason=f"RBAC: {gone}")


def _is_open(asked: Attributes) -> bool:
    if asked.verb not in _READING:
        return False
    return asked.path in _VERSION or asked.path.removeprefix("/").partition("/")[0] in PROBES


def refusal(asked: Attributes, reason: str = "") -> ApiError:
    """Return the 403 for what is not allowed."""
    told = _sanitized(_told(asked))
    why = f"{told}: {reason}" if reason else told
    return forbidden(Details(asked.group, asked.resource, asked.name), why)


def _told(asked: Attributes) -> str:
    who = f"User {quoted(asked.user.name)} cannot {asked.verb}"
    if asked.path:
        return f"{who} path {quoted(asked.path)}"
    what = f"resource {quoted(asked.whole_resource)} in API group {quoted(asked.group)}"
    where = (
        f"in the namespace {quoted(asked.namespace)}" if asked.namespace else "at the cluster scope"
    )
    return f"{who} {what} {where}"


def _sanitized(text: str) -> str:
    # A refusal that repeats a path must not become a page.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
