"""The agent's rule for writes in the words of a real cluster: a ValidatingAdmissionPolicy and its binding.

It looks at every write of an agent and refuses what it does not know, so that a right given by mistake changes nothing. It
knows of other objects only what the caller may do with them: `represent` on a Pod is a right that the agent's own Roles
give for exactly the Pods on its Node.
"""

from __future__ import annotations

from typing import Any

from bramley.api.admission import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent, finalizers, groups

# What an agent writes at all, as `group/resource/subresource operation`.
_WRITES = (
    "/nodes CREATE",
    "/nodes UPDATE",
    "/nodes/status UPDATE",
    "coordination.k8s.io/leases CREATE",
    "coordination.k8s.io/leases UPDATE",
    "/pods UPDATE",
    "/pods DELETE",
    "/pods/status UPDATE",
    "/events CREATE",
    "/events UPDATE",
    "events.k8s.io/events CREATE",
    "events.k8s.io/events UPDATE",
    "/serviceaccounts/token CREATE",
)

_VARIABLES = {
    "node": f"request.userInfo.username.substring({len(access.USER_PREFIX)})",
    "what": (
        "request.resource.group + '/' + request.resource.resource"
        " + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)"
    ),
    "named": "variables.what in ['/nodes', '/nodes/status', 'coordination.k8s.io/leases']",
    "isPod": "variables.what in ['/pods', '/pods/status'] && oldObject != null",
    "isPodChange": "variables.isPod && request.operation == 'UPDATE'",
    "isEvent": "variables.what in ['/events', 'events.k8s.io/events']",
    "isToken": "variables.what == '/serviceaccounts/token'",
    "isOwnToken": f"variables.isToken && request.namespace == '{access.NAMESPACE}'",
    "isPodToken": f"variables.isToken && request.namespace != '{access.NAMESPACE}'",
    "subject": (
        "!variables.isEvent ? {} : variables.what == '/events'"
        " ? dyn(object.?involvedObject.orValue({})) : dyn(object.?regarding.orValue({}))"
    ),
    "oldSubject": (
        "!variables.isEvent || oldObject == null ? {} : variables.what == '/events'"
        " ? dyn(oldObject.?involvedObject.orValue({})) : dyn(oldObject.?regarding.orValue({}))"
    ),
    "bound": "!variables.isToken ? {} : dyn(object.spec.?boundObjectRef.orValue({}))",
    "pods": "authorizer.group('').resource('pods').namespace(request.namespace)",
}

_SUBJECT = "variables.subject.?{}.orValue('')"
_LEASES = groups.NODE_LEASE_NAMESPACE
_HOLDING = ("finalizers", "ownerReferences")
_BOUND = "variables.bound.?{}.orValue('')"


def _unchanged(field: str, empty: str) -> str:
    now, before = (f"{side}.metadata.?{field}.orValue({empty})" for side in ("object", "oldObject"))
    return f"!variables.isPodChange || {now} == {before}"


def _held(field: str) -> str:
    now, before = (f"{side}.metadata.?{field}.orValue([])" for side in ("object", "oldObject"))
    return f"!variables.isEvent || {now} == (oldObject == null ? [] : {before})"


def _others(side: str) -> str:
    kept = f"f != '{finalizers.VM_CLEANUP}'"
    return f"{side}.metadata.?finalizers.orValue([]).filter(f, {kept})"


def _may_represent(name: str) -> str:
    return f"variables.pods.name({name}).check('{access.REPRESENT}').allowed()"


def _validations() -> list[tuple[str, str]]:
    """Return each expression with what is said to an agent that breaks it."""
    return [*_of_caller(), *_of_names(), *_of_pods(), *_of_events(), *_of_tokens()]


def _of_caller() -> list[tuple[str, str]]:
    key, listed = access.TOKEN_NODE, ", ".join(f"'{write}'" for write in _WRITES)
    own = f"request.userInfo.extra['{key}'].all(n, n == variables.node)"
    return [
        (
            f"!('{key}' in request.userInfo.?extra.orValue({{}})) || {own}",
            "its token is of another node",
        ),
        (f"variables.what + ' ' + request.operation in [{listed}]", "an agent has no use for this"),
    ]


