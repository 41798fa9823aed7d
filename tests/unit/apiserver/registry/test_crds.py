from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from bramley.api import crds as our_kinds
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.registry import crds

Json = dict[str, Any]


class At:
    """A clock that stands still."""

    def __init__(self, hour: int) -> None:
        self._when = datetime(2026, 1, 1, hour, tzinfo=UTC)

    def now(self) -> datetime:
        return self._when

    def monotonic(self) -> float:
        return 0.0


def a_crd(plural: str = "apples", kind: str = "Apple", **spec: Any) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    full = {
        "group": "orchard.example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind},
        "versions": [version],
        **spec,
    }
    return {"metadata": {"name": f"{plural}.orchard.example.com"}, "spec": full}


def admitted(crd: Json, old: Json | None = None, *, others: list[Json] | None = None) -> Json:
    crd = copy.deepcopy(crd)
    crds.admit(crd, old, others=others or [], clock=At(1))
    return crd


def refusal(crd: Json, old: Json | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        admitted(crd, old)
    return caught.value


def conditions(crd: Json) -> dict[str, tuple[str, str]]:
    found = crd["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def test_definition_is_completed_and_established_with_its_creation() -> None:
    crd = admitted(a_crd())

    names = {"plural": "apples", "singular": "apple", "kind": "Apple", "listKind": "AppleList"}
    assert names == crd["spec"]["names"] == crd["status"]["acceptedNames"]
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert conditions(crd) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }


def test_unknown_fields_of_a_definition_are_dropped() -> None:
    crd = a_crd(color="red")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-mine"] = True

    done = admitted(crd)

    assert "color" not in done["spec"]
    assert "x-mine" not in done["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_nulls_mean_absent_except_in_defaults_and_enumerations() -> None:
    crd = a_crd(preserveUnknownFields=None)
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields["spec"]["properties"] = {
        "a": {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
    }
    fields["spec"]["properties"]["a"]["default"] = {"b": None}

    done = admitted(crd)

    schema = done["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"]["a"]["default"] == {"b": None}
    assert "preserveUnknownFields" not in done["spec"]


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"names": {"plural": "pears", "kind": "Apple"}}, "metadata.name"),
        ({"names": {"plural": "apples", "kind": ""}}, "spec.names.kind"),
        ({"names": {"plural": "apples", "kind": "An Apple"}}, "spec.names.kind"),
        (
            {"names": {"plural": "apples", "kind": "Apple", "listKind": "Apple"}},
            "spec.names.listKind",
        ),
        (
            {"names": {"plural": "apples", "kind": "Apple", "shortNames": ["A"]}},
            "spec.names.shortNames[0]",
        ),
        ({"group": "orchard"}, "spec.group"),
        ({"group": ""}, "spec.group"),
        ({"scope": "Global"}, "spec.scope"),
        ({"scope": ""}, "spec.scope"),
        ({"versions": []}, "spec.versions"),
        ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.strategy"),
        ({"preserveUnknownFields": True}, "spec.preserveUnknownFields"),
    ],
)
def test_invalid_spec_is_refused_with_the_field(broken: Json, field: str) -> None:
    refused = refusal(a_crd(**broken))

    assert refused.code == 422
    assert field in {cause.field for cause in refused.causes}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"name": "V 1"}, "spec.versions[0].name"),
        ({"schema": None}, "spec.versions[0].schema.openAPIV3Schema"),
        ({"storage": False}, "spec.versions"),
        ({"deprecationWarning": "old"}, "spec.versions[0].deprecationWarning"),
        (
            {
                "subresources": {
                    "scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}
                }
            },
            "spec.subresources.scale.specReplicasPath",
        ),
        (
            {"subresources": {"scale": {"specReplicasPath": ".spec.n"}}},
            "spec.subresources.scale.statusReplicasPath",
        ),
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".spec"}]},
            "spec.additionalPrinterColumns[0].type",
        ),
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "spec"}]},
            "spec.additionalPrinterColumns[0].JSONPath",
        ),
        ({"selectableFields": [{"jsonPath": ".spec.q"}]}, "spec.selectableFields[0].jsonPath"),
        ({"selectableFields": [{"jsonPath": ".spec"}]}, "spec.selectableFields[0].jsonPath"),
    ],
)
def test_invalid_version_is_refused_with_the_field(part: Json, field: str) -> None:
    crd = a_crd()
    crd["spec"]["versions"][0].update(part)

    assert field in {cause.field for cause in refusal(crd).causes}


@pytest.mark.parametrize(
    "spec", [[], "x", {"versions": "v1"}, {"versions": [{"schema": {"openAPIV3Schema": 3}}]}]
)
def test_spec_of_the_wrong_shape_is_a_bad_request(spec: Any) -> None:
    crd = {"metadata": {"name": "apples.orchard.example.com"}, "spec": spec}

    refused = refusal(crd)

    assert refused.code == 400
    assert "cannot be handled as a CustomResourceDefinition" in refused.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Cluster"}, "spec.scope"),
        ({"names": {"plural": "apples", "kind": "Pear"}}, "spec.names.kind"),
    ],
)
def test_fields_that_storage_depends_on_are_immutable(change: Json, field: str) -> None:
    old = admitted(a_crd())

    causes = {cause.field: cause.message for cause in refusal(a_crd(**change), old).causes}

    assert causes[field].endswith("field is immutable")


