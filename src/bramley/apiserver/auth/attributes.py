"""The attributes of a request that authorization decides on: user, verb, group, resource, namespace, name; or a plain path.

They come from the request's RequestInfo alone, as in a kube-apiserver, so that a 403 does not reveal whether the resource exists.
"""

from __future__ import annotations

import msgspec

from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.http.request_info import RequestInfo, selected_value

_NODE_NAME = "spec.nodeName"


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """The subject of one authorization decision; a request that is not about a resource has only `path`."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    # The only Node that a field selector on Pods allows.
    selected_node: str = ""

    @property
    def combined_resource(self) -> str:
        """Return the resource with its subresource behind a slash, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @classmethod
    def of(cls, user: User, info: RequestInfo) -> Attributes:
        """Return the attributes of a user's request."""
        if not info.is_resource_request:
            return cls(user, info.verb, path=info.path)
        is_pods = info.resource == "pods"
        return cls(
            user,
            info.verb,
            info.api_group,
            info.api_version,
            info.resource,
            info.subresource,
            info.namespace,
            info.name,
            selected_node=selected_value(info.field_selector, _NODE_NAME) if is_pods else "",
        )
