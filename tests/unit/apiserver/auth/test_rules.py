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


def wish(verb: str, resource: str = "", group: str = "", **more: str) -> Attributes:
    resource, _, subresource = resource.partition("/")
    return Attributes(BOB, verb, group, resource=resource, subresource=subresource, **more)


@pytest.mark.parametrize(
    ("rule", "asked", "allowed"),
    [
        (PODS, wish("get", "pods"), True),
        (PODS, wish("get", "pods", name="a"), True),
        (PODS, wish("delete", "pods"), False),
        (PODS, wish("get", "pods", "other"), False),
        (PODS, wish("get", "secrets"), False),
        (PODS, wish("get", "pods/log"), False),
        (PODS, wish("get", path="/pods"), False),
        (ONE_SECRET, wish("get", "secrets", name="a"), True),
        (ONE_SECRET, wish("get", "secrets", name="b"), False),
        (ONE_SECRET, wish("get", "secrets"), False),
        (LOGS, wish("get", "pods/log"), True),
        (LOGS, wish("get", "pods"), False),
        (LOGS, wish("get", "pods/exec"), False),
        (SCALES, wish("patch", "things/scale", "example.com"), True),
        (SCALES, wish("patch", "things", "example.com"), False),
        (SCALES, wish("patch", "things/scales", "example.com"), False),
        (ALL_OF_APPS, wish("delete", "deployments/status", "apps"), True),
        (ALL_OF_APPS, wish("delete", "pods"), False),
        (PATHS, wish("get", path="/api"), True),
        (PATHS, wish("get", path="/api/v1"), True),
        (PATHS, wish("get", path="/apis"), False),
        (PATHS, wish("get", path="/healthz/x"), False),
        (PATHS, wish("post", path="/api"), False),
        (EVERYTHING[0], wish("x", "y/z", "w", name="v"), True),
        (EVERYTHING[0], wish("get", path="/api"), False),
        (EVERYTHING[1], wish("get", path="/api"), True),
    ],
)
def test_a_rule_allows_what_it_says(rule: Rule, asked: Attributes, allowed: bool) -> None:
    assert RuleSet([rule]).allow(asked) is allowed


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
WISHES = st.one_of(
    st.builds(
        lambda verb, group, resource, name: wish(verb, resource, group, name=name),
        st.sampled_from(["get", "list", "delete", "patch"]),
        st.sampled_from(["", "apps"]),
        st.sampled_from(["pods", "pods/log", "things", "things/scale"]),
        st.sampled_from(["", "a", "b"]),
    ),
    st.builds(
        lambda verb, path: wish(verb, path=path),
        st.sampled_from(["get", "post"]),
        st.sampled_from(["/api", "/api/v1", "/healthz", "/other"]),
    ),
)


def plainly_allowed(found: Sequence[Rule], asked: Attributes) -> bool:
    """Read the rules one by one, as the documentation words them."""
    return any(_plainly(rule, asked) for rule in found)


def _plainly(rule: Rule, asked: Attributes) -> bool:
    if not {"*", asked.verb} & set(rule.verbs or ()):
        return False
    if asked.path:
        return any(
            url == asked.path or (url[-1] == "*" and asked.path.startswith(url[:-1]))
            for url in rule.non_resource_urls or ()
        )
    forms = {"*", asked.whole_resource}
    if asked.subresource:
        forms.add("*/" + asked.subresource)
    return (
        bool({"*", asked.group} & set(rule.api_groups or ()))
        and bool(forms & set(rule.resources or ()))
        and (not rule.resource_names or asked.name in rule.resource_names)
    )


@given(st.lists(RULES, max_size=4), WISHES)
def test_an_indexed_set_decides_like_a_plain_reading(found: list[Rule], asked: Attributes) -> None:
    assert RuleSet(found).allow(asked) is plainly_allowed(found, asked)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3), WISHES)
def test_who_holds_all_rights_of_rules_is_allowed_all_that_they_allow(
    owned: list[Rule], wanted: list[Rule], asked: Attributes
) -> None:
    if not rules.uncovered(owned, wanted) and RuleSet(wanted).allow(asked):
        assert RuleSet(owned).allow(asked)


@given(st.lists(RULES, max_size=4))
def test_rules_hold_their_own_rights_and_everything_holds_all(found: list[Rule]) -> None:
    assert rules.uncovered(found, found) == []
    assert rules.uncovered(EVERYTHING, found) == []


@pytest.mark.parametrize(
    ("owned", "wanted", "missing"),
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
def test_rights_that_are_missing_are_found_one_by_one(
    owned: Rule, wanted: Rule, missing: str
) -> None:
    found = rules.uncovered([owned], [wanted])

    assert [verb for rule in found for verb in rule.verbs or ()] == ([missing] if missing else [])


def test_missing_rights_are_told_in_few_words() -> None:
    lacking = rules.uncovered([], [Rule(("get", "list"), ("",), ("pods", "nodes"))])

    told = [rules.described(rule) for rule in rules.compacted(lacking)]

    assert told == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}',
    ]
