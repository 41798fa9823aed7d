"""The types of a CustomResourceDefinition's spec: unknown fields are dropped, wrong types are rejected.

Fields without a value stay absent, so that the stored spec is what the client wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Json = dict[str, Any]
_FREE = frozenset({"default", "example", "enum"})  # nulls inside these mean null


# Each field of a schema adds two levels. Compiling recurses, so deeper specs are rejected when they are written.
DEEPEST = 150


class BadShape(ValueError):
    """A field of the spec has the wrong type."""


class _Part(msgspec.Struct, rename="camel"):
    """Base of all parts of the spec."""


class Rule(_Part, rename="camel"):
    """One entry of x-kubernetes-validations."""

    rule: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    message_expression: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    field_path: str | UnsetType = UNSET
    optional_old_self: bool | UnsetType = UNSET


class ExternalDocs(_Part):
    """A link to documentation."""

    description: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class Schema(_Part, rename="camel"):
    """JSONSchemaProps of apiextensions v1."""

    id: str | UnsetType = UNSET
    schema: str | UnsetType = msgspec.field(default=UNSET, name="$schema")
    ref: str | UnsetType = msgspec.field(default=UNSET, name="$ref")
    description: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    format: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    default: Any = UNSET
    maximum: float | int | UnsetType = UNSET
    exclusive_maximum: bool | UnsetType = UNSET
    minimum: float | int | UnsetType = UNSET
    exclusive_minimum: bool | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    max_items: int | UnsetType = UNSET
    min_items: int | UnsetType = UNSET
    unique_items: bool | UnsetType = UNSET
    multiple_of: float | int | UnsetType = UNSET
    enum: list[Any] | UnsetType = UNSET
    max_properties: int | UnsetType = UNSET
    min_properties: int | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    items: Schema | list[Schema] | UnsetType = UNSET
    all_of: list[Schema] | UnsetType = UNSET
    one_of: list[Schema] | UnsetType = UNSET
    any_of: list[Schema] | UnsetType = UNSET
    not_: Schema | UnsetType = msgspec.field(default=UNSET, name="not")
    properties: dict[str, Schema] | UnsetType = UNSET
    additional_properties: Schema | bool | UnsetType = UNSET
    pattern_properties: dict[str, Schema] | UnsetType = UNSET
    dependencies: dict[str, Schema | list[str]] | UnsetType = UNSET
    additional_items: Schema | bool | UnsetType = UNSET
    definitions: dict[str, Schema] | UnsetType = UNSET
    external_docs: ExternalDocs | UnsetType = UNSET
    example: Any = UNSET
    nullable: bool | UnsetType = UNSET
    preserve_unknown: bool | UnsetType = msgspec.field(
        default=UNSET, name="x-kubernetes-preserve-unknown-fields"
    )
    embedded: bool | UnsetType = msgspec.field(default=UNSET, name="x-kubernetes-embedded-resource")
    int_or_string: bool | UnsetType = msgspec.field(
        default=UNSET, name="x-kubernetes-int-or-string"
    )
    list_map_keys: list[str] | UnsetType = msgspec.field(
        default=UNSET, name="x-kubernetes-list-map-keys"
    )
    list_type: str | UnsetType = msgspec.field(default=UNSET, name="x-kubernetes-list-type")
    map_type: str | UnsetType = msgspec.field(default=UNSET, name="x-kubernetes-map-type")
    validations: list[Rule] | UnsetType = msgspec.field(
        default=UNSET, name="x-kubernetes-validations"
    )


class VersionSchema(_Part, rename={"open_api_schema": "openAPIV3Schema"}):
    """The schema of a version."""

    open_api_schema: Schema | UnsetType = UNSET


class Scale(_Part, rename="camel"):
    """The paths of the scale subresource."""

    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | UnsetType = UNSET


class Subresources(_Part):
    """The subresources of a version."""

    status: dict[str, Any] | UnsetType = UNSET
    scale: Scale | UnsetType = UNSET


class Column(_Part, rename="camel"):
    """One printer column."""

    name: str = ""
    type: str = ""
    format: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    json_path: str = ""


class SelectableField(_Part, rename="camel"):
    """One field for field selectors."""

    json_path: str = ""


class Version(_Part, rename="camel"):
    """One version of the kind."""

    name: str = ""
    served: bool = False
    storage: bool = False
    deprecated: bool | UnsetType = UNSET
    deprecation_warning: str | UnsetType = UNSET
    schema: VersionSchema | UnsetType = UNSET
    subresources: Subresources | UnsetType = UNSET
    additional_printer_columns: list[Column] | UnsetType = UNSET
    selectable_fields: list[SelectableField] | UnsetType = UNSET


class Names(_Part, rename="camel"):
    """The names of the kind."""

    plural: str = ""
    singular: str | UnsetType = UNSET
    short_names: list[str] | UnsetType = UNSET
    kind: str = ""
    list_kind: str | UnsetType = UNSET
    categories: list[str] | UnsetType = UNSET


class Conversion(_Part):
    """The conversion between versions."""

    strategy: str = ""
    webhook: dict[str, Any] | UnsetType = UNSET


class Spec(_Part, rename="camel"):
    """The whole spec."""

    group: str = ""
    names: Names = msgspec.field(default_factory=Names)
    scope: str = ""
    versions: list[Version] = []
    conversion: Conversion | UnsetType = UNSET
    preserve_unknown_fields: bool | UnsetType = UNSET


def decode_spec(spec: Any) -> Json:
    """Return the spec with all types checked and unknown fields dropped; raise BadShape."""
    if _is_deeper_than(DEEPEST, spec):
        raise BadShape(f"it is nested deeper than {DEEPEST} levels")
    try:
        converted = msgspec.convert(_without_nulls(spec if spec is not None else {}), Spec)
    except msgspec.ValidationError as error:
        raise BadShape(str(error)) from error
    plain: Json = msgspec.to_builtins(converted)
    return plain


def _is_deeper_than(levels: int, value: Any) -> bool:
    layer = [value] if isinstance(value, Mapping | list) else []
    for _ in range(levels):
        inner = (one.values() if isinstance(one, Mapping) else one for one in layer)
        layer = [item for items in inner for item in items if isinstance(item, Mapping | list)]
        if not layer:
            return False
    return True


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: item if key in _FREE else _without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
