"""Kinds that are answered and never stored: questions about tokens and rights."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Rules, ServedResource

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"


def reviews() -> tuple[ServedResource, ...]:
    """Return the reviews that are served; `rest.subresources.VIRTUAL` names their handlers."""
    return (
        _review("TokenReview", _AUTHENTICATION),
        _review("SelfSubjectReview", _AUTHENTICATION),
        _review("LocalSubjectAccessReview", _AUTHORIZATION, namespaced=True),
        _review("SelfSubjectAccessReview", _AUTHORIZATION),
        _review("SelfSubjectRulesReview", _AUTHORIZATION),
        _review("SubjectAccessReview", _AUTHORIZATION),
    )


def _review(kind: str, group: str, *, namespaced: bool = False) -> ServedResource:
    return ServedResource(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        namespaced=namespaced,
        verbs=("create",),
        is_custom=False,
        is_virtual=True,
        rules=Rules(shape=f"v1.{kind}"),
    )
