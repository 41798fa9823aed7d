"""An independent, slow implementation of the filters, from the manifests alone, which shares no code with the scheduler."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Wire = dict[str, Any]
SUFFIXES = {"m": Fraction(1, 1000), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


def amount(text: str) -> Fraction:
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)


def requested_amount(pod: Wire, name: str) -> Fraction:
    containers = pod["spec"]["containers"]
    return sum(
        (amount(each["resources"]["requests"].get(name, "0")) for each in containers), Fraction(0)
    )


def fits(pod: Wire, node: Wire, pods: list[Wire], nodes: list[Wire]) -> bool:
    """Return whether the Pod can run on the Node with these Pods placed."""
    here = [each for each in pods if each["spec"]["nodeName"] == node["metadata"]["name"]]
    return (
        has_room(pod, node, here)
        and tolerates_taints(pod, node)
        and is_selected(pod, node)
        and no_port_twice(pod, here)
        and pod_affinity_fits(pod, node, pods, nodes)
    )


def has_room(pod: Wire, node: Wire, here: list[Wire]) -> bool:
    offers = node["status"]["allocatable"]
    if len(here) >= int(offers["pods"]):
        return False
    names = {name for each in pod["spec"]["containers"] for name in each["resources"]["requests"]}
    return all(
        requested_amount(pod, name) == 0
        or requested_amount(pod, name) + sum(requested_amount(each, name) for each in here)
        <= amount(offers.get(name, "0"))
        for name in names
    )


def tolerates_taints(pod: Wire, node: Wire) -> bool:
    tolerations = pod["spec"].get("tolerations", [])
    taints = [
        each for each in node["spec"].get("taints", []) if each["effect"] != "PreferNoSchedule"
    ]
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return all(any(tolerates(each, taint) for each in tolerations) for taint in taints)


def tolerates(toleration: Wire, taint: Wire) -> bool:
    return (
        toleration.get("effect", taint["effect"]) == taint["effect"]
        and toleration.get("key", taint["key"]) == taint["key"]
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
    )


def is_selected(pod: Wire, node: Wire) -> bool:
    labels = node["metadata"]["labels"]
    if not pod["spec"].get("nodeSelector", {}).items() <= labels.items():
        return False
    required = (
        pod["spec"]
        .get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    if required is None:
        return True
    return any(
        all(holds(test, labels) for test in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def holds(test: Wire, labels: dict[str, str]) -> bool:
    value = labels.get(test["key"])
    return {
        "In": value in test["values"],
        "NotIn": value not in test["values"],
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[test["operator"]]


def no_port_twice(pod: Wire, here: list[Wire]) -> bool:
    taken = {number for each in here for number in ports(each)}
    return not taken & ports(pod)


def ports(pod: Wire) -> set[int]:
    return {
        port["hostPort"] for each in pod["spec"]["containers"] for port in each.get("ports", [])
    }


def pod_affinity_fits(pod: Wire, node: Wire, pods: list[Wire], nodes: list[Wire]) -> bool:
    labels_of = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
    labels = node["metadata"]["labels"]

    def same_place(other: Wire, key: str) -> bool:
        there = labels_of.get(other["spec"]["nodeName"], {})
        return key in labels and labels[key] == there.get(key)

    for other in pods:
        for term in terms(pod, "podAntiAffinity"):
            if means(term, pod, other) and same_place(other, term["topologyKey"]):
                return False
        for term in terms(other, "podAntiAffinity"):
            if means(term, other, pod) and same_place(other, term["topologyKey"]):
                return False
    required = terms(pod, "podAffinity")
    return not required or required_affinity_fits(
        pod, required, node, pods=pods, labels_of=labels_of
    )


def required_affinity_fits(
    pod: Wire, required: list[Wire], node: Wire, *, pods: list[Wire], labels_of: dict[str, Wire]
) -> bool:
    labels = node["metadata"]["labels"]
    if any(term["topologyKey"] not in labels for term in required):
        return False
    selected = [each for each in pods if all(means(term, pod, each) for term in required)]
    is_near = all(
        any(
            labels_of.get(each["spec"]["nodeName"], {}).get(term["topologyKey"])
            == labels[term["topologyKey"]]
            for each in selected
        )
        for term in required
    )
    placed = [
        each
        for each in selected
        if any(t["topologyKey"] in labels_of.get(each["spec"]["nodeName"], {}) for t in required)
    ]
    return is_near or (not placed and all(means(term, pod, pod) for term in required))


def terms(pod: Wire, kind: str) -> list[Wire]:
    found: list[Wire] = (
        pod["spec"]
        .get("affinity", {})
        .get(kind, {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", [])
    )
    return found


def means(term: Wire, owner: Wire, other: Wire) -> bool:
    namespaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
    labels = term["labelSelector"]["matchLabels"]
    there = other["metadata"]["namespace"] in namespaces
    return there and bool(labels.items() <= other["metadata"]["labels"].items())
