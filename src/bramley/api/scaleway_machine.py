"""ScalewayAppleSiliconMachine: one Mac at Scaleway, from the pool to a Node and back (Cluster API v1beta1 contract).

No field of the spec may become required: Cluster API clones specs from templates of any age.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from msgspec import Meta, field

from bramley.api.grammar import (
    ObjectName,
    OptionalLabelValue,
    Organisation,
    OSName,
    ProviderID,
    RunnerGroup,
    RunnerLabelList,
    RunnerVersion,
    ServerNamePrefix,
    ServerType,
    Zone,
)
from bramley.api.host_settings import HostSettings
from bramley.api.mac_status import MacStatus
from bramley.api.meta import Count, Fields, Object, Resource
from bramley.api.names import groups, machines
from bramley.api.schema import ValidationRule, validations

# A swap of the host clears the id first; both steps pass, a change in place does not.
PROVIDER_ID_IS_FIXED = ValidationRule(
    "self == oldSelf", "providerID cannot change once set; it can only be cleared"
)


class GHActionsRunner(Fields, frozen=True, kw_only=True):
    """The GitHub Actions runner of a builder, beside the agent."""

    gh_runner_version: Annotated[
        RunnerVersion,
        Meta(description="The runner release to install first; it updates itself afterwards."),
    ]
    gh_org: Annotated[
        Organisation, Meta(description="The GitHub organisation to register with.")
    ] = machines.DEFAULT_GITHUB_ORGANISATION
    gh_runner_labels: Annotated[
        RunnerLabelList,
        Meta(description="Labels of the runner, parted by commas; they must cover runs-on."),
    ] = machines.DEFAULT_RUNNER_LABELS
    gh_app_secret_name: Annotated[
        ObjectName,
        Meta(description="The Secret with the GitHub App's credentials, in this namespace."),
    ] = ""
    gh_runner_group: Annotated[
        RunnerGroup, Meta(description="The group of the runner; absent is the default group.")
    ] = ""


class ScalewayAppleSiliconMachineSpec(HostSettings, frozen=True, kw_only=True):
    """The desired state of a Mac."""

    provider_id: Annotated[
        ProviderID | None,
        Meta(
            description="The server behind this machine; the controller sets it on adoption.",
            extra_json_schema=validations(PROVIDER_ID_IS_FIXED),
        ),
    ] = field(name="providerID", default=None)
    type: Annotated[ServerType, Meta(description="The kind of Mac, as Scaleway calls it.")] = (
        machines.DEFAULT_TYPE
    )
    zone: Annotated[Zone, Meta(description="Where the Mac stands.")] = machines.DEFAULT_ZONE
    os: Annotated[
        OSName,
        Meta(description="The macOS release; only its family counts, so Tahoe says the same."),
    ] = machines.DEFAULT_OS
    fleet_name: Annotated[
        OptionalLabelValue,
        Meta(description="The fleet; its machines share an SSH key and a Node label."),
    ] = ""
    host_cpu: Annotated[
        Count | None,
        Meta(description="CPUs that the Node offers; absent or 0 takes the operator's."),
    ] = field(name="hostCPU", default=None)
    host_memory_mb: Annotated[
        Count | None,
        Meta(description="MiB that the Node offers; absent or 0 takes the operator's."),
    ] = field(name="hostMemoryMB", default=None)
    adopt_pool_prefix: Annotated[
        ServerNamePrefix,
        Meta(description="How free servers are named; absent takes the operator's."),
    ] = ""
    gh_actions_runner: GHActionsRunner | None = None
    kubelet_version: Annotated[
        str, Meta(description="Kept so that older manifests stay valid; nothing reads it.")
    ] = ""


class MachineAddress(Fields, frozen=True, kw_only=True):
    """One address of a machine."""

    type: Annotated[str, Meta(description="What kind of address, such as ExternalIP.")]
    address: Annotated[str, Meta(description="The address.")]


class ScalewayAppleSiliconMachineStatus(MacStatus, frozen=True, kw_only=True):
    """The observed state of a Mac, and of the server that was adopted for it."""

    server_id: Annotated[str, Meta(description="Scaleway's id of the adopted server.")] = field(
        name="serverID", default=""
    )
    addresses: Annotated[list[MachineAddress], Meta(description="How the machine is reached.")] = []


class ScalewayAppleSiliconMachine(Object, frozen=True, kw_only=True):
    """One Mac at Scaleway that serves as a Node."""

    resource: ClassVar[Resource] = Resource(
        groups.INFRASTRUCTURE,
        groups.VERSION,
        "ScalewayAppleSiliconMachine",
        "scalewayapplesiliconmachines",
        namespaced=True,
    )

    spec: Annotated[
        ScalewayAppleSiliconMachineSpec, Meta(description="The desired state of the Mac.")
    ] = ScalewayAppleSiliconMachineSpec()
    status: Annotated[
        ScalewayAppleSiliconMachineStatus, Meta(description="What was observed of the Mac.")
    ] = ScalewayAppleSiliconMachineStatus()


def os_family(release: str) -> str:
    """Return the family of a macOS release: `macos-tahoe-26.3`, `Tahoe` and `tahoe` are one."""
    name = release.lower().removeprefix("macos-")
    family = re.split(r"-(?=[0-9])", name, maxsplit=1)[0]
    return re.sub(r"[ _-]", "", family)
