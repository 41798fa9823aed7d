"""A graph of Pods for the authorization of agents, and their requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from bramley.access.authorization import AgentRequest, PodFacts
from bramley.access.pod_references import References

NODE = "mac-1"
OTHER = "mac-2"


@dataclass
class FakeGraph:
    """Pods by namespace and name, and the Nodes that have an agent."""

    pods: dict[tuple[str, str], PodFacts] = field(default_factory=dict)
    agents: set[str] = field(default_factory=lambda: {NODE, OTHER})

    def is_enrolled(self, node: str) -> bool:
        return node in self.agents

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        return self.pods.get((namespace, name))

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        found = [
            pod.references
            for (place, _), pod in self.pods.items()
            if place == namespace and pod.node == node
        ]
        named = {
            "secrets": {each for refs in found for each in refs.secrets},
            "configmaps": {each for refs in found for each in refs.config_maps},
            "serviceaccounts": {refs.service_account for refs in found},
        }
        return name in named.get(resource, set())


def a_graph() -> FakeGraph:
    mine = References("robot", frozenset({"s"}), frozenset({"c"}))
    theirs = References("ghost", frozenset({"s2"}), frozenset({"c2"}))
    return FakeGraph(
        {
            ("ns", "mine"): PodFacts(NODE, "uid-mine", mine),
            ("ns", "theirs"): PodFacts(OTHER, "uid-theirs", theirs),
            ("ns", "free"): PodFacts("", "uid-free", References()),
        }
    )


def a_request(verb: str, what: str, place: str = "", name: str = "", **more: str) -> AgentRequest:
    """Return a request of NODE's agent; `what` is `resource`, `resource/sub` or `group:resource/sub`."""
    group, _, whole = what.rpartition(":")
    resource, _, subresource = whole.partition("/")
    return AgentRequest(
        node=more.pop("node", NODE),
        verb=verb,
        group=group,
        resource=resource,
        subresource=subresource,
        namespace=place,
        name=name,
        **more,
    )
