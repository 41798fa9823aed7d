"""Scheduling and naming of Pods: affinities, tolerations, spread constraints, gates, host names and DNS."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds import label_selectors
from bramley.apiserver.kinds.nodes import EFFECTS
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("Equal", "Exists")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_WEIGHTS = range(1, 101)
_NO_WEIGHT = "must be in the range 1-100"
_NO_OPERATOR = "not a valid selector operator"
_POSITIVE = "must be greater than zero"
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_ANY_KEY = (
    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
)
_SECONDS = "effect must be 'NoExecute' when `tolerationSeconds` is set"
_ZEROES = re.compile(r"\b0+(?=\d)")


def check_affinity(affinity: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the affinity of a Pod."""
    node = affinity.get("nodeAffinity", {})
    if _REQUIRED in node:
        yield from _validate_terms(node[_REQUIRED], f"{field}.nodeAffinity.{_REQUIRED}")
    for index, each in enumerate(node.get(_PREFERRED, [])):
        at = f"{field}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _validate_weight(each, at)
        yield from _validate_term(each.get("preference", {}), f"{at}.preference", are_labels=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _validate_pod_affinity(affinity.get(kind, {}), f"{field}.{kind}")


def check_tolerations(tolerations: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the tolerations of a Pod."""
    for index, each in enumerate(tolerations):
        at, key, effect = f"{field}[{index}]", each.get("key", ""), each.get("effect", "")
        operator = each.get("operator", "")
        yield from _validate_qualified(key, f"{at}.key") if key else ()
        if not key and operator != "Exists":
            yield causes.invalid(f"{at}.operator", operator, _ANY_KEY)
        if "tolerationSeconds" in each and effect != "NoExecute":
            yield causes.invalid(f"{at}.effect", effect, _SECONDS)
        yield from _validate_value(operator, each.get("value", ""), f"{at}.operator")
        if effect:
            yield from causes.not_one_of(f"{at}.effect", effect, EFFECTS)


def check_gates(spec: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the readiness and scheduling gates of a Pod."""
    for index, each in enumerate(spec.get("readinessGates", [])):
        at = f"{field}.readinessGates[{index}].conditionType"
        yield from _validate_qualified(each.get("conditionType", ""), at)
    seen: set[str] = set()
    for index, each in enumerate(spec.get("schedulingGates", [])):
        at, name = f"{field}.schedulingGates[{index}]", each.get("name", "")
        yield from _validate_qualified(name, at)
        if name in seen:
            yield causes.duplicate(at, name)
        seen.add(name)


def check_spread_constraints(constraints: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the topology spread constraints of a Pod."""
    kinds = [
        (each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")) for each in constraints
    ]
    for index, each in enumerate(constraints):
        at, (key, otherwise) = f"{field}[{index}]", kinds[index]
        if each.get("maxSkew", 0) <= 0:
            yield causes.invalid(f"{at}.maxSkew", each.get("maxSkew", 0), _POSITIVE)
        if not key:
            yield causes.required(f"{at}.topologyKey", "can not be empty")
        yield from causes.not_one_of(f"{at}.whenUnsatisfiable", otherwise, _SPREAD_ACTIONS)
        if kinds[index] in kinds[index + 1 :]:
            twice = f"{{{key}, {otherwise}}}"
            yield causes.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", twice)
        yield from _validate_domains(each, at)
        yield from label_selectors.check(each.get("labelSelector", {}), f"{at}.labelSelector")


def check_host_names(spec: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the host name and subdomain of a Pod."""
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from causes.invalid_each(f"{field}.{name}", spec[name], names.label(spec[name]))


def check_host_aliases(aliases: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the host aliases of a Pod."""
    for index, each in enumerate(aliases):
        yield from _validate_address(each.get("ip", ""), f"{field}[{index}].ip")
        for number, name in enumerate(each.get("hostnames", [])):
            at = f"{field}[{index}].hostnames[{number}]"
            yield from causes.invalid_each(at, name, names.subdomain(name))


def check_dns(spec: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the DNS policy and configuration of a Pod."""
    config = spec.get("dnsConfig")
    if spec["dnsPolicy"] == "None":
        if config is None:
            yield causes.required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield causes.required(f"{field}.nameservers", detail)
            return
    for index, each in enumerate((config or {}).get("nameservers", [])):
        yield from _validate_address(each, f"{field}.nameservers[{index}]")
    for index, each in enumerate((config or {}).get("options", [])):
        if not each.get("name"):
            yield causes.required(f"{field}.options[{index}]", "must not be empty")


def _validate_terms(selector: Json, field: str) -> Iterator[Cause]:
    terms = selector.get("nodeSelectorTerms", [])
    if not terms:
        detail = "must have at least one node selector term"
        yield causes.required(f"{field}.nodeSelectorTerms", detail)
    for index, each in enumerate(terms):
        yield from _validate_term(each, f"{field}.nodeSelectorTerms[{index}]", are_labels=True)


def _validate_term(term: Json, field: str, *, are_labels: bool) -> Iterator[Cause]:
    for index, each in enumerate(term.get("matchExpressions", [])):
        yield from _validate_expression(
            each, f"{field}.matchExpressions[{index}]", are_labels=are_labels
        )
    for index, each in enumerate(term.get("matchFields", [])):
        yield from _validate_field(each, f"{field}.matchFields[{index}]")


def _validate_expression(expression: Json, field: str, *, are_labels: bool) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values", [])
    if operator not in {"Gt", "Lt"}:
        yield from label_selectors.check_operator(operator, values, field)
    elif len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield causes.required(f"{field}.values", detail)
    yield from _validate_qualified(expression.get("key", ""), f"{field}.key")
    for index, value in enumerate(values if are_labels else ()):
        yield from causes.invalid_each(f"{field}.values[{index}]", value, names.label_value(value))


def _validate_field(expression: Json, field: str) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values", [])
    if operator not in {"In", "NotIn"}:
        yield causes.invalid(f"{field}.operator", operator, _NO_OPERATOR)
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield causes.required(f"{field}.values", detail)
    key = expression.get("key", "")
    if key != "metadata.name":
        yield causes.invalid(f"{field}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from causes.invalid_each(f"{field}.values[{index}]", value, names.subdomain(value))


def _validate_pod_affinity(affinity: Json, field: str) -> Iterator[Cause]:
    for index, each in enumerate(affinity.get(_REQUIRED, [])):
        yield from _validate_affinity_term(each, f"{field}.{_REQUIRED}[{index}]")
    for index, each in enumerate(affinity.get(_PREFERRED, [])):
        at = f"{field}.{_PREFERRED}[{index}]"
        yield from _validate_weight(each, at)
        yield from _validate_affinity_term(each.get("podAffinityTerm", {}), f"{at}.podAffinityTerm")


def _validate_affinity_term(term: Json, field: str) -> Iterator[Cause]:
    for name in ("labelSelector", "namespaceSelector"):
        yield from label_selectors.check(term.get(name, {}), f"{field}.{name}")
    for each in term.get("namespaces", []):
        yield from causes.invalid_each(f"{field}.namespace", each, names.label(each))
    key = term.get("topologyKey", "")
    if not key:
        yield causes.required(f"{field}.topologyKey", "can not be empty")
    yield from _validate_qualified(key, f"{field}.topologyKey")


def _validate_weight(holder: Json, field: str) -> Iterator[Cause]:
    if holder.get("weight", 0) not in _WEIGHTS:
        yield causes.invalid(f"{field}.weight", holder.get("weight", 0), _NO_WEIGHT)


def _validate_qualified(text: str, field: str) -> Iterator[Cause]:
    yield from causes.invalid_each(field, text, names.qualified_name(text))


def _validate_value(operator: str, value: str, field: str) -> Iterator[Cause]:
    if operator == "Exists":
        if value:
            detail = "value must be empty when `operator` is 'Exists'"
            yield causes.invalid(field, value, detail)
    elif operator in {"", "Equal"}:
        if wrong := names.label_value(value):
            yield causes.invalid(field, value, ";".join(wrong))
    else:
        yield causes.unsupported(field, operator, _OPERATORS)


def _validate_domains(constraint: Json, field: str) -> Iterator[Cause]:
    least = constraint.get("minDomains")
    if least is None:
        return
    if least <= 0:
        yield causes.invalid(f"{field}.minDomains", least, _POSITIVE)
    if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {constraint.get('whenUnsatisfiable', '')}"
        yield causes.invalid(f"{field}.minDomains", least, detail)


def _validate_address(text: str, field: str) -> Iterator[Cause]:
    try:
        ipaddress.ip_address(_ZEROES.sub("", text) if ":" not in text else text)
    except ValueError:
        yield causes.invalid(field, text, _NO_ADDRESS)
