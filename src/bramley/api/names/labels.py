"""Labels and taints on Nodes, Pods and our own objects."""

from __future__ import annotations

import hashlib
from functools import lru_cache

# The agent owns all labels with this prefix on its Node, and removes those that it no longer sets.
PREFIX = "tuist.dev/"
TRUE = "true"

# Nodes.
OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"
HOSTNAME = "kubernetes.io/hostname"
DARWIN = "darwin"
LINUX = "linux"
ARM64 = "arm64"
AMD64 = "amd64"
RUNTIME = "tuist.dev/runtime"
RUNTIME_TART = "tart"
FLEET = "tuist.dev/fleet"
GOLDEN_PREFIX = "tuist.dev/golden-"
CACHE_MASTER_PREFIX = "tuist.dev/cache-master-"
LINUX_POOL = "node.cluster.x-k8s.io/pool"

# Taints: macOS Nodes, and the Linux Nodes that are kept for runners.
MACOS_TAINT = "tuist.dev/macos"
MACOS_TAINT_VALUE = "true"
RUNNER_TIER_TAINT = "tuist.dev/runner-tier"
RUNNER_TIER_BARE_METAL = "bare-metal"
# Of a new Node, until a VM has booted on it.
UNPROVEN_TAINT = "tuist.dev/unproven"
NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

# Runner Pods. The owner is stamped when a job is claimed, the account when the claim is committed.
RUNNER = "tuist.dev/runner"
RUNNER_POOL = "tuist.dev/runner-pool"
RUNNER_POOL_OWNER = "tuist.dev/runner-pool-owner"
RUNNER_ACCOUNT = "tuist.dev/runner-account"
RUNNER_CACHE_UNTRUSTED = "tuist.dev/runner-cache-untrusted"
DRAIN_ELIGIBLE = "tuist.dev/drain-eligible"
OPERATOR_DRAIN = "tuist.dev/runner-operator-drain"

# Pods that prove a host by booting a VM.
SMOKE = "tuist.dev/smoke"

# RunnerPools, as the chart renders them.
MANAGED_BY = "tuist.dev/managed-by"
MANAGED_BY_HELM = "helm"
XCODE_VERSION = "tuist.dev/xcode-version"
XCODE_DEFAULT = "tuist.dev/xcode-default"
SHAPE = "tuist.dev/shape"
SHAPE_VCPUS = "tuist.dev/shape-vcpus"
SHAPE_MEMORY_GB = "tuist.dev/shape-memory-gb"
SHAPE_DEFAULT = "tuist.dev/shape-default"

# Cluster API: the contract version of the infrastructure kinds, and the labels of its objects.
CAPI_CONTRACT = "cluster.x-k8s.io/v1beta1"
CAPI_CLUSTER = "cluster.x-k8s.io/cluster-name"

# The Service through which a Mac is reached over the tailnet.
MAC_EGRESS = "tuist.dev/macmini-egress"
MAC_EGRESS_MACHINE = "tuist.dev/macmini-machine"

# On the Lease of a rented Mac, and on the Secret with the access to it: the uid of its machine.
MACHINE_UID = "tuist.dev/machine-uid"

# Kubernetes' recommended labels, and our values of them.
APP_NAME = "app.kubernetes.io/name"
APP_COMPONENT = "app.kubernetes.io/component"
APP_MANAGED_BY = "app.kubernetes.io/managed-by"
APP_NAME_RUNNER = "tuist-runner"
COMPONENT_RUNNER = "runner"
COMPONENT_AGENT = "tart-kubelet"
COMPONENT_EGRESS = "macmini-egress"
COMPONENT_HOST_LEASE = "host-lease"
MANAGED_BY_MACHINES = "capi-scaleway-applesilicon"


@lru_cache(maxsize=1024)
def golden_hash(image: str) -> str:
    """Return the 16 hex digits of an image reference in label and VM names."""
    return hashlib.sha256(image.encode()).hexdigest()[:16]


def golden(image: str) -> str:
    """Return the label of a Node that has a golden base of this image."""
    return f"{GOLDEN_PREFIX}{golden_hash(image)}"


def is_set_by_agent(key: str) -> bool:
    """Return whether the agent sets this label of its Node itself, so that it cannot be configured."""
    return key in (OS, ARCH, HOSTNAME, RUNTIME) or key.startswith(
        (GOLDEN_PREFIX, CACHE_MASTER_PREFIX)
    )


def cache_master(account: int) -> str:
    """Return the label of a Node that has this account's cache master."""
    return f"{CACHE_MASTER_PREFIX}{account}"
