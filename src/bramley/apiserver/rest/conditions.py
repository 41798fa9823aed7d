"""Conditions that the API itself sets on Pods when it binds or evicts them."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Json


def with_condition(pod: Json, kind: str, since: str, **said: str) -> Json:
    """Return a Pod with a condition that holds; its time stays when it held before."""
    status = pod.get("status", {})
    conditions = list(status.get("conditions", []))
    new = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
    for index, each in enumerate(conditions):
        if each["type"] == kind:
            if each["status"] == "True":
                new["lastTransitionTime"] = each.get("lastTransitionTime")
            conditions[index] = {**new, **said}
            break
    else:
        conditions.append({**new, **said})
    return {**pod, "status": {**status, "conditions": conditions}}
