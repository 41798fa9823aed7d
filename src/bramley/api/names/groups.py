"""API groups of our kinds, namespaces, leases and roles."""

from __future__ import annotations

RUNNERS = "tuist.dev"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
VERSION = "v1alpha1"

# Categories, for `kubectl get`.
RUNNERS_CATEGORY = "tuist"
INFRASTRUCTURE_CATEGORY = "cluster-api"

# Namespaces.
RUNNERS_NAMESPACE = "tuist-runners"
OPERATOR_NAMESPACE = "default"
NODE_LEASE_NAMESPACE = "kube-node-lease"
EGRESS_NAMESPACE = "tailscale-operator"

# Leader election: an old and a new controller must not both lead, so the lease names stay.
RUNNERS_LEASE = "runners-controller.tuist.dev"
MACHINES_LEASE = "scaleway-applesilicon.infrastructure.cluster.x-k8s.io"
