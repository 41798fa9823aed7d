"""What is served beside plain objects: subresources of built-in kinds, and kinds that are only ever created, never stored.

Two registries, and nothing else decides what exists: routes look handlers up here, and discovery lists what it finds here.
Status and scale are not among them, because a resource says by itself whether it has these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bramley.apiserver.auth import access_reviews, reviews, token_requests
from bramley.apiserver.paths import Target
from bramley.apiserver.rest import finalizing
from bramley.apiserver.rest.exchange import Answer, Request
from bramley.apiserver.rest.server import Server

Handler = Callable[[Server, Request, Target], Awaitable[Answer]]

VERBS: Mapping[str, str] = MappingProxyType(
    {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object with a path of its own; group, version and kind are those of its bodies."""

    name: str
    kind: str
    group: str
    version: str
    methods: Mapping[str, Handler]

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of its methods, sorted as discovery shows them."""
        return sorted(VERBS[method] for method in self.methods)


def _by_path(*listed: tuple[str, Subresource]) -> Mapping[tuple[str, str], Subresource]:
    return MappingProxyType({(qualified, each.name): each for qualified, each in listed})


# By the qualified name of the resource (`pods`, `deployments.apps`) and that of the subresource.
EXTRA: Mapping[tuple[str, str], Subresource] = _by_path(
    (
        "namespaces",
        Subresource("finalize", "Namespace", "", "v1", {"PUT": finalizing.replace}),
    ),
    (
        "serviceaccounts",
        Subresource(
            "token",
            "TokenRequest",
            "authentication.k8s.io",
            "v1",
            {"POST": token_requests.create},
        ),
    ),
)

# By the qualified name of a kind that is not stored: what a POST of it does. Its ServedResource says `is_virtual`.
VIRTUAL: Mapping[str, Handler] = MappingProxyType(
    {
        "localsubjectaccessreviews.authorization.k8s.io": access_reviews.review_local,
        "selfsubjectaccessreviews.authorization.k8s.io": access_reviews.review_self,
        "selfsubjectreviews.authentication.k8s.io": reviews.review_self,
        "selfsubjectrulesreviews.authorization.k8s.io": access_reviews.review_rules,
        "subjectaccessreviews.authorization.k8s.io": access_reviews.review_subject,
        "tokenreviews.authentication.k8s.io": reviews.review_token,
    }
)
