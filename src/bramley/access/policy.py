"""The write restrictions of agents for a real cluster: a ValidatingAdmissionPolicy and its binding.

It checks every write of an agent and refuses what it does not list, so that a permission granted by mistake changes nothing.
A policy cannot read other objects, only the caller's permissions: `represent` on a Pod is a permission that the agent's own
Roles grant for exactly the Pods on its Node.
"""

from __future__ import annotations

from typing import Any

from bramley.api.admission import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent, finalizers, groups

# All writes of an agent, as `group/resource/subresource operation`.
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
_BLOCKS_DELETION = ("finalizers", "ownerReferences")
_BOUND = "variables.bound.?{}.orValue('')"


def _unchanged(field: str, empty: str) -> str:
    now, before = (f"{side}.metadata.?{field}.orValue({empty})" for side in ("object", "oldObject"))
    return f"!variables.isPodChange || {now} == {before}"


def _event_unchanged(field: str) -> str:
    now, before = (f"{side}.metadata.?{field}.orValue([])" for side in ("object", "oldObject"))
    return f"!variables.isEvent || {now} == (oldObject == null ? [] : {before})"


def _foreign_finalizers(side: str) -> str:
    is_foreign = f"f != '{finalizers.VM_CLEANUP}'"
    return f"{side}.metadata.?finalizers.orValue([]).filter(f, {is_foreign})"


def _may_represent(name: str) -> str:
    return f"variables.pods.name({name}).check('{access.REPRESENT}').allowed()"


def _validations() -> list[tuple[str, str]]:
    """Return each expression with the message for an agent that violates it."""
    return [*_caller_rules(), *_name_rules(), *_pod_rules(), *_event_rules(), *_token_rules()]


def _caller_rules() -> list[tuple[str, str]]:
    key, listed = access.TOKEN_NODE, ", ".join(f"'{write}'" for write in _WRITES)
    own = f"request.userInfo.extra['{key}'].all(n, n == variables.node)"
    return [
        (
            f"!('{key}' in request.userInfo.?extra.orValue({{}})) || {own}",
            "the agent's token is bound to another node",
        ),
        (
            f"variables.what + ' ' + request.operation in [{listed}]",
            "agents may not make this request",
        ),
    ]


def _name_rules() -> list[tuple[str, str]]:
    return [
        (
            "!variables.named || object != null && object.metadata.name == variables.node",
            "an agent may access only the object with the name of its node",
        ),
        (
            f"variables.what != 'coordination.k8s.io/leases' || request.namespace == '{_LEASES}'",
            f"an agent may access only a lease in {_LEASES}",
        ),
    ]


def _pod_rules() -> list[tuple[str, str]]:
    protected = {"labels": "{}", "annotations": "{}", "ownerReferences": "[]"}
    return [
        (
            "!variables.isPod || oldObject.spec.?nodeName.orValue('') == variables.node",
            "the pod is not bound to the agent's node",
        ),
        (
            "!variables.isPodChange || object.spec == oldObject.spec",
            "an agent may not change the spec of a pod",
        ),
        *(
            (_unchanged(field, empty), f"an agent may not change the {field} of a pod")
            for field, empty in protected.items()
        ),
        (
            f"!variables.isPodChange || {_foreign_finalizers('object')} == {_foreign_finalizers('oldObject')}",
            "an agent may change only its own finalizer",
        ),
    ]


def _event_rules() -> list[tuple[str, str]]:
    kind, name, namespace = (_SUBJECT.format(field) for field in ("kind", "name", "namespace"))
    is_inside = f"{namespace} == request.namespace"
    subjects = [
        f"{kind} == 'Node' && {name} == variables.node && request.namespace == 'default'",
        f"{kind} == 'Lease' && {name} == variables.node && {is_inside} && {namespace} == '{_LEASES}'",
        f"{kind} == 'Pod' && {is_inside} && {_may_represent(name)}",
    ]
    return [
        (
            "!variables.isEvent || oldObject == null || variables.subject == variables.oldSubject",
            "the involved object of an event may not change",
        ),
        *(
            (_event_unchanged(field), "an agent's event may not have finalizers or owners")
            for field in _BLOCKS_DELETION
        ),
        (
            " || ".join(["!variables.isEvent", *subjects]),
            "an agent may record events only about its own node, lease and pods",
        ),
    ]


def _token_rules() -> list[tuple[str, str]]:
    version, kind, name, uid = (
        _BOUND.format(field) for field in ("apiVersion", "kind", "name", "uid")
    )
    to_nothing = f"{version} == '' && {kind} == '' && {name} == '' && {uid} == ''"
    to_node = f"{version} == 'v1' && {kind} == 'Node' && {name} == variables.node"
    own = [
        f"request.name == '{agent.service_account('')}' + variables.node",
        f"({to_nothing} || {to_node})",
    ]
    of_pod = [f"{version} == 'v1' && {kind} == 'Pod' && {uid} != ''", _may_represent(name)]
    return [
        (
            f"!variables.isOwnToken || {' && '.join(own)}",
            "an agent may bind its own token only to its own node",
        ),
        (
            f"!variables.isPodToken || {' && '.join(of_pod)}",
            "an agent may request tokens only bound to a pod on its node and its uid",
        ),
    ]


def objects() -> tuple[ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding]:
    """Return the policy and its binding."""
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
            {"expression": expression, "message": message, "reason": "Forbidden"}
            for expression, message in _validations()
        ],
    }
