"""The authorization, the roles and the policy allow the same."""

from __future__ import annotations

import re

from bramley.access import authorization, policy, roles
from bramley.access.pod_references import References
from bramley.access.roles import Needs
from bramley.api.names import access, groups
from bramley.api.rbac import PolicyRule

Right = tuple[str, str, str]

# What every user may review about itself, by a role that every cluster has.
SELF_REVIEWS = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
NEEDS = Needs(frozenset({"p"}), frozenset({"a"}), frozenset({"s"}), frozenset({"c"}))
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


def granted() -> set[Right]:
    """Return group, resource with subresource, and verb of everything that the roles grant."""
    rules: list[PolicyRule] = [*roles.shared(), *roles.own_node("n")]
    for place in ("ns", access.NAMESPACE, groups.NODE_LEASE_NAMESPACE):
        rules.extend(roles.in_namespace("n", place, NEEDS))
    return {
        (group, resource, verb)
        for each in rules
        for group in each.api_groups
        for resource in each.resources
        for verb in each.verbs or ()
    }


def authorized() -> set[Right]:
    """Return the same of everything that authorization allows in some case."""
    return {
        (group, f"{resource}/{subresource}" if subresource else resource, verb)
        for (group, resource, subresource), permission in authorization._PERMISSIONS.items()
        for verb in permission.verbs
        if resource not in SELF_REVIEWS
    }


def test_roles_grant_what_authorization_allows() -> None:
    assert granted() - {("", "pods", access.REPRESENT)} == authorized()


def test_policy_admits_the_writes_that_authorization_allows() -> None:
    reviews = {"tokenreviews", "subjectaccessreviews"}
    expected = {
        f"{group}/{resource} {OPERATIONS[verb]}"
        for group, resource, verb in authorized()
        if verb in OPERATIONS and resource not in reviews
    }

    assert set(policy._WRITES) == expected


def test_policy_checks_every_write_of_every_agent_and_fails_closed() -> None:
    spec = policy.objects()[0].spec
    (rules,) = spec["matchConstraints"]["resourceRules"]
    (condition,) = spec["matchConditions"]

    assert spec["failurePolicy"] == "Fail"
    assert rules["operations"] == ["*"]
    assert rules["resources"] == ["*/*"]
    assert condition["expression"] == (
        "request.userInfo.username.startsWith('system:serviceaccount:bramley-agents:tart-kubelet-')"
    )
    assert (
        access.USER_PREFIX[len("system:serviceaccount:bramley-agents:") :] + "n" == "tart-kubelet-n"
    )


def test_policy_denies_with_a_403() -> None:
    made, binding = policy.objects()

    assert {each["reason"] for each in made.spec["validations"]} == {"Forbidden"}
    assert binding.spec == {"policyName": made.name, "validationActions": ["Deny"]}


def test_every_variable_of_the_policy_is_used_and_declared_before() -> None:
    spec = policy.objects()[0].spec
    known: set[str] = set()
    used: set[str] = set()
    for each in [*spec["variables"], *spec["validations"]]:
        found = set(re.findall(r"variables\.(\w+)", each["expression"]))
        assert found <= known
        used |= found
        known |= {each["name"]} if "name" in each else set()

    assert known == used


def test_no_rule_of_a_namespace_is_for_all_names_but_creating_its_lease() -> None:
    for place in ("ns", access.NAMESPACE, groups.NODE_LEASE_NAMESPACE):
        for needed in (NEEDS, Needs()):
            for each in roles.in_namespace("n", place, needed):
                assert each.resource_names or (each.resources, each.verbs) == (
                    ["leases"],
                    ["create"],
                )


def test_needs_are_gathered_by_namespace() -> None:
    first = References("a", frozenset({"s"}), frozenset({"c"}))
    second = References("b", frozenset({"t"}))

    found = roles.needs([("ns", "p", first), ("ns", "q", second), ("other", "p", second)])

    both = Needs(
        frozenset({"p", "q"}), frozenset({"a", "b"}), frozenset({"s", "t"}), frozenset({"c"})
    )
    assert found == {
        "ns": both,
        "other": Needs(frozenset({"p"}), frozenset({"b"}), frozenset({"t"})),
    }


def test_pods_among_the_agents_identities_give_no_rights_there() -> None:
    (only,) = roles.in_namespace("n", access.NAMESPACE, NEEDS)

    assert (only.resources, only.resource_names) == (["serviceaccounts/token"], ["tart-kubelet-n"])