def _of_names() -> list[tuple[str, str]]:
    return [
        (
            "!variables.named || object != null && object.metadata.name == variables.node",
            "only the one with the name of its node is its own",
        ),
        (
            f"variables.what != 'coordination.k8s.io/leases' || request.namespace == '{_LEASES}'",
            f"only a lease in {_LEASES} is its own",
        ),
    ]


def _of_pods() -> list[tuple[str, str]]:
    kept = {"labels": "{}", "annotations": "{}", "ownerReferences": "[]"}
    return [
        (
            "!variables.isPod || oldObject.spec.?nodeName.orValue('') == variables.node",
            "the pod is not bound to its node",
        ),
        (
            "!variables.isPodChange || object.spec == oldObject.spec",
            "an agent does not change the spec of a pod",
        ),
        *(
            (_unchanged(field, empty), f"an agent does not change the {field} of a pod")
            for field, empty in kept.items()
        ),
        (
            f"!variables.isPodChange || {_others('object')} == {_others('oldObject')}",
            "an agent changes no finalizer but its own",
        ),
    ]


def _of_events() -> list[tuple[str, str]]:
    kind, name, place = (_SUBJECT.format(field) for field in ("kind", "name", "namespace"))
    is_inside = f"{place} == request.namespace"
    subjects = [
        f"{kind} == 'Node' && {name} == variables.node && request.namespace == 'default'",
        f"{kind} == 'Lease' && {name} == variables.node && {is_inside} && {place} == '{_LEASES}'",
        f"{kind} == 'Pod' && {is_inside} && {_may_represent(name)}",
    ]
    return [
        (
            "!variables.isEvent || oldObject == null || variables.subject == variables.oldSubject",
            "an event does not change what it is about",
        ),
        *((_held(field), "an agent's event holds nothing back") for field in _HOLDING),
        (
            " || ".join(["!variables.isEvent", *subjects]),
            "an agent tells of its own node, lease and pods only",
        ),
    ]


def _of_tokens() -> list[tuple[str, str]]:
    version, kind, name, uid = (
        _BOUND.format(field) for field in ("apiVersion", "kind", "name", "uid")
    )
    own = [
        f"request.name == '{agent.service_account('')}' + variables.node",
        f"{version} == 'v1' && {kind} == 'Node' && {name} == variables.node",
    ]
    of_pod = [f"{version} == 'v1' && {kind} == 'Pod' && {uid} != ''", _may_represent(name)]
    return [
        (
            f"!variables.isOwnToken || {' && '.join(own)}",
            "an agent renews its token bound to its own node only",
        ),
        (
            f"!variables.isPodToken || {' && '.join(of_pod)}",
            "an agent mints tokens bound to a pod on its node and its uid only",
        ),
    ]


def objects() -> tuple[ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding]:
    """Return the policy and what puts it in force."""
    metadata = ObjectMeta(name=access.POLICY, labels={access.LABEL: access.LABEL_VALUE})
    binding = {"policyName": access.POLICY, "validationActions": ["Deny"]}
    return (
        ValidatingAdmissionPolicy(metadata=metadata, spec=_spec()),
        ValidatingAdmissionPolicyBinding(metadata=metadata, spec=binding),
    )


def _spec() -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["*"],
                    "apiVersions": ["*"],
                    "operations": ["*"],
                    "resources": ["*/*"],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": [
            {
                "name": "is-an-agent",
                "expression": f"request.userInfo.username.startsWith('{access.USER_PREFIX}')",
            }
        ],
        "variables": [
            {"name": name, "expression": expression} for name, expression in _VARIABLES.items()
        ],
        "validations": [
            {"expression": expression, "message": told, "reason": "Forbidden"}
            for expression, told in _validations()
        ],
    }
