"""Names inside runner Pods: containers, environment variables, and the names of Pods."""

from __future__ import annotations

CONTAINER = "runner"
POLLER_CONTAINER = "poller"
POD_INFIX = "-runner-"
KATA_RUNTIME_CLASS = "kata-qemu"

# Environment variables of the guest.
ENV_DISPATCH_URL = "TUIST_RUNNER_DISPATCH_URL"
ENV_POOL = "TUIST_RUNNER_POOL"
ENV_POD_NAME = "TUIST_RUNNER_POD_NAME"
ENV_POD_UID = "TUIST_RUNNER_POD_UID"
ENV_IDLE_TIMEOUT = "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS"
ENV_CLUSTER_DNS_IP = "TUIST_CLUSTER_DNS_IP"
ENV_CLUSTER_DOMAIN = "TUIST_CLUSTER_DOMAIN"
ENV_PRINT_LOG = "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT"

# The runs-on label of the sample pool.
SAMPLE_DISPATCH_LABEL = "tuist-macos"

# The default identity of the pool controller, the only one that dispatch trusts; the variables below override it.
CONTROLLER_NAMESPACE = "tuist"
CONTROLLER_SERVICE_ACCOUNT = "tuist-runners-controller"

# Environment variables of the controller.
ENV_NAMESPACE = "TUIST_RUNNERS_NAMESPACE"
ENV_CONTROLLER_NAMESPACE = "TUIST_RUNNERS_CONTROLLER_NAMESPACE"
ENV_CONTROLLER_SERVICE_ACCOUNT = "TUIST_RUNNERS_CONTROLLER_SA_NAME"


def pod_name(pool: str, suffix: str) -> str:
    """Return the name of a pool's Pod, and of its ServiceAccount; the suffix is eight hex digits."""
    return f"{pool}{POD_INFIX}{suffix}"
