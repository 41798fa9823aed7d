"""Condition types of our own kinds; phases and severities are literal types of the kinds themselves."""

from __future__ import annotations

# Of machines.
PROVISIONED = "Provisioned"
BOOTSTRAPPED = "Bootstrapped"
NODE_READY = "NodeReady"
# A VM has booted on the host, or the runner of a builder is online.
PROVEN = "Proven"
# The host has the desired configuration.
UP_TO_DATE = "UpToDate"
READY = "Ready"

# Of Cluster API's Cluster, set by us because the control plane is managed elsewhere.
CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"

# Of RunnerPools.
AVAILABLE = "Available"
ROLLED_OUT = "RolledOut"
CAPACITY_SHORT = "CapacityShort"
STAGING_BLOCKED = "StagingBlocked"
PODS_FAILING = "PodsFailing"
LABEL_CONFLICT = "LabelConflict"
SUPPORTED = "Supported"
# The reason of RolledOut while a roll makes no progress; the word of Deployments for it.
PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"

# Of a Mac's Node, in addition to Ready.
DISK_PRESSURE = "DiskPressure"
SLOT_LEAKED = "SlotLeaked"
DHCP_PRESSURE = "DHCPPressure"
