"""The observed state of a Mac; the common part of the status of machines and of MacHosts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from bramley.api.meta import Condition, Count, Fields, Int64, Time
from bramley.api.schema import list_map

Phase = Literal[
    "Pending", "Provisioning", "Adopting", "Bootstrapping", "Ready", "Failed", "Deleting"
]


class MachineCondition(Condition, frozen=True, kw_only=True):
    """One observed fact in Cluster API's shape: a false one says how bad that is."""

    severity: Annotated[
        Literal["", "Error", "Warning", "Info"],
        Meta(description="How bad a false status is; empty when the status is true."),
    ] = ""


class MacStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a Mac."""

    ready: Annotated[bool, Meta(description="Whether the machine can serve.")] = False
    phase: Annotated[Phase | None, Meta(description="Where in its life the machine is.")] = None
    step: Annotated[
        str, Meta(description="The step that is applied to the host now, such as agent (21/26).")
    ] = ""
    failure_reason: Annotated[
        str | None, Meta(description="One word for why the machine needs a person.")
    ] = None
    failure_message: Annotated[
        str | None, Meta(description="A sentence on why the machine needs a person.")
    ] = None
    conditions: Annotated[
        list[MachineCondition],
        Meta(description="Facts about the machine.", extra_json_schema=list_map("type")),
    ] = []
    host_config_hash: Annotated[
        str, Meta(description="The fingerprint of the configuration that the host last got.")
    ] = ""
    failed_host_config_hash: Annotated[
        str, Meta(description="The fingerprint that used up its attempts.")
    ] = ""
    tart_kubelet_binary_sha: Annotated[
        str, Meta(description="The SHA-256 of the agent on the host.")
    ] = field(name="tartKubeletBinarySHA", default="")
    tart_kubelet_update_attempts: Annotated[
        Count, Meta(description="Updates of the host that failed in a row.")
    ] = 0
    last_update_failure_time: Annotated[
        Time | None, Meta(description="When an update of the host last failed.")
    ] = None
    reboot_pending: Annotated[
        str, Meta(description="Why the host has to be rebooted once it runs no VM; empty if not.")
    ] = ""
    bootstrap_attempts: Annotated[
        Count, Meta(description="Bootstraps of this host that failed in a row.")
    ] = 0
    bootstrap_reboot_issued: Annotated[
        bool, Meta(description="Whether this host was already rebooted to help its bootstrap.")
    ] = False
    last_bootstrap_failure_time: Annotated[
        Time | None, Meta(description="When a bootstrap of this host last failed.")
    ] = None
    drain_start_time: Annotated[
        Time | None, Meta(description="Since when the Node is being drained.")
    ] = None
    observed_generation: Annotated[
        Int64, Meta(description="The generation of the spec that was last acted on.")
    ] = 0
