"""The CustomResourceDefinitions of our kinds, generated from their types; `bramley crds` prints them.

A test compares the committed `crds/*.yaml` with the generated ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from bramley.api import schema
from bramley.api.apiextensions import (
    CustomResourceDefinition,
    DefinitionSpec,
    Names,
    PrinterColumn,
    ScalePaths,
    Subresources,
    Validation,
    Version,
)
from bramley.api.mac_host import MacHost
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object, ObjectMeta, to_wire
from bramley.api.names import conditions, groups, labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.tuist_cluster import TuistCluster

AGE = PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class CustomKind:
    """The parts of a CustomResourceDefinition other than the schema."""

    kind: type[Object]
    short_name: str
    category: str
    columns: tuple[PrinterColumn, ...]
    labels: dict[str, str] = field(default_factory=dict)
    scale: ScalePaths | None = None

    @property
    def name(self) -> str:
        """Return the name of the definition."""
        return f"{self.kind.resource.plural}.{self.kind.resource.group}"


def column(name: str, type: str, path: str, *, priority: int = 0) -> PrinterColumn:
    """Describe one column of `kubectl get`."""
    return PrinterColumn(name=name, type=type, json_path=path, priority=priority)


def _of_condition(type: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type}")].{field}'


# Of machines and of MacHosts: why one is not ready; with `-o wide`, which conditions are not true.
WHY = column("Reason", "string", _of_condition(conditions.READY, "reason"))
MAC_DETAILS = tuple(
    column(type, "string", _of_condition(type, "reason"), priority=1)
    for type in (conditions.BOOTSTRAPPED, conditions.PROVEN, conditions.UP_TO_DATE)
)

# By this label Cluster API finds the version of a kind that implements its v1beta1 contract.
CONTRACT = {labels.CAPI_CONTRACT: groups.VERSION}

KINDS = (
    CustomKind(
        RunnerPool,
        short_name="rpool",
        category=groups.RUNNERS_CATEGORY,
        columns=(
            column("Desired", "integer", ".spec.replicas"),
            column("Ready", "integer", ".status.readyReplicas"),
            column("Busy", "integer", ".status.busyReplicas"),
            column("Stale", "integer", ".status.staleReplicas"),
            column("Image", "string", ".status.targetImage"),
            column("Roll", "string", ".status.rollPhase"),
            AGE,
            column("Observed", "integer", ".status.observedReplicas", priority=1),
            column("DispatchLabel", "string", ".spec.dispatchLabel", priority=1),
            column("Fleet", "string", ".spec.fleetSelector", priority=1),
        ),
        scale=ScalePaths(
            spec_replicas_path=".spec.replicas",
            status_replicas_path=".status.observedReplicas",
            label_selector_path=".status.selector",
        ),
    ),
    CustomKind(
        ScalewayAppleSiliconMachine,
        short_name="samm",
        category=groups.INFRASTRUCTURE_CATEGORY,
        columns=(
            column("Phase", "string", ".status.phase"),
            column("ProviderID", "string", ".spec.providerID"),
            column("Ready", "boolean", ".status.ready"),
            column("Step", "string", ".status.step"),
            WHY,
            AGE,
            column("Fleet", "string", ".spec.fleetName", priority=1),
            *MAC_DETAILS,
        ),
        labels=CONTRACT,
    ),
    CustomKind(
        MacHost,
        short_name="mh",
        category=groups.RUNNERS_CATEGORY,
        columns=(
            column("Phase", "string", ".status.phase"),
            column("Address", "string", ".spec.address"),
            column("Ready", "string", _of_condition(conditions.READY, "status")),
            column("Step", "string", ".status.step"),
            WHY,
            AGE,
            column("Fleet", "string", ".spec.fleetName", priority=1),
            *MAC_DETAILS,
        ),
    ),
    CustomKind(
        ScalewayAppleSiliconMachineTemplate,
        short_name="sammt",
        category=groups.INFRASTRUCTURE_CATEGORY,
        columns=(AGE,),
        labels=CONTRACT,
    ),
    CustomKind(
        TuistCluster,
        short_name="tcl",
        category=groups.INFRASTRUCTURE_CATEGORY,
        columns=(
            column("Endpoint", "string", ".spec.controlPlaneEndpoint.host"),
            column("Ready", "boolean", ".status.ready"),
            AGE,
        ),
        labels=CONTRACT,
    ),
)


def manifests() -> list[dict[str, Any]]:
    """Return the definitions of all our kinds, ready to be created."""
    return [to_wire(definition(custom)) for custom in KINDS]


def as_yaml(chosen: Iterable[dict[str, Any]]) -> str:
    """Return these manifests as one YAML stream."""
    return "---\n".join(map(to_yaml, chosen))


def to_yaml(manifest: dict[str, Any]) -> str:
    """Return one manifest as YAML, with its keys in the order given."""
    return yaml.safe_dump(manifest, sort_keys=False, width=100, allow_unicode=True)


def definition(custom: CustomKind) -> CustomResourceDefinition:
    """Return the definition of one kind."""
    resource = custom.kind.resource
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=custom.name, labels=custom.labels),
        spec=DefinitionSpec(
            group=resource.group,
            names=Names(
                plural=resource.plural,
                singular=resource.kind.lower(),
                kind=resource.kind,
                list_kind=f"{resource.kind}List",
                short_names=[custom.short_name],
                categories=[custom.category],
            ),
            scope="Namespaced" if resource.namespaced else "Cluster",
            versions=[version(custom)],
        ),
    )


def version(custom: CustomKind) -> Version:
    """Return the one version of a kind: served, stored, with the subresources that its type has."""
    has_status = "status" in custom.kind.__struct_fields__
    return Version(
        name=custom.kind.resource.version,
        served=True,
        storage=True,
        additional_printer_columns=list(custom.columns),
        schema=Validation(schema=schema.of_kind(custom.kind)),
        subresources=Subresources(status={}, scale=custom.scale) if has_status else None,
    )
