"""Condition types, their severities and phases of our own kinds."""

from __future__ import annotations

# Of machines.
PROVISIONED = "Provisioned"
BOOTSTRAPPED = "Bootstrapped"
READY = "Ready"

# Of Cluster API's Cluster, set by us because the control plane is managed by others.
CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"

# Severities of Cluster API's conditions.
SEVERITY_ERROR = "Error"
SEVERITY_WARNING = "Warning"
SEVERITY_INFO = "Info"

# Phases of a machine, in the order of its life.
PHASE_PENDING = "Pending"
PHASE_PROVISIONING = "Provisioning"
PHASE_ADOPTING = "Adopting"
PHASE_BOOTSTRAPPING = "Bootstrapping"
PHASE_READY = "Ready"
PHASE_FAILED = "Failed"
PHASE_DELETING = "Deleting"
