"""CustomResourceDefinitions: defaults, validation, names and status, and the resources that they define.

The handlers call `admit` on every write, the catalog calls `served`. In a kube-apiserver controllers set the status later; here
it is set with the write, so a definition is established when its creation is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.registry.resources import CUSTOM, ScalePaths, SelectableField, ServedResource
from bramley.apiserver.schema.values import copied
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import Cause

if TYPE_CHECKING:
    from bramley.apiserver.tables.columns import Printer

Json = dict[str, Any]

GROUP = "apiextensions.k8s.io"
KIND = "CustomResourceDefinition"
_SYSTEM = SystemClock()
_NOT_ACCEPTED = ("False", "NotAccepted", "not all names are accepted")


class _Names(msgspec.Struct, rename="camel"):
    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: list[str] = []


class _Group(msgspec.Struct):
    group: str


class _Accepted(msgspec.Struct, rename="camel"):
    accepted_names: _Names | None = None


class Named(msgspec.Struct):
    """The part of a definition that other definitions are compared with."""

    spec: _Group
    status: _Accepted | None = None


def admit(
    new: Json, old: Json | None, *, others: Iterable[Json] = (), clock: Clock = _SYSTEM
) -> None:
    """Set the defaults and the status of a definition in place; raise a 422 with every validation error.

    `others` are the existing definitions; names that one of them has in the same group are not accepted.
    """
    # Imported here: the schema modules load slowly, and a server without definitions does not need them.
    from bramley.apiserver.schema.crd_spec import BadShape, decode_spec
    from bramley.apiserver.schema.crd_validation import spec_causes

    try:
        new["spec"] = decode_spec(new.get("spec"))
    except BadShape as error:
        message = f'{KIND} in version "v1" cannot be handled as a {KIND}: {error}'
        raise status.bad_request(message) from error
    _default_names(new["spec"])
    broken = [*_name_causes(new), *spec_causes(new["spec"])]
    before = (old or {}).get("status") or {}
    stored = _stored_versions(new["spec"], before)
    broken += _stored_causes(new["spec"], stored)
    broken += _changes(new["spec"], old["spec"]) if old else []
    if broken:
        name = new.get("metadata", {}).get("name") or ""
        raise status.invalid(status.Details(GROUP, KIND, name), broken)
    new["status"] = _status(new, before, stored, others=others, now=clock.now())


def is_established(crd: Mapping[str, Any]) -> bool:
    """Return whether the definition's kind is served."""
    return _condition(crd.get("status") or {}, "Established").get("status") == "True"


def served_resources(crd: Json) -> list[ServedResource]:
    """Return the resources of an established definition: one per served version."""
    if not is_established(crd):
        return []
    return [_resource(crd, version) for version in crd["spec"]["versions"] if version["served"]]


def disable(crd: Json, now: datetime) -> Json:
    """Return a stored definition of a kind that is built in by now, with a status that says that it is not served."""
    before = crd.get("status") or {}
    plural = crd["spec"]["names"]["plural"]
    naming = ("False", "PluralConflict", f"{causes.quoted(plural)} is built into this server")
    conditions = [
        _as_condition("NamesAccepted", naming, before, now),
        _as_condition("Established", _NOT_ACCEPTED, before, now),
    ]
    types = {each["type"] for each in conditions}
    others = [each for each in before.get("conditions") or () if each.get("type") not in types]
    return {**crd, "status": {**before, "conditions": [*conditions, *others]}}