def test_former_storage_version_must_stay_until_it_is_migrated() -> None:
    old = admitted(a_crd())
    new = a_crd()
    new["spec"]["versions"][0]["name"] = "v2"

    causes = {cause.field: cause.message for cause in refusal(new, old).causes}

    assert "v1 was previously a storage version" in causes["status.storedVersions[0]"]


def test_new_storage_version_is_added_to_the_stored_ones() -> None:
    old = admitted(a_crd())
    new = a_crd()
    second = {**copy.deepcopy(new["spec"]["versions"][0]), "name": "v2"}
    new["spec"]["versions"][0]["storage"] = False
    new["spec"]["versions"].append(second)

    assert admitted(new, old)["status"]["storedVersions"] == ["v1", "v2"]


def test_condition_keeps_its_time_while_it_does_not_change() -> None:
    old = admitted(a_crd())
    new = a_crd()

    crds.admit(new, old, clock=At(9))

    times = {one["lastTransitionTime"] for one in new["status"]["conditions"]}
    assert times == {"2026-01-01T01:00:00Z"}


def test_names_that_another_definition_of_the_group_has_are_not_accepted() -> None:
    first = admitted(a_crd(names={"plural": "apples", "kind": "Apple", "shortNames": ["ap"]}))

    second = admitted(
        a_crd("apricots", "Apricot", names={"plural": "apricots", "kind": "Apple"}), others=[first]
    )
    third = admitted(
        a_crd(names={"plural": "apes", "kind": "Ape", "shortNames": ["ap"]}, plural="apes"),
        others=[first],
    )

    assert conditions(second)["NamesAccepted"] == ("False", "ListKindConflict")
    assert conditions(second)["Established"] == ("False", "NotAccepted")
    assert conditions(third)["NamesAccepted"] == ("False", "ShortNamesConflict")
    assert crds.served_resources(second) == []


def test_same_names_in_another_group_are_accepted() -> None:
    first = admitted(a_crd())
    second = a_crd(group="garden.example.com")
    second["metadata"]["name"] = "apples.garden.example.com"

    assert conditions(admitted(second, others=[first]))["Established"][0] == "True"


def test_served_resource_matches_its_definition() -> None:
    crd = a_crd(
        names={"plural": "apples", "kind": "Apple", "shortNames": ["ap"], "categories": ["fruit"]}
    )
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"]["properties"] = {"n": {"type": "integer"}, "node": {"type": "string"}}
    crd["spec"]["versions"][0] |= {
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
        },
        "selectableFields": [{"jsonPath": ".spec.node"}],
    }

    (served,) = crds.served_resources(admitted(crd))

    assert served.qualified == "apples.orchard.example.com"
    assert (served.short_names, served.categories) == (("ap",), ("fruit",))
    assert served.has_status
    assert served.scale is not None
    assert served.scale.spec_replicas == ".spec.n"
    assert served.selected_fields({"spec": {"node": "mac-1"}}) == {"spec.node": "mac-1"}
    assert served.structural is not None


def test_only_served_versions_are_served() -> None:
    crd = a_crd()
    second = {**copy.deepcopy(crd["spec"]["versions"][0]), "name": "v2", "storage": False}
    crd["spec"]["versions"] += [second, {**second, "name": "v3", "served": False}]

    served = crds.served_resources(admitted(crd))

    assert [(one.version, one.stored_version) for one in served] == [("v1", "v1"), ("v2", "v1")]


@pytest.mark.parametrize(
    "manifest", our_kinds.manifests(), ids=lambda m: str(m["metadata"]["name"])
)
def test_our_own_kinds_are_admitted_and_served(manifest: Json) -> None:
    assert crds.served_resources(admitted(manifest))


def test_rule_that_cannot_be_compiled_is_refused_when_the_definition_is_written() -> None:
    crd = a_crd()
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields["spec"]["x-kubernetes-validations"] = [{"rule": "quantity(self.q) > 1"}]

    (cause,) = refusal(crd).causes

    assert cause.field.endswith("x-kubernetes-validations[0].rule")
    assert "undeclared reference to 'quantity'" in cause.message


@pytest.mark.parametrize(("levels", "code"), [(60, 0), (100, 400), (5_000, 400)])
def test_schema_that_is_too_deep_to_be_compiled_is_refused(levels: int, code: int) -> None:
    inner: Json = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}}
    crd = a_crd()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = inner

    if code:
        with pytest.raises(ApiError, match="nested deeper"):
            crds.admit(crd, None)
    else:
        assert crds.served_resources(admitted(crd))
