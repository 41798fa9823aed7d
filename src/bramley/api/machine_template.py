"""ScalewayAppleSiliconMachineTemplate: what Cluster API clones machines from."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from bramley.api.meta import Fields, Object, Resource
from bramley.api.names import groups
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec
from bramley.api.schema import ValidationRule

NAMES_NO_SERVER = ValidationRule(
    "!has(self.spec.providerID)",
    "a template cannot carry the providerID of one server",
    field=".spec.providerID",
)


class MachineTemplate(Fields, frozen=True, kw_only=True):
    """The machine to clone."""

    checks: ClassVar[tuple[ValidationRule, ...]] = (NAMES_NO_SERVER,)

    spec: Annotated[ScalewayAppleSiliconMachineSpec, Meta(description="The spec of each clone.")]


class ScalewayAppleSiliconMachineTemplateSpec(Fields, frozen=True, kw_only=True):
    """The template of the clones."""

    template: MachineTemplate


class ScalewayAppleSiliconMachineTemplate(Object, frozen=True, kw_only=True):
    """The template for the machines of one fleet."""

    resource: ClassVar[Resource] = Resource(
        groups.INFRASTRUCTURE,
        groups.VERSION,
        "ScalewayAppleSiliconMachineTemplate",
        "scalewayapplesiliconmachinetemplates",
        namespaced=True,
    )

    spec: ScalewayAppleSiliconMachineTemplateSpec