def _default_names(spec: Json) -> None:
    names = spec["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    if names["kind"]:
        names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec.setdefault("conversion", {"strategy": "None"})


def _name_causes(crd: Json) -> list[Cause]:
    name = crd.get("metadata", {}).get("name") or ""
    spec = crd["spec"]
    if name == f"{spec['names']['plural']}.{spec['group']}":
        return []
    return [causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _stored_versions(spec: Json, before: Json) -> list[str]:
    stored = list(before.get("storedVersions") or ())
    storage = next((version["name"] for version in spec["versions"] if version["storage"]), None)
    return [*stored, storage] if storage and storage not in stored else stored


def _stored_causes(spec: Json, stored: list[str]) -> list[Cause]:
    field = "status.storedVersions"
    if not stored:
        return [causes.invalid(field, stored, "must have at least one stored version")]
    declared = {version["name"] for version in spec["versions"]}
    message = (
        "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage"
        " migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
    )
    return [
        causes.invalid(f"{field}[{index}]", name, message.format(name))
        for index, name in enumerate(stored)
        if name not in declared
    ]


def _changes(spec: Json, old: Json) -> list[Cause]:
    immutable = [
        ("spec.scope", spec["scope"], old["scope"]),
        ("spec.names.kind", spec["names"]["kind"], old["names"]["kind"]),
        ("spec.group", spec["group"], old["group"]),
        ("spec.names.plural", spec["names"]["plural"], old["names"]["plural"]),
    ]
    return [
        causes.invalid(field, value, "field is immutable")
        for field, value, former in immutable
        if value != former
    ]


def _status(
    crd: Json, before: Json, stored: list[str], *, others: Iterable[Json], now: datetime
) -> Json:
    requested = crd["spec"]["names"]
    accepted, conflict = _accept_names(crd, before.get("acceptedNames") or {}, others)
    if conflict is None:
        naming = ("True", "NoConflicts", "no conflicts found")
        serving = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    else:
        naming = ("False", *conflict)
        serving = _NOT_ACCEPTED
    former = _condition(before, "Established")
    if former.get("status") == "True":
        serving = (former["status"], former["reason"], former["message"])
    return {
        "conditions": [
            _as_condition("NamesAccepted", naming, before, now),
            _as_condition("Established", serving, before, now),
        ],
        "acceptedNames": copied(requested) if conflict is None else accepted,
        "storedVersions": stored,
    }


def _accept_names(
    crd: Json, names: Json, others: Iterable[Json]
) -> tuple[Json, tuple[str, str] | None]:
    """Return the names that are free, and the last conflict found, if there is one."""
    spec = crd["spec"]
    plurals, kinds = _used_names(crd, others)
    accepted = {"plural": "", "kind": "", **copied(names)}
    conflict: tuple[str, str] | None = None
    for word, reason, taken in (
        ("plural", "PluralConflict", plurals),
        ("singular", "SingularConflict", plurals),
        ("shortNames", "ShortNamesConflict", plurals),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        value = spec["names"].get(word)
        requested = value if isinstance(value, list) else [value]
        clashes = [name for name in requested if name in taken]
        if clashes:
            conflict = (reason, _in_use(clashes))
        elif value is not None:
            accepted[word] = copied(value)
    if "categories" in spec["names"]:
        accepted["categories"] = copied(spec["names"]["categories"])
    return accepted, conflict


def _in_use(clashes: list[str]) -> str:
    messages = [f"{causes.quoted(name)} is already in use" for name in clashes]
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def _used_names(crd: Json, others: Iterable[Json]) -> tuple[set[str], set[str]]:
    plurals: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        same = other["metadata"]["name"] == crd["metadata"]["name"]
        if same or other["spec"]["group"] != crd["spec"]["group"]:
            continue
        has = (other.get("status") or {}).get("acceptedNames") or {}
        plurals |= {has.get("plural") or "", has.get("singular") or "", *has.get("shortNames", ())}
        kinds |= {has.get("kind") or "", has.get("listKind") or ""}
    return plurals, kinds


def _condition(state: Mapping[str, Any], type: str) -> Json:
    existing = [each for each in state.get("conditions") or () if each.get("type") == type]
    return existing[0] if existing else {}


def _as_condition(type: str, state: tuple[str, str, str], before: Json, now: datetime) -> Json:
    former = _condition(before, type)
    unchanged = former.get("status") == state[0] and former.get("lastTransitionTime")
    return {
        "type": type,
        "status": state[0],
        "lastTransitionTime": unchanged or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": state[1],
        "message": state[2],
    }


def _resource(crd: Json, version: Json) -> ServedResource:
    from bramley.apiserver.schema import structural
    from bramley.apiserver.schema.crd_validation import schema_of

    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    storage = next(each["name"] for each in spec["versions"] if each["storage"])
    subresources = version.get("subresources") or {}
    schema = schema_of(version)
    return ServedResource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        list_kind=names.get("listKind") or "",
        singular=names.get("singular") or "",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        structural=None if schema is None else structural.compile(schema),
        selectable=tuple(_selectable(each) for each in version.get("selectableFields") or ()),
        stored_version=storage,
        printer=cache(partial(_printer, version)),
        schema=schema,
        strategy=replace(CUSTOM, warning=_deprecation(spec["group"], names["kind"], version)),
    )


def _deprecation(group: str, kind: str, version: Json) -> str:
    """Return the warning for users of a deprecated version."""
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def _printer(version: Json) -> Printer:
    # The columns' paths are compiled for the first table.
    from bramley.apiserver.tables import custom

    return custom.printer(version.get("additionalPrinterColumns"))


def _scale(paths: Json | None) -> ScalePaths | None:
    if paths is None:
        return None
    return ScalePaths(
        paths["specReplicasPath"], paths["statusReplicasPath"], paths.get("labelSelectorPath")
    )


def _selectable(field: Json) -> SelectableField:
    name = field["jsonPath"].removeprefix(".")
    return SelectableField(name, tuple(name.split(".")))
