"""The names of Cluster API's core objects, which its own controllers use as well."""

from __future__ import annotations

GROUP = "cluster.x-k8s.io"
VERSION = "v1beta1"

# The kind of a template is the kind of its clones with this suffix.
TEMPLATE_SUFFIX = "Template"

# Labels of MachineSets, Machines and their infrastructure objects, in addition to the name of the Cluster.
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
SET_NAME = "cluster.x-k8s.io/set-name"
TEMPLATE_HASH = "machine-template-hash"

# On Machines: a scale-down deletes these first; the Node of this one is not drained.
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"
EXCLUDE_NODE_DRAINING = "machine.cluster.x-k8s.io/exclude-node-draining"

# On infrastructure objects: the template they were cloned from.
CLONED_FROM_NAME = "cluster.x-k8s.io/cloned-from-name"
CLONED_FROM_GROUP_KIND = "cluster.x-k8s.io/cloned-from-groupkind"

# On Pods: the kubelet of their Node runs them from a file.
MIRROR_POD = "kubernetes.io/config.mirror"

CLUSTER_FINALIZER = "cluster.cluster.x-k8s.io"
MACHINE_FINALIZER = "machine.cluster.x-k8s.io"

# Condition types; `Ready` and `ControlPlaneInitialized` are in `conditions`.
INFRASTRUCTURE_READY = "InfrastructureReady"
BOOTSTRAP_READY = "BootstrapReady"
NODE_HEALTHY = "NodeHealthy"
DRAINING_SUCCEEDED = "DrainingSucceeded"
MACHINES_CREATED = "MachinesCreated"
AVAILABLE = "Available"

# Condition reasons.
WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
WAITING_FOR_DATA_SECRET = "WaitingForDataSecret"  # noqa: S105 - the name of a reason
WAITING_FOR_AVAILABLE_MACHINES = "WaitingForAvailableMachines"
TEMPLATE_CLONING_FAILED = "InfrastructureTemplateCloningFailed"
MACHINE_CREATION_FAILED = "MachineCreationFailed"
NODE_PROVISIONING = "NodeProvisioning"
NODE_NOT_FOUND = "NodeNotFound"
NODE_CONDITIONS_FAILED = "NodeConditionsFailed"
DRAINING = "Draining"
DELETING = "Deleting"
DELETED = "Deleted"

# The failure reason of a Machine whose infrastructure object was deleted.
INVALID_CONFIGURATION = "InvalidConfiguration"

# The recorder of events.
COMPONENT = "cluster-api"
