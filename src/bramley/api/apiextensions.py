"""CustomResourceDefinition: registers a new kind with a server.

Schemas stay plain JSON values, because only the embedded server compiles them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from bramley.api.meta import Condition, Fields, Object, Resource


class Names(Fields, frozen=True, kw_only=True):
    """The names of a kind."""

    plural: str = ""
    kind: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class PrinterColumn(Fields, frozen=True, kw_only=True):
    """One column of `kubectl get`; a priority above 0 shows only with `-o wide`."""

    name: str
    type: str
    json_path: str = field(name="jsonPath")
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(Fields, frozen=True, kw_only=True):
    """The paths of the replica counts and of the selector for the scale subresource."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class Subresources(Fields, frozen=True, kw_only=True):
    """The subresources of a version."""

    status: dict[str, Any] | None = None
    scale: ScalePaths | None = None


class Validation(Fields, frozen=True, kw_only=True):
    """The schema of a version."""

    schema: dict[str, Any] | None = field(name="openAPIV3Schema", default=None)


class SelectableField(Fields, frozen=True, kw_only=True):
    """A field that field selectors may use."""

    json_path: str = field(name="jsonPath")


class Version(Fields, frozen=True, kw_only=True):
    """One version of a kind."""

    name: str
    served: bool
    storage: bool
    schema: Validation | None = None
    subresources: Subresources | None = None
    additional_printer_columns: list[PrinterColumn] = []
    selectable_fields: list[SelectableField] = []
    deprecated: bool = False
    deprecation_warning: str | None = None


class Conversion(Fields, frozen=True, kw_only=True):
    """How objects are converted between versions."""

    strategy: str


class DefinitionSpec(Fields, frozen=True, kw_only=True):
    """Group, names, scope and versions of the kind."""

    group: str
    names: Names
    scope: str
    versions: list[Version] | None
    conversion: Conversion | None = None
    preserve_unknown_fields: bool = False


class DefinitionStatus(Fields, frozen=True, kw_only=True):
    """Whether the server accepted the names and serves the kind."""

    conditions: list[Condition] | None = None
    accepted_names: Names = Names()
    stored_versions: list[str] | None = None


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """Registers a new kind with the server."""

    resource: ClassVar[Resource] = Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    )

    spec: DefinitionSpec
    status: DefinitionStatus = DefinitionStatus()
