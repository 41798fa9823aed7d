"""Rules decide as a plain reading of RBAC's text says, however they are indexed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth import rules
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.rules import EVERYTHING, Rule, RuleSet

BOB = User("bob")

PODS = Rule(("get", "list"), ("",), ("pods",))
ONE_SECRET = Rule(("get",), ("",), ("secrets",), ("a",))
LOGS = Rule(("get",), ("",), ("pods/log",))
SCALES = Rule(("*",), ("*",), ("*/scale",))
ALL_OF_APPS = Rule(("*",), ("apps",), ("*",))
PATHS = Rule(("get",), non_resource_urls=("/api", "/api/*", "/healthz"))


def request_for(verb: str, resource: str = "", group: str = "", **more: str) -> Attributes:
    resource, _, subresource = resource.partition("/")
    return Attributes(BOB, verb, group, resource=resource, subresource=subresource, **more)


@pytest.mark.parametrize(
    ("rule", "attributes", "allowed"),
    [
        (PODS, request_for("get", "pods"), True),
        (PODS, request_for("get", "pods", name="a"), True),
        (PODS, request_for("delete", "pods"), False),
        (PODS, request_for("get", "pods", "other"), False),
        (PODS, request_for("get", "secrets"), False),
        (PODS, request_for("get", "pods/log"), False),
        (PODS, request_for("get", path="/pods"), False),
        (ONE_SECRET, request_for("get", "secrets", name="a"), True),
        (ONE_SECRET, request_for("get", "secrets", name="b"), False),
        (ONE_SECRET, request_for("get", "secrets"), False),
        (LOGS, request_for("get", "pods/log"), True),
        (LOGS, request_for("get", "pods"), False),
        (LOGS, request_for("get", "pods/exec"), False),
        (SCALES, request_for("patch", "things/scale", "example.com"), True),
        (SCALES, request_for("patch", "things", "example.com"), False),
        (SCALES, request_for("patch", "things/scales", "example.com"), False),
        (ALL_OF_APPS, request_for("delete", "deployments/status", "apps"), True),
        (ALL_OF_APPS, request_for("delete", "pods"), False),
        (PATHS, request_for("get", path="/api"), True),
        (PATHS, request_for("get", path="/api/v1"), True),
        (PATHS, request_for("get", path="/apis"), False),
        (PATHS, request_for("get", path="/healthz/x"), False),
        (PATHS, request_for("post", path="/api"), False),
        (EVERYTHING[0], request_for("x", "y/z", "w", name="v"), True),
        (EVERYTHING[0], request_for("get", path="/api"), False),
        (EVERYTHING[1], request_for("get", path="/api"), True),
    ],
)
def test_rule_allows_what_it_lists(rule: Rule, attributes: Attributes, allowed: bool) -> None:
    assert RuleSet([rule]).allow(attributes) is allowed


VERBS = st.sampled_from(["get", "list", "delete", "*"])
GROUPS = st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/log", "*", "*/log", "*/scale", "things/scale"])
NAMES = st.sampled_from(["a", "b"])
URLS = st.sampled_from(["/api", "/api/*", "*", "/a*", "/healthz"])


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, min_size=1, max_size=3).map(tuple)


RULES = st.one_of(
    st.builds(Rule, some(VERBS), some(GROUPS), some(RESOURCES), st.just(()) | some(NAMES)),
    st.builds(lambda verbs, urls: Rule(verbs, non_resource_urls=urls), some(VERBS), some(URLS)),
)
REQUESTS = st.one_of(
    st.builds(
        lambda verb, group, resource, name: request_for(verb, resource, group, name=name),
        st.sampled_from(["get", "list", "delete", "patch"]),
        st.sampled_from(["", "apps"]),
        st.sampled_from(["pods", "pods/log", "things", "things/scale"]),
        st.sampled_from(["", "a", "b"]),
    ),
    st.builds(
        lambda verb, path: request_for(verb, path=path),
        st.sampled_from(["get", "post"]),
        st.sampled_from(["/api", "/api/v1", "/healthz", "/other"]),
    ),
)


def plainly_allowed(found: Sequence[Rule], attributes: Attributes) -> bool:
    """Read the rules one by one, as the documentation words them."""
    return any(_plainly(rule, attributes) for rule in found)


def _plainly(rule: Rule, attributes: Attributes) -> bool:
    if not {"*", attributes.verb} & set(rule.verbs or ()):
        return False
    if attributes.path:
        return any(
            url == attributes.path or (url[-1] == "*" and attributes.path.startswith(url[:-1]))
            for url in rule.non_resource_urls or ()
        )
    forms = {"*", attributes.combined_resource}
    if attributes.subresource:
        forms.add("*/" + attributes.subresource)
    return (
        bool({"*", attributes.group} & set(rule.api_groups or ()))
        and bool(forms & set(rule.resources or ()))
        and (not rule.resource_names or attributes.name in rule.resource_names)
    )


@given(st.lists(RULES, max_size=4), REQUESTS)
def test_indexed_rules_decide_like_a_linear_scan(found: list[Rule], attributes: Attributes) -> None:
    assert RuleSet(found).allow(attributes) is plainly_allowed(found, attributes)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3), REQUESTS)
def test_covering_rules_allow_all_that_the_covered_ones_allow(
    owned: list[Rule], requested: list[Rule], attributes: Attributes
) -> None:
    if not rules.uncovered(owned, requested) and RuleSet(requested).allow(attributes):
        assert RuleSet(owned).allow(attributes)


@given(st.lists(RULES, max_size=4))
def test_rules_cover_themselves_and_wildcards_cover_all(found: list[Rule]) -> None:
    assert rules.uncovered(found, found) == []
    assert rules.uncovered(EVERYTHING, found) == []


@pytest.mark.parametrize(
    ("owned", "requested", "missing"),
    [
        (PODS, Rule(("get", "delete"), ("",), ("pods",)), "delete"),
        (ONE_SECRET, Rule(("get",), ("",), ("secrets",)), "get"),
        (ONE_SECRET, Rule(("get",), ("",), ("secrets",), ("a", "b")), "get"),
        (SCALES, Rule(("get",), ("apps",), ("things/scale",)), ""),
        (SCALES, Rule(("get",), ("apps",), ("*",)), "get"),
        (PATHS, Rule(("get",), non_resource_urls=("/api/v1", "/api/*")), ""),
        (PATHS, Rule(("get",), non_resource_urls=("*",)), "get"),
        (PODS, EVERYTHING[0], "*"),
    ],
)
def test_uncovered_verbs_are_found(owned: Rule, requested: Rule, missing: str) -> None:
    found = rules.uncovered([owned], [requested])

    assert [verb for rule in found for verb in rule.verbs or ()] == ([missing] if missing else [])


def test_missing_permissions_are_merged_by_verb() -> None:
    lacking = rules.uncovered([], [Rule(("get", "list"), ("",), ("pods", "nodes"))])

    descriptions = [rules.described(rule) for rule in rules.compacted(lacking)]

    assert descriptions == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}',
    ]
